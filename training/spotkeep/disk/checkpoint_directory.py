"""A directory of checkpoints, with functions that write one whole, read one verified, list them and prune old ones.

One checkpoint is a directory `step-<n>`, or `step-<n>-<token>` by a writer of a run, with data files and a manifest,
written last. Of several of one step readers take that of the latest writer (`writers`). Other names in the directory
(SageMaker's marker files, orphans, foreign files) are passed over. Its files are written once. A process with an open
file reads its old content, also after the checkpoint is removed or saved again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any, Callable

from spotkeep.errors import CheckpointError, DamagedCheckpointError, SaveError
from spotkeep.state.arrays import DeviceBytes
from spotkeep.state.decoding import decode_state
from spotkeep.state.encoding import EncodedState, Json, MalformedStateError
from spotkeep.state.resharding import Piece, SavedBox
from spotkeep.state.restoring import LiveBytes
from spotkeep.version import __version__

from .chunked_files import (
    AlteredChunkError,
    CutChunks,
    Target,
    altered_memory,
    read_data_file,
    read_part,
    write_file,
)
from .manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    DataFile,
    FilePiece,
    MalformedManifestError,
    Manifest,
    Progress,
    RankShare,
    Stream,
    StreamFiles,
    data_file_name,
    manifest_bytes,
    parse_manifest,
)
from .retention import Candidate, Retention
from .staged_state import FileImage, StagedState
from .storage import LocalStorage, ReadableFile, disk_advice
from .upload_markers import UploadWatch
from .writer_notes import WriterNotes
from .writers import Token, Writers, folder_name, folders_to_remove, parse_folder

_logger = logging.getLogger("spotkeep")

_MANIFEST_DRAFT = MANIFEST_NAME + ".draft"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint.

    Attributes:
        step: Completed steps.
        epochs_completed: Completed epochs, when the training counts them.
        state: The plain values.
        metrics: The metrics that the script had logged.
    """

    step: int
    epochs_completed: int | None
    state: dict[str, Any]
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class _Found:
    """The sizes and times of a checkpoint's files when it was found good, and the facts that decide if it stays."""

    names: tuple[str, ...]
    fingerprints: tuple[tuple[int, int, int] | None, ...]
    metrics: Mapping[str, float]
    own_ranks: int


class OpenCheckpoint:
    """A checkpoint whose manifest is verified and whose arrays and tensors are still to be filled.

    Attributes:
        manifest: Its manifest.
        state: Its values. The memory of arrays and tensors holds anything until `fill` has returned.
        document: The state document of these values.
    """

    def __init__(
        self,
        manifest: Manifest,
        state: dict[str, Any],
        *,
        document: Json,
        fill: Callable[[], None],
        altered: Callable[[Sequence[LiveBytes]], list[int]],
    ) -> None:
        self.manifest = manifest
        self.state = state
        self.document = document
        self._fill = fill
        self._altered = altered

    def fill(self) -> None:
        """Read and verify the bytes, straight into the arrays and tensors.

        Raises:
            DamagedCheckpointError: If anything is wrong. Some of them have been filled then.
        """
        self._fill()

    def altered(self, held: Sequence[LiveBytes]) -> list[int]:
        """Find the bytes of a live state that are not those of the checkpoint. Gives their indices.

        Raises:
            DamagedCheckpointError: If the checkpoint has changed since it was read.
        """
        return self._altered(held)


class CheckpointDirectory:
    """The checkpoints of one run on this machine.

    Attributes:
        path: The directory.
        writer_notes: The notes of its writers, and the place of this process among them.

    Args:
        path: The directory. The first write makes it.
        storage: The file operations.
        uploads: Knows which files the platform has already copied to safety.
    """

    def __init__(self, path: Path, *, storage: LocalStorage | None = None, uploads: UploadWatch | None = None) -> None:
        self.path = path
        self._storage = storage or LocalStorage()
        self._uploads = uploads or UploadWatch.for_this_job()
        self._world_size = 1
        # Re-reading gigabytes to prune would cost too much, and a thread that parses manifests holds the training up.
        self._found_good: dict[int, _Found] = {}
        self.writer_notes = WriterNotes(path, storage=self._storage)
        self._folders: dict[int, str] = {}

    def name(self, step: int) -> str:
        """Name the checkpoint of this step. It is the one that readers take, or that this writer is writing."""
        if step not in self._folders:
            self.steps()
        return self._folders.get(step) or folder_name(step, self.writer_notes.token)

    def take(self, names: Mapping[int, str]) -> None:
        """Take these folders for the checkpoints of their steps, as another rank or S3 has chosen them."""
        self._folders.update(names)

    def steps(self) -> list[int]:
        """List the steps that have a directory with a manifest, newest first. Nothing is verified."""
        whole = set(filter(self._has_manifest, self._checkpoints()))
        self._folders = self.writer_notes.writers().chosen(whole, is_whole=whole.__contains__)
        return list(self._folders)

    def begin(
        self, lock: tuple[int, int] | None, *, step: int | None, claim: Callable[[Token, Writers], bool] | None = None
    ) -> None:
        """Begin to write, as `WriterNotes.begin` does."""
        self.writer_notes.begin(lock, step=step, claim=claim)

    def write(
        self,
        encoded: EncodedState,
        *,
        step: int,
        epochs_completed: int | None = None,
        metrics: Mapping[str, float] | None = None,
    ) -> int:
        """Write one checkpoint, whole or not at all. Gives its size in bytes.

        Raises:
            SaveError: The disk refuses. Older checkpoints are unchanged, and the written part of this one is removed.
        """
        staged = StagedState()
        images = staged.arrange(encoded.parts)
        staged.copy(images)
        progress = Progress(epochs_completed, metrics or {})
        return self.write_images(images, encoded.document, step=step, progress=progress)

    def write_images(
        self,
        images: Sequence[FileImage],
        document: Json,
        *,
        step: int,
        progress: Progress,
        wait: Callable[[int], None] | None = None,
    ) -> int:
        """Write one checkpoint from its files' content. Gives its size in bytes.

        Args:
            images: The data files, in order.
            document: The state document.
            step: Completed steps.
            progress: The progress of the training.
            wait: Returns when all bytes of the staged state before a place are there. May raise.

        Raises:
            SaveError: The disk refuses. Older checkpoints are unchanged, and the written part of this one is removed.
        """
        try:
            self._make_place(step)
            files = self._write_files(step, images, range(len(images)), wait=wait)
            return self._commit(step, (files,), document, progress=progress)
        except Exception as error:
            self._abandon(step)
            if isinstance(error, OSError):
                raise SaveError(self._refusal(step, error)) from error
            raise

    def decline(self, problem: Exception) -> None:
        """Take part in a save that this process cannot write, in place of `write_images`.

        A directory of one process has no other rank to answer.

        Args:
            problem: The reason. Every rank fails with it.
        """

    def read_manifest(self, step: int) -> Manifest:
        """Read and verify the manifest of one checkpoint.

        Raises:
            DamagedCheckpointError: It is missing or altered.
            NewerFormatError: A newer library wrote it.
        """
        name = f"{self.name(step)}/{MANIFEST_NAME}"
        try:
            raw = self._storage.read(self.path / name, max_bytes=MAX_MANIFEST_BYTES)
            manifest = parse_manifest(bytes(raw))
        except (OSError, ValueError) as error:
            raise _damage(name, error) from error
        except MalformedManifestError as error:
            raise DamagedCheckpointError(name, str(error)) from error
        if manifest.step != step:
            raise DamagedCheckpointError(name, f"it belongs to step {manifest.step}")
        return manifest

    def open(
        self,
        step: int,
        *,
        live: Mapping[str, Any] | None = None,
        view: Callable[[Manifest], Json] = Manifest.whole_state,
        partly: bool = False,
    ) -> OpenCheckpoint:
        """Read a checkpoint without the content of its arrays and tensors, which `fill` reads.

        Args:
            step: The step of the checkpoint.
            live: The objects of a script. Their arrays and tensors are filled if they have the form of the saved ones.
            view: Gives the state document to read. Only the chunks that hold bytes of it are read and verified.
            partly: Neither this rank nor another one reads the rest.

        Raises:
            DamagedCheckpointError: A file is damaged so far. The message names the file and the problem. Nothing was
                changed.
            NewerFormatError: A newer library wrote it.
        """
        self._found_good.pop(step, None)
        manifest = self.read_manifest(step)
        found = self._found(step, manifest)
        document = view(manifest)
        content = _Content(self, step, manifest)
        try:
            state = decode_state(document, content.read, fill=content, live=live, divided=manifest.divided)
        except MalformedStateError as error:
            raise DamagedCheckpointError(f"{self.name(step)}/{MANIFEST_NAME}", str(error)) from error

        def fill() -> None:
            content.fill()
            if manifest.world_size == self._world_size and not partly:
                # Of several ranks each looks at its own part; if one finds damage there, all of them `distrust` it.
                self._found_good[step] = found

        return OpenCheckpoint(manifest, state, document=document, fill=fill, altered=content.altered)

    def read(self, step: int) -> Checkpoint:
        """Read one checkpoint and verify every byte of it.

        Raises:
            DamagedCheckpointError: A file is damaged. The message names the file and the problem.
            NewerFormatError: A newer library wrote it.
        """
        found = self.open(step)
        found.fill()
        manifest = found.manifest
        return Checkpoint(
            step=step, epochs_completed=manifest.epochs_completed, state=found.state, metrics=manifest.metrics
        )

    def verify(
        self,
        step: int,
        *,
        view: Callable[[Manifest], Json] | None = None,
        on_file: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Verify the bytes of one checkpoint without building its values.

        Args:
            step: The step of the checkpoint.
            view: Gives a state document. The files of the streams that it refers to are verified. None for all files.
            on_file: Called with the size in bytes of each file that is going to be read.

        Raises:
            DamagedCheckpointError: If anything about them is wrong.
            NewerFormatError: If a newer library wrote it.
        """
        if self._still_good(step) is not None:
            return
        self._found_good.pop(step, None)
        manifest = self.read_manifest(step)
        found = self._found(step, manifest)
        try:
            files = manifest.files if view is None else manifest.files_for(view(manifest))
        except RecursionError as error:
            raise DamagedCheckpointError(f"{self.name(step)}/{MANIFEST_NAME}", "nested too deeply") from error
        _Content(self, step, manifest).verify(files, on_file=on_file)
        if len(files) == len(manifest.files):
            self._found_good[step] = found

    def distrust(self, step: int) -> None:
        """Take a checkpoint for damaged until it is verified anew, because another reader has found damage."""
        self._found_good.pop(step, None)

    def prune(self, retention: Retention) -> list[int]:
        """Remove old checkpoints. Gives the steps removed.

        The newest good ones stay, at least two, and everything newer than the oldest one of them. Of the older ones
        those stay that `Retention` spares. SageMaker copies the directory and mirrors deletions. There more stay, until
        two of them have been copied. A writer that has lost its lock removes nothing. One whose note the disk has
        refused removes those of the writers before it, because a full disk is the usual reason.
        """
        if not self.writer_notes.may_remove():
            return []
        kept: list[int] = []
        durable = 0
        candidates = iter(self._step_directories())
        for step in candidates:
            try:
                self.verify(step)
            except CheckpointError:
                continue
            kept.append(step)
            durable += self._outlives_us(step)
            if len(kept) >= retention.newest and durable >= 2:
                break
        else:
            return []
        older = list(candidates)
        spared = retention.spared([self.candidate(step) for step in kept], [self.candidate(step) for step in older])
        removed = []
        for step in older:
            if step not in spared and all(map(self._try_to_clear, self._folders_of(step))):
                self.distrust(step)
                self._folders.pop(step, None)
                removed.append(step)
        self._remove_unread()
        return removed

    def remove(self, step: int) -> None:
        """Remove a checkpoint. A missing one is no error.

        Raises:
            SaveError: If the disk refuses.
        """
        self.distrust(step)
        try:
            for folder in self._folders_of(step):
                self._clear(folder)
        except OSError as error:
            raise SaveError(
                f"{self.name(step)} in {self.path} could not be removed: {error.strerror or error}; "
                f"{disk_advice(error)}"
            ) from error
        self._folders.pop(step, None)

    def keep_only(self, kept: str | None) -> None:
        """Remove the checkpoints of all writers, whole or not, except for one folder.

        Args:
            kept: The name of that folder. None for no exception.

        Raises:
            OSError: If the disk refuses.
        """
        for name in self._checkpoints():
            if name != kept:
                self._clear(self.path / name)
        self._found_good.clear()
        self.steps()

    def open_data(self, step: int, file: DataFile) -> ReadableFile:
        """Open one data file of the right size.

        Raises:
            DamagedCheckpointError: If it is missing, of another size, or not a plain file.
        """
        name = f"{self.name(step)}/{file.name}"
        try:
            found = self._storage.open(self._at(step) / file.name)
        except OSError as error:
            raise _damage(name, error) from error
        if found.size != file.size:
            found.close()
            more = "more than the" if found.size > file.size else "instead of"
            raise DamagedCheckpointError(name, f"{found.size:,} bytes, {more} {file.size:,} it was written with")
        return found

    def _outlives_us(self, step: int) -> bool:
        """Tell if a checkpoint lies in a place that outlives this machine, if there is such a place."""
        return self._uploads.is_durable(self._at(step), self._storage)

    def candidate(self, step: int) -> Candidate:
        """Give the facts of a checkpoint by which it may be kept or chosen."""
        known = self._still_good(step)
        try:
            found = self.read_manifest(step) if known is None else known
            return Candidate(step=step, metrics=found.metrics, own_ranks=found.own_ranks)
        except CheckpointError:
            # What cannot say how good it was is not spared for it, and a damaged one is not spared at all.
            return Candidate(step=step, metrics={}, damaged=True)

    def _at(self, step: int) -> Path:
        return self.path / self.name(step)

    def _checkpoints(self) -> list[str]:
        """List the directories of checkpoints, of all writers, whole or not."""
        names = self._storage.names(self.path)
        return [
            name for name in names if parse_folder(name) is not None and self._storage.is_directory(self.path / name)
        ]

    def _has_manifest(self, name: str) -> bool:
        return MANIFEST_NAME in self._storage.names(self.path / name)

    def _step_directories(self) -> list[int]:
        return sorted(self.writer_notes.writers().readable(self._checkpoints()), reverse=True)

    def _own(self, step: int) -> Path:
        """Give the directory in which this writer writes a checkpoint."""
        return self.path / folder_name(step, self.writer_notes.token)

    def _remove_unread(self) -> None:
        """Remove the checkpoints of replaced writers that no reader takes, and their notes."""
        if self.writer_notes.token is None:
            return
        for name in self.writer_notes.writers().unread(self._checkpoints(), by=self.writer_notes.token):
            _logger.info("removing %s, because a later writer went on from an older checkpoint", name)
            self._try_to_clear(self.path / name)
        self.writer_notes.remove_old()

    def _folders_of(self, step: int) -> list[Path]:
        """List the directories of a step, except for those of later writers."""
        names = folders_to_remove(self._storage.names(self.path), step=step, by=self.writer_notes.removes_up_to)
        return [self.path / name for name in names]

    def _try_to_clear(self, target: Path) -> bool:
        try:
            self._clear(target)
        except OSError as error:
            _logger.warning("could not remove the old checkpoint %s: %s", target.name, error)
            return False
        return True

    def _clear(self, target: Path) -> None:
        # The manifest goes first: whatever stops us then, no reader takes the rest for a checkpoint.
        if self._storage.is_directory(target) and MANIFEST_NAME in self._storage.names(target):
            self._storage.remove_file(target / MANIFEST_NAME)
            self._storage.sync_directory(target)
        self._storage.remove_tree(target)

    def _make_place(self, step: int) -> None:
        """Make an empty directory for a checkpoint."""
        self.writer_notes.require_no_later_writer()
        self._storage.make_directory(self.path)
        self._clear(self._own(step))
        self._storage.make_directory(self._own(step))

    def _write_files(
        self,
        step: int,
        images: Sequence[FileImage],
        numbers: Sequence[int],
        *,
        wait: Callable[[int], None] | None,
    ) -> Stream:
        """Write data files. The disk has them then, and the directory they are in.

        Args:
            step: The step of the checkpoint.
            images: Their content.
            numbers: The number of each one's file.
            wait: See `write_images`.
        """
        files = [self._write_data(step, data_file_name(number), image, wait) for number, image in zip(numbers, images)]
        # Not before: a file system that keeps a journal would hold the writes up, and now it has these down already.
        self._storage.sync_directory(self._own(step))
        return tuple(files)

    def _write_data(self, step: int, name: str, image: FileImage, wait: Callable[[int], None] | None) -> DataFile:
        wait_here = None if wait is None else (lambda end: wait(image.start + end))
        write_file(self._storage, self._own(step) / name, image.raw, wait=wait_here)
        return DataFile(name=name, size=len(image.raw), chunks=tuple(image.checksums))

    def _commit(
        self,
        step: int,
        streams: Sequence[Stream],
        document: Json,
        *,
        progress: Progress,
        ranks: Sequence[RankShare] = (),
        divided: Sequence[Sequence[SavedBox]] = (),
    ) -> int:
        """Write the manifest. Gives the size of the checkpoint in bytes."""
        self.writer_notes.require_no_later_writer()
        target = self._own(step)
        manifest = Manifest(
            step=step,
            epochs_completed=progress.epochs_completed,
            created=round(time.time(), 3),
            library=f"spotkeep {__version__}",
            streams=tuple(streams),
            state=document,
            metrics=progress.metrics,
            measured_at=progress.measured_at,
            made_by=progress.made_by,
            metadata=progress.metadata,
            ranks=tuple(ranks),
            divided=tuple(map(tuple, divided)),
        )
        raw = manifest_bytes(manifest)
        self._storage.write(target / _MANIFEST_DRAFT, raw)
        # The disk has the data and their entries: now it may get the name that vouches for them.
        self._storage.rename(target / _MANIFEST_DRAFT, target / MANIFEST_NAME)
        self._storage.sync_directory(target)
        self._folders[step] = target.name
        self._found_good[step] = self._found(step, manifest)
        return len(raw) + sum(file.size for file in manifest.files)

    def _abandon(self, step: int) -> None:
        """Remove the written part of a checkpoint that failed."""
        self._found_good.pop(step, None)
        with contextlib.suppress(OSError):
            self._clear(self._own(step))

    def _found(self, step: int, manifest: Manifest) -> _Found:
        names = (MANIFEST_NAME, *(file.name for file in manifest.files))
        return _Found(names, self._fingerprints(step, names), manifest.metrics, manifest.own_ranks)

    def _still_good(self, step: int) -> _Found | None:
        known = self._found_good.get(step)
        return known if known is not None and known.fingerprints == self._fingerprints(step, known.names) else None

    def _fingerprints(self, step: int, names: Sequence[str]) -> tuple[tuple[int, int, int] | None, ...]:
        return tuple(self._storage.fingerprint(self._at(step) / name) for name in names)

    def _refusal(self, step: int, error: OSError) -> str:
        return (
            f"the checkpoint of step {step} could not be written to {self.path}, and older ones are as they were: "
            f"{error.strerror or error}; {disk_advice(error)}"
        )


class _Content:
    """The streams of one checkpoint. Their chunks go to the memory that waits for them."""

    def __init__(self, directory: CheckpointDirectory, step: int, manifest: Manifest) -> None:
        self._directory = directory
        self._step = step
        self._streams = list(map(StreamFiles, manifest.streams))
        self._targets: dict[str, tuple[DataFile, list[Target]]] = {}
        self._cut: dict[str, CutChunks] = {}
        self._finally: list[Callable[[], None]] = []

    def read(self, stream: int, offset: int, size: int) -> bytes:
        """Read and verify some bytes now."""
        parts = []
        for piece in self._pieces(stream, offset, size):
            with self._opened(piece.file) as opened:
                parts.append(read_part(opened, piece.file.chunks, piece.start, piece.size))
        return b"".join(parts)

    def later(self, stream: int, offset: int, piece: Piece) -> None:
        """Remember the memory for some bytes."""
        for found in self._pieces(stream, offset, len(piece)):
            target = piece[found.before : found.before + found.size]
            self._targets[found.file.name][1].append((found.start, target))

    def finally_do(self, act: Callable[[], None]) -> None:
        """Remember a function to call when all memory is filled."""
        self._finally.append(act)

    def fill(self) -> None:
        """Read and verify the chunks that hold remembered bytes, and fill the waiting memory."""
        for file, targets in self._targets.values():
            with self._opened(file) as opened:
                cut = self._cut.setdefault(file.name, {})
                read_data_file(opened, file.chunks, sorted(targets, key=itemgetter(0)), cut=cut)
        for act in self._finally:
            act()

    def verify(self, files: Sequence[DataFile], *, on_file: Callable[[int], None]) -> None:
        """Read and verify whole files."""
        for file in files:
            self._require(file)
        for file in files:
            on_file(file.size)
            with self._opened(file) as opened:
                read_data_file(opened, file.chunks)

    def altered(self, held: Sequence[LiveBytes]) -> list[int]:
        """Find the bytes that are not those of the files. Gives their indices."""
        by_file: dict[str, list[tuple[FilePiece, int, Piece | DeviceBytes]]] = {}
        for index, one in enumerate(held):
            for stream, offset, piece in one.pieces:
                for found in self._pieces(stream, offset, len(piece)):
                    by_file.setdefault(found.file.name, []).append((found, index, piece))
        altered: set[int] = set()
        for places in by_file.values():
            places.sort(key=lambda place: place[0].start)
            # What is on a GPU is fetched for one file at a time.
            memory = [(found.start, _part(piece, found)) for found, _, piece in places]
            file = places[0][0].file
            cut = self._cut.get(file.name)
            with self._opened(file) as opened:
                altered |= {places[number][1] for number in altered_memory(opened, file.chunks, memory, cut=cut)}
        return sorted(altered)

    def _pieces(self, stream: int, offset: int, size: int) -> list[FilePiece]:
        """Find the files that hold some bytes. They are there, and as large as the manifest says."""
        if stream >= len(self._streams):
            raise MalformedStateError(f"it refers to the stream {stream}, which does not exist")
        found = self._streams[stream].pieces(offset, size)
        for piece in found:
            self._require(piece.file)
        return found

    def _require(self, file: DataFile) -> None:
        # Before any memory is filled: what the manifest promises is really there.
        if file.name not in self._targets:
            self._directory.open_data(self._step, file).close()
            self._targets[file.name] = (file, [])

    @contextlib.contextmanager
    def _opened(self, file: DataFile) -> Iterator[ReadableFile]:
        name = f"{self._directory.name(self._step)}/{file.name}"
        with contextlib.closing(self._directory.open_data(self._step, file)) as opened:
            try:
                yield opened
            except AlteredChunkError as error:
                raise DamagedCheckpointError(name, str(error), offsets=error.offsets) from error
            except OSError as error:
                raise _damage(name, error) from error


def _part(piece: Piece | DeviceBytes, found: FilePiece) -> Piece:
    """Give the part of some live bytes that belongs to one file."""
    start, end = found.before, found.before + found.size
    return memoryview(piece.part(start, end).fetch()) if isinstance(piece, DeviceBytes) else piece[start:end]


def _damage(name: str, error: Exception) -> DamagedCheckpointError:
    """Name the problem of a file that could not be opened or read."""
    if isinstance(error, FileNotFoundError):
        return DamagedCheckpointError(name, "missing: it was never written or copied whole")
    if isinstance(error, OSError) and error.errno == errno.ELOOP:
        return DamagedCheckpointError(name, "not a regular file")
    return DamagedCheckpointError(name, f"cannot be read: {error}")
