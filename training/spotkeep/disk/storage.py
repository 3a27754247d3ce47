"""The few file operations of a checkpoint, as the one seam between the format and a disk.

Reading trusts nothing. No link is followed, only regular files are opened, and a size is known before a byte is read.

Large files go past the page cache (O_DIRECT) where the file system has that. The bytes of a checkpoint are read once,
if ever, and would push out the training's data. Blocks are not allocated beforehand, because on ext4 that gains
nothing.

A file is written once, into an inode of its own. Writing over an old file would be faster. But `cp`, an upload or a
backup that has it open would get the bytes of two checkpoints.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from spotkeep.state.arrays import Buffer

ALIGNMENT_BYTES = 4096
"""The alignment that direct I/O needs for a place in a file, a place in memory, and a length."""

WRITE_BYTES = 16 * 2**20
"""The bytes of one write of a large file. More gains nothing on the disks tried, and less leaves them waiting."""

_CACHE_PLACES = 16
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_DIRECT = getattr(os, "O_DIRECT", 0)
# A link is not followed, and a pipe does not hold us up until `_regular` has refused it.
_READ_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | _CLOEXEC
_WRITE_FLAGS = os.O_WRONLY | _CLOEXEC
_FILL_FLAGS = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | _CLOEXEC


_LARGER_VOLUME = (
    "give the job a larger volume (volume_size_gb, on EC2 volume: {size_gb: ...}), or keep fewer checkpoints"
)
_MAY_NOT = "this user may not write there: give it the right to, or name a folder where it has that"
_IN_THE_WAY = "a file is where a folder has to be: move it away, or name another folder"
_ADVICE = {
    errno.EDQUOT: "the quota is used up: ask for a larger one, keep fewer checkpoints, or name a folder elsewhere",
    errno.EROFS: "the file system is read-only, because it is mounted so or its device has failed (dmesg names that): "
    "name a folder on another one",
    errno.EACCES: _MAY_NOT,
    errno.EPERM: _MAY_NOT,
    errno.EIO: "the device has failed, and dmesg names the fault: name a folder on another one",
    errno.ESTALE: "the server of this file system does not know it any more: mount it again",
    errno.EEXIST: _IN_THE_WAY,
    errno.ENOTDIR: _IN_THE_WAY,
    errno.EFBIG: "a file of this size is not allowed: raise the limit (ulimit -f), or name a folder elsewhere",
    errno.EMFILE: "this process has too many files open: raise the limit (ulimit -n)",
}


def disk_advice(error: OSError, *, when_full: str = _LARGER_VOLUME) -> str:
    """Say what a user can do about a disk that refuses.

    Args:
        error: The refusal.
        when_full: The way out of a full disk.
    """
    if error.errno == errno.ENOSPC:
        return f"the disk is full: {when_full}"
    return _ADVICE.get(error.errno or 0, "start again, or name a folder on another disk")


class NotARegularFileError(OSError):
    """A link, a directory, a device or a pipe stands where a plain file is expected."""


class ReadableFile:
    """A regular file that is open for reading, any part of it, from any thread.

    Args:
        path: The path of the file.
        descriptor: The file's descriptor where it is open already. Closed with this, and read through the page cache.

    Attributes:
        size: Its length in bytes when it was opened.
    """

    def __init__(self, path: Path, *, descriptor: int | None = None) -> None:
        self._descriptor = os.open(path, _READ_FLAGS) if descriptor is None else descriptor
        self._direct = -1
        try:
            found = _regular(path, os.fstat(self._descriptor))
            self.size = found.st_size
            if _DIRECT and descriptor is None and self.size >= ALIGNMENT_BYTES:
                # A file system without direct I/O refuses; then the page cache is the way.
                with contextlib.suppress(OSError):
                    self._direct = os.open(path, _READ_FLAGS | _DIRECT)
                    if not os.path.samestat(os.fstat(self._direct), found):
                        self._close_direct()
        except BaseException:
            self.close()
            raise

    def is_cached(self) -> bool:
        """Say whether the page cache seems to have this file, or is the only way to read it."""
        return self._direct < 0 or cached_share(self._descriptor, self.size) == 1

    def read_into(self, target: memoryview, offset: int, *, cached: bool = True) -> int:
        """Fill `target` with the bytes from `offset` on. Gives how many there were. Fewer only at the end of the file.

        Args:
            target: The memory to fill.
            offset: Offset of the bytes in the file.
            cached: Read through the page cache. Otherwise past it, as far as `target` and `offset` are aligned.
        """
        filled = 0
        while filled < len(target):
            got = self._read_some(target[filled:], offset + filled, cached=cached)
            if not got:
                break
            filled += got
        return filled

    def close(self) -> None:
        """Close it."""
        self._close_direct()
        os.close(self._descriptor)

    def _read_some(self, target: memoryview, offset: int, *, cached: bool) -> int:
        if not cached and self._direct >= 0 and not (offset | len(target)) % ALIGNMENT_BYTES:
            try:
                return os.preadv(self._direct, [target], offset)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
        return os.preadv(self._descriptor, [target], offset)

    def _close_direct(self) -> None:
        if self._direct >= 0:
            os.close(self._direct)
            self._direct = -1


class LocalStorage:
    """Files on a local disk. Every method raises OSError when the disk refuses."""

    def make_directory(self, path: Path) -> None:
        """Make a directory and its parents. An existing one is no error. Afterwards the new names are on the disk."""
        if path.is_dir() or path == path.parent:
            return
        self.make_directory(path.parent)
        path.mkdir(exist_ok=True)
        try:
            self.sync_directory(path.parent)
        except OSError:
            # Found there the next time, it would never be synced.
            with contextlib.suppress(OSError):
                path.rmdir()
            raise

    def names(self, path: Path) -> list[str]:
        """List a directory. A missing one is empty."""
        try:
            return sorted(entry.name for entry in path.iterdir())
        except FileNotFoundError:
            return []

    def is_directory(self, path: Path) -> bool:
        """Say whether this is a directory itself, not a link to one."""
        return path.is_dir() and not path.is_symlink()

    @contextlib.contextmanager
    def create(self, path: Path, *, direct: bool = False) -> Iterator[int]:
        """Make a new file and give its descriptor. It is closed, not synced, at the end of the block.

        Args:
            path: The path of the file. Nothing may be there.
            direct: Go past the page cache if the file system can. Then every write is aligned, in memory too.
        """
        flags = _WRITE_FLAGS | os.O_CREAT | os.O_EXCL
        descriptor = -1
        if direct and _DIRECT:
            try:
                descriptor = os.open(path, flags | _DIRECT, 0o644)
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                # Some file systems make the file before they refuse.
                self.remove_file(path)
        if descriptor < 0:
            descriptor = os.open(path, flags, 0o644)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def open_to_fill(self, path: Path) -> int:
        """Open a regular file for reading and writing, made if it is missing, without following a link to it."""
        if path.is_symlink() or (path.exists() and not path.is_file()):
            self.remove_tree(path)
        return os.open(path, _FILL_FLAGS | os.O_CREAT, 0o644)

    def write(self, path: Path, raw: Buffer) -> int:
        """Write a new file and wait until the disk has it. Gives its size in bytes."""
        with self.create(path) as descriptor:
            self.write_at(descriptor, memoryview(raw), 0)
            self.sync(descriptor)
        return len(raw)

    def write_at(self, descriptor: int, raw: memoryview, offset: int) -> None:
        """Write all of these bytes to a place in a file."""
        while len(raw):
            written = self.write_some(descriptor, raw, offset)
            raw, offset = raw[written:], offset + written
            if len(raw) and written % ALIGNMENT_BYTES:
                # The rest is not aligned any more.
                _leave_direct_mode(descriptor)

    def write_some(self, descriptor: int, raw: memoryview, offset: int) -> int:
        """Write as many of these bytes as the system takes at once. Gives how many."""
        try:
            return os.pwrite(descriptor, raw, offset)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
        # Not aligned as direct I/O wants it. Another thread may have found that out for this file already.
        _leave_direct_mode(descriptor)
        return os.pwrite(descriptor, raw, offset)

    def sync(self, descriptor: int) -> None:
        """Wait until the written bytes are on the disk."""
        os.fsync(descriptor)

    def rename(self, source: Path, target: Path) -> None:
        """Give a file its final name, at once and whole."""
        source.replace(target)

    def sync_directory(self, path: Path) -> None:
        """Wait until the disk has a directory's entries."""
        descriptor = os.open(path, os.O_RDONLY)
        try:
            self.sync(descriptor)
        finally:
            os.close(descriptor)

    def fingerprint(self, path: Path) -> tuple[int, int, int] | None:
        """Give numbers that change when a file is replaced or written to, or None when there is no such file.

        They are its inode, its size, and the time of the last write in nanoseconds.
        """
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return None
        return found.st_ino, found.st_size, found.st_mtime_ns

    def open(self, path: Path) -> ReadableFile:
        """Open a regular file for reading.

        Raises:
            NotARegularFileError: If it is anything else.
        """
        return ReadableFile(path)

    def read(self, path: Path, *, max_bytes: int) -> bytearray:
        """Read a whole regular file.

        Raises:
            NotARegularFileError: If it is anything else.
            ValueError: If it is larger than `max_bytes`.
        """
        with contextlib.closing(self.open(path)) as file:
            if file.size > max_bytes:
                raise ValueError(f"{file.size:,} bytes, more than the {max_bytes:,} expected")
            raw = bytearray(file.size)
            filled = file.read_into(memoryview(raw), 0)
            return raw if filled == file.size else raw[:filled]

    def remove_file(self, path: Path) -> None:
        """Remove a file. A missing one is no error."""
        path.unlink(missing_ok=True)

    def remove_tree(self, path: Path) -> None:
        """Remove whatever this is, without following links."""
        if path.is_symlink() or path.is_file():
            path.unlink(missing_ok=True)
        elif path.exists():
            shutil.rmtree(path)


def _regular(path: Path, found: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(found.st_mode):
        raise NotARegularFileError(f"{path.name} is not a regular file")
    return found


def _leave_direct_mode(descriptor: int) -> None:
    """Write through the page cache from now on."""
    import fcntl

    fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) & ~_DIRECT)


def cached_share(descriptor: int, size: int, *, places: int = _CACHE_PLACES) -> float:
    """Estimate the part of a file in the page cache, from a few places all over it. Nothing of the file is read.

    A read that shall not wait (RWF_NOWAIT) would answer too. But Linux begins to read the missing pages then, and the
    next question finds them. `mincore` only asks. Linux answers for files of the caller and for files that it may write
    to, and calls others cached.

    Args:
        descriptor: The file, open for reading.
        size: Its length in bytes.
        places: Number of pages to ask about.

    Returns:
        From 0 to 1. 0 where the system does not tell.
    """
    found = 0
    with contextlib.suppress(OSError, ValueError, AttributeError):
        mincore = ctypes.CDLL(None, use_errno=True).mincore
        mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)
        for number in range(places):
            offset = size * number // places
            found += _is_cached(mincore, descriptor, offset - offset % mmap.ALLOCATIONGRANULARITY)
    return found / places


def _is_cached(mincore: Any, descriptor: int, offset: int) -> bool:
    answer = ctypes.create_string_buffer(1)
    # A private mapping has an address that ctypes gives; the page is never touched.
    with mmap.mmap(descriptor, 1, access=mmap.ACCESS_COPY, offset=offset) as page:
        if mincore(ctypes.addressof(ctypes.c_char.from_buffer(page)), 1, answer) != 0:
            return False
    return bool(answer.raw[0] & 1)
