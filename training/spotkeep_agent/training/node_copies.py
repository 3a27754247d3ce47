"""Copies of the checkpoints of a run on several instances. Each has a disk of its own, and S3 is all that they share.

A node's disk has the files that its ranks wrote of a checkpoint. The leader's disk has the manifest too, because rank 0
writes it. When the leader begins to send a checkpoint, it asks the other nodes to send their files of that folder. It
sends the manifest once S3 has the files of all nodes. The leader alone chooses the next checkpoint, so no node goes on
with one that the leader has given up.

A world goes on from the newest checkpoint that is whole in S3. Each node removes every other one from its disk, and
brings it. So a file that a world saved and did not bring to S3 is read by no later world. Then the leader leaves a
note of a writer in S3. From then on a leader that was replaced uploads no manifest, and no reader takes one that it
uploads in that moment.

The script's own files are copied from the leader's disk alone, until a later world has begun.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Callable, ClassVar

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.chunk_checksums import chunk_checksums
from spotkeep.disk.manifest import CHUNK_BYTES, DataFile, is_data_file_name
from spotkeep.disk.storage import LocalStorage, ReadableFile
from spotkeep.disk.writers import parse_folder
from spotkeep.errors import DamagedCheckpointError, LockLostError, NewerFormatError
from spotkeep.notices.notice import EXIT_INTERRUPTED
from spotkeep.remote.background_upload import UploadOutcome
from spotkeep.remote.remote_checkpoints import RemoteCheckpoints, Upload
from spotkeep.remote.s3_objects import S3Objects, S3Place
from spotkeep.remote.transfer import Pace, require_not_cancelled
from spotkeep.remote.upload_share import UploadNote, UploadShare
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.aws.calls import AwsCalls

from .checkpoint_copies import CheckpointCopies, unusable_checkpoints
from .script_files import SCAN_SECONDS

_LOOK_SECONDS = 0.2
_READ_BYTES = 8 * CHUNK_BYTES

_logger = logging.getLogger("spotkeep.agent")


class NodeCopies(CheckpointCopies):
    """Copies of the checkpoints of a run on several instances, as one of its nodes makes them.

    A world begins with `bring` on each node, `claim` on the leader's node, and `start`. It ends with `finish` on each
    node, and then `newest_whole` on the node that leads the next world.

    Args:
        uri: `s3://bucket/prefix`.
        files: The files on this node's disk, with the rights of the user that trains.
        kept: A folder on the disk that is the agent's own.
        calls: The calls to S3.
        fetching: The calls to S3 for files that are fetched before the training starts.
        cancelled: Set it to cancel that fetching.
        break_off: The function that makes all calls to S3 fail, those under way and later ones.
        on_uploaded: Called on the leader's node with the step of each checkpoint that is whole in S3.
        ask: Called on the leader's node, in a thread of its own, with the step and the folder of a checkpoint that the
            other nodes of the world shall send now. They call `send_own`.
        on_sent: Called on another node with the step, when it has sent its files as far as it can.
        scan_seconds: Seconds between two scans for files of the script's own.

    Attributes:
        next_world_needs_s3: True where the next world goes on from S3 alone, so that the last one waits for its copies.
    """

    next_world_needs_s3: ClassVar[bool] = True

    _in_s3: int | None
    _newest: int | None
    _asked: int | None
    _sending: int | None
    _claimed: tuple[int, int] | None

    def __init__(
        self,
        uri: str,
        files: UserFiles,
        *,
        kept: Path,
        calls: AwsCalls,
        fetching: AwsCalls,
        cancelled: threading.Event,
        break_off: Callable[[], None],
        on_uploaded: Callable[[int], None],
        ask: Callable[[int, str], None],
        on_sent: Callable[[int], None],
        scan_seconds: float = SCAN_SECONDS,
    ) -> None:
        self._ask = ask
        self._on_sent = on_sent
        self._leads = self._has_files = False
        self._lock = threading.Lock()
        self._brought_bytes = 0
        super().__init__(
            uri,
            files,
            kept=kept,
            calls=calls,
            fetching=fetching,
            cancelled=cancelled,
            break_off=break_off,
            on_uploaded=on_uploaded,
            scan_seconds=scan_seconds,
        )
        self._reset(step=None)

    @property
    def brought_bytes(self) -> int:
        """Number of bytes that this node has brought of the checkpoints of all worlds."""
        return self._brought_bytes

    # The beginning of a world

    def newest_whole(self, *, before: int | None = None) -> int | None:
        """Find the step of the newest checkpoint that is whole in S3, by the rule of its writers.

        The leader asks under the lease, after `finish`. So it finds each checkpoint that a leader before it reported.

        Args:
            before: A step that a node cannot bring. An older one is looked for. None for the newest of all.

        Returns:
            The step, or None without a checkpoint.

        Raises:
            CheckpointError: If S3 cannot be read. Going on would lose the checkpoints there.
            InputError: If S3 has checkpoints, and none of them can be used.
        """
        steps = self._fetched.steps()
        why = "a node cannot bring it"
        for step in steps:
            if before is not None and step >= before:
                continue
            try:
                self._fetched.read_manifest(step)
            except (DamagedCheckpointError, NewerFormatError) as error:
                _logger.warning("the checkpoint of step %d in S3 cannot be used: %s", step, error)
                why = str(error)
                continue
            return step
        if steps:
            raise unusable_checkpoints(steps, why=why)
        return None

    def bring(self, step: int | None, *, nodes: int, leads: bool) -> None:
        """Remove every other checkpoint from this disk, and bring the one that a world goes on from.

        A file that is here whole is not fetched. The leader's node gets the files of the script's own, too.

        Args:
            step: The step that the leader names. None where the run begins.
            nodes: Number of nodes of the world.
            leads: True on the leader's node.

        Raises:
            TransferCancelledError: If `cancelled` was set.
            DamagedCheckpointError: If the checkpoint in S3 is not whole. The leader names an older one then.
            CheckpointError: If S3 cannot be read, or the disk refuses.
            OSError: If the disk cannot be read or written.
        """
        # This disk may have the note of a world that S3 has never heard of.
        self._directory.writer_notes.forget()
        self._fetched.learn_writers()
        # No other world may read a newer one. Rank 0 would read an older one of which the other nodes lack files.
        self._directory.keep_only(None if step is None else self._fetched.name(step))
        if step is not None:
            self._fetched.fetch(step, cancelled=self._cancelled, on_brought=self._count_brought)
        self._leads = leads
        self._reset(step=step)
        self._begin(self._files_to_send(nodes))
        has_files, self._has_files = self._has_files, False
        if leads:
            # Where another node was the leader meanwhile, S3 is newer.
            self._files.restore(cancelled=self._cancelled, again=not has_files, on_brought=self._count_brought)
        self._has_files = leads
        self._is_sending = True

    def claim(self, lock: tuple[int, int], *, step: int | None) -> None:
        """Leave a note in S3 that a world goes on from this step, before its ranks start.

        Args:
            lock: The attempt, and the fence of the lease.
            step: The step that all nodes have brought.

        Raises:
            LockLostError: If a later world has begun.
            RemoteError: If S3 refuses.
            SaveError: If the disk refuses.
        """
        self._fetched.learn_writers()
        self._directory.begin(lock, step=step, claim=self._fetched.claim)
        self._claimed = lock
        self._directory.writer_notes.serve(lock)

    def start(self) -> None:
        """Begin to copy the files that the script writes beside the checkpoints, on the leader's node."""
        if self._leads:
            super().start()

    # The copies of a world

    def offer(self, step: int) -> None:
        """Copy a checkpoint next that is durable on all nodes, on the leader's node."""
        self._newest = step
        self._upload.offer(step)

    def send_own(self, folder: str) -> None:
        """Send this node's files of a checkpoint, as the leader asks. They take the place of those of the last one.

        Args:
            folder: The name of the folder.

        Raises:
            ValueError: If it is no name of a checkpoint's folder.
        """
        parsed = parse_folder(folder)
        if parsed is None or self._leads:
            raise ValueError(f"{folder[:80]!r} is no checkpoint that this node can send")
        step = parsed[0]
        self._directory.take({step: folder})
        self._upload.offer(step)
        self._sending = step

    def others_have_sent(self, step: int, *, one_is_gone: bool) -> None:
        """Note that no other node sends more of a checkpoint. Each has sent its files as far as it can, or is gone.

        Args:
            step: The step of the checkpoint.
            one_is_gone: True where a node of the world is gone, so that asking again brings nothing.
        """
        with self._lock:
            if step == self._asked:
                self._is_hopeless = one_is_gone
                self._nothing_comes.set()

    def leader_is_done(self) -> None:
        """Note that the leader asks for no more files of this world, or is gone."""
        self._over.set()

    def finish(self, seconds_left: Callable[[], float], *, exit_code: int | None, goes_on: bool) -> bool:
        """Wait for the copies of a world up to a limit, the newest checkpoint first. Return True when all have arrived.

        The leader ends its wait when a node is gone whose files are missing, or a later world has begun. Other nodes
        wait for `leader_is_done`.

        Args:
            seconds_left: The function that gives the seconds left, called again and again.
            exit_code: The script's exit code, or None when it was killed.
            goes_on: True when the run goes on, which leaves older missing copies out.
        """
        if not self._leads:
            self._pace.lift()
            while not self._over.is_set() and (seconds := seconds_left()) > 0:
                self._over.wait(min(seconds, _LOOK_SECONDS))
            done = self._upload.finish(lambda: 0.0)
        else:
            newest = self.newest_here()
            if newest is not None and newest != self._in_s3:
                self.offer(newest)
            done = self._upload.finish(lambda: 0.0 if self._is_given_up else seconds_left(), newest_only=goes_on)
            done &= self._files.finish(seconds_left, left_whole=exit_code in (0, EXIT_INTERRUPTED))
        self._is_sending = False
        self._upload.stop()
        return done

    def _count_brought(self, size: int) -> None:
        with self._lock:
            self._brought_bytes += size

    def _reset(self, *, step: int | None) -> None:
        self._in_s3 = self._newest = step
        self._asked = self._sending = self._claimed = None
        self._is_sending = False
        self._nothing_comes = threading.Event()
        self._is_hopeless = self._is_given_up = False
        self._over = threading.Event()

    def _files_to_send(self, nodes: int) -> RemoteCheckpoints:
        """Give the part of this node in the uploads of a world."""
        kind = RemoteCheckpoints if nodes == 1 else partial(_LeadersFiles, self._on_begin) if self._leads else _OwnFiles
        remote = kind(self._place, self._directory, objects=self._objects, storage=self._storage)
        if nodes > 1:
            remote.share = UploadShare(
                rank=0 if self._leads else 1,
                world_size=nodes,
                notes=lambda: [self._note().as_message()],
                rank_lost=self._nothing_comes,
            )
        return remote

    def _note(self) -> UploadNote:
        """Give the checkpoints that a newer one takes the place of."""
        if self._leads:
            return self._upload.note()
        return UploadNote() if self._sending is None else UploadNote((self._sending,))

    def _on_begin(self, upload: Upload) -> None:
        """Ask the other nodes for their files of a checkpoint."""
        with self._lock:
            self._asked = upload.step
            self._nothing_comes.clear()
        self._ask(upload.step, upload.folder)

    def _is_replaced(self) -> bool:
        """Return True when a later world has begun, whose leader copies the files of the script.

        Raises:
            RemoteError: If S3 cannot be read.
        """
        newest = self._remote.writers().newest
        return self._claimed is not None and newest is not None and newest.lock > self._claimed

    def _on_outcome(self, remote: RemoteCheckpoints, outcome: UploadOutcome) -> None:
        if remote is not self._remote or not self._is_sending:
            return  # of a world that is over, and the next one may have chosen without it
        if not self._leads:
            self._on_sent(outcome.step)
            return
        if outcome.problem is None:
            self._in_s3 = outcome.step if self._in_s3 is None else max(self._in_s3, outcome.step)
        elif isinstance(outcome.problem, LockLostError):
            self._is_given_up = True
        elif outcome.step == self._newest:
            self._is_given_up = self._is_hopeless and self._nothing_comes.is_set()
        super()._on_outcome(remote, outcome)


class _LeadersFiles(RemoteCheckpoints):
    """The files and the manifests of the leader's node. The other nodes send theirs at the same time.

    Args:
        on_begin: Called before the files of a checkpoint are sent.
    """

    def __init__(
        self,
        on_begin: Callable[[Upload], None],
        place: S3Place,
        directory: CheckpointDirectory,
        *,
        objects: S3Objects,
        storage: LocalStorage,
    ) -> None:
        super().__init__(place, directory, objects=objects, storage=storage)
        self._on_begin = on_begin

    def send(self, upload: Upload, *, pace: Pace) -> None:
        """Upload a checkpoint, with the files of the other nodes."""
        self._on_begin(upload)
        super().send(upload, pace=pace)


class _OwnFiles(RemoteCheckpoints):
    """The files of a node that has no manifest. The checksums of a file's chunks follow from its bytes."""

    def open(self, step: int, *, whole: bool = False) -> Upload:
        """Open the files of a checkpoint that are here. Those that are not the leader misses in S3."""
        del whole
        folder = self._directory.name(step)
        files: list[DataFile] = []
        opened: list[ReadableFile] = []
        for name in sorted(filter(is_data_file_name, self._storage.names(self._directory.path / folder))):
            with contextlib.suppress(OSError):
                opened.append(self._storage.open(self._directory.path / folder / name))
                files.append(DataFile(name, opened[-1].size, ()))
        return Upload(step, files, opened, folder=folder, raw_manifest=None, manifest=None)

    def send(self, upload: Upload, *, pace: Pace) -> None:
        """Upload the files. The leader takes none that has changed since its rank wrote it."""
        for file, opened in upload.pairs():
            chunks = tuple(_checksums(file, opened, upload.cancelled))
            self._send_file(upload, replace(file, chunks=chunks), opened, pace)


def _checksums(file: DataFile, opened: ReadableFile, cancelled: threading.Event) -> Iterator[str]:
    """Give the checksums of a file's chunks.

    Raises:
        DamagedCheckpointError: If it cannot be read, or has become shorter.
        TransferCancelledError: If `cancelled` was set.
    """
    for start in range(0, opened.size, _READ_BYTES):
        require_not_cancelled(cancelled)
        piece = memoryview(bytearray(min(_READ_BYTES, opened.size - start)))
        try:
            whole = opened.read_into(piece, start) == len(piece)
        except OSError as error:
            raise DamagedCheckpointError(file.name, f"cannot be read: {error}") from error
        if not whole:
            raise DamagedCheckpointError(file.name, f"it has become shorter than {opened.size:,} bytes")
        yield from chunk_checksums(piece, CHUNK_BYTES)
