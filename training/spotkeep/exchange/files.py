"""Files of other formats, opened with distrust, and results that are there whole or not at all."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

from spotkeep.disk.storage import disk_advice
from spotkeep.errors import ExchangeError

_FLAGS = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


@contextlib.contextmanager
def opened(paths: Sequence[Path]) -> Iterator[list[int]]:
    """Open plain files for reading. No link is followed.

    Raises:
        ExchangeError: One cannot be opened, or is no plain file.
    """
    with contextlib.ExitStack() as stack:
        descriptors = []
        for path in paths:
            try:
                descriptor = os.open(path, _FLAGS)
            except OSError as error:
                raise ExchangeError(f"{path.name} cannot be opened: {error.strerror or error}") from error
            stack.callback(os.close, descriptor)
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ExchangeError(f"{path.name} is no plain file")
            descriptors.append(descriptor)
        yield descriptors


def read_whole(path: Path, *, most_bytes: int) -> bytes:
    """Read a plain file.

    Raises:
        ExchangeError: It cannot be read, or is larger.
    """
    with opened([path]) as (descriptor,):
        size = os.fstat(descriptor).st_size
        if size > most_bytes:
            raise ExchangeError(f"{path.name} has {size:,} bytes, more than the {most_bytes:,} allowed")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            return file.read(size)


def read_json(path: Path, *, most_bytes: int) -> dict[str, Any]:
    """Read a plain file with a JSON object.

    Raises:
        ExchangeError: It cannot be read, or holds something else.
    """
    try:
        document = json.loads(read_whole(path, most_bytes=most_bytes))
    except (ValueError, RecursionError) as error:
        raise ExchangeError(f"{path.name} is no JSON: {str(error)[:100]}") from error
    if not isinstance(document, dict):
        raise ExchangeError(f"{path.name} holds no JSON object")
    return document


def check_target(target: Path, *, overwrite: bool, folder: bool) -> None:
    """Refuse a target before anything is read for it.

    Args:
        target: The file or folder to write.
        overwrite: True to replace it.
        folder: True for a folder.

    Raises:
        ExchangeError: It is there already, or its folder is not.
    """
    if target.is_dir() and not folder:
        raise ExchangeError(f"{target} is a directory", hint="name the file to write")
    if not target.parent.is_dir():
        raise ExchangeError(f"there is no directory {target.parent}", hint="make it, or name another")
    if not overwrite and os.path.lexists(target):
        raise ExchangeError(f"{target} is there already", hint="name another, or allow it to be replaced")


@contextlib.contextmanager
def new_file(target: Path, *, overwrite: bool) -> Iterator[BinaryIO]:
    """Yield a file that takes its name once it is whole.

    Raises:
        ExchangeError: It cannot be written, or is there already.
    """
    check_target(target, overwrite=overwrite, folder=False)
    try:
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            draft = Path(file.name)
            try:
                yield cast("BinaryIO", file)
                file.flush()
                os.fsync(file.fileno())
                draft.chmod(0o666 & ~_umask())
                check_target(target, overwrite=overwrite, folder=False)
                draft.replace(target)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    draft.unlink()
    except OSError as error:
        raise _unwritable(target, error) from error


@contextlib.contextmanager
def new_folder(target: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a folder that takes its name once it is whole.

    Raises:
        ExchangeError: It cannot be written, or is there already.
    """
    check_target(target, overwrite=overwrite, folder=True)
    try:
        draft = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
        try:
            yield draft
            draft.chmod(0o777 & ~_umask())
            for path in draft.rglob("*"):
                _sync(path)
            check_target(target, overwrite=overwrite, folder=True)
            if target.is_dir() and not target.is_symlink():
                old = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))
                target.replace(old)
                draft.replace(target)
                shutil.rmtree(old, ignore_errors=True)
            else:
                target.unlink(missing_ok=True)
                draft.replace(target)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    except OSError as error:
        raise _unwritable(target, error) from error


def _unwritable(target: Path, error: OSError) -> ExchangeError:
    problem = f"{target} cannot be written: {error.strerror or error}"
    return ExchangeError(problem, hint=disk_advice(error, when_full="name a place with more room"))


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
