"""Puts checkpoints of the script's own that an interruption cut off aside, before the script starts.

A script that knows nothing of Spotkeep takes its newest checkpoint, and a cut-off one ends it at each attempt. So
cut-off ones leave the checkpoint directory, and the newest whole one is the newest of all. Nothing is deleted on this
machine, and files keep their names in a directory beside. SageMaker then removes the copy in S3, where the bucket keeps
its versions.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from spotkeep import events

from .cut_off import cut_off_in
from .distributed import name_latest
from .folder import Folder, place_of, read_folder, series_of
from .keras import take_second_backup
from .tensorflow import name_newest


def put_aside_cut_off(checkpoints: Path, aside: Path) -> None:
    """Put cut-off checkpoints aside, and report each by an event and a line of standard error.

    Unreadable or immovable ones are left to the script, and reported, too.

    Args:
        checkpoints: The directory that the platform keeps.
        aside: The directory for them, made with the first.
    """
    try:
        _put_aside(checkpoints, aside)
    except OSError as error:
        _leave(error)


def _leave(error: OSError) -> None:
    sys.stderr.write(f"spotkeep: checkpoints of the script's own are left as they are: {error}\n")


def _put_aside(checkpoints: Path, aside: Path) -> None:
    before = read_folder(checkpoints)
    if not before.complete:
        sys.stderr.write(
            f"spotkeep: in {checkpoints} are folders that cannot be read, or too many files: not all were checked\n"
        )
    for one in list(cut_off_in(before, _leave)):
        for path in one.paths:
            _move(path, aside / path.relative_to(checkpoints))
        what = str(one.paths[0].relative_to(checkpoints))
        events.emit("put-aside", what=what, problem=one.problem)
        sys.stderr.write(f"spotkeep: {what} is not whole and was put aside, to {aside}: {one.problem}\n")
    for folder in before.below():
        if folder.path.is_dir():
            take_second_backup(folder)
            name_newest(folder)
            name_latest(folder)
            _lead_links_to_newest(folder)


def _lead_links_to_newest(folder: Folder) -> None:
    """Point a link to a removed checkpoint to the newest of its series, or remove it.

    Lightning's `last.ckpt` is such a link (`save_last="link"`).
    """
    for name in folder.links:
        link = folder.path / name
        if link.exists() or not link.is_symlink():
            continue
        gone = Path(os.path.normpath(folder.path / link.readlink()))
        left = [path for path in gone.parent.iterdir() if series_of(path.name) == series_of(gone.name)]
        left = [path for path in left if place_of(path.name) < place_of(gone.name) and not path.is_symlink()]
        link.unlink()
        if left:
            newest = max(left, key=lambda path: place_of(path.name))
            link.symlink_to(os.path.relpath(newest, folder.path))


def _move(path: Path, target: Path) -> None:
    if not path.exists():
        return  # went with its folder
    if target.is_dir():
        shutil.rmtree(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(str(path), str(target))
