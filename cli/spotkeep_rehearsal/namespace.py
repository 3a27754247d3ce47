"""Runs a command in mounts of its own, on Linux. A program of its own, `namespace.py SPECIFICATION -- command`.

The command sees its copy of the folder at the folder's own path, and directories of its own at `/opt/ml`. No other
process sees them. Root needs no user namespace. Others get one in which their id stays what it is, where the machine
allows that.

Sources:
    unshare(2), mount(2), user_namespaces(7)
    https://docs.kernel.org/filesystems/overlayfs.html
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

_NEW_MOUNTS, _NEW_USER = 0x00020000, 0x10000000
_BIND, _RECURSIVE, _PRIVATE = 0x1000, 0x4000, 0x40000
_PARENT_DEATH_SIGNAL = 1
_MOST_SIBLINGS = 200
FAILED = 120
"""The exit code where the mounts are not possible."""


def main() -> None:
    """Read the specification, mount, and become the command."""
    specification = json.loads(sys.argv[1])
    try:
        enter(specification)
    except OSError as error:
        sys.stderr.write(f"spotkeep: no mounts of its own: {error}\n")
        sys.exit(FAILED)
    words = sys.argv[3:]
    try:
        os.execvp(words[0], words)  # noqa: S606 - the words are the user's
    except OSError as error:
        sys.stderr.write(f"spotkeep: {words[0]!r} cannot be started: {error.strerror}\n")
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


def enter(specification: dict[str, Any]) -> None:
    """Make the mounts.

    Args:
        specification: `overlay` has `lower`, `upper` and `work`. `binds` are pairs of a directory and its path for the
            command. `emptied` are paths in the overlay that are to be empty.

    Raises:
        OSError: The machine does not allow it.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PARENT_DEATH_SIGNAL, signal.SIGKILL, 0, 0, 0)
    user, group = os.geteuid(), os.getegid()
    if libc.unshare(_NEW_MOUNTS | (_NEW_USER if user else 0)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    if user:
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
            Path("/proc/self", name).write_text(text, encoding="ascii")
    _mount(libc, None, "/", None, _RECURSIVE | _PRIVATE, None)
    for source, target in specification["binds"]:
        _make_mount_point(libc, Path(target))
        _mount(libc, source, target, None, _BIND | _RECURSIVE, None)
    overlay = specification["overlay"]
    options = f"lowerdir={overlay['lower']},upperdir={overlay['upper']},workdir={overlay['work']}"
    _mount(libc, "overlay", overlay["lower"], "overlay", 0, options + (",userxattr" if user else ""))
    for name in specification["emptied"]:
        path = Path(overlay["lower"], name)
        was_folder = path.is_dir()
        if was_folder and not path.is_symlink():
            shutil.rmtree(path)
        elif path.is_symlink() or path.exists():
            path.unlink()
        if was_folder:
            path.mkdir()
    os.chdir(specification["directory"])


def _mount(libc: Any, source: str | None, target: str, kind: str | None, flags: int, options: str | None) -> None:
    source_bytes, kind_bytes, options_bytes = (
        None if text is None else os.fsencode(text) for text in (source, kind, options)
    )
    if libc.mount(source_bytes, os.fsencode(target), kind_bytes, ctypes.c_ulong(flags), options_bytes):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), target)


def _make_mount_point(libc: Any, target: Path) -> None:
    """Make a directory that only this namespace sees."""
    if target.is_dir():
        return
    parent = next(path for path in target.parents if path.is_dir())
    if parent == Path("/"):
        raise OSError(f"{target.parts[1]} cannot be made in /")
    entries = list(os.scandir(parent))
    if len(entries) > _MOST_SIBLINGS:
        raise OSError(f"{parent} has more than {_MOST_SIBLINGS} entries")
    # The entries stay reachable by the open directory when a new file system covers it.
    descriptor = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    _mount(libc, "tmpfs", str(parent), "tmpfs", 0, "mode=755")
    for entry in entries:
        path = parent / entry.name
        behind = f"/proc/self/fd/{descriptor}/{entry.name}"
        if entry.is_symlink():
            path.symlink_to(Path(behind).readlink())
            continue
        if entry.is_dir():
            path.mkdir()
        else:
            path.touch()
        _mount(libc, behind, str(path), None, _BIND | _RECURSIVE, None)
    os.close(descriptor)
    target.mkdir(parents=True)


if __name__ == "__main__":
    main()
