"""Gives a tree of files to the user that trains, and touches only what is not theirs yet."""

from __future__ import annotations

import os
from pathlib import Path


def give_tree(path: Path, *, uid: int, gid: int) -> None:
    """Change the owner of a directory and of all below it. Links are not followed."""
    if os.geteuid() != 0:
        return  # without root there is one user only
    for parent, folders, names in os.walk(path):
        for name in (".", *folders, *names):
            found = Path(parent, name)
            status = found.lstat()
            if (status.st_uid, status.st_gid) != (uid, gid):
                os.chown(found, uid, gid, follow_symlinks=False)
