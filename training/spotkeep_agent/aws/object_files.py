"""Objects of S3 to files and back. Several threads move parts side by side, and no file is whole in memory."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Callable

from spotkeep.errors import RemoteError
from spotkeep.remote.s3_objects import Part, S3Objects
from spotkeep.remote.transfer import Pace, require_not_cancelled, transfer
from spotkeep_agent.as_user.files import UserFiles, write_all

DRAFT_SUFFIX = ".spotkeep-draft"
PART_BYTES = 8 * 2**20
_MOST_PARTS = 5_000  # S3 allows 10,000
_WORKERS = 8


@dataclass(frozen=True)
class WantedFile:
    """An object and its file.

    Attributes:
        objects: The objects of its bucket.
        key: The key of the object.
        size: In bytes.
        files: The folder of the file.
        path: The path of the file, below that folder.
        modified_ns: The file's time of the last write, nanoseconds since the epoch, or None for now.
        etag: The tag of the wanted content, since parts of two contents make no file, or None for any content.
    """

    objects: S3Objects
    key: str
    size: int
    files: UserFiles
    path: str
    modified_ns: int | None = None
    etag: str | None = None


def draft_path(path: str) -> str:
    """Return the path of a file while it is filled, unique and no longer than a name may be."""
    folder, slash, name = path.rpartition("/")
    return f"{folder}{slash}.{hashlib.sha256(name.encode()).hexdigest()[:32]}{DRAFT_SUFFIX}"


@dataclass(frozen=True)
class _Span:
    start: int
    size: int


class _ArrivingFile:
    """A file that is being filled. It takes its name with its last byte, so it is there whole or not at all."""

    def __init__(self, wanted: WantedFile) -> None:
        self._wanted = wanted
        self._draft = draft_path(wanted.path)
        self._left_bytes = wanted.size
        self._lock = threading.Lock()
        wanted.files.make_folder(wanted.path.rpartition("/")[0])
        self._descriptor: int | None = wanted.files.create(self._draft)

    def fetch(self, span: _Span) -> bool:
        """Fetch one part. With the last one the file is there, and this says so.

        Raises:
            RemoteError: If S3 cannot be read, or the object has become smaller.
            OSError: If the disk refuses.
        """
        wanted, descriptor = self._wanted, self._descriptor
        assert descriptor is not None  # noqa: S101 - closed with the last part, or after all threads have ended
        if span.size:
            raw = wanted.objects.read(wanted.key, start=span.start, size=span.size, etag=wanted.etag)
            if len(raw) != span.size:
                raise RemoteError(f"{wanted.key} has {span.start + len(raw):,} bytes now, not {wanted.size:,}")
            write_all(descriptor, raw, span.start)
        with self._lock:
            self._left_bytes -= span.size
            if self._left_bytes:
                return False
        os.fsync(descriptor)
        if wanted.modified_ns is not None:
            os.utime(descriptor, ns=(wanted.modified_ns, wanted.modified_ns))
        self.close()
        wanted.files.rename(self._draft, wanted.path)
        return True

    def close(self) -> None:
        """Close the file, whole or not. Later its descriptor's number may stand for another file."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def fetch_files(
    wanted: Iterable[WantedFile],
    *,
    cancelled: threading.Event,
    on_brought: Callable[[int], None] = lambda _: None,
) -> None:
    """Fetch objects to files, each whole or not at all.

    Args:
        wanted: The files, each taken when a thread is free for it.
        cancelled: Set it to break off before the next part.
        on_brought: Called in several threads with the size in bytes of each part that is here.

    Raises:
        TransferCancelledError: `cancelled` was set.
        RemoteError: S3 cannot be read.
        OSError: The disk refuses.
    """
    unfinished: set[_ArrivingFile] = set()

    def parts() -> Iterator[tuple[_ArrivingFile, _Span]]:
        for one in wanted:
            arriving = _ArrivingFile(one)
            unfinished.add(arriving)
            for span in _spans(one.size):
                yield arriving, span

    def fetch(part: tuple[_ArrivingFile, _Span]) -> None:
        arriving, span = part
        if arriving.fetch(span):
            unfinished.discard(arriving)
        on_brought(span.size)

    try:
        transfer(parts(), fetch, cancelled=cancelled, workers=_WORKERS)
    finally:
        for arriving in unfinished:
            arriving.close()


def send_file(
    objects: S3Objects,
    key: str,
    descriptor: int,
    *,
    labels: Mapping[str, str],
    cancelled: threading.Event,
    pace: Pace | None = None,
    require_whole: Callable[[], None] = lambda: None,
) -> None:
    """Send an open file. The object appears whole or not at all, and an earlier one stays until then.

    Args:
        objects: The objects of the bucket.
        key: The key of the object.
        descriptor: The file descriptor, of a file that is sent in its current length.
        labels: The metadata of the object.
        cancelled: Set it to break off before the next part.
        pace: The speed, or None for full speed.
        require_whole: Called after the last read, before the object appears, which it may prevent by raising.

    Raises:
        TransferCancelledError: `cancelled` was set.
        RemoteError: S3 refuses.
        OSError: The file cannot be read, or has become shorter.
    """
    size = os.fstat(descriptor).st_size

    def read(span: _Span) -> bytes:
        if pace is not None:
            pace.wait(span.size, cancelled=cancelled)
        raw = os.pread(descriptor, span.size, span.start)
        if len(raw) != span.size:
            raise OSError(f"the file of {key} has become shorter than {size:,} bytes")
        return raw

    spans = list(_spans(size))
    if len(spans) == 1:
        require_not_cancelled(cancelled)
        raw = read(spans[0])
        require_whole()
        objects.write(key, raw, labels=labels)
        return
    upload = objects.begin_upload(key, labels=labels)
    parts: list[Part] = []

    def send(part: tuple[int, _Span]) -> None:
        number, span = part
        parts.append(objects.write_part(key, upload, number=number, raw=read(span)))

    try:
        transfer(enumerate(spans, start=1), send, cancelled=cancelled, workers=_WORKERS)
        require_whole()
        objects.finish_upload(key, upload, parts)
    except BaseException:
        # Parts that belong to no object are billed. Where this fails too, the bucket's lifecycle rule removes them.
        with contextlib.suppress(RemoteError):
            objects.abort_upload(key, upload)
        raise


def _spans(size: int) -> Iterator[_Span]:
    """Cut a file into parts, few enough for S3. An empty file has one empty part."""
    part = max(PART_BYTES, -(-size // _MOST_PARTS))
    for start in range(0, size or 1, part):
        yield _Span(start=start, size=min(part, size - start))
