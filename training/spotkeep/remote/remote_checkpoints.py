"""Checkpoints in S3, with the layout of their directory, each whole or invisible there too.

The notes of the writers lie beside the checkpoints (`spotkeep.disk.writers`). The note of a writer is there before its
first manifest, and a writer that finds the note of a later one uploads no manifest.

Data files go first and the manifest last, so a manifest in S3 stands for bytes that are there. Of several ranks each
sends the files that it wrote, and rank 0 the manifest. The manifest replaces none that came from another writer. After
a crash in the middle of a file, parts in S3 are not sent again. A download trusts nothing. Names come from a verified
manifest, sizes must be those of the objects, every chunk is verified before it is written, and the local manifest comes
last. After a crash in the middle of a download, the local bytes are verified and not fetched again.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.chunk_checksums import chunk_checksum
from spotkeep.disk.chunked_files import AlteredChunkError, read_chunks, read_data_file
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
from spotkeep.disk.storage import LocalStorage, ReadableFile, disk_advice
from spotkeep.disk.writers import (
    MAX_NOTE_BYTES,
    NOTE_PREFIX,
    NOTES_KEPT,
    Token,
    Writers,
    folders_to_remove,
    note_name,
    parse_folder,
    parse_note_name,
)
from spotkeep.errors import DamagedCheckpointError, LockLostError, NewerFormatError, RemoteError, SaveError

from .s3_objects import ALREADY_THERE, Part, S3Objects, S3Place
from .transfer import Pace, TransferCancelledError, require_not_cancelled, transfer
from .upload_share import UploadShare

_KEY = re.compile(r"([^/]{1,60})/([^/]{1,200})")
_LABEL = "spotkeep-content"
_PART_BYTES = 8 * CHUNK_BYTES
# Of large files fewer parts cost the SDK less.
_LARGE_PART_BYTES = 16 * CHUNK_BYTES
_LARGE_FILE_BYTES = 128 * CHUNK_BYTES
_MOST_PARTS = 5_000  # S3 allows 10,000
_MOST_OBJECTS = 200_000
_FEWEST = 2
_DOWNLOAD_ATTEMPTS = 5
_FIRST_PAUSE_SECONDS = 0.2
_DRAFT_SUFFIX = ".draft"
_DRAFT_NAME = MANIFEST_NAME + _DRAFT_SUFFIX
_FIRST_LOOK_SECONDS = 0.1
_LONGEST_LOOK_SECONDS = 2.0
_LOOK_FACTOR = 1.5
_PARTS_AFTER_SECONDS = 10.0
_TAKE_OVER_SECONDS = 60.0
_GIVE_UP_SECONDS = 900.0
_MOST_NAMED = 5

_logger = logging.getLogger("spotkeep")


@dataclass(frozen=True)
class _Span:
    """A part of a file, by its number from 1, its first byte, and its length."""

    number: int
    start: int
    size: int


class Upload:
    """The files of one local checkpoint on their way to S3. They are open, so that pruning cannot take them away.

    Attributes:
        step: Completed steps.
        folder: The name of its directory, here and in S3.
        files: The files to send.
        awaited: The files of the checkpoint that other ranks send.
        total_bytes: The bytes to send.
        done_bytes: The bytes that S3 has of them.
        sent_bytes: The bytes that this process sent of that.
        cancelled: Set it to break off before the next part.
    """

    def __init__(
        self,
        step: int,
        files: Sequence[DataFile],
        opened: Sequence[ReadableFile],
        *,
        folder: str,
        raw_manifest: bytes | None,
        manifest: Manifest | None,
    ) -> None:
        self.step = step
        self.folder = folder
        self.files = tuple(files)
        self.raw_manifest = raw_manifest
        self.manifest = manifest
        names = {file.name for file in files}
        self.awaited = tuple(file for file in (manifest.files if manifest else ()) if file.name not in names)
        self.total_bytes = len(raw_manifest or b"") + sum(file.size for file in files)
        self.done_bytes = 0
        self.sent_bytes = 0
        self.cancelled = threading.Event()
        self._opened = list(opened)
        self._lock = threading.Lock()

    def pairs(self) -> Iterator[tuple[DataFile, ReadableFile]]:
        """Give the files to send, each with its open file."""
        return zip(self.files, self._opened)

    def count(self, size: int, *, sent: bool) -> None:
        """Note that S3 has more of it."""
        with self._lock:
            self.done_bytes += size
            self.sent_bytes += size if sent else 0

    def close(self) -> None:
        """Let go of the files."""
        for file in self._opened:
            file.close()


@dataclass(frozen=True)
class RemoteManifest:
    """The manifest of a checkpoint in S3.

    Attributes:
        raw: Its bytes.
        manifest: Its content.
    """

    raw: bytes
    manifest: Manifest

    @property
    def digest(self) -> str:
        """The SHA-256 of its bytes."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def total_bytes(self) -> int:
        """The bytes of the whole checkpoint."""
        return len(self.raw) + sum(file.size for file in self.manifest.files)


def _count_nothing(size: int) -> None:
    """Leave the bytes of a download uncounted."""


class RemoteCheckpoints:
    """The checkpoints of one run in S3.

    Attributes:
        place: Their place in S3.
        share: The part of this process in the uploads of its training.

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
        self.share = UploadShare()
        self._directory = directory
        self._objects = objects or S3Objects(place.bucket)
        self._storage = storage or LocalStorage()
        self._known: dict[str, Candidate] = {}
        self._whole: frozenset[int] = frozenset()
        self._folders: dict[int, str] = {}
        self._notes: dict[str, Writers] = {}
        # The manifests that this process may replace are its own, and those from before it looked.
        self._before: dict[str, str | None] | None = None
        self._own: dict[str, str] = {}
        self._progress: dict[int, tuple[tuple[int, int], float]] = {}

    def steps(self) -> list[int]:
        """List the steps that are there whole, newest first. Nothing is verified.

        Raises:
            RemoteError: If S3 cannot be read.
        """
        return list(self._found().whole)

    def name(self, step: int) -> str:
        """Name the checkpoint of this step, by the newest list of `steps`. It is the one that readers take."""
        return self._folders.get(step) or self._directory.name(step)

    def take(self, names: Mapping[int, str]) -> None:
        """Take these folders for the checkpoints of their steps, as another rank has chosen them."""
        self._folders.update(names)

    def writers(self) -> Writers:
        """Read the notes of the writers in S3.

        Raises:
            RemoteError: If S3 cannot be read.
        """
        prefix = self.place.prefix
        listed = self._objects.listing(prefix + NOTE_PREFIX)
        return self._read_notes({stored.key[len(prefix) :]: stored.size for stored in listed})

    def learn_writers(self) -> list[int]:
        """Keep the notes of S3 in the directory too. Gives the steps, as `steps` does.

        Raises:
            RemoteError: If S3 cannot be read.
            SaveError: If the disk refuses.
        """
        found = self._found()
        self._directory.writer_notes.learn(found.writers)
        return found.whole

    def claim(self, token: Token, writers: Writers) -> bool:
        """Take a token in S3. Gives false where another writer has it. Its note is in the directory then.

        Raises:
            RemoteError: If S3 refuses.
            SaveError: If the disk refuses.
        """
        key, raw = self.place.prefix + note_name(token), writers.to_bytes()
        try:
            self._objects.write(key, raw, labels={}, replace=False)
        except RemoteError as error:
            if error.code not in ALREADY_THERE:
                raise
            # An answer may have been lost on its way, after which the SDK asks again.
            if self._download(key, 0, len(raw)) != raw:
                self.learn_writers()
                return False
        return True

    def size(self, step: int) -> int:
        """Give how many bytes of data this process has to send of a local checkpoint.

        Raises:
            DamagedCheckpointError: If it is not whole.
            NewerFormatError: If a newer library wrote it.
        """
        written = self.share.written(step)
        if written is None:
            written = self._files_here(step, self._directory.read_manifest(step))
        return sum(file.size for file in written)

    def open(self, step: int, *, whole: bool = False) -> Upload:
        """Open a local checkpoint to upload the part of this rank. On rank 0 the manifest belongs to it.

        Args:
            step: The step of the checkpoint.
            whole: True to upload the files of all ranks, which must be on this disk.

        Raises:
            DamagedCheckpointError: If it is not whole.
        """
        raw, manifest, files = None, None, self.share.written(step)
        if self.share.is_first or files is None:
            raw, manifest = self._local_manifest(step)
        if manifest is not None and (whole or files is None):
            files = manifest.files if whole else self._files_here(step, manifest)
        with contextlib.ExitStack() as opening:
            opened = []
            for file in files or ():
                opened.append(self._directory.open_data(step, file))
                opening.callback(opened[-1].close)
            opening.pop_all()
        if not self.share.is_first:
            raw = manifest = None
        folder = self._directory.name(step)
        return Upload(step, files or (), opened, folder=folder, raw_manifest=raw, manifest=manifest)

    def send(self, upload: Upload, *, pace: Pace) -> None:
        """Upload the part of this rank, except for the parts that S3 has already.

        Rank 0 then waits for the files of the other ranks. The manifest appears last.

        Raises:
            TransferCancelledError: It was cancelled.
            DamagedCheckpointError: The local files have changed.
            RemoteError: S3 refuses, the files of another rank do not come, or another process has this step there.
                Another send goes on where this one ended.
            LockLostError: A later writer has begun. The directory is lost to this process.
        """
        raw, manifest = upload.raw_manifest, upload.manifest
        if raw is None or manifest is None:
            for file, opened in upload.pairs():
                self._send_file(upload, file, opened, pace)
            return
        digest = hashlib.sha256(raw).hexdigest()
        if self._is_there(upload.folder, len(raw), digest):
            upload.count(upload.total_bytes, sent=False)
            return
        for file, opened in upload.pairs():
            self._send_file(upload, file, opened, pace)
        self._await(upload, pace)
        require_not_cancelled(upload.cancelled)
        self._require_lock()
        self._write_manifest(upload.folder, raw, digest)
        upload.count(len(raw), sent=True)
        self._known[upload.folder] = _as_candidate(manifest)

    def fetch(
        self, step: int, *, cancelled: threading.Event, on_brought: Callable[[int], None] = _count_nothing
    ) -> int:
        """Download a checkpoint into the local directory, verified. Gives its size in bytes.

        Args:
            step: The step of the checkpoint.
            cancelled: Set it to break off before the next part.
            on_brought: Called in several threads with the size in bytes of each part that is here, and of each file
                that is going to be checked on the disk.

        Raises:
            TransferCancelledError: It was cancelled.
            DamagedCheckpointError: The checkpoint in S3 is not whole.
            NewerFormatError: A newer library wrote it.
            RemoteError: S3 cannot be read.
            SaveError: The disk refuses.
        """
        self.learn_writers()
        found = self.read_manifest(step)
        self.make_room(step)
        self.fetch_files(step, found.manifest.files, cancelled=cancelled, on_brought=on_brought)
        self.keep_manifest(step, found)
        return found.total_bytes

    def read_manifest(self, step: int) -> RemoteManifest:
        """Read the manifest of a checkpoint, and see that S3 has all of its files.

        Raises:
            DamagedCheckpointError: The checkpoint in S3 is not whole.
            NewerFormatError: A newer library wrote it.
            RemoteError: S3 cannot be read.
        """
        names = self._found().files(step)
        found = self._fetch_manifest(step, names.get(MANIFEST_NAME, 0))
        for file in found.manifest.files:
            if names.get(file.name) != file.size:
                there = "missing" if file.name not in names else f"{names[file.name]:,} bytes instead of {file.size:,}"
                raise DamagedCheckpointError(self._url(self.name(step), file.name), there)
        return found

    def show_manifest(self, step: int) -> RemoteManifest:
        """Show the other ranks the local manifest of a checkpoint. No reader takes it for the manifest in S3.

        Raises:
            DamagedCheckpointError: It is missing or altered.
            RemoteError: S3 refuses.
        """
        found = RemoteManifest(*self._local_manifest(step))
        self._objects.write(self._key(self._directory.name(step), _DRAFT_NAME), found.raw, labels={})
        return found

    def send_what_is_here(self, step: int, manifest: Manifest, *, cancelled: threading.Event, pace: Pace) -> None:
        """Upload the files of a checkpoint that are on this disk. Ranks with the same disk share them.

        Raises:
            TransferCancelledError: It was cancelled.
            RemoteError: S3 refuses.
        """
        for file in self._files_here(step, manifest):
            # What is damaged here may be whole in S3.
            with contextlib.suppress(DamagedCheckpointError):
                opened = self._directory.open_data(step, file)
                folder = self._directory.name(step)
                upload = Upload(step, [file], [opened], folder=folder, raw_manifest=None, manifest=None)
                upload.cancelled = cancelled
                with contextlib.closing(upload):
                    self._send_file(upload, file, opened, pace)

    def complete(self, step: int, found: RemoteManifest) -> bool:
        """Upload a manifest, if S3 has all files. Gives True if it has."""
        folder = self._directory.name(step)
        whole = not self._not_there(folder, found.manifest.files)
        if whole and not self._is_there(folder, len(found.raw), found.digest):
            self._write_manifest(folder, found.raw, found.digest)
        self._objects.delete(self._key(folder, _DRAFT_NAME))
        return whole

    def read_same_manifest(self, step: int, *, size: int, digest: str, shown: bool = False) -> RemoteManifest:
        """Read the manifest that another rank has read or shown.

        Args:
            step: The step of the checkpoint.
            size: The length of the manifest in bytes.
            digest: The SHA-256 of its bytes.
            shown: True for one of `show_manifest`.

        Raises:
            DamagedCheckpointError: Another one is there.
            RemoteError: S3 cannot be read.
        """
        found = self._fetch_manifest(step, size, name=_DRAFT_NAME if shown else MANIFEST_NAME)
        if found.digest != digest:
            raise DamagedCheckpointError(self._url(self.name(step), MANIFEST_NAME), "it was replaced while it was read")
        return found

    def make_room(self, step: int) -> None:
        """Prepare the local directory for the files of a checkpoint. It is no checkpoint until its manifest is there.

        Raises:
            SaveError: The disk refuses.
        """
        target = self._local(step)
        with self._refusals_of_the_disk(step):
            if not self._storage.is_directory(target):
                self._storage.remove_tree(target)
            self._storage.make_directory(target)
            self._storage.remove_file(target / MANIFEST_NAME)

    def fetch_files(
        self,
        step: int,
        files: Iterable[DataFile],
        *,
        cancelled: threading.Event,
        on_brought: Callable[[int], None] = _count_nothing,
    ) -> int:
        """Download files of a checkpoint, except for those that are here whole. Gives the number of fetched bytes.

        Raises:
            TransferCancelledError: It was cancelled.
            DamagedCheckpointError: A file in S3 is not whole.
            RemoteError: S3 cannot be read.
            SaveError: The disk refuses.
        """
        target = self._local(step)
        with self._refusals_of_the_disk(step):
            return sum(self._fetch_file(step, file, target / file.name, cancelled, on_brought) for file in files)

    def keep_manifest(self, step: int, found: RemoteManifest) -> None:
        """Write the local manifest, once the files are here.

        Raises:
            SaveError: The disk refuses.
        """
        target = self._local(step)
        with self._refusals_of_the_disk(step):
            draft = target / _DRAFT_NAME
            self._storage.remove_file(draft)
            self._storage.write(draft, found.raw)
            self._storage.sync_directory(target)
            self._storage.rename(draft, target / MANIFEST_NAME)
            self._storage.sync_directory(target)
            self._storage.sync_directory(self._directory.path)
        self._directory.take({step: target.name})
        self._known[target.name] = _as_candidate(found.manifest)

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
        there = self._objects.head(self.place.prefix + name)
        if there is None or not 0 < there.size <= max_bytes:
            return None
        return self._download(self.place.prefix + name, 0, there.size)

    def prune(self, retention: Retention, *, uploading: Collection[int] = ()) -> list[int]:
        """Remove old checkpoints and unfinished uploads. Gives the steps removed.

        Call it when a new checkpoint is there whole. As many of the newest stay as in the local directory.

        Raises:
            RemoteError: S3 refuses.
        """
        found = self._found()
        whole = found.whole
        self._whole = frozenset(whole)
        for key, upload in self._objects.unfinished_uploads(self.place.prefix):
            match = _KEY.fullmatch(key[len(self.place.prefix) :])
            parsed = parse_folder(match.group(1)) if match else None
            step = None if parsed is None else parsed[0]
            # Other ranks may be ahead of this one.
            ahead = not self.share.is_alone and step is not None and step > max(whole, default=-1)
            if step is not None and step not in uploading and not ahead:
                self._objects.abort_upload(key, upload)
        kept = whole[: retention.newest]
        if len(kept) < _FEWEST:
            return []
        older = [step for step in whole if step < kept[-1]]
        spared = retention.spared([self.candidate(step) for step in kept], [self.candidate(step) for step in older])
        removed = [step for step in found.steps if step < kept[-1] and step not in spared and step not in uploading]
        own = self._directory.writer_notes.writer()
        unread = [] if own is None else found.writers.unread(found.folders, by=own)
        for folder in [*unread, *(folder for step in removed for folder in found.folders_of(step, by=own))]:
            self._remove(folder, found.folders[folder])
        for token in sorted(found.notes, reverse=True)[NOTES_KEPT:]:
            self._objects.delete(self.place.prefix + note_name(token))
        return removed

    def remove(self, step: int) -> None:
        """Remove a checkpoint. A missing one is no error.

        Raises:
            RemoteError: S3 refuses.
        """
        found = self._found()
        for folder in found.folders_of(step, by=self._directory.writer_notes.writer()):
            self._remove(folder, found.folders[folder])
        self._folders.pop(step, None)

    def missing(self, retention: Retention) -> list[int]:
        """List the local checkpoints that are to stay beside the newest ones and were not there at the last prune.

        The newest comes first. A newer one took the place of each while it waited. The newest ones of all are not
        given, because they may have to go soon.
        """
        local = self._directory.steps()
        newest, older = local[: retention.newest], local[retention.newest :]
        if not older:
            return []
        spared = retention.spared(
            [self._local_candidate(step) for step in newest], [self._local_candidate(step) for step in older]
        )
        return sorted(spared - self._whole, reverse=True)

    def _require_lock(self) -> None:
        """Refuse to upload a manifest once a later writer has begun, and leave the note of this one.

        Raises:
            LockLostError: If one has.
        """
        own = self._directory.writer_notes.writer()
        if own is None:
            return
        found = self.writers()
        if found.newest is not None and found.newest > own:
            error = LockLostError(str(self.place), own=f"writer {own}", later=str(found.newest))
            self._directory.writer_notes.lose(error)
            raise error
        if own not in found.began:
            self.claim(own, self._directory.writer_notes.writers())

    def _is_there(self, folder: str, size: int, digest: str) -> bool:
        """Say whether a manifest is there. Another one in this folder goes, if this process may replace it."""
        key = self._key(folder, MANIFEST_NAME)
        there = self._objects.head(key)
        if there is None:
            return False
        found = there.labels.get(_LABEL)
        if there.size == size and found == digest:
            return True
        is_own = found is not None and self._own.get(folder) == found
        if not is_own and self._before is not None and self._before.get(folder, "") != there.etag:
            raise RemoteError(
                f"{self._url(folder, MANIFEST_NAME)} is there, and neither this training nor one before it wrote it: "
                "another process writes to the same place. Give each training its own remote=, and end the other one",
                code=ALREADY_THERE[0],
            )
        # It must not vouch for the new one's bytes.
        self._objects.delete(key, etag=there.etag)
        return False

    def _write_manifest(self, folder: str, raw: bytes, digest: str) -> None:
        key = self._key(folder, MANIFEST_NAME)
        try:
            self._objects.write(key, raw, labels={_LABEL: digest}, replace=False)
        except RemoteError as error:
            # An answer may have been lost on its way, after which the SDK asks again.
            if error.code not in ALREADY_THERE or not self._has(key, len(raw), digest):
                raise
        self._own[folder] = digest

    def _not_there(self, name: str, files: Iterable[DataFile]) -> list[DataFile]:
        """Choose the files that S3 does not have."""
        folder = self._key(name, "")
        sizes = {stored.key[len(folder) :]: stored.size for stored in self._objects.listing(folder)}
        return [
            file
            for file in files
            if sizes.get(file.name) != file.size or not self._has(folder + file.name, file.size, _digest(file))
        ]

    def _has(self, key: str, size: int, digest: str) -> bool:
        there = self._objects.head(key)
        return there is not None and there.size == size and there.labels.get(_LABEL) == digest

    def _await(self, upload: Upload, pace: Pace) -> None:
        """Wait until S3 has the files that other ranks send. This rank takes over where they do not come."""
        waiting = list(upload.awaited)
        pause = _FIRST_LOOK_SECONDS
        while waiting:
            lost = self.share.rank_lost.is_set()  # before the look, which shows then all that will ever come
            waiting = self._not_there(upload.folder, waiting)
            if not waiting:
                return
            still = self._seconds_without_progress(upload, len(waiting))
            if self.share.disk_has_all and (lost or still > _TAKE_OVER_SECONDS):
                for file in waiting:
                    with contextlib.closing(self._directory.open_data(upload.step, file)) as opened:
                        self._send_file(upload, file, opened, pace)
                return
            if lost or still > _GIVE_UP_SECONDS:
                names = ", ".join(file.name for file in waiting[:_MOST_NAMED])
                why = "nothing more comes from them" if lost else f"nothing has come for {still:.0f} s"
                raise RemoteError(
                    f"the checkpoint of step {upload.step} is not whole in {self.place}: {names} of other ranks are "
                    f"missing, and {why}"
                )
            if upload.cancelled.wait(pause):
                raise TransferCancelledError
            pause = min(_LOOK_FACTOR * pause, _LONGEST_LOOK_SECONDS)

    def _seconds_without_progress(self, upload: Upload, missing: int) -> float:
        """Give the time since anything more of the missing files of a checkpoint has come to S3."""
        now = time.monotonic()
        before, since = self._progress.get(upload.step, ((0, 0), now))
        parts = before[1]
        if now - since > _PARTS_AFTER_SECONDS:
            # Large files are seen to come by their parts.
            with contextlib.suppress(RemoteError):
                uploads = self._objects.unfinished_uploads(self._key(upload.folder, ""))[:_MOST_NAMED]
                parts = sum(len(self._objects.parts(key, number)) for key, number in uploads)
        since = since if (missing, parts) == before else now
        self._progress = {upload.step: ((missing, parts), since)}
        return now - since

    def _files_here(self, step: int, manifest: Manifest) -> list[DataFile]:
        """Choose the files of a checkpoint that this rank sends, where it did not write it."""
        if self.share.disk_has_all:
            return self.share.of(manifest.files)
        names = self._storage.names(self._directory.path / self._directory.name(step))
        return self.share.of([file for file in manifest.files if file.name in names])

    def _local_manifest(self, step: int) -> tuple[bytes, Manifest]:
        name = f"{self._directory.name(step)}/{MANIFEST_NAME}"
        try:
            raw = bytes(self._storage.read(self._directory.path / name, max_bytes=MAX_MANIFEST_BYTES))
            return raw, parse_manifest(raw)
        except (OSError, ValueError, MalformedManifestError) as error:
            raise DamagedCheckpointError(name, str(error)) from error

    @contextlib.contextmanager
    def _refusals_of_the_disk(self, step: int) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise SaveError(
                f"the checkpoint of step {step} could not be downloaded from {self.place} to {self._directory.path}: "
                f"{error.strerror or error}; {disk_advice(error)}"
            ) from error

    def _remove(self, folder: str, names: Collection[str]) -> None:
        # The manifest goes first: whatever stops us then, no reader takes the rest for a checkpoint.
        for name in sorted(names, key=lambda name: name != MANIFEST_NAME):
            self._objects.delete(self._key(folder, name))
        self._known.pop(folder, None)

    def _send_file(self, upload: Upload, file: DataFile, opened: ReadableFile, pace: Pace) -> None:
        key = self._key(upload.folder, file.name)
        labels = {_LABEL: _digest(file)}
        there = self._objects.head(key)
        if there is not None:
            if (there.size, there.labels) == (file.size, labels):
                upload.count(file.size, sent=False)
                return
            if not self.share.is_first:
                self._await_removal(upload)
        spans = list(_spans(file.size))
        if len(spans) <= 1:
            require_not_cancelled(upload.cancelled)
            pace.wait(file.size, cancelled=upload.cancelled)
            raw = bytearray(file.size)
            checksum = self._read(upload, file, opened, 0, raw)
            self._objects.write(key, raw, labels=labels, checksum=checksum)
            upload.count(file.size, sent=True)
            return
        upload_id, begun = self._begun(key) or (self._objects.begin_upload(key, labels=labels), {})
        parts: list[Part] = []
        # A buffer for each thread, because new memory costs the processor as much as a copy.
        buffers: list[bytearray] = []

        def room(size: int) -> bytearray:
            with contextlib.suppress(IndexError):
                if size == spans[0].size:
                    return buffers.pop()
            return bytearray(size)

        def send(span: _Span) -> None:
            raw = room(span.size)
            checksum = self._read(upload, file, opened, span.start, raw)
            part = begun.get(span.number)
            known = part is not None and part.is_that_of(raw, checksum=checksum)
            if not known:
                pace.wait(span.size, cancelled=upload.cancelled)
                part = self._objects.write_part(key, upload_id, number=span.number, raw=raw, checksum=checksum)
            if part is not None:
                parts.append(part)
            upload.count(span.size, sent=not known)
            if len(raw) == spans[0].size:
                buffers.append(raw)

        transfer(spans, send, cancelled=upload.cancelled)
        self._objects.finish_upload(key, upload_id, parts)

    def _await_removal(self, upload: Upload) -> None:
        """Wait until rank 0 has removed another manifest of this step, which vouches for the file that is there."""
        key, ends = self._key(upload.folder, MANIFEST_NAME), time.monotonic() + _TAKE_OVER_SECONDS
        pause = _FIRST_LOOK_SECONDS
        while self._objects.head(key) is not None:
            if time.monotonic() > ends:
                raise RemoteError(f"another checkpoint of step {upload.step} is in {self.place}, and rank 0 keeps it")
            if upload.cancelled.wait(pause):
                raise TransferCancelledError
            pause = min(_LOOK_FACTOR * pause, _LONGEST_LOOK_SECONDS)

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

    def _read(self, upload: Upload, file: DataFile, opened: ReadableFile, start: int, raw: bytearray) -> int:
        """Fill a buffer with whole chunks of a file, verified. Gives their CRC-32."""
        name = f"{upload.folder}/{file.name}"
        try:
            with memoryview(raw) as memory:
                return read_chunks(opened, file.chunks, start, memory)
        except AlteredChunkError as error:
            raise DamagedCheckpointError(name, str(error), offsets=error.offsets) from error
        except OSError as error:
            raise DamagedCheckpointError(name, f"cannot be read: {error}") from error

    def _fetch_manifest(self, step: int, size: int, *, name: str = MANIFEST_NAME) -> RemoteManifest:
        key, name = self._key(self.name(step), name), self._url(self.name(step), name)
        if not 0 < size <= MAX_MANIFEST_BYTES:
            raise DamagedCheckpointError(name, f"{size:,} bytes" if size else "missing or empty")
        try:
            raw = self._download(key, 0, size)
            manifest = parse_manifest(raw)
        except MalformedManifestError as error:
            raise DamagedCheckpointError(name, str(error)) from error
        if manifest.step != step:
            raise DamagedCheckpointError(name, f"it belongs to step {manifest.step}")
        return RemoteManifest(raw, manifest)

    def _fetch_file(
        self, step: int, file: DataFile, path: Path, cancelled: threading.Event, on_brought: Callable[[int], None]
    ) -> int:
        """Download a data file. It gets its name when it is whole, so nothing is written to one that has been read."""
        if self._is_whole(path, file, on_brought):
            return 0
        key = self._key(self.name(step), file.name)
        draft = path.with_name(path.name + _DRAFT_SUFFIX)
        with self._writable(draft, file.size) as (descriptor, filled):

            def fetch(span: _Span) -> None:
                if filled and _altered(os.pread(descriptor, span.size, span.start), span, file) is None:
                    on_brought(span.size)
                    return
                for attempt in (0, 1):
                    raw = self._download(key, span.start, span.size)
                    chunk = _altered(raw, span, file)
                    if chunk is None:
                        self._storage.write_at(descriptor, memoryview(raw), span.start)
                        on_brought(span.size)
                        return
                    if attempt:
                        start = chunk * CHUNK_BYTES
                        raise DamagedCheckpointError(
                            self._url(self.name(step), file.name),
                            f"altered: chunk {chunk} is not what its checksum vouches for",
                            offsets=(start, min(start + CHUNK_BYTES, file.size)),
                        )

            transfer(_spans(file.size), fetch, cancelled=cancelled)
            self._storage.sync(descriptor)
        self._storage.remove_tree(path)
        self._storage.rename(draft, path)
        return file.size

    @contextlib.contextmanager
    def _writable(self, path: Path, size: int) -> Iterator[tuple[int, bool]]:
        """Open a file of this size to fill it. Gives True with it if it may have content already."""
        descriptor = self._storage.open_to_fill(path)
        try:
            filled = os.fstat(descriptor).st_size > 0
            if not filled and shutil.disk_usage(descriptor).free < size:
                self._storage.remove_file(path)
                raise OSError(errno.ENOSPC, f"{size:,} bytes are needed for {path.name}, and that much is not free")
            os.ftruncate(descriptor, size)
            yield descriptor, filled
        finally:
            os.close(descriptor)

    def _is_whole(self, path: Path, file: DataFile, on_brought: Callable[[int], None]) -> bool:
        with contextlib.suppress(OSError, AlteredChunkError), contextlib.closing(self._storage.open(path)) as opened:
            if opened.size == file.size:
                on_brought(file.size)
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

    def _found(self) -> _Listing:
        """List the checkpoints in S3, and read the notes of their writers."""
        folders: dict[str, dict[str, int]] = {}
        manifests: dict[str, str | None] = {}
        notes: dict[str, int] = {}
        for count, stored in enumerate(self._objects.listing(self.place.prefix)):
            if count >= _MOST_OBJECTS:
                raise RemoteError(
                    f"{self.place} holds more than {_MOST_OBJECTS:,} objects: give the run its own prefix"
                )
            name = stored.key[len(self.place.prefix) :]
            match = _KEY.fullmatch(name)
            if parse_note_name(name) is not None:
                notes[name] = stored.size
            elif match and parse_folder(match.group(1)) is not None:
                folders.setdefault(match.group(1), {})[match.group(2)] = stored.size
                if match.group(2) == MANIFEST_NAME:
                    manifests[match.group(1)] = stored.etag
        self._before = manifests if self._before is None else self._before
        writers = self._read_notes(notes).joined([], names=folders)
        found = _Listing(folders, writers, frozenset(filter(None, map(parse_note_name, notes))))
        self._folders = dict(found.steps)
        return found

    def _read_notes(self, sizes: Mapping[str, int]) -> Writers:
        """Read the notes of these names. One that cannot be read is passed over, because later ones repeat it."""
        notes: dict[str, Writers] = {}
        for name, size in sizes.items():
            if parse_note_name(name) is None or size > MAX_NOTE_BYTES:
                continue
            known = self._notes.get(name)
            try:
                notes[name] = known or Writers.parse(self._download(self.place.prefix + name, 0, size))
            except ValueError as error:
                _logger.warning("passing over the note %s in %s: %s", name, self.place, error)
        self._notes = notes
        return Writers().joined(notes.values(), names=sizes)

    def candidate(self, step: int) -> Candidate:
        """Give the facts of a checkpoint by which it may be kept or chosen.

        Raises:
            RemoteError: S3 cannot be read.
        """
        folder = self.name(step)
        if folder not in self._known:
            try:
                there = self._objects.head(self._key(folder, MANIFEST_NAME))
                found = self._fetch_manifest(step, 0 if there is None else there.size)
                self._known[folder] = _as_candidate(found.manifest)
            except (DamagedCheckpointError, NewerFormatError):
                return Candidate(step=step, damaged=True)
        return self._known[folder]

    def _local_candidate(self, step: int) -> Candidate:
        try:
            return _as_candidate(self._directory.read_manifest(step))
        except (DamagedCheckpointError, NewerFormatError):
            return Candidate(step=step, damaged=True)

    def _local(self, step: int) -> Path:
        """Give the local directory for a checkpoint in S3, with the same name."""
        return self._directory.path / self.name(step)

    def _key(self, folder: str, name: str) -> str:
        return f"{self.place.prefix}{folder}/{name}"

    def _url(self, folder: str, name: str) -> str:
        return f"s3://{self.place.bucket}/{self._key(folder, name)}"


@dataclass(frozen=True)
class _Listing:
    """The checkpoints in S3.

    Attributes:
        folders: The names and sizes of the files in each folder.
        writers: The writers of the folders.
        notes: The writers with a note.
    """

    folders: Mapping[str, Mapping[str, int]]
    writers: Writers
    notes: frozenset[Token]

    @functools.cached_property
    def steps(self) -> dict[int, str]:
        """The folder that readers take of each step, the newest step first. One with a manifest comes first."""
        return self.writers.chosen(self.folders, is_whole=self._is_whole)

    @property
    def whole(self) -> list[int]:
        """The steps with a whole checkpoint, the newest first."""
        return [step for step, folder in self.steps.items() if self._is_whole(folder)]

    def files(self, step: int) -> Mapping[str, int]:
        """Give the names and sizes of the files of a checkpoint."""
        return self.folders[self.steps[step]] if step in self.steps else {}

    def folders_of(self, step: int, *, by: Token | None) -> list[str]:
        """List the folders of a step that a writer may remove, those of all but later writers."""
        return folders_to_remove(self.folders, step=step, by=by)

    def _is_whole(self, folder: str) -> bool:
        return MANIFEST_NAME in self.folders[folder]


def _digest(file: DataFile) -> str:
    """Give a digest of a file's content, from the checksums of its chunks."""
    document = json.dumps([file.name, file.size, list(file.chunks)], separators=(",", ":"))
    return hashlib.sha256(document.encode("ascii")).hexdigest()


def _as_candidate(manifest: Manifest) -> Candidate:
    return Candidate(step=manifest.step, metrics=manifest.metrics, own_ranks=manifest.own_ranks)


def _spans(size: int) -> Iterator[_Span]:
    """Cut a file into parts of whole chunks, few enough for S3."""
    least = -(-size // _MOST_PARTS)
    usual = _LARGE_PART_BYTES if size >= _LARGE_FILE_BYTES else _PART_BYTES
    part = max(usual, -(-least // CHUNK_BYTES) * CHUNK_BYTES)
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
