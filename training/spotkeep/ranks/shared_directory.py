"""A directory of checkpoints that several ranks write together. Each writes its part, and rank 0 the manifest, last.

A save goes in three rounds. Each ends when all ranks have done their part, or fails on all of them.

1. One rank of each host makes the place, and each rank reports the numbers of files that it will write.
2. Every rank writes its files and makes them durable.
3. Rank 0 writes the manifest, which vouches for the files of all.

A rank that is killed breaks the round. There is no checkpoint before the manifest, and a whole one after it.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.manifest import MANIFEST_NAME, DataFile, Progress
from spotkeep.disk.retention import Retention
from spotkeep.disk.staged_state import FileImage
from spotkeep.disk.storage import LocalStorage, disk_advice
from spotkeep.disk.upload_markers import UploadWatch
from spotkeep.disk.writers import Token, Writers
from spotkeep.errors import (
    ChangedStateError,
    LockLostError,
    OtherRankError,
    RankLostError,
    RemoteError,
    SaveError,
    UsageError,
)
from spotkeep.state.encoding import Json

from .distributed import Ranks, together
from .rank_shares import ShareDocument, ShareNumbers, WrittenShare, merged, share_numbers

_PROBE_PREFIX = ".spotkeep-probe-"
_PROBE_SECONDS = 30.0
_PROBE_PAUSE_SECONDS = 0.1
_OUTSIDE_OF_A_RUN = (0, 0)
"""The lock of hosts with a disk each that have none. Each start has names of its own for its files then."""
_OF_ONE_MACHINE = ("ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs")


class SharedDirectory(CheckpointDirectory):
    """The checkpoints of one run, written by several ranks.

    All ranks have the same directory, on one host or in a file system that the hosts share. Each host may have one of
    its own where the platform copies all of them to one place and back (SageMaker), or where each rank uploads its
    files to S3.

    Attributes:
        note: Gives a JSON value that the other ranks get with each save.
        notes: The note of each rank from the round of the newest save. Empty before it.

    Args:
        path: The directory of the checkpoints.
        ranks: The other ranks, for the thread that writes.
        storage: The file operations.
        uploads: Knows which files the platform has already copied to safety.
        ranks_upload: True where each rank's files are uploaded to S3.

    Raises:
        SaveError: If a disk refuses to make the directory.
        UsageError: If the ranks' directories are not the same, and nothing brings their content together.
    """

    def __init__(
        self,
        path: Path,
        *,
        ranks: Ranks,
        storage: LocalStorage | None = None,
        uploads: UploadWatch | None = None,
        ranks_upload: bool = False,
    ) -> None:
        super().__init__(path, storage=storage, uploads=uploads)
        self._ranks = ranks
        self._ranks_upload = ranks_upload
        self._world_size = ranks.world_size
        self.note: Callable[[], Json] = lambda: None
        self.notes: list[Json] = []
        self._written: dict[int, tuple[DataFile, ...]] = {}
        # One rank of each disk makes and removes directories there.
        self._leaders = _meet(
            path, ranks, self._storage, platform_copies=self._uploads.platform_copies, ranks_upload=ranks_upload
        )
        self._leader = self._leaders[ranks.rank]
        self._pruned: list[int] = []  # by rank 0, and not yet by hosts with a disk of their own
        self._waiting_elsewhere: set[int] = set()  # what other hosts' platform has not copied yet
        self._lock = threading.Lock()

    @property
    def ranks_here(self) -> list[int]:
        """The ranks that have the same directory as this one."""
        return [rank for rank, leader in enumerate(self._leaders) if leader == self._leader]

    @property
    def leads(self) -> bool:
        """True on the first of the ranks that have the same directory."""
        return self._leader == self._ranks.rank

    def written(self, step: int) -> tuple[DataFile, ...] | None:
        """Give the files that this rank wrote for a checkpoint that is durable. None where it wrote none."""
        return self._written.get(step)

    def begin(
        self, lock: tuple[int, int] | None, *, step: int | None, claim: Callable[[Token, Writers], bool] | None = None
    ) -> None:
        """Begin to write, as `WriterNotes.begin` does. Every rank must call it. Rank 0 takes the token.

        Hosts with a disk each that a platform mirrors have a token outside of a run, too.

        Raises:
            LockLostError: If a later writer of the run has begun. Other ranks may get it as OtherRankError.
            RemoteError: If S3 refuses, on every rank.
            SaveError: If the disk of a rank refuses, on every rank.
        """

        def lead() -> Json:
            if self._ranks.rank != 0:
                return [None, None, None]
            held = lock
            mirrored = len(set(self._leaders)) > 1 and not self._ranks_upload
            if held is None and mirrored and self.writer_notes.writers().newest is None:
                # A host may delete a file of another one that it got at its start. A new one of that name would go too.
                held = _OUTSIDE_OF_A_RUN
            try:
                self.writer_notes.begin(held, step=step, claim=claim)
            except LockLostError:
                raise
            except SaveError as error:
                return [None, str(error), None]
            except RemoteError as error:
                return [None, None, str(error)]
            writers = None if self.writer_notes.token is None else self.writer_notes.writers()
            return [None if writers is None else writers.to_bytes().decode("ascii"), None, None]

        note, of_disk, of_s3 = together(self._ranks, lead)[0]
        if of_disk is not None:
            raise SaveError(of_disk)
        if of_s3 is not None:
            raise RemoteError(of_s3)

        def follow() -> Json:
            if note is not None and self._ranks.rank != 0:
                writers = Writers.parse(note.encode("ascii"))
                self.writer_notes.take(writers.newest)
                try:
                    if self.leads:
                        self.writer_notes.learn(writers)
                except SaveError as error:
                    return str(error)
            return None

        problems = [problem for problem in together(self._ranks, follow) if problem is not None]
        if problems:
            raise SaveError(problems[0])

    def decline(self, problem: Exception) -> None:
        """Take part in a save that this rank cannot write, in place of `write_images`. No rank saves then.

        Args:
            problem: The reason. Every rank fails with it.
        """

        def fail() -> Json:
            raise problem

        try:
            together(self._ranks, fail)
        except BaseException as error:
            if error is not problem:
                raise

    def write_images(
        self,
        images: Sequence[FileImage],
        document: Json,
        *,
        step: int,
        progress: Progress,
        wait: Callable[[int], None] | None = None,
    ) -> int:
        """Write this rank's part of a checkpoint. Every rank must call it, or `decline`.

        Args:
            images: The data files of this rank, first those of its range of the common stream, then its own.
            document: Its `ShareDocument`.
            step: Number of completed steps.
            progress: The progress of the training. Rank 0's counts.
            wait: Returns when all bytes of the staged state before a place are there. May raise.

        Returns:
            The size of the whole checkpoint in bytes.

        Raises:
            SaveError: If a disk refuses, that of another rank included. No rank has a new checkpoint then, and no older
                one changes.
            RankLostError: If a rank is gone.
        """
        try:
            numbers = self._prepare(step, images)
            files: list[DataFile] = []
            shares = self._write_share(
                step, images, document, numbers=numbers[self._ranks.rank], wait=wait, files=files
            )
            size = self._commit_share(step, document, shares, numbers, progress=progress)
        except RankLostError:
            # Others may still be writing. What is there has no manifest, so no reader takes it.
            self.distrust(step)
            raise
        except Exception as error:
            if self.leads:
                self._abandon(step)
            if isinstance(error, OtherRankError):
                kind = ChangedStateError if error.changed else SaveError
                raise kind(f"there is no checkpoint of step {step}, because of {error}") from error
            raise
        self.take({step: self._own(step).name})
        here = self._step_directories()
        self._written = {old: written for old, written in self._written.items() if old in here}
        self._written[step] = tuple(files)
        return size

    def prune(self, retention: Retention) -> list[int]:
        """Remove checkpoints that are not retained. Rank 0 decides. Hosts with own disks follow at the next save."""
        if self._ranks.rank != 0:
            return []
        removed = super().prune(retention)
        with self._lock:
            self._pruned += removed
        return removed

    def remove(self, step: int) -> None:
        """Remove a checkpoint. Every rank must call it. One rank of each disk removes.

        Raises:
            SaveError: If the disk refuses.
        """
        self.distrust(step)
        if self.leads:
            super().remove(step)

    def _outlives_us(self, step: int) -> bool:
        return super()._outlives_us(step) and step not in self._waiting_elsewhere

    def _prepare(self, step: int, images: Sequence[FileImage]) -> list[ShareNumbers]:
        """Make the place. Gives the numbers of each rank's files."""
        first_here = self.leads and self._ranks.rank != 0

        def prepare() -> Json:
            self.writer_notes.require_no_later_writer()
            if self.leads:
                self._trying(step, lambda: self._make_place(step))
            with self._lock:
                pruned = list(self._pruned)
            return {
                "files": [sum(image.part == part for image in images) for part in (0, 1)],
                "pruned": pruned,
                # This step too, because nothing shows yet how far the copies of the other hosts have come.
                "waiting": [*self._waiting_here(), step] if first_here and self._uploads.platform_copies else [],
            }

        answers = together(self._ranks, prepare)
        with self._lock:
            self._pruned = self._pruned[len(answers[0]["pruned"]) :]
            self._waiting_elsewhere = {other for one in answers for other in one["waiting"]}
        if first_here:
            for old in answers[0]["pruned"]:
                all(map(self._try_to_clear, self._folders_of(old)))
            self._remove_unread()
        return share_numbers([one["files"] for one in answers])

    def _waiting_here(self) -> list[int]:
        steps = self._step_directories()
        return [step for step in steps if not self._uploads.has_part_arrived(self._at(step), self._storage)]

    def _write_share(
        self,
        step: int,
        images: Sequence[FileImage],
        document: ShareDocument,
        *,
        numbers: ShareNumbers,
        wait: Callable[[int], None] | None,
        files: list[DataFile],
    ) -> list[Json]:
        common = sum(image.part == 0 for image in images)
        own = len(images) - common
        row = (*range(numbers.common, numbers.common + common), *range(numbers.own, numbers.own + own))

        def write() -> Json:
            written = self._write_files(step, images, row, wait=wait)
            files.extend(written)
            return WrittenShare(written[:common], written[common:], document.share, document.boxes).as_message()

        return together(self._ranks, lambda: self._trying(step, write))

    def _commit_share(
        self,
        step: int,
        document: ShareDocument,
        written: Sequence[Json],
        numbers: Sequence[ShareNumbers],
        *,
        progress: Progress,
    ) -> int:
        durable: list[int] = []
        self.notes = []

        def commit() -> Json:
            if self._ranks.rank != 0:
                return [self.note(), None]
            streams, ranks, divided = merged(list(map(WrittenShare.from_message, written, numbers)))
            size = self._trying(
                step,
                lambda: self._commit(step, streams, document.common, progress=progress, ranks=ranks, divided=divided),
            )
            durable.append(size)
            return [self.note(), size]

        try:
            answers = together(self._ranks, commit)
            self.notes = [note for note, _ in answers]
            size: int = answers[0][1]
        except RankLostError:
            # Whatever became of the others: a manifest that is there vouches for what all of them have written.
            if not durable and MANIFEST_NAME not in self._storage.names(self._own(step)):
                raise
            size = durable[0] if durable else 0
        return size

    def _trying(self, step: int, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except OSError as error:
            raise SaveError(self._refusal(step, error)) from error


def _meet(path: Path, ranks: Ranks, storage: LocalStorage, *, platform_copies: bool, ranks_upload: bool) -> list[int]:
    """Find out which ranks have the same directory. Gives the first one of those that have each rank's."""

    def identity() -> Json:
        try:
            storage.make_directory(path)
            found = path.stat()
        except OSError as error:
            raise SaveError(
                f"the folder {path} of the checkpoints cannot be made: {error.strerror or error}; {disk_advice(error)}"
            ) from error
        return [_machine(), found.st_dev, found.st_ino, _is_on_a_disk_of_its_own(found.st_dev)]

    hosts = ranks.exchange(socket.gethostname())
    identities = together(ranks, identity)
    leaders = [identities.index(one) for one in identities]
    strangers = sorted(set(leaders) - {0})
    if not strangers or platform_copies:
        return leaders
    # On another machine, the same file system has another identity: see whether what one writes the other finds.
    probe = path / (_PROBE_PREFIX + ranks.exchange(secrets.token_hex(16))[0])
    apart = {rank for rank in strangers if identities[rank][-1]}
    try:
        together(ranks, lambda: storage.write(probe, b"") if ranks.rank == 0 else None)
        looks = ranks.rank in strangers and ranks.rank not in apart
        seen = ranks.exchange(not looks or _appears(probe, storage))
    finally:
        if ranks.rank == 0:
            storage.remove_file(probe)
    blind = [rank for rank in strangers if rank in apart or not seen[rank]]
    if blind and not ranks_upload:
        others = ", ".join(f"rank {rank} on {hosts[rank]}" for rank in blind)
        raise UsageError(
            f"the ranks' checkpoint directories are not the same: {others} does not find in {path} what rank 0 "
            "writes there; put it on a file system that all hosts share, or on SageMaker into the checkpoint directory "
            "that the platform copies, or keep the checkpoints in S3 with remote='s3://bucket/prefix'"
        )
    return [leader if leader in blind else 0 for leader in leaders]


def _appears(probe: Path, storage: LocalStorage) -> bool:
    """Wait for a file of another host, because a network file system shows it a little later."""
    ends = time.monotonic() + _PROBE_SECONDS
    while probe.name not in storage.names(probe.parent):
        if time.monotonic() > ends:
            return False
        time.sleep(_PROBE_PAUSE_SECONDS)
    return True


def _is_on_a_disk_of_its_own(device: int) -> bool:
    """Say whether a file system is one that no other machine can mount. False where the system does not tell."""
    number = f"{os.major(device)}:{os.minor(device)}"
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            mount, _, source = line.partition(" - ")
            if mount.split()[2:3] == [number]:
                return source.partition(" ")[0] in _OF_ONE_MACHINE
    return False


def _machine() -> str:
    """Name this machine by a unique name. Containers of one machine see the same disks, and share it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()
