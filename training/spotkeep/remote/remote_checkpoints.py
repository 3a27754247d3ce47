"""Checkpoints in S3, with the layout of their directory, each whole or invisible there too.

Data files go first and the manifest last, so a manifest in S3 stands for bytes that are there. After a crash in the
middle of a file, parts in S3 are not sent again. A download trusts nothing. Names come from a verified manifest, sizes
must be those of the objects, every chunk is verified before it is written, and the local manifest comes last. After a
crash in the middle of a download, the local bytes are verified and not fetched again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.chunk_checksums import chunk_checksum
from spotkeep.disk.chunked_files import AlteredChunkError, read_data_file, read_part
from spotkeep.disk.manifest import (
    CHUNK_BYTES,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    DataFile,
    MalformedManifestError,
    Manifest,
    parse_manifest,
)
from spotkeep.disk.retention import Candidate, Retention
from spotkeep.disk.storage import LocalStorage, ReadableFile
from spotkeep.errors import DamagedCheckpointError, NewerFormatError, RemoteError, SaveError

from .s3_objects import Part, S3Objects, S3Place
from .transfer import Pace, require_not_cancelled, transfer

_KEY = re.compile(r"step-(0|[1-9][0-9]{0,17})/([^/]{1,200})")
_LABEL = "spotkeep-content"
_PART_BYTES = 8 * CHUNK_BYTES
_MOST_PARTS = 5_000  # S3 allows 10,000
_MOST_OBJECTS = 200_000
_FEWEST = 2
_DOWNLOAD_ATTEMPTS = 5
_FIRST_PAUSE_SECONDS = 0.2
_DRAFT_SUFFIX = ".draft"


@dataclass(frozen=True)
class _Span:
    """A part of a file, by its number from 1, its first byte, and its length."""

    number: int
    start: int
    size: int


class Upload:
    """One local checkpoint on its way to S3. Its files are open, so that pruning cannot take them away.

    Attributes:
        step: Completed steps.
        total_bytes: The bytes of the checkpoint.
        done_bytes: The bytes that S3 has of it.
        sent_bytes: The bytes that this process sent of that.
        cancelled: Set it to break off before the next part.
    """

    def __init__(self, step: int, raw_manifest: bytes, manifest: Manifest, files: list[ReadableFile]) -> None:
        self.step = step
        self.raw_manifest = raw_manifest
        self.manifest = manifest
        self.files = files
        self.total_bytes = len(raw_manifest) + sum(file.size for file in manifest.files)
        self.done_bytes = 0
        self.sent_bytes = 0
        self.cancelled = threading.Event()
        self._lock = threading.Lock()

    def count(self, size: int, *, sent: bool) -> None:
        """Note that S3 has more of it."""
        with self._lock:
            self.done_bytes += size
            self.sent_bytes += size if sent else 0

    def close(self) -> None:
        """Let go of the files."""
        for file in self.files:
            file.close()


class RemoteCheckpoints:
    """The checkpoints of one run in S3.

    Args:
        place: Their place in S3.
        directory: Their directory on this machine.
        objects: The bucket, by default with the credentials of the environment.
        storage: The file operations of the directory.

    Raises:
        MissingLibraryError: boto3 is not installed.
    """

    def __init__(
        self,
        place: S3Place,
        directory: CheckpointDirectory,
        *,
        objects: S3Objects | None = None,
        storage: LocalStorage | None = None,
    ) -> None:
        self.place = place
        self._directory = directory
        self._objects = objects or S3Objects(place.bucket)
        self._storage = storage or LocalStorage()
        self._known: dict[int, Candidate] = {}
        self._whole: frozenset[int] = frozenset()

    def steps(self) -> list[int]:
        """List the steps that are there whole, newest first. Nothing is verified.

        Raises:
            RemoteError: If S3 cannot be read.
        """
        return [step for step, names in self._found().items() if MANIFEST_NAME in names]

    def size(self, step: int) -> int:
        """Give how many bytes of data a local checkpoint has.

        Raises:
            DamagedCheckpointError: If it is not whole.
            NewerFormatError: If a newer library wrote it.
        """
        return sum(file.size for file in self._directory.read_manifest(step).files)

    def open(self, step: int) -> Upload:
        """Open a local checkpoint to upload it.

        Raises:
            DamagedCheckpointError: If it is not whole.
        """
        name = self._directory.name(step)
        try:
            raw = bytes(self._storage.read(self._local(step) / MANIFEST_NAME, max_bytes=MAX_MANIFEST_BYTES))
            manifest = parse_manifest(raw)
        except (OSError, ValueError, MalformedManifestError) as error:
            raise DamagedCheckpointError(f"{name}/{MANIFEST_NAME}", str(error)) from error
        with contextlib.ExitStack() as opened:
            files = []
            for file in manifest.files:
                files.append(self._directory.open_data(step, file))
                opened.callback(files[-1].close)
            opened.pop_all()
        return Upload(step, raw, manifest, files)

    def send(self, upload: Upload, *, pace: Pace) -> None:
        """Upload a checkpoint, except for the parts that S3 has already. Its manifest appears last.

        Raises:
            TransferCancelledError: It was cancelled.
            DamagedCheckpointError: The local files have changed.
            RemoteError: S3 refuses. Another send goes on where this one ended.
        """
        key = self._key(upload.step, MANIFEST_NAME)
        labels = {_LABEL: hashlib.sha256(upload.raw_manifest).hexdigest()}
        there = self._objects.labels(key)
        if there is not None:
            if there == (len(upload.raw_manifest), labels):
                upload.count(upload.total_bytes, sent=False)
                return
            # Another checkpoint of this step: it must not vouch for the new one's bytes.
            self._objects.delete(key)
        for file, opened in zip(upload.manifest.files, upload.files):
            self._send_file(upload, file, opened, pace)
        require_not_cancelled(upload.cancelled)
        self._objects.write(key, upload.raw_manifest, labels=labels)
        upload.count(len(upload.raw_manifest), sent=True)
        self._known[upload.step] = _as_candidate(upload.manifest)

    def fetch(self, step: int, *, cancelled: threading.Event) -> int:
        """Download a checkpoint into the local directory, verified. Gives its size in bytes.

        Args:
            step: The step of the checkpoint.
            cancelled: Set it to break off before the next part.

        Raises:
            TransferCancelledError: It was cancelled.
            DamagedCheckpointError: The checkpoint in S3 is not whole.
            NewerFormatError: A newer library wrote it.
            RemoteError: S3 cannot be read.
            SaveError: The disk refuses.
        """
        names = self._found().get(step, {})
        raw, manifest = self._fetch_manifest(step, names)
        total = len(raw) + sum(file.size for file in manifest.files)
        for file in manifest.files:
            if names.get(file.name) != file.size:
                there = "missing" if file.name not in names else f"{names[file.name]:,} bytes instead of {file.size:,}"
                raise DamagedCheckpointError(self._name(step, file.name), there)
        target = self._local(step)
        try:
            if not self._storage.is_directory(target):
                self._storage.remove_tree(target)
            self._storage.make_directory(target)
            self._storage.remove_file(target / MANIFEST_NAME)
            for file in manifest.files:
                self._fetch_file(step, file, target / file.name, cancelled)
            draft = target / (MANIFEST_NAME + _DRAFT_SUFFIX)
            self._storage.remove_file(draft)
            self._storage.write(draft, raw)
            self._storage.sync_directory(target)
            self._storage.rename(draft, target / MANIFEST_NAME)
            self._storage.sync_directory(target)
            self._storage.sync_directory(self._directory.path)
        except OSError as error:
            raise SaveError(
                f"the checkpoint of step {step} ({total:,} bytes) could not be downloaded from {self.place} to "
                f"{self._directory.path}: {error.strerror or error}; is the disk large enough?"
            ) from error
        self._known[step] = _as_candidate(manifest)
        return total

    def send_note(self, name: str, raw: bytes) -> None:
        """Write a small file that belongs to the run and to no checkpoint.

        Raises:
            RemoteError: If S3 refuses.
        """
        self._objects.write(self.place.prefix + name, raw, labels={})

    def fetch_note(self, name: str, *, max_bytes: int) -> bytes | None:
        """Read such a file. None when there is none, or it is too large.

        Raises:
            RemoteError: S3 cannot be read.
        """
        there = self._objects.labels(self.place.prefix + name)
        if there is None or not 0 < there[0] <= max_bytes:
            return None
        return self._download(self.place.prefix + name, 0, there[0])

    def prune(self, retention: Retention, *, uploading: Collection[int] = ()) -> list[int]:
        """Remove old checkpoints and unfinished uploads. Gives the steps removed.

        Call it when a new checkpoint is there whole. As many of the newest stay as in the local directory.

        Raises:
            RemoteError: S3 refuses.
        """
        for key, upload in self._objects.unfinished_uploads(self.place.prefix):
            match = _KEY.fullmatch(key[len(self.place.prefix) :])
            if match and int(match.group(1)) not in uploading:
                self._objects.abort_upload(key, upload)
        found = self._found()
        whole = [step for step, names in found.items() if MANIFEST_NAME in names]
        self._whole = frozenset(whole)
        kept = whole[: retention.newest]
        if len(kept) < _FEWEST:
            return []
        older = [step for step in whole if step < kept[-1]]
        spared = retention.spared([self.candidate(step) for step in kept], [self.candidate(step) for step in older])
        removed = [step for step in found if step < kept[-1] and step not in spared and step not in uploading]
        for step in removed:
            self._remove(step, found[step])
        return removed

    def remove(self, step: int) -> None:
        """Remove a checkpoint. A missing one is no error.

        Raises:
            RemoteError: S3 refuses.
        """
        self._remove(step, self._found().get(step, {}))

    def read_manifest(self, step: int) -> Manifest:
        """Read and verify the manifest of one checkpoint.

        Raises:
            DamagedCheckpointError: It is missing or altered.
            NewerFormatError: A newer library wrote it.
            RemoteError: S3 cannot be read.
        """
        return self._fetch_manifest(step, self._sizes(step))[1]

    def missing(self, retention: Retention) -> int | None:
        """Give the newest local checkpoint that is to stay beside the newest ones and was not there at the last prune.

        A newer one took its place while it waited. The newest ones are not given, because they may have to go soon.
        """
        local = self._directory.steps()
        newest, older = local[: retention.newest], local[retention.newest :]
        if not older:
            return None
        spared = retention.spared(
            [self._local_candidate(step) for step in newest], [self._local_candidate(step) for step in older]
        )
        return max(spared - self._whole, default=None)

    def _remove(self, step: int, names: Collection[str]) -> None:
        # The manifest goes first: whatever stops us then, no reader takes the rest for a checkpoint.
        for name in sorted(names, key=lambda name: name != MANIFEST_NAME):
            self._objects.delete(self._key(step, name))
        self._known.pop(step, None)

    def _send_file(self, upload: Upload, file: DataFile, opened: ReadableFile, pace: Pace) -> None:
        key = self._key(upload.step, file.name)
        document = json.dumps([file.name, file.size, list(file.chunks)], separators=(",", ":"))
        labels = {_LABEL: hashlib.sha256(document.encode("ascii")).hexdigest()}
        if self._objects.labels(key) == (file.size, labels):
            upload.count(file.size, sent=False)
            return
        spans = list(_spans(file.size))
        if len(spans) <= 1:
            require_not_cancelled(upload.cancelled)
            pace.wait(file.size, cancelled=upload.cancelled)
            self._objects.write(key, self._read(upload, file, opened, 0, file.size), labels=labels)
            upload.count(file.size, sent=True)
            return
        upload_id, there = self._begun(key) or (self._objects.begin_upload(key, labels=labels), {})
        parts: list[Part] = []

        def send(span: _Span) -> None:
            raw = self._read(upload, file, opened, span.start, span.size)
            part = there.get(span.number)
            known = part is not None and part.is_that_of(raw)
            if not known:
                pace.wait(span.size, cancelled=upload.cancelled)
                part = self._objects.write_part(key, upload_id, number=span.number, raw=raw)
            if part is not None:
                parts.append(part)
            upload.count(span.size, sent=not known)

        transfer(spans, send, cancelled=upload.cancelled)
        self._objects.finish_upload(key, upload_id, parts)

    def _begun(self, key: str) -> tuple[str, dict[int, Part]] | None:
        """Find the parts of an upload that a crash cut off."""
        try:
            uploads = [upload for name, upload in self._objects.unfinished_uploads(key) if name == key]
            if not uploads:
                return None
            parts = self._objects.parts(key, uploads[0])
        except RemoteError:
            # Who may not list uploads can still send all of it.
            return None
        return (uploads[0], {part.number: part for part in parts}) if parts else None

    def _read(self, upload: Upload, file: DataFile, opened: ReadableFile, start: int, size: int) -> bytes:
        name = f"{self._directory.name(upload.step)}/{file.name}"
        try:
            return read_part(opened, file.chunks, start, size) if size else b""
        except AlteredChunkError as error:
            raise DamagedCheckpointError(name, str(error), offsets=error.offsets) from error
        except OSError as error:
            raise DamagedCheckpointError(name, f"cannot be read: {error}") from error

    def _fetch_manifest(self, step: int, names: Mapping[str, int]) -> tuple[bytes, Manifest]:
        name = self._name(step, MANIFEST_NAME)
        size = names.get(MANIFEST_NAME, 0)
        if not 0 < size <= MAX_MANIFEST_BYTES:
            raise DamagedCheckpointError(name, f"{size:,} bytes" if size else "missing or empty")
        try:
            raw = self._download(self._key(step, MANIFEST_NAME), 0, size)
            manifest = parse_manifest(raw)
        except MalformedManifestError as error:
            raise DamagedCheckpointError(name, str(error)) from error
        if manifest.step != step:
            raise DamagedCheckpointError(name, f"it belongs to step {manifest.step}")
        return raw, manifest

    def _fetch_file(self, step: int, file: DataFile, path: Path, cancelled: threading.Event) -> None:
        """Download a data file. It gets its name when it is whole, so nothing is written to one that has been read."""
        if self._is_whole(path, file):
            return
        key = self._key(step, file.name)
        draft = path.with_name(path.name + _DRAFT_SUFFIX)
        with self._writable(draft, file.size) as (descriptor, filled):

            def fetch(span: _Span) -> None:
                if filled and _altered(os.pread(descriptor, span.size, span.start), span, file) is None:
                    return
                for attempt in (0, 1):
                    raw = self._download(key, span.start, span.size)
                    chunk = _altered(raw, span, file)
                    if chunk is None:
                        self._storage.write_at(descriptor, memoryview(raw), span.start)
                        return
                    if attempt:
                        start = chunk * CHUNK_BYTES
                        raise DamagedCheckpointError(
                            self._name(step, file.name),
                            f"altered: chunk {chunk} is not what its checksum vouches for",
                            offsets=(start, min(start + CHUNK_BYTES, file.size)),
                        )

            transfer(_spans(file.size), fetch, cancelled=cancelled)
            self._storage.sync(descriptor)
        self._storage.remove_tree(path)
        self._storage.rename(draft, path)

    @contextlib.contextmanager
    def _writable(self, path: Path, size: int) -> Iterator[tuple[int, bool]]:
        """Open a file of this size to fill it. Gives True with it if it may have content already."""
        descriptor = self._storage.open_to_fill(path)
        try:
            filled = os.fstat(descriptor).st_size > 0
            if not filled and shutil.disk_usage(descriptor).free < size:
                self._storage.remove_file(path)
                raise OSError(f"{size:,} bytes are needed for {path.name}, and that much is not free")
            os.ftruncate(descriptor, size)
            yield descriptor, filled
        finally:
            os.close(descriptor)

    def _is_whole(self, path: Path, file: DataFile) -> bool:
        with contextlib.suppress(OSError, AlteredChunkError), contextlib.closing(self._storage.open(path)) as opened:
            if opened.size == file.size:
                read_data_file(opened, file.chunks)
                return True
        return False

    def _download(self, key: str, start: int, size: int) -> bytes:
        """Read a range. After a cut connection it reads on."""
        pause = _FIRST_PAUSE_SECONDS
        for _ in range(_DOWNLOAD_ATTEMPTS - 1):
            try:
                raw = self._objects.read(key, start=start, size=size)
                if len(raw) == size:
                    return raw
            except RemoteError as error:
                if error.missing:
                    return b""
            time.sleep(pause)
            pause *= 2
        return self._objects.read(key, start=start, size=size)

    def _found(self) -> dict[int, dict[str, int]]:
        """List the steps in S3, newest first, with the names and sizes of their files."""
        found: dict[int, dict[str, int]] = {}
        for count, stored in enumerate(self._objects.listing(self.place.prefix)):
            if count >= _MOST_OBJECTS:
                raise RemoteError(
                    f"{self.place} holds more than {_MOST_OBJECTS:,} objects: give the run its own prefix"
                )
            match = _KEY.fullmatch(stored.key[len(self.place.prefix) :])
            if match:
                found.setdefault(int(match.group(1)), {})[match.group(2)] = stored.size
        return dict(sorted(found.items(), reverse=True))

    def candidate(self, step: int) -> Candidate:
        """Give the facts of a checkpoint by which it may be kept or chosen.

        Raises:
            RemoteError: S3 cannot be read.
        """
        if step not in self._known:
            try:
                self._known[step] = _as_candidate(self.read_manifest(step))
            except (DamagedCheckpointError, NewerFormatError):
                return Candidate(step=step, damaged=True)
        return self._known[step]

    def _local_candidate(self, step: int) -> Candidate:
        try:
            return _as_candidate(self._directory.read_manifest(step))
        except (DamagedCheckpointError, NewerFormatError):
            return Candidate(step=step, damaged=True)

    def _sizes(self, step: int) -> dict[str, int]:
        there = self._objects.labels(self._key(step, MANIFEST_NAME))
        return {} if there is None else {MANIFEST_NAME: there[0]}

    def _local(self, step: int) -> Path:
        return self._directory.path / self._directory.name(step)

    def _key(self, step: int, name: str) -> str:
        return f"{self.place.prefix}{self._directory.name(step)}/{name}"

    def _name(self, step: int, name: str) -> str:
        return f"s3://{self.place.bucket}/{self._key(step, name)}"


def _as_candidate(manifest: Manifest) -> Candidate:
    return Candidate(step=manifest.step, metrics=manifest.metrics, own_ranks=manifest.own_ranks)


def _spans(size: int) -> Iterator[_Span]:
    """Cut a file into parts of whole chunks, few enough for S3."""
    least = -(-size // _MOST_PARTS)
    part = max(_PART_BYTES, -(-least // CHUNK_BYTES) * CHUNK_BYTES)
    for index, start in enumerate(range(0, size, part)):
        yield _Span(number=index + 1, start=start, size=min(part, size - start))


def _altered(raw: bytes, span: _Span, file: DataFile) -> int | None:
    """Find the first chunk of some bytes that does not match its checksum. None when all match."""
    view = memoryview(raw)
    for offset in range(0, span.size, CHUNK_BYTES):
        number = (span.start + offset) // CHUNK_BYTES
        chunk = view[offset : min(offset + CHUNK_BYTES, span.size)]
        if len(view) != span.size or chunk_checksum(chunk) != file.chunks[number]:
            return number
    return None
