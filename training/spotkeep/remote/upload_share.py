"""The division of an upload among the ranks of a training.

Each rank uploads the files that it wrote. Rank 0 waits until S3 has the files of all, and then uploads the manifest. So
a manifest in S3 stands for the files of every rank. The ranks talk in the rounds of a save, on the channel of the
threads that write. There each rank says which uploads it has not begun, and which have failed. All of them give up the
same ones for a newer checkpoint.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

from spotkeep.disk.manifest import DataFile


@dataclass(frozen=True)
class UploadShare:
    """The part of this process in the uploads of a training. The defaults are those of a training of one process.

    Attributes:
        rank: The number of this rank.
        world_size: The number of ranks.
        place: The number of this rank among the ranks that use this disk, and the number of them.
        written: Gives the files that this rank wrote for a step. None where it wrote none in this process.
        notes: Gives the `UploadNote` of each rank as JSON, from the round of the newest save.
        rank_lost: Set once nothing more comes from other ranks, because one is gone.
    """

    rank: int = 0
    world_size: int = 1
    place: tuple[int, int] = (0, 1)
    written: Callable[[int], Sequence[DataFile] | None] = lambda step: None  # noqa: ARG005 - the name is the callers'
    notes: Callable[[], Sequence[Any]] = tuple
    rank_lost: threading.Event = field(default_factory=threading.Event)

    @property
    def is_first(self) -> bool:
        """True for the rank that uploads the manifests and removes old checkpoints."""
        return self.rank == 0

    @property
    def is_alone(self) -> bool:
        """True in a training of one process."""
        return self.world_size == 1

    @property
    def disk_has_all(self) -> bool:
        """True if the files of every rank are on this disk."""
        return self.place[1] == self.world_size

    def of(self, files: Sequence[DataFile]) -> list[DataFile]:
        """Choose the files of this rank among those on this disk, where it is not known which rank wrote them."""
        index, count = self.place
        return evenly_divided(files, count)[index]


@dataclass(frozen=True)
class UploadNote:
    """The news of one rank about its uploads, which the other ranks get with a save.

    Attributes:
        waiting: Steps of the checkpoints that it has not begun to upload.
        failed: Steps of the checkpoints of which an upload has failed, and the last problem of each.
    """

    waiting: tuple[int, ...] = ()
    failed: dict[int, str] = field(default_factory=dict)

    def as_message(self) -> Any:
        """Give it as JSON."""
        return {"waiting": list(self.waiting), "failed": [[step, problem] for step, problem in self.failed.items()]}

    @classmethod
    def from_message(cls, message: Any) -> UploadNote:
        """Read a message of `as_message`. None is the message of a rank that uploads nothing."""
        if message is None:
            return cls()
        return cls(tuple(message["waiting"]), dict(message["failed"]))


def superseded(notes: Sequence[UploadNote], *, by: int) -> dict[int, str]:
    """Choose the uploads that all ranks give up for a newer checkpoint. Pure, and equal on all ranks.

    Rank 0 decides which checkpoints wait. One that has failed on any rank would keep the others waiting.

    Args:
        notes: The note of each rank.
        by: The step of the newer checkpoint.

    Returns:
        Their steps, and the problem of each. The text is empty where the upload has not begun.
    """
    chosen = {step: "" for note in notes[:1] for step in note.waiting}
    for rank, note in enumerate(notes):
        chosen.update(
            {step: problem if len(notes) == 1 else f"rank {rank}: {problem}" for step, problem in note.failed.items()}
        )
    return {step: problem for step, problem in chosen.items() if step != by}


class UploadQueue:
    """The checkpoints that one rank has still to upload. Pure.

    Attributes:
        waiting: Their steps, the next one first. A rank that is slower than rank 0 has several.
        failed: Steps of those with a failed upload, and the last problem of each.
        left_out: Steps that all ranks gave up for a newer one.
        whole: Steps of which this rank uploads the files of all ranks.
    """

    def __init__(self) -> None:
        self.waiting: list[int] = []
        self.failed: dict[int, str] = {}
        self.left_out: set[int] = set()
        self.whole: set[int] = set()

    def note(self) -> UploadNote:
        """Give the news for the other ranks."""
        return UploadNote(tuple(self.waiting), dict(self.failed))

    def add(self, step: int, notes: Sequence[UploadNote]) -> dict[int, str]:
        """Add a checkpoint that is durable on this machine. Gives what is left out for it, as `superseded` does."""
        given_up = superseded(notes, by=step)
        for old in given_up:
            if old in self.waiting:
                self.waiting.remove(old)
            self.failed.pop(old, None)
        self.left_out |= given_up.keys()
        if step not in self.waiting:
            self.waiting.append(step)
        return given_up

    def try_again(self, step: int, problem: str) -> None:
        """Add a checkpoint with a failed upload once more, behind the others."""
        self.failed[step] = problem
        self.waiting.append(step)

    def take_back(self, step: int) -> None:
        """Add a checkpoint that is to stay. Of one that was not left out here the other ranks know nothing."""
        self.waiting.append(step)
        if step not in self.left_out:
            self.whole.add(step)
        self.left_out.discard(step)


def evenly_divided(files: Collection[DataFile], count: int) -> list[list[DataFile]]:
    """Divide files so that each part has about as many bytes. Equal arguments give equal parts on every rank."""
    parts: list[list[DataFile]] = [[] for _ in range(count)]
    sizes = [0] * count
    for file in sorted(files, key=lambda file: (-file.size, file.name)):
        least = sizes.index(min(sizes))
        parts[least].append(file)
        sizes[least] += file.size
    return parts
