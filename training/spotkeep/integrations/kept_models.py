"""A copy of the best model so far, beside the checkpoints.

A framework writes its best model to a path of the script and reads it again when the training ends. When AWS takes the
machine, that path is lost, and the training would end with another model. A copy beside the checkpoints survives, as
they do.

One copy is enough. A restored training writes every model again that was best only after its checkpoint.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spotkeep.training_folder import BEST_MODELS, RECORD_OF_A_COPY, kept_folder


@dataclass(frozen=True)
class _Copy:
    """A copy that is whole.

    Attributes:
        folder: Its folder.
        name: The last part of the path that was copied.
        step: The completed steps when it was made.
    """

    folder: Path
    name: str
    step: int


class KeptModel:
    """Keeps a copy of one file or folder, the newest.

    Args:
        directory: The directory of the checkpoints.
        name: The name of the copy, one for each callback.
    """

    def __init__(self, directory: Path, name: str) -> None:
        self._place = directory / BEST_MODELS / name

    def keep(self, path: Path, *, step: int, without: Sequence[str] = ()) -> None:
        """Copy a file or a folder, and remove older copies.

        Args:
            path: The file or folder that the framework wrote.
            step: Completed steps.
            without: Beginnings of file names in the folder that are not needed.

        Raises:
            OSError: The disk refuses. The older copy is unchanged.
        """
        files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
        wanted = [file for file in files if file == path or not file.name.startswith(tuple(without))]
        older = list(self._place.glob("*"))
        folder = self._place / str(1 + max((int(old.name) for old in older if old.name.isdigit()), default=0))
        sizes = {}
        for file in wanted:
            inside = file.relative_to(path.parent)
            target = folder / "files" / inside
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(file, target)
            sizes[inside.as_posix()] = target.stat().st_size
        record = {"name": path.name, "step": step, "sizes": sizes}
        # It comes last, and at once: a copy without it is not whole.
        unfinished = folder / f"{RECORD_OF_A_COPY}.unfinished"
        unfinished.write_text(json.dumps(record), encoding="utf-8")
        unfinished.replace(folder / RECORD_OF_A_COPY)
        for old in older:
            shutil.rmtree(old, ignore_errors=True)

    def put_back(self, path: Path) -> int | None:
        """Put the copy back to its original path, if nothing is there.

        Args:
            path: The path where the framework looks for it.

        Returns:
            The step of the copy under any name. None without a copy.
        """
        copies = [copy for copy in map(_read, self._place.glob("*")) if copy is not None]
        if not copies:
            return None
        newest = max(copies, key=lambda copy: int(copy.folder.name))
        if newest.name == path.name and not path.exists():
            source = newest.folder / "files" / newest.name
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_name(f"{path.name}.unfinished")
            if source.is_file():
                shutil.copy2(source, unfinished)
            else:
                shutil.rmtree(unfinished, ignore_errors=True)
                shutil.copytree(source, unfinished)
            unfinished.replace(path)
        return newest.step


def comes_back(path: Path, *, directory: Path) -> bool:
    """Say whether a path lies among the checkpoints, and so comes back with the run by itself.

    Args:
        path: Of a file or a folder.
        directory: That of the checkpoints. The platform's own counts too, whatever this one is.
    """
    places = [place for place in (directory, kept_folder()) if place is not None]
    return any(place.resolve() in [path.resolve(), *path.resolve().parents] for place in places)


def _read(folder: Path) -> _Copy | None:
    """Read the record of a copy.

    None when the copy is not whole, because AWS took the machine or a download was cut off.
    """
    try:
        record: Any = json.loads((folder / RECORD_OF_A_COPY).read_text(encoding="utf-8"))
        for inside, size in record["sizes"].items():
            if (folder / "files" / inside).stat().st_size != size:
                return None
        return _Copy(folder=folder, name=str(record["name"]), step=int(record["step"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
