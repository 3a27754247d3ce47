"""Zip archives with the same bytes for the same files, so that an asset's hash stands for its content.

Everything a deployment uploads (function code, the dependency layer, the training bundle) is packed here.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath

# The earliest time a zip entry can hold. A source file's own time would change the hash on every checkout.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def python_sources(package: Path) -> dict[str, bytes]:
    """Return the files of a package that a running function needs.

    Args:
        package: The package's directory.

    Returns:
        Content by archive path, which starts with the package's name. Byte code and dot files are left out.
    """
    return {
        PurePosixPath(package.name, *path.relative_to(package).parts).as_posix(): path.read_bytes()
        for path in _files(package)
    }


def _files(directory: Path, *, byte_code: bool = False) -> Iterable[Path]:
    for parent, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if (byte_code or name != "__pycache__") and not name.startswith(".")]
        for name in names:
            if not name.startswith(".") and (byte_code or not name.endswith((".pyc", ".pyo"))):
                yield Path(parent, name)


def zip_bytes(files: Mapping[str, bytes]) -> bytes:
    """Pack files into an archive that depends on their names and content alone.

    Args:
        files: Content by archive path.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(files):
            _write(archive, name, files[name])
    return buffer.getvalue()


def zip_directory(directory: Path, destination: Path, *, byte_code: bool = False) -> None:
    """Pack a directory's files, with the same guarantee as `zip_bytes`, one file in memory at a time.

    Args:
        directory: Root of the archive's paths.
        destination: The archive to write, which appears whole or not at all.
        byte_code: True to pack compiled Python too, which must record no file time for the guarantee to hold.
    """
    with (
        _appearing_whole(destination) as partial,
        zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive,
    ):
        by_name = {path.relative_to(directory).as_posix(): path for path in _files(directory, byte_code=byte_code)}
        for name, path in sorted(by_name.items()):
            _write(archive, name, path.read_bytes())


def _write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, date_time=_EPOCH)
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    entry.compress_type = zipfile.ZIP_DEFLATED
    # The host's system would be recorded otherwise, and macOS and Linux would disagree on the hash.
    entry.create_system = 3
    archive.writestr(entry, content)


def sha256(*parts: bytes | str) -> str:
    """Hash of several values, each kept apart from the next by its length.

    Args:
        parts: The values that the hash covers, in order.
    """
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        digest.update(f"{len(data)}:".encode())
        digest.update(data)
    return digest.hexdigest()


def keep(directory: Path, name: str, content: bytes) -> Path:
    """Write a file, unless one of that name holds that very content.

    Args:
        directory: The file's directory, created when missing.
        name: A name that holds the content's hash.
        content: The bytes to write.
    """
    path = directory / name
    if not path.is_file() or path.read_bytes() != content:
        with _appearing_whole(path) as partial:
            partial.write_bytes(content)
    return path


def seal(archive: Path) -> None:
    """Write an archive's hash beside it, for `is_sealed`, and take from others the right to write either.

    Args:
        archive: In a folder of its own.
    """
    archive.parent.chmod(0o755)
    archive.chmod(0o644)
    with _appearing_whole(_seal_of(archive)) as partial:
        partial.write_text(_file_sha256(archive))


def is_sealed(archive: Path) -> bool:
    """Return True when an archive still has the content that this user sealed. Its name cannot show that.

    Args:
        archive: The path given to `seal`. Only this user or root may have write access to the archive, its hash and its
            folder. A hash that others can write proves nothing.
    """
    try:
        ours = all(_is_ours(path) for path in (archive.parent, archive, _seal_of(archive)))
        return ours and _seal_of(archive).read_text() == _file_sha256(archive)
    except (OSError, UnicodeDecodeError):
        return False


def _seal_of(archive: Path) -> Path:
    return archive.with_name(archive.name + ".sha256")


def _is_ours(path: Path) -> bool:
    found = path.lstat()
    owned = found.st_uid in (0, os.getuid())
    return owned and not stat.S_ISLNK(found.st_mode) and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextlib.contextmanager
def one_process_at_a_time(directory: Path) -> Iterator[None]:
    """Wait until no other process is in such a block about this directory. A process that dies leaves it, too.

    Args:
        directory: The directory that the block changes, with the lock file beside it.
    """
    directory.parent.mkdir(parents=True, exist_ok=True)
    with directory.with_name(directory.name + ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def forget_oldest(directory: Path, *, keep: int) -> None:
    """Remove all but the newest entries of a directory. Entries that another process removes meanwhile are no error.

    Args:
        directory: A directory of files or folders that can be made again.
        keep: The number of entries that stay.
    """

    def changed_ns(path: Path) -> int:
        try:
            return path.stat().st_mtime_ns
        except FileNotFoundError:
            return 0

    for path in sorted(directory.iterdir(), key=changed_ns, reverse=True)[keep:]:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def _appearing_whole(destination: Path) -> Iterator[Path]:
    """Yield a path beside the destination, and rename it there when the block succeeds."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=destination.parent, prefix=".partial-")
    os.close(handle)
    partial = Path(name)
    try:
        yield partial
        partial.chmod(0o644)
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)
