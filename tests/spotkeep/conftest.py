"""What the library's tests share: job events as they were printed, a disk with faults, a script to interrupt."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from spotkeep import events
from spotkeep.checkpoint_directory import CheckpointDirectory
from spotkeep.storage import LocalStorage
from spotkeep.upload_markers import UploadWatch

Event = dict[str, Any]

# No test asserts timing, so none is timed by Hypothesis either.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


class Crash(BaseException):
    """The process dies here: nothing after it runs, no cleanup either."""


class FaultyStorage(LocalStorage):
    """A disk that can crash the process before any change, run full, or take bytes in small pieces."""

    def __init__(
        self, *, crash_before: int | None = None, free_bytes: int | None = None, piece_bytes: int | None = None
    ) -> None:
        self.log: list[str] = []
        self._crash_before = crash_before
        self._free_bytes = free_bytes
        self._piece_bytes = piece_bytes

    def make_directory(self, path: Path) -> None:
        self._change("make_directory", path)
        super().make_directory(path)

    def create(self, path: Path, *, direct: bool = False) -> Any:
        self._change("create", path)
        return super().create(path, direct=direct)

    def write_some(self, descriptor: int, raw: memoryview, offset: int) -> int:
        self._change("write_some", Path())
        if self._piece_bytes is not None:
            raw = raw[: self._piece_bytes]
        if self._free_bytes is not None:
            if self._free_bytes == 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            raw = raw[: self._free_bytes]
            self._free_bytes -= len(raw)
        return super().write_some(descriptor, raw, offset)

    def sync(self, descriptor: int) -> None:
        self._change("sync", Path())
        super().sync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        self._change("rename", target)
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self._change("sync_directory", path)
        super().sync_directory(path)

    def remove_file(self, path: Path) -> None:
        self._change("remove_file", path)
        super().remove_file(path)

    def remove_tree(self, path: Path) -> None:
        if path.is_dir():
            for child in sorted(path.iterdir()):
                self._change("remove_tree", child)
                child.unlink()
        self._change("remove_tree", path)
        super().remove_tree(path)

    def _change(self, operation: str, path: Path) -> None:
        if self._crash_before is not None and len(self.log) >= self._crash_before:
            raise Crash
        self.log.append(f"{operation} {path.name}".strip())


@pytest.fixture
def crash() -> type[BaseException]:
    return Crash


@pytest.fixture
def faulty_storage() -> type[FaultyStorage]:
    return FaultyStorage


@pytest.fixture
def checkpoints(tmp_path: Path) -> Callable[..., CheckpointDirectory]:
    def make(*, storage: LocalStorage | None = None, platform_copies: bool = False) -> CheckpointDirectory:
        return CheckpointDirectory(
            tmp_path / "checkpoints", storage=storage, uploads=UploadWatch(platform_copies=platform_copies)
        )

    return make


@pytest.fixture
def job_events(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[[], list[Event]]:
    """Switches job events on (each step's progress too) and gives those printed so far."""
    monkeypatch.setenv("SPOTKEEP_EVENTS", "stdout")
    monkeypatch.setenv("SPOTKEEP_PROGRESS_SECONDS", "0")
    printed: list[Event] = []

    def read() -> list[Event]:
        lines = capsys.readouterr().out.splitlines()
        printed.extend(
            json.loads(line[len(events.EVENT_PREFIX) :]) for line in lines if line.startswith(events.EVENT_PREFIX)
        )
        return printed

    return read


@pytest.fixture(autouse=True)
def _no_job_around_us(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRAINING_JOB_NAME", "SPOTKEEP_NOTICE_FILE", "SPOTKEEP_NOTICE_SECONDS", "SPOTKEEP_CHECKPOINT_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name in ("SPOTKEEP_EVENTS", "SAGEMAKER_BASE_DIR", "SM_USER_ARGS", "SM_MODEL_DIR"):
        monkeypatch.delenv(name, raising=False)
