"""The place in a pass that another number of ranks takes over from a checkpoint. Pure.

| the data is | the place of the new ranks |
|---|---|
| in batches of all ranks (`GlobalBatches`) | the same batch |
| dealt out from one common order | behind the samples of all ranks, if whole steps of the new ranks end there |
| gone through by each rank for itself | the same batch, if each rank's pass is as long and gives the same batches |

Every other place is refused. There samples would come twice, or never.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from spotkeep.errors import UsageError

GLOBAL, DEALT, OWN, UNKNOWN = "batches of all ranks", "dealt out", "each rank's own", "not known"


@dataclass(frozen=True)
class Division:
    """How ranks divide the data of a loader.

    Attributes:
        rule: `GLOBAL`, `DEALT`, `OWN`, or `UNKNOWN` in a checkpoint of an older version.
        batch: Number of samples in a rank's batch. None for an unknown number.
        replicas: Number of ranks, or groups of ranks, with data of their own.
        total: Number of samples that are dealt out in an epoch, with those that fill it up. None for an unknown number.
        turns: The ranks take turns at samples, or at batches, or each has a slice of a batch.
    """

    rule: str
    batch: int | None = None
    replicas: int = 1
    total: int | None = None
    turns: Literal["samples", "batches", "slices"] = "samples"


@dataclass(frozen=True)
class SavedPlace:
    """The place in a pass that a number of ranks has saved.

    Attributes:
        positions: Number of batches that each rank has given.
        size: Number of batches of a rank's pass. None for an unknown number.
        division: How those ranks divided the data.
        digests: The digest of each rank's batches. None for a rank whose order is compared by its facts.
    """

    positions: tuple[int, ...]
    size: int | None
    division: Division
    digests: tuple[Mapping[str, Any] | None, ...]


@dataclass(frozen=True)
class NewPlace:
    """The place of a rank of another number of ranks.

    Attributes:
        position: Number of batches to pass over.
        digest: The digest that these batches must have. None without one to compare.
        as_of: The place, of which the batches of its rank 0 must come again in the common order. None without one.
        remarks: What else is another thing from here on, as sentences for the log.
    """

    position: int
    digest: Mapping[str, Any] | None = None
    as_of: SavedPlace | None = None
    remarks: tuple[str, ...] = ()


def new_place(
    saved: SavedPlace,
    *,
    name: str,
    rank: int,
    world_size: int,
    size: int | None,
    division: Division,
    batches_per_step: int,
) -> NewPlace:
    """Give the place of a rank of another number of ranks.

    The other arguments describe the loader of this rank and its ranks as they are now.

    Raises:
        UsageError: The place cannot be taken over exactly.
    """
    ranks, first = len(saved.positions), saved.positions[0]
    words = _Words(name, ranks, world_size)
    if saved.size is not None and size is not None and all(position == saved.size for position in saved.positions):
        return NewPlace(size)
    before = saved.division.rule
    if division.rule != before and not (division.rule == DEALT and (before, ranks) == (OWN, 1)):
        raise words.refusal(
            f"the data was {_PASSIVE[before]} then, and is {_PASSIVE[division.rule]} now",
            "Use the sampler of that run",
        )
    if division.rule == OWN:
        return _own_place(saved, words, rank=rank, size=size, division=division)
    if any(position != first for position in saved.positions):
        raise words.refusal(f"they were at different batches ({', '.join(map(str, saved.positions))})")
    if division.rule == GLOBAL:
        return NewPlace(first)
    return _dealt_place(saved, words, rank=rank, division=division, batches_per_step=batches_per_step)


_PASSIVE = {
    GLOBAL: "in batches of all ranks",
    DEALT: "dealt out from one order",
    OWN: "gone through by each rank",
    UNKNOWN: "divided in a way that an older version did not save",
}


@dataclass(frozen=True)
class _Words:
    name: str
    ranks: int
    world_size: int

    def refusal(self, reason: str, instead: str = "") -> UsageError:
        return UsageError(
            f"{self.ranks} ranks were in the middle of a pass over the {self.name}, and {self.world_size} cannot go on "
            f"there: {reason}. Samples would come twice, or never. Start it with {self.ranks} ranks. "
            f"{instead + '. ' if instead else ''}With GlobalBatches any number of ranks goes on "
            "(`spotkeep help exact-data`)"
        )


def _own_place(saved: SavedPlace, words: _Words, *, rank: int, size: int | None, division: Division) -> NewPlace:
    if saved.size is None or size is None:
        if any(digest != saved.digests[0] for digest in saved.digests):
            raise words.refusal("each rank had batches of its own, and which ones the others have now is not known")
        return NewPlace(saved.positions[0], digest=saved.digests[0])
    if (saved.size, saved.division.batch) != (size, division.batch):
        raise words.refusal(
            f"a rank's pass had {_pass(saved.size, saved.division.batch)} then, and has {_pass(size, division.batch)} "
            "now, so each rank has a part of the data, and which one is not known"
        )
    if rank < words.ranks:
        return NewPlace(saved.positions[rank], digest=saved.digests[rank])
    return NewPlace(saved.positions[0])


def remark_on_own_data(ranks: int, world_size: int) -> str:
    """Give a sentence for the log on ranks that go through loaders for themselves. Indices do not name the data."""
    return (
        f"each of {ranks} ranks went through its loader for itself, and each of {world_size} does so now. Where a rank "
        "had data of its own, such as a file, that of ranks that are gone comes no more, and that of added ones begins "
        "at this place"
    )


def _dealt_place(saved: SavedPlace, words: _Words, *, rank: int, division: Division, batches_per_step: int) -> NewPlace:
    before = saved.division
    if (before.batch is None) != (division.batch is None):
        raise words.refusal("the size of a batch is known in one of the two runs alone", "Use the sampler of that run")
    done = saved.positions[0] * before.replicas * (before.batch or 1)
    a_batch = division.replicas * (division.batch or 1)
    a_step = a_batch * batches_per_step
    unit = "samples" if division.batch else "batches"
    if done % a_step:
        raise words.refusal(
            f"{done} {unit} of the pass are done, and steps of {a_step} do not end there",
            f"Or let a step have {before.replicas * (before.batch or 1)} {unit} as before, by the size of batches or "
            "batches_per_step",
        )
    remarks = []
    if a_batch != before.replicas * (before.batch or 1):
        remarks.append(
            f"a batch of all ranks had {before.replicas * (before.batch or 1)} {unit}, and has {a_batch} now"
        )
    if before.total != division.total and None not in (before.total, division.total):
        remarks.append(f"an epoch had {before.total} samples with those that fill it up, and has {division.total} now")
    return NewPlace(done // a_batch, as_of=saved if rank == 0 else None, remarks=tuple(remarks))


def _pass(size: int, batch: int | None) -> str:
    return f"{size} batches" if batch is None else f"{size} batches of {batch}"


def saved_place(loaders: Sequence[Mapping[str, Any]]) -> SavedPlace:
    """Read the place from the states of one loader on each rank."""
    first = loaders[0]
    return SavedPlace(
        positions=tuple(loader["position"] for loader in loaders),
        size=first["size"],
        division=Division(**first.get("division", {"rule": UNKNOWN})),
        digests=tuple(loader["source"]["digest"] for loader in loaders),
    )
