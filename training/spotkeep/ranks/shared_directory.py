"""A directory of checkpoints that several ranks write together. Each writes its part, and rank 0 the manifest, last.

A save goes in three rounds. Each ends when all ranks have done their part, or fails on all of them.

1. One rank of each host makes the place, and each rank reports the numbers of files that it will write.
2. Every rank writes its files and makes them durable.
3. Rank 0 writes the manifest, which vouches for the files of all.

A rank that is killed breaks the round. There is no checkpoint before the manifest, and a whole one after it.
"""

from __future__ import annotations

import secrets
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Callable

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.manifest import MANIFEST_NAME, Progress
from spotkeep.disk.retention import Retention
from spotkeep.disk.staged_state import FileImage
from spotkeep.disk.storage import LocalStorage
from spotkeep.disk.upload_markers import UploadWatch
from spotkeep.errors import OtherRankError, RankLostError, SaveError, UsageError
from spotkeep.state.encoding import Json

from .distributed import Ranks, together
from .rank_shares import ShareDocument, ShareNumbers, WrittenShare, merged, share_numbers

_PROBE_PREFIX = ".spotkeep-probe-"
_PROBE_SECONDS = 30.0
_PROBE_PAUSE_SECONDS = 0.1


class SharedDirectory(CheckpointDirectory):
    """The checkpoints of one run, written by several ranks.

    All ranks have the same directory, on one host or in a file system that the hosts share. Each host may have one of
    its own where the platform copies all of them to one place and back (SageMaker).

    Args:
        path: The directory of the checkpoints.
        ranks: The other ranks, for the thread that writes.
        storage: The file operations.
        uploads: Knows which files the platform has already copied to safety.

    Raises:
        UsageError: If the ranks' directories are not the same, and nothing brings their content together.
    """

    def __init__(
        self,
        path: Path,
        *,
        ranks: Ranks,
        storage: LocalStorage | None = None,
        uploads: UploadWatch | None = None,
    ) -> None:
        super().__init__(path, storage=storage, uploads=uploads)
        self._ranks = ranks
        self._world_size = ranks.world_size
        # One rank of each disk makes and removes directories there.
        self._leader = _meet(path, ranks, self._storage, platform_copies=self._uploads.platform_copies)
        self._pruned: list[int] = []  # by rank 0, and not yet by hosts with a disk of their own
        self._waiting_elsewhere: set[int] = set()  # what other hosts' platform has not copied yet
        self._lock = threading.Lock()

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
            shares = self._write_share(step, images, document, numbers=numbers[self._ranks.rank], wait=wait)
            return self._commit_share(step, document, shares, numbers, progress=progress)
        except RankLostError:
            # Others may still be writing. What is there has no manifest, so no reader takes it.
            self.distrust(step)
            raise
        except Exception as error:
            if self._leads:
                self._abandon(step)
            if isinstance(error, OtherRankError):
                raise SaveError(f"there is no checkpoint of step {step}, because of {error}") from error
            raise

    def prune(self, retention: Retention) -> list[int]:
        """Remove checkpoints that are not retained. Rank 0 decides. Hosts with own disks follow at the next save."""
        if self._ranks.rank != 0:
            return []
        removed = super().prune(retention)
        with self._lock:
            self._pruned += removed
        return removed

    def _outlives_us(self, step: int) -> bool:
        return super()._outlives_us(step) and step not in self._waiting_elsewhere

    @property
    def _leads(self) -> bool:
        return self._leader == self._ranks.rank

    def _prepare(self, step: int, images: Sequence[FileImage]) -> list[ShareNumbers]:
        """Make the place. Gives the numbers of each rank's files."""
        first_here = self._leads and self._ranks.rank != 0

        def prepare() -> Json:
            if self._leads:
                self._trying(step, lambda: self._make_place(step))
            with self._lock:
                pruned = list(self._pruned)
            return {
                "files": [sum(image.part == part for image in images) for part in (0, 1)],
                "pruned": pruned,
                "waiting": self._waiting_here() if first_here else [],
            }

        answers = together(self._ranks, prepare)
        with self._lock:
            self._pruned = self._pruned[len(answers[0]["pruned"]) :]
            self._waiting_elsewhere = {other for one in answers for other in one["waiting"]}
        if first_here:
            for old in answers[0]["pruned"]:
                self._abandon(old)
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
    ) -> list[Json]:
        common = sum(image.part == 0 for image in images)
        own = len(images) - common
        row = (*range(numbers.common, numbers.common + common), *range(numbers.own, numbers.own + own))

        def write() -> Json:
            files = self._write_files(step, images, row, wait=wait)
            return WrittenShare(files[:common], files[common:], document.share, document.boxes).as_message()

        return together(self._ranks, lambda: self._trying(step, write))

    def _commit_share(
        self,
        step: int,
        document: ShareDocument,
        answers: Sequence[Json],
        numbers: Sequence[ShareNumbers],
        *,
        progress: Progress,
    ) -> int:
        durable: list[int] = []

        def commit() -> Json:
            if self._ranks.rank != 0:
                return None
            streams, ranks, divided = merged(list(map(WrittenShare.from_message, answers, numbers)))
            size = self._trying(
                step,
                lambda: self._commit(step, streams, document.common, progress=progress, ranks=ranks, divided=divided),
            )
            durable.append(size)
            return size

        try:
            size: int = together(self._ranks, commit)[0]
        except RankLostError:
            # Whatever became of the others: a manifest that is there vouches for what all of them have written.
            if not durable and MANIFEST_NAME not in self._storage.names(self._at(step)):
                raise
            size = durable[0] if durable else 0
        return size

    def _trying(self, step: int, act: Callable[[], Any]) -> Any:
        try:
            return act()
        except OSError as error:
            raise SaveError(self._refusal(step, error)) from error


def _meet(path: Path, ranks: Ranks, storage: LocalStorage, *, platform_copies: bool) -> int:
    """Find out which ranks have the same directory. Gives the first one of those that have this rank's."""

    def identity() -> Json:
        storage.make_directory(path)
        found = path.stat()
        return [_machine(), found.st_dev, found.st_ino]

    hosts = ranks.exchange(socket.gethostname())
    identities = together(ranks, identity)
    leaders = [identities.index(one) for one in identities]
    strangers = sorted(set(leaders) - {0})
    if not strangers:
        return 0
    if platform_copies:
        return leaders[ranks.rank]
    # On another machine, the same file system has another identity: see whether what one writes the other finds.
    probe = path / (_PROBE_PREFIX + ranks.exchange(secrets.token_hex(16))[0])
    try:
        together(ranks, lambda: storage.write(probe, b"") if ranks.rank == 0 else None)
        seen = ranks.exchange(ranks.rank not in strangers or _appears(probe, storage))
    finally:
        if ranks.rank == 0:
            storage.remove_file(probe)
    blind = [rank for rank in strangers if not seen[rank]]
    if blind:
        others = ", ".join(f"rank {rank} on {hosts[rank]}" for rank in blind)
        raise UsageError(
            f"the ranks' checkpoint directories are not the same: {others} does not find in {path} what rank 0 "
            "writes there; put it on a file system that all hosts share, or on SageMaker into the checkpoint directory "
            "that the platform copies"
        )
    return 0


def _appears(probe: Path, storage: LocalStorage) -> bool:
    """Wait for a file of another host, because a network file system shows it a little later."""
    ends = time.monotonic() + _PROBE_SECONDS
    while probe.name not in storage.names(probe.parent):
        if time.monotonic() > ends:
            return False
        time.sleep(_PROBE_PAUSE_SECONDS)
    return True


def _machine() -> str:
    """Name this machine by a unique name. Containers of one machine see the same disks, and share it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return socket.gethostname()
