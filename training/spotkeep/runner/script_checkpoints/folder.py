"""A folder of checkpoints as it lies on the disk, and the order of those that are numbered."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from spotkeep.disk.upload_markers import UPLOADED_SUFFIX, UPLOADING_SUFFIX
from spotkeep.disk.writers import parse_folder
from spotkeep.training_folder import BEST_MODELS, RECORD_OF_A_COPY

_MOST_FILES = 100_000
_DEEPEST = 40
_FILES_OF_THE_LIBRARYS = ("data-", "manifest.json")
_MARKERS = (UPLOADING_SUFFIX, UPLOADED_SUFFIX)
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True)
class Folder:
    """The content of a folder, without hidden folders, the library's own, and SageMaker's markers.

    Attributes:
        path: Its path.
        files: The names of its regular files.
        links: The names of its symbolic links to existing targets.
        folders: Its folders, by name.
        complete: Everything below it was read. There may be too much of it, and a folder may not be readable.
    """

    path: Path
    files: frozenset[str] = frozenset()
    links: frozenset[str] = frozenset()
    folders: Mapping[str, Folder] = field(default_factory=dict)
    complete: bool = True

    @property
    def names(self) -> frozenset[str]:
        """The names of everything in it."""
        return self.files | self.links | frozenset(self.folders)

    def below(self) -> Iterator[Folder]:
        """Give itself, and each folder below it."""
        yield self
        for name in sorted(self.folders):
            yield from self.folders[name].below()

    def name_of(self, path: Path) -> str:
        """Give the name of something below this folder, relative to it."""
        return path.relative_to(self.path).as_posix()


def read_folder(path: Path) -> Folder:
    """Read a folder and its folders, up to 100,000 files, and 40 folders deep.

    Raises:
        OSError: It cannot be read.
    """
    return _read(path, budget=[_MOST_FILES], depth=0)


def _read(path: Path, *, budget: list[int], depth: int) -> Folder:
    try:
        with os.scandir(path) as entries:
            listed = sorted((each for each in entries if not each.name.endswith(_MARKERS)), key=lambda each: each.name)
    except OSError:
        if not depth:
            raise
        return Folder(path, complete=False)
    budget[0] -= len(listed)
    if budget[0] < 0 or depth > _DEEPEST:
        return Folder(path, complete=False)
    links = {entry.name for entry in listed if entry.is_symlink() and os.path.exists(entry.path)}  # noqa: PTH110
    folders = {
        entry.name: _read(path / entry.name, budget=budget, depth=depth + 1)
        for entry in listed
        if entry.is_dir(follow_symlinks=False) and not entry.name.startswith(".")
    }
    folders = {name: inner for name, inner in folders.items() if not _is_the_librarys(inner)}
    return Folder(
        path=path,
        files=frozenset(entry.name for entry in listed if entry.is_file(follow_symlinks=False)),
        links=frozenset(links),
        folders=folders,
        complete=all(inner.complete for inner in folders.values()),
    )


def _is_the_librarys(folder: Folder) -> bool:
    """Say whether a folder is one of the library's own checkpoints, or its copy of a best model.

    A script may use the same names. The copy of a best model holds the files for a load, and none for a resume.
    """
    if RECORD_OF_A_COPY in folder.files and folder.path.parent.parent.name == BEST_MODELS:
        return True
    own = any(name.startswith(_FILES_OF_THE_LIBRARYS) for name in folder.files)
    return own and parse_folder(folder.path.name) is not None


def series_of(name: str) -> str:
    """Give the common form of one series of numbered names, such as `checkpoint-#` of `checkpoint-500`."""
    return _NUMBER.sub("#", name)


def place_of(name: str) -> tuple[float, ...]:
    """Give the place of a numbered name in its series."""
    return tuple(float(number) for number in _NUMBER.findall(name))


class Series(NamedTuple):
    """The nearest other checkpoints of a training, which writes the same files each time.

    Attributes:
        earlier: Whole ones of this kind with a smaller number, the largest last.
        before: Those with a smaller number, whole or not.
        after: Those with a larger number, whole or not.
    """

    earlier: Sequence[Folder] = ()
    before: Sequence[Folder] = ()
    after: Sequence[Folder] = ()


class Kind(NamedTuple):
    """A folder that is one checkpoint.

    Attributes:
        recognises: Gives True if a folder is of this kind, by its content.
        problem: The reason why it is not whole, or None.
    """

    recognises: Callable[[Folder], bool]
    problem: Callable[[Folder, Series], str | None]
