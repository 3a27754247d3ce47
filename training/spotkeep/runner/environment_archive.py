"""An installed environment in an archive: all but what belongs to the image's Python, which is made again around it."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Callable

_BUILT_ANEW = frozenset({"pyvenv.cfg", "lib64", "spotkeep-environment.json", "bin/python", "bin/python3"})
"""What belongs to the image's Python, and the mark that all is there."""


def pack(directory: Path, tar: tarfile.TarFile, *, go_on: Callable[[], None]) -> None:
    """Write an environment into an archive.

    Args:
        directory: The environment.
        tar: Open for writing.
        go_on: Called before each file; raises to leave.

    Raises:
        OSError: If the disk refuses.
    """
    for path in members(directory):
        go_on()
        tar.add(path, arcname=str(path.relative_to(directory)), recursive=False)


def members(directory: Path) -> Iterator[Path]:
    """Give what was installed; a directory before what is in it. Byte code is left out: it is made again."""
    for path in sorted(directory.rglob("*")):
        name = path.relative_to(directory).as_posix()
        if name in _BUILT_ANEW or name.startswith("bin/python3.") or "__pycache__" in path.parts:
            continue
        yield path
