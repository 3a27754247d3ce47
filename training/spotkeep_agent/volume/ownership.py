"""Divides a mounted volume between the user that trains and the agent.

All of it is the user's, but one folder, which is root's. The volume's own directory is root's, too, and sticky. The
user makes and removes files there, and cannot remove or replace the agent's folder.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

from spotkeep_agent.errors import VolumeError

KEPT_NAME = ".spotkeep"
"""The agent's folder on a volume."""
_OWNER_NAME = "owner"
_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_STAMP_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_SHARED_MODE = 0o1775


def divide_volume(base: Path, *, uid: int, gid: int) -> None:
    """Give a volume to the user that trains, and keep a folder of it. Run as root.

    Without root, there is one user only.

    Files of the user already are passed over. No link is followed, not even one that takes the place of a file
    meanwhile.

    Args:
        base: The mount point of the volume.
        uid: The user's.
        gid: The user's.

    Raises:
        VolumeError: The agent's folder is not root's alone.
        OSError: The volume cannot be read or written.
    """
    kept = base / KEPT_NAME
    if os.geteuid() != 0 or uid == 0:
        kept.mkdir(mode=0o700, exist_ok=True)
        return
    top = os.open(base, _FOLDER_FLAGS)
    try:
        os.fchown(top, 0, gid)
        os.fchmod(top, _SHARED_MODE)
        with contextlib.suppress(FileExistsError):
            os.mkdir(KEPT_NAME, 0o700, dir_fd=top)
        _require_roots(top, kept)
        owner = f"{uid}:{gid}\n".encode()
        stamp = os.open(kept / _OWNER_NAME, _STAMP_FLAGS, 0o600)
        try:
            if os.pread(stamp, len(owner) + 1, 0) != owner:
                _give(top, uid=uid, gid=gid)
                os.ftruncate(stamp, 0)
                os.pwrite(stamp, owner, 0)
                os.fsync(stamp)
        finally:
            os.close(stamp)
    finally:
        os.close(top)


def _require_roots(top: int, kept: Path) -> None:
    found = os.stat(KEPT_NAME, dir_fd=top, follow_symlinks=False)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != 0 or found.st_mode & 0o077:
        raise VolumeError(
            f"{kept} is not the agent's own folder: attach the volume to an instance of yours and rename what is there"
        )


def _give(top: int, *, uid: int, gid: int) -> None:
    for folder, folders, names, descriptor in os.fwalk(".", dir_fd=top, onerror=_raise):
        if folder == ".":
            folders.remove(KEPT_NAME)
        for name in (*folders, *names):
            with contextlib.suppress(FileNotFoundError):
                found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if (found.st_uid, found.st_gid) != (uid, gid):
                    os.chown(name, uid, gid, dir_fd=descriptor, follow_symlinks=False)


def _raise(error: OSError) -> None:
    raise error
