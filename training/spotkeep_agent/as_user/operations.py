"""File operations below a folder with a possibly hostile owner. They follow no link and open regular files only.

Each walks from the folder to the parent by descriptors, so it also refuses a part that becomes a link meanwhile. They
run in the process that `process` starts, with the user's rights, or in this one with only one user.

Paths are relative to the folder, with slashes. The empty one is the folder itself. All raise OSError.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import os
import signal
import socket
import stat
import tarfile
import time
from collections.abc import Iterator, Sequence
from typing import Any, Callable, NamedTuple, Optional

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A pipe does not hold us up until it has been refused.
_FILE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MODE = 0o644
_PAUSE_SECONDS = 0.01

MOST_NAMES = 1_000_000
"""The most names in one answer. A folder with more is refused."""

FILE, FOLDER, OTHER = "file", "folder", "other"


class PathStatus(NamedTuple):
    """The status of a path itself, not of a link's target.

    Attributes:
        kind: FILE, FOLDER or OTHER, which is a link, a pipe, a device or a socket.
        inode: Its number.
        size: In bytes.
        modified_ns: The last write, nanoseconds since the epoch.
    """

    kind: str
    inode: int
    size: int
    modified_ns: int


def names(base: str, path: str) -> list[str]:
    """List a folder. A missing one is empty."""
    try:
        with _folder(base, path) as descriptor:
            found = os.listdir(descriptor)  # noqa: PTH208 - a descriptor
    except FileNotFoundError:
        return []
    _require_few(len(found), path)
    return sorted(found)


def find(base: str, paths: Sequence[str]) -> list[Optional[PathStatus]]:  # noqa: UP045 - evaluated, by Python 3.9 too
    """Return the status of each of these paths, with None for a missing one."""
    return [_find(base, path) for path in paths]


def scan(base: str, path: str) -> dict[str, tuple[int, int]]:
    """List the regular files below a folder by relative paths, with size and time of the last write.

    Links to files are listed as their targets, and links to folders are not followed.
    """
    found: dict[str, tuple[int, int]] = {}
    with _folder(base, path) as top:
        for folder, folders, files, descriptor in os.fwalk(".", dir_fd=top, onerror=_raise):
            folders.sort()
            for name in files:
                with contextlib.suppress(OSError):  # removed meanwhile, or a link to nothing
                    status = os.stat(name, dir_fd=descriptor)
                    if stat.S_ISREG(status.st_mode):
                        found[f"{folder}/{name}"[2:]] = (status.st_size, status.st_mtime_ns)
            _require_few(len(found), path)
    return found


def open_file(base: str, path: str) -> int:
    """Open a regular file for reading."""
    with _parent(base, path) as (parent, name):
        return _regular(os.open(name, os.O_RDONLY | _FILE_FLAGS, dir_fd=parent), path)


def open_within(base: str, folder: str, path: str) -> int:
    """Open a regular file of a folder for reading, through links as well, as long as they stay in the folder."""
    with _folder(base, folder) as top:
        inside = os.readlink(f"/proc/self/fd/{top}") + "/"  # noqa: PTH115 - as text
        _parts(path)
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=top)
        _regular(descriptor, path)
        if not os.readlink(f"/proc/self/fd/{descriptor}").startswith(inside):  # noqa: PTH115
            os.close(descriptor)
            raise OSError(errno.EXDEV, "it leads out of its folder", path)
        return descriptor


def create(base: str, path: str) -> int:
    """Make a new file and open it for writing. It replaces anything at its path but a folder."""
    with _parent(base, path) as (parent, name):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=parent)
        return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | _FILE_FLAGS, _MODE, dir_fd=parent)


def open_to_fill(base: str, path: str) -> int:
    """Open a regular file for reading and writing, and make a missing one. Its content stays."""
    with _parent(base, path) as (parent, name):
        return _regular(os.open(name, os.O_RDWR | os.O_CREAT | _FILE_FLAGS, _MODE, dir_fd=parent), path)


def make_folder(base: str, path: str) -> None:
    """Make a folder and its parents. Afterwards the new names are on the disk."""
    made = ""
    for part in _parts(path):
        with _folder(base, made) as parent, contextlib.suppress(FileExistsError):
            os.mkdir(part, 0o755, dir_fd=parent)
            try:
                os.fsync(parent)
            except OSError:
                # Found there the next time, it would never be synced.
                os.rmdir(part, dir_fd=parent)
                raise
        made = f"{made}/{part}" if made else part
    with _folder(base, made):
        return


def rename(base: str, source: str, target: str) -> None:
    """Give a file its final name, at once and whole."""
    with _parent(base, source) as (old, old_name), _parent(base, target) as (new, new_name):
        os.replace(old_name, new_name, src_dir_fd=old, dst_dir_fd=new)


def remove(base: str, path: str) -> None:
    """Remove a file, or a folder with its content. A missing one is no error."""
    try:
        with _parent(base, path) as (parent, name):
            if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
                os.unlink(name, dir_fd=parent)
                return
            for _, folders, files, descriptor in os.fwalk(name, topdown=False, dir_fd=parent, onerror=_raise):
                for file in files:
                    os.unlink(file, dir_fd=descriptor)
                for folder in folders:
                    _remove_folder(folder, descriptor)
            os.rmdir(name, dir_fd=parent)
    except FileNotFoundError:
        return


def link(base: str, path: str, target: str) -> None:
    """Make a link, which nothing here follows. Nothing may be at its path."""
    with _parent(base, path) as (parent, name):
        os.symlink(target, name, dir_fd=parent)


def link_target(base: str, path: str) -> Optional[str]:  # noqa: UP045 - evaluated, by Python 3.9 too
    """Return the path that a link leads to. None for anything else."""
    try:
        with _parent(base, path) as (parent, name):
            return os.readlink(name, dir_fd=parent)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def sync_folder(base: str, path: str) -> None:
    """Wait until the disk has a folder's entries."""
    with _folder(base, path) as descriptor:
        os.fsync(descriptor)


def pack(base: str, path: str, descriptor: int) -> bool:
    """Pack a folder into a compressed archive, with the names that SageMaker gives. Return True when it holds anything.

    Args:
        base: The user's folder.
        path: The folder to pack.
        descriptor: The file descriptor of the archive, open for writing.
    """
    packed_names = sorted(names(base, path))
    if not packed_names:
        return False
    with _folder(base, path) as folder, _folder(".", "") as before, os.fdopen(descriptor, "wb", closefd=False) as file:
        os.fchdir(folder)
        try:
            with gzip.open(file, "wb") as packed, tarfile.open(fileobj=packed, mode="w") as archive:
                for name in packed_names:
                    archive.add(name)
        except tarfile.TarError as error:
            raise OSError(errno.EIO, str(error), path) from error
        finally:
            os.fchdir(before)
    return True


def end_processes(seconds: float) -> None:
    """Kill all processes of this user but this one, whatever session they have fled to."""
    if os.geteuid() == 0:
        raise PermissionError(errno.EPERM, "all processes of root are not to be ended")
    ends = time.monotonic() + seconds
    while True:
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        if not _others_of_this_user() or time.monotonic() >= ends:
            return
        time.sleep(_PAUSE_SECONDS)


def try_to_connect(address: str, port: int, seconds: float) -> int:
    """Try to reach an address by TCP. Return 0 on success, else the number of the error."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.settimeout(seconds)
            tried.connect((address, port))
    except OSError as error:
        return error.errno or errno.ETIMEDOUT
    return 0


OPERATIONS: dict[str, Callable[..., Any]] = {
    operation.__name__: operation
    for operation in (
        names,
        find,
        scan,
        open_file,
        open_within,
        create,
        open_to_fill,
        make_folder,
        rename,
        remove,
        link,
        link_target,
        sync_folder,
        pack,
        try_to_connect,
    )
}
GIVE_DESCRIPTORS = frozenset({"open_file", "open_within", "create", "open_to_fill"})
"""The operations that give an open file."""


def _find(base: str, path: str) -> Optional[PathStatus]:  # noqa: UP045
    try:
        if not _parts(path):
            status = os.stat(base)  # noqa: PTH116 - as text
        else:
            with _parent(base, path) as (parent, name):
                status = os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return None
    kind = FILE if stat.S_ISREG(status.st_mode) else FOLDER if stat.S_ISDIR(status.st_mode) else OTHER
    return PathStatus(kind, status.st_ino, status.st_size, status.st_mtime_ns)


def _parts(path: str) -> list[str]:
    parts = path.split("/") if path else []
    if any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise OSError(errno.EINVAL, "no path below a folder", path)
    return parts


@contextlib.contextmanager
def _folder(base: str, path: str) -> Iterator[int]:
    """Open a folder by walking to it. No link on the way is followed."""
    descriptor = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in _parts(path):
            try:
                inner = os.open(part, _FOLDER_FLAGS, dir_fd=descriptor)
            except NotADirectoryError as error:
                raise OSError(errno.ELOOP, f"{part} is a link, or no folder", f"{base}/{path}") from error
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _parent(base: str, path: str) -> Iterator[tuple[int, str]]:
    above, _, name = path.rpartition("/")
    if not _parts(path):
        raise OSError(errno.EINVAL, "the folder itself", base)
    with _folder(base, above) as descriptor:
        yield descriptor, name


def _regular(descriptor: int, path: str) -> int:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.ELOOP, "not a regular file", path)
    return descriptor


def _remove_folder(name: str, parent: int) -> None:
    try:
        os.rmdir(name, dir_fd=parent)
    except NotADirectoryError:  # a link to one
        os.unlink(name, dir_fd=parent)


def _others_of_this_user() -> bool:
    """Return True when another process of this user runs. An ended process not yet waited for does not count."""
    us, mine = os.getpid(), str(os.getuid()).encode()
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are all that is needed
        if name.isdigit() and int(name) != us:
            with contextlib.suppress(OSError), open(f"/proc/{name}/status", "rb") as file:  # noqa: PTH123
                facts = dict(line.split(b":", 1) for line in file if line.startswith((b"State", b"Uid")))
                if mine in facts[b"Uid"].split() and facts[b"State"].split()[0] not in b"ZX":
                    return True
    return False


def _require_few(count: int, path: str) -> None:
    if count > MOST_NAMES:
        raise OSError(errno.EOVERFLOW, f"more than {MOST_NAMES:,} names", path)


def _raise(error: OSError) -> None:
    raise error
