"""The zipapp as a job gets it, run by real processes in a base directory of their own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import textwrap
import zipapp
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from spotkeep.events import EVENT_PREFIX
from spotkeep_fleet.training_spec import SPEC_CHANNEL, SPEC_VARIABLE, TrainingSpec, encode_spec, spec_file_name

SOURCES = Path(__file__).parents[3] / "training"


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("bundle") / "spotkeep.pyz"
    zipapp.create_archive(
        SOURCES, target, main="spotkeep.__main__:main", filter=lambda path: "__pycache__" not in path.parts
    )
    return target


@pytest.fixture
def make_tar(tmp_path: Path) -> Callable[..., Path]:
    """Makes an archive of these members."""

    def make(*members: dict[str, Any], name: str = "source.tar.gz", kind: int = tarfile.PAX_FORMAT) -> Path:
        path = tmp_path / name
        with tarfile.open(path, "w:gz" if name.endswith("gz") else "w", format=kind) as archive:
            for member in members:
                info = tarfile.TarInfo(member["name"])
                content = member.get("content", b"")
                info.size = len(content)
                info.type = member.get("type", tarfile.REGTYPE)
                info.linkname = member.get("linkname", "")
                info.mode = member.get("mode", 0o644)
                info.uid = 12345
                archive.addfile(info, io.BytesIO(content))
        return path

    return make


def put_spec(base: Path, spec: TrainingSpec) -> str:
    """Put a spec where its channel brings it; return its place as the environment names it."""
    content = encode_spec(spec)
    name = f"input/data/{SPEC_CHANNEL}/{spec_file_name(content)}"
    (base / name).parent.mkdir(parents=True, exist_ok=True)
    (base / name).write_bytes(content)
    return f"/opt/ml/{name}"


class Job:
    """A running job: what it says, line by line, and how it ends."""

    def __init__(self, process: subprocess.Popen[str], base: Path) -> None:
        self.process = process
        self.base = base
        self.lines: list[str] = []
        self.stderr = ""

    def wait_for(self, event: str, **fields: Any) -> dict[str, Any]:
        """Read until this event is printed."""
        for line in self._read():
            printed = self._event(line)
            if (
                printed
                and printed["event"] == event
                and all(printed.get(name) == value for name, value in fields.items())
            ):
                return printed
        raise AssertionError(f"the job ended without the event {event} {fields}; it said {self.lines}")

    def wait_for_line(self, text: str) -> None:
        """Read until this line is printed."""
        if not any(line == text for line in self._read()):
            raise AssertionError(f"the job ended without saying {text!r}; it said {self.lines}")

    def next_line(self) -> str:
        """Read one more line."""
        return next(self._read())

    def finish(self) -> int:
        """Read the rest and give the exit code."""
        for _ in self._read():
            pass
        self.stderr = self.process.stderr.read() if self.process.stderr else ""
        return self.process.wait()

    @property
    def events(self) -> list[dict[str, Any]]:
        return [event for event in map(self._event, self.lines) if event]

    @property
    def failure(self) -> str | None:
        path = self.base / "output" / "failure"
        return path.read_text() if path.exists() else None

    def _read(self) -> Iterator[str]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip("\n"))
            yield self.lines[-1]

    @staticmethod
    def _event(line: str) -> dict[str, Any] | None:
        event: dict[str, Any] | None = json.loads(line[len(EVENT_PREFIX) :]) if line.startswith(EVENT_PREFIX) else None
        return event


@pytest.fixture
def start(pyz: Path, tmp_path: Path) -> Iterator[Callable[..., Job]]:
    """Starts `spotkeep.pyz run` in a session of its own, in a base directory that is empty at first.

    A command of words alone is given by hand, after `--`. A block, and a command with other fields, is in a spec.
    """
    jobs: list[Job] = []

    def start(
        command: Sequence[str] | str,
        *,
        script: str | None = None,
        interpreter: str = sys.executable,
        spec: Mapping[str, Any] | None = None,
        preexec: Callable[[], None] | None = None,
        **environment: str,
    ) -> Job:
        base = tmp_path / "ml"
        temporary = tmp_path / "tmp"
        for directory in (base, temporary):
            directory.mkdir(exist_ok=True)
        if script is not None:
            (tmp_path / "train.py").write_text(textwrap.dedent(script))
        words = ["--", *command]
        if spec is not None or isinstance(command, str):
            whole = TrainingSpec(command if isinstance(command, str) else tuple(command), **(spec or {}))
            words, environment = [], {SPEC_VARIABLE: put_spec(base, whole), **environment}
        process = subprocess.Popen(
            [interpreter, str(pyz), "run", *words],
            cwd=tmp_path,
            env={
                "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}",
                "SAGEMAKER_BASE_DIR": str(base),
                "SPOTKEEP_PROGRESS_SECONDS": "0",
                # What a killed job leaves behind goes with its container; here, with the test.
                "TMPDIR": str(temporary),
                **environment,
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=preexec,
        )
        jobs.append(Job(process, base))
        return jobs[-1]

    yield start
    for job in jobs:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.process.pid, signal.SIGKILL)
        job.process.wait()
        for stream in (job.process.stdout, job.process.stderr):
            if stream is not None:
                stream.close()
