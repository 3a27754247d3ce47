"""The verdict on one pair of numbers of ranks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.spotkeep.ranks.resharding.pool import Answer

CHUNK_BYTES = 2**20
READ_RATIO = 1.05
WRITTEN_RATIO = 1.1
STEPS = 3
SAVED_VERSION = 1
"""The version of the module `models.Versioned` when it was saved. When it is restored, its code has the next one."""

_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One kind of training, saved by some ranks and restored by others.

    Attributes:
        kind: Its name in `models.KINDS`.
        saved_by: The number of ranks that saved it.
        restored_by: The number of ranks that restored it.
    """

    kind: str
    saved_by: int
    restored_by: int


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The comparison of one pair with DCP.

    Attributes:
        pair: The pair.
        problems: All that differs, one text each.
        read_ratio: The bytes that a rank has read, by those that it holds afterwards. The largest of all ranks.
        written_ratio: The bytes that a rank has written, by the mean of all. The largest of all ranks.
        versions_by_dcp: The versions of a module's state that its loader was given by DCP.
    """

    pair: Pair
    problems: tuple[str, ...]
    read_ratio: float
    written_ratio: float
    versions_by_dcp: tuple[int | None, ...]


def verdict_on(pair: Pair, saved: Sequence[Answer], restored: Sequence[Answer]) -> Verdict:
    """Judge the answers of the ranks that saved, and of those that restored."""
    written = [answer["written"] for answer in saved]
    return Verdict(
        pair=pair,
        problems=tuple(_problems(pair, saved, restored)),
        read_ratio=max(answer["read"] / answer["held"] for answer in restored),
        written_ratio=max(written) / (sum(written) / len(written)),
        versions_by_dcp=tuple({version for answer in restored for version in answer["versions by DCP"]}),
    )


def _problems(pair: Pair, saved: Sequence[Answer], restored: Sequence[Answer]) -> Iterator[str]:
    for rank, answer in enumerate(restored):
        if answer["step"] != STEPS:
            yield f"rank {rank} goes on after step {answer['step']} instead of {STEPS}"
        for when, beside in (("differing", "after the restore"), ("differing after a step", "after one more step")):
            found = answer[when]
            if found:
                yield f"rank {rank} {beside}, {len(found)} differences from DCP: {'; '.join(found[:_SHOWN])}"
        if any(version != SAVED_VERSION for version in answer["versions"]):
            yield f"rank {rank} gave its loader the versions {answer['versions']} instead of {SAVED_VERSION}"
        limit = READ_RATIO * answer["held"] + _chunk_ends(pair, saved)
        if answer["read"] > limit:
            yield f"rank {rank} read {answer['read']:,} bytes for {answer['held']:,}, more than {limit:,.0f}"
    yield from _different(saved[0]["whole"], restored[0]["whole"])
    yield from _random_problems(saved, restored)
    written = [answer["written"] for answer in saved]
    if max(written) > WRITTEN_RATIO * sum(written) / len(written) + CHUNK_BYTES:
        yield f"the ranks wrote {written} bytes, which is not even"


def _chunk_ends(pair: Pair, saved: Sequence[Answer]) -> float:
    """Say how many bytes may be read beside those that are needed.

    A rank's rows are a run in the file of each rank that saved some of them. A run begins and ends inside a chunk. So
    do the tensor that all ranks hold, and the rank's own random state, which lies in a file of its own rank.
    """
    if pair.kind != "wide":
        # All of it lies in a chunk or two of each file.
        return 2 * sum(answer["written"] for answer in saved) + CHUNK_BYTES
    rows_of_saved = 1 + -(-pair.saved_by // pair.restored_by)
    tensors = 2
    return 2 * CHUNK_BYTES * (tensors * rows_of_saved + 2)


def _different(saved: dict[str, str], restored: dict[str, str]) -> Iterator[str]:
    names = [name for name in dict.fromkeys((*saved, *restored)) if saved.get(name) != restored.get(name)]
    for name in names[:_SHOWN]:
        yield f"{name} as a whole is {restored.get(name, 'missing')} instead of {saved.get(name, 'nothing')}"
    if len(names) > _SHOWN:
        yield f"{len(names) - _SHOWN} more are different as a whole"


def _random_problems(saved: Sequence[Answer], restored: Sequence[Answer]) -> Iterator[str]:
    states = [answer["random"] for answer in restored]
    for rank, (before, after) in enumerate(zip(saved, restored, strict=False)):
        if after["random"] != before["random"]:
            yield f"rank {rank} did not get its own random state back"
    known = {answer["random"] for answer in saved}
    for rank in range(len(saved), len(restored)):
        if states[rank] in known:
            yield f"rank {rank} has the random state of another rank"
        known.add(states[rank])
