"""What a crash may leave: exactly what was synced for sure, and anything of the rest."""

from __future__ import annotations

import base64
import random
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.torture.crash_disk import CrashDisk
from benchmarks.torture.trials import contents

Call = dict[str, Any]


def opened(fd: int, path: str, *, create: bool = True) -> Call:
    return {"call": "open", "path": path, "create": create, "truncate": False, "fd": fd}


def written(fd: int, raw: bytes, offset: int = 0) -> Call:
    return {"call": "pwrite", "fd": fd, "offset": offset, "data": base64.b64encode(raw).decode()}


def synced(fd: int) -> Call:
    return {"call": "fsync", "fd": fd}


def left(calls: list[Call], tmp_path: Path, *, survives: bool) -> dict[str, bytes]:
    disk = CrashDisk()
    disk.follow(calls)
    disk.leave(tmp_path / "left", survives=lambda: survives, chance=random.Random(0))  # noqa: S311
    return contents(tmp_path / "left")


ROOT = [opened(3, ".", create=False)]
FILE = [opened(4, "draft"), written(4, b"data")]
RENAME = [{"call": "replace", "path": "draft", "target": "whole"}]


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (FILE, {}),
        (FILE + [synced(4)], {}),
        (ROOT + FILE + [synced(3)], {"draft": b""}),
        (ROOT + FILE + [synced(4), synced(3)], {"draft": b"data"}),
        (ROOT + FILE + [synced(4), synced(3)] + RENAME, {"draft": b"data"}),
        (ROOT + FILE + [synced(4), synced(3)] + RENAME + [synced(3)], {"whole": b"data"}),
        (ROOT + FILE + [synced(4), synced(3), written(4, b"!", 2)], {"draft": b"data"}),
    ],
    ids=["nothing", "the file only", "the entry only", "both", "then renamed", "rename synced", "written over"],
)
def test_what_was_not_synced_may_be_gone(calls: list[Call], expected: dict[str, bytes], tmp_path: Path) -> None:
    assert left(calls, tmp_path, survives=False) == expected


def test_a_removal_that_was_not_synced_may_not_have_happened(tmp_path: Path) -> None:
    calls = ROOT + FILE + [synced(4), synced(3), {"call": "unlink", "path": "draft"}]
    assert left(calls, tmp_path, survives=False) == {"draft": b"data"}


def test_a_failed_call_makes_nothing_safe(tmp_path: Path) -> None:
    calls = ROOT + FILE + [synced(3), {"call": "failed", "name": "fsync"}]
    assert left(calls, tmp_path, survives=False) == {"draft": b""}


def test_without_a_crash_everything_is_there(tmp_path: Path) -> None:
    disk = CrashDisk()
    sub = [{"call": "mkdir", "path": "sub"}, opened(5, "sub/file"), written(5, b"x", 3)]
    disk.follow(FILE + RENAME + sub + [{"call": "ftruncate", "fd": 5, "length": 6}])
    disk.leave_everything(tmp_path / "left")
    assert contents(tmp_path / "left") == {"whole": b"data", "sub/file": b"\0\0\0x\0\0"}


@given(seed=st.integers(0, 2**32), size=st.integers(1, 5000))
def test_a_write_that_was_not_synced_is_there_in_whole_sectors(
    seed: int, size: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    disk = CrashDisk()
    disk.follow(ROOT + [opened(4, "file"), synced(3), written(4, b"x" * size)])
    target = tmp_path_factory.mktemp("left")
    disk.leave(target, survives=lambda: True, chance=random.Random(seed))  # noqa: S311
    found = (target / "file").read_bytes()
    assert len(found) == size
    assert set(found) <= {0, ord("x")}
    assert found.count(b"x"[0]) % 512 in (0, size % 512)


def test_the_newest_announced_step_is_known() -> None:
    disk = CrashDisk()
    disk.follow([{"call": "announce", "step": 4}, {"call": "announce", "step": 2}])
    assert disk.announced == 4
