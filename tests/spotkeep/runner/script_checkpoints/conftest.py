"""Checkpoints as real libraries write them, and what an interruption may leave of the newest."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spotkeep.runner.script_checkpoints.folder import read_folder
from spotkeep.runner.script_checkpoints.putting_aside import cut_off_in


class Checkpoints:
    """A folder of checkpoints of which each is a file or a folder.

    Attributes:
        path: The folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def put_aside(self) -> dict[str, str]:
        """Judge, and give what would be put aside: the first path of each, and its problem."""
        found = cut_off_in(read_folder(self.path), pytest.fail)
        return {str(each.paths[0].relative_to(self.path)): each.problem for each in found}

    def parts_of(self, name: str) -> list[Path]:
        return sorted(path for path in (self.path / name).rglob("*") if path.is_file())


@pytest.fixture
def copied(tmp_path: Path) -> Callable[[Path], Checkpoints]:
    """Copies a folder of checkpoints, so that a test may change it."""

    def copy(path: Path) -> Checkpoints:
        shutil.rmtree(tmp_path / "checkpoints", ignore_errors=True)
        return Checkpoints(shutil.copytree(path, tmp_path / "checkpoints", symlinks=True))

    return copy


@pytest.fixture
def unnoticed(copied: Callable[[Path], Checkpoints]) -> Callable[..., Iterator[str]]:
    """Takes each file of the newest checkpoint away, empties and halves it. Gives what was not put aside for it."""

    def losses(path: Path, newest: str) -> Iterator[str]:
        assert copied(path).put_aside() == {}, "each is whole"
        for part in copied(path).parts_of(newest):
            for loss in ("missing", "empty", "half"):
                checkpoints = copied(path)
                if loss == "missing":
                    part.unlink()
                else:
                    os.truncate(part, part.stat().st_size // 2 if loss == "half" else 0)
                name = part.relative_to(checkpoints.path / newest).as_posix()
                if list(checkpoints.put_aside()) != [newest]:
                    yield f"{name} {loss}"

    return losses


@pytest.fixture
def only_arrived(copied: Callable[[Path], Checkpoints]) -> Callable[..., Iterator[str]]:
    """Leaves one file of the newest checkpoint. Gives those with which it was not put aside."""

    def judge(path: Path, newest: str) -> Iterator[str]:
        for part in copied(path).parts_of(newest):
            checkpoints = copied(path)
            for other in checkpoints.parts_of(newest):
                if other != part:
                    other.unlink()
            if list(checkpoints.put_aside()) != [newest]:
                yield part.relative_to(checkpoints.path / newest).as_posix()

    return judge
