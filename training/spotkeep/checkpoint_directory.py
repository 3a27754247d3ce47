"""A directory of checkpoints: write one whole, read one verified, list them, prune old ones.

One checkpoint is a directory `step-<n>` that holds data files and, written last, a manifest. Other names in the
directory (SageMaker's marker files, leftovers, strangers) are passed over.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .arrays import Buffer
from .errors import CheckpointError, DamagedCheckpointError, SaveError
from .manifest import (
    CHUNK_BYTES,
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    DataFile,
    MalformedManifestError,
    Manifest,
    RunningChecksums,
    chunk_checksums,
    data_file_name,
    manifest_bytes,
    parse_manifest,
)
from .state_encoding import Blob, EncodedState, MalformedStateError, decode_state
from .storage import LocalStorage
from .upload_markers import UploadWatch
from .version import __version__

_logger = logging.getLogger("spotkeep")

_STEP_NAME = re.compile(r"step-(0|[1-9][0-9]{0,17})")
_MANIFEST_DRAFT = MANIFEST_NAME + ".draft"


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint.

    Attributes:
        step: Completed steps.
        epochs_completed: Completed epochs, when the training counts them.
        state: The plain values.
    """

    step: int
    epochs_completed: int | None
    state: dict[str, Any]


class CheckpointDirectory:
    """The checkpoints of one run on this machine.

    Args:
        path: Where they are; made when the first one is written.
        storage: The file operations.
        uploads: Knows which files the platform has already copied to safety.
    """

    def __init__(self, path: Path, *, storage: LocalStorage | None = None, uploads: UploadWatch | None = None) -> None:
        self.path = path
        self._storage = storage or LocalStorage()
        self._uploads = uploads or UploadWatch.for_this_job()
        # What was found good, and how its files looked then: re-reading gigabytes to prune would cost too much.
        self._found_good: dict[int, tuple[Any, ...]] = {}

    @staticmethod
    def name(step: int) -> str:
        """Name the checkpoint of this step."""
        return f"step-{step}"

    def steps(self) -> list[int]:
        """List the steps that have a directory with a manifest, newest first. Nothing is verified."""
        return [step for step in self._step_directories() if MANIFEST_NAME in self._storage.names(self._at(step))]

    def write(self, encoded: EncodedState, *, step: int, epochs_completed: int | None = None) -> int:
        """Write one checkpoint, whole or not at all. Gives its size in bytes.

        Raises:
            SaveError: If the disk refuses; nothing older is touched, and what was written of this one is removed.
        """
        target = self._at(step)
        try:
            self._storage.make_directory(self.path)
            self._clear(target)
            self._storage.make_directory(target)
            files = [self._write_data(target, index, blobs) for index, blobs in _by_file(encoded.blobs)]
            manifest = Manifest(
                step=step,
                epochs_completed=epochs_completed,
                created=round(time.time(), 3),
                library=f"spotkeep {__version__}",
                files=tuple(files),
                state=encoded.document,
            )
            raw = manifest_bytes(manifest)
            self._storage.write(target / _MANIFEST_DRAFT, [raw])
            # The data's entries must be on the disk before the name that vouches for them is.
            self._storage.sync_directory(target)
            self._storage.rename(target / _MANIFEST_DRAFT, target / MANIFEST_NAME)
            self._storage.sync_directory(target)
            self._storage.sync_directory(self.path)
        except OSError as error:
            self._found_good.pop(step, None)
            with contextlib.suppress(OSError):
                self._clear(target)
            raise SaveError(self._refusal(step, error)) from error
        self._found_good[step] = self._fingerprint(step, manifest)
        return len(raw) + sum(file.size for file in files)

    def read(self, step: int) -> Checkpoint:
        """Read one checkpoint and verify every byte of it.

        Raises:
            DamagedCheckpointError: If anything about it is wrong; names the file and the problem.
            NewerFormatError: If a newer library wrote it.
        """
        self._found_good.pop(step, None)
        manifest = self._read_manifest(step)
        fingerprint = self._fingerprint(step, manifest)
        loaded = _LoadedFiles(self, step, manifest)
        try:
            state = decode_state(manifest.state, loaded.read)
        except MalformedStateError as error:
            raise DamagedCheckpointError(f"{self.name(step)}/{MANIFEST_NAME}", str(error)) from error
        loaded.verify_rest()
        self._found_good[step] = fingerprint
        return Checkpoint(step=step, epochs_completed=manifest.epochs_completed, state=state)

    def verify(self, step: int) -> None:
        """Verify every byte of one checkpoint without building its values.

        Raises:
            DamagedCheckpointError: If anything about it is wrong.
            NewerFormatError: If a newer library wrote it.
        """
        manifest = self._read_manifest(step)
        fingerprint = self._fingerprint(step, manifest)
        if self._found_good.get(step) == fingerprint:
            return
        self._found_good.pop(step, None)
        for file in manifest.files:
            self.read_data(step, file)
        self._found_good[step] = fingerprint

    def prune(self, *, keep_last: int) -> list[int]:
        """Remove checkpoints older than the newest `keep_last` good ones. Gives the steps removed.

        The newest two good ones always stay, and so does everything newer than the oldest one kept. Where a platform
        copies the directory (and mirrors deletions), nothing goes before the ones that stay have been copied.
        """
        keep_last = max(keep_last, 2)
        kept: list[int] = []
        candidates = iter(self._step_directories())
        for step in candidates:
            try:
                self.verify(step)
            except CheckpointError:
                continue
            kept.append(step)
            if len(kept) == keep_last:
                break
        else:
            return []
        durable = [step for step in kept if self._uploads.is_durable(self._at(step), self._storage)]
        if len(durable) < 2:
            return []
        removed = []
        for step in candidates:
            try:
                self._clear(self._at(step))
            except OSError as error:
                _logger.warning("could not remove the old checkpoint %s: %s", self.name(step), error)
                continue
            self._found_good.pop(step, None)
            removed.append(step)
        return removed

    def read_data(self, step: int, file: DataFile) -> bytearray:
        """Read one data file and verify it.

        Raises:
            DamagedCheckpointError: If its size or a checksum is wrong, or it is not a plain file.
        """
        name = f"{self.name(step)}/{file.name}"
        raw = self._read_file(self._at(step) / file.name, name, max_bytes=file.size)
        if len(raw) != file.size:
            raise DamagedCheckpointError(name, f"{len(raw):,} bytes instead of {file.size:,}")
        for index, (found, expected) in enumerate(zip(chunk_checksums(raw), file.chunks)):
            if found != expected:
                start = index * CHUNK_BYTES
                raise DamagedCheckpointError(
                    name,
                    f"altered: chunk {index} has checksum {found} instead of {expected}",
                    offsets=(start, min(start + CHUNK_BYTES, file.size)),
                )
        return raw

    def _at(self, step: int) -> Path:
        return self.path / self.name(step)

    def _step_directories(self) -> list[int]:
        found = (_STEP_NAME.fullmatch(name) for name in self._storage.names(self.path))
        steps = (int(match.group(1)) for match in found if match)
        return sorted((step for step in steps if self._storage.is_directory(self._at(step))), reverse=True)

    def _clear(self, target: Path) -> None:
        # The manifest goes first: whatever stops us then, no reader takes the rest for a checkpoint.
        if self._storage.is_directory(target) and MANIFEST_NAME in self._storage.names(target):
            self._storage.remove_file(target / MANIFEST_NAME)
            self._storage.sync_directory(target)
        self._storage.remove_tree(target)

    def _write_data(self, target: Path, index: int, blobs: list[Blob]) -> DataFile:
        name = data_file_name(index)
        checksums = RunningChecksums()

        def pieces() -> Iterator[Buffer]:
            end = 0
            for blob in blobs:
                for piece in (bytes(blob.offset - end), blob.raw):
                    checksums.update(piece)
                    yield piece
                end = blob.offset + len(blob.raw)

        size = self._storage.write(target / name, pieces())
        return DataFile(name=name, size=size, chunks=checksums.finish())

    def _read_manifest(self, step: int) -> Manifest:
        name = f"{self.name(step)}/{MANIFEST_NAME}"
        raw = self._read_file(self._at(step) / MANIFEST_NAME, name, max_bytes=MAX_MANIFEST_BYTES)
        try:
            manifest = parse_manifest(bytes(raw))
        except MalformedManifestError as error:
            raise DamagedCheckpointError(name, str(error)) from error
        if manifest.step != step:
            raise DamagedCheckpointError(name, f"it belongs to step {manifest.step}")
        return manifest

    def _read_file(self, path: Path, name: str, *, max_bytes: int) -> bytearray:
        try:
            return self._storage.read(path, max_bytes=max_bytes)
        except FileNotFoundError as error:
            raise DamagedCheckpointError(name, "missing: it was never written or copied whole") from error
        except OSError as error:
            problem = "not a regular file" if error.errno == errno.ELOOP else f"cannot be read: {error}"
            raise DamagedCheckpointError(name, problem) from error
        except ValueError as error:
            raise DamagedCheckpointError(name, str(error)) from error

    def _fingerprint(self, step: int, manifest: Manifest) -> tuple[Any, ...]:
        names = [MANIFEST_NAME, *(file.name for file in manifest.files)]
        return tuple(self._storage.fingerprint(self._at(step) / name) for name in names)

    def _refusal(self, step: int, error: OSError) -> str:
        hint = "older checkpoints are as they were"
        if error.errno == errno.ENOSPC:
            hint = "the disk is full: give the job a larger volume (volume_size_gb) or keep fewer checkpoints"
        return f"the checkpoint of step {step} could not be written to {self.path}: {error.strerror or error}; {hint}"


class _LoadedFiles:
    """The data files of one checkpoint, each read and verified once, one in memory at a time."""

    def __init__(self, directory: CheckpointDirectory, step: int, manifest: Manifest) -> None:
        self._directory = directory
        self._step = step
        self._files = manifest.files
        self._next_unread = 0
        self._index = -1
        self._raw = bytearray()

    def read(self, file_index: int, offset: int, size: int) -> memoryview:
        """Give some bytes; asked for in the order of the files."""
        if file_index >= len(self._files):
            raise MalformedStateError(f"it refers to the data file {file_index}, which does not exist")
        if file_index != self._index:
            self._raw = bytearray()
            self._verify_until(file_index)
            self._raw = self._directory.read_data(self._step, self._files[file_index])
            self._index, self._next_unread = file_index, file_index + 1
        if offset + size > len(self._raw):
            raise MalformedStateError(f"it refers to bytes beyond the end of {self._files[file_index].name}")
        return memoryview(self._raw)[offset : offset + size]

    def verify_rest(self) -> None:
        """Verify the files that no value needed."""
        self._verify_until(len(self._files))

    def _verify_until(self, file_index: int) -> None:
        for file in self._files[self._next_unread : file_index]:
            self._directory.read_data(self._step, file)
        self._next_unread = max(self._next_unread, file_index)


def _by_file(blobs: tuple[Blob, ...]) -> Iterator[tuple[int, list[Blob]]]:
    groups: dict[int, list[Blob]] = {}
    for blob in blobs:
        groups.setdefault(blob.file_index, []).append(blob)
    return iter(sorted(groups.items()))
