"""Passes over batches that can be taken up in their middle: what any iterable needs for it.

A pass is one `for batch in batches`. To go on at its k-th batch, the first k are passed over; the random numbers that
choose them are drawn again, apart from those of the training, which are where they were when the state was saved.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from spotkeep.errors import UsageError
from spotkeep.state.random_states import RandomLane, capture_random_states, restore_random_states, seeded_random_states


@dataclass
class PassStart:
    """What decides the batches of a pass.

    Attributes:
        number: How many passes came before it.
        random: The random states where its order was drawn.
        generators: The states of the generators that belong to the batches.
    """

    number: int
    random: dict[str, Any] = field(default_factory=dict)
    generators: list[Any] = field(default_factory=list)

    def key(self, purpose: str) -> bytes:
        """Give bytes to seed other random numbers of this pass from: the same whenever it is begun again."""
        drawn_from = self.random.get("torch")
        words = self.random["python"]["words"] if drawn_from is None else drawn_from.numpy().tobytes()
        return hashlib.blake2b(b"%s %d %s" % (purpose.encode(), self.number, words), digest_size=16).digest()


class BatchSource(ABC):
    """Batches that passes can be made over.

    Args:
        generators: Random generators of torch that belong to the batches.
    """

    def __init__(self, generators: Sequence[Any]) -> None:
        self._generators = generators

    def generator_states(self) -> list[Any]:
        """Return the states of the random generators that belong to the batches."""
        return [generator.get_state() for generator in self._generators]

    def set_generator_states(self, states: list[Any]) -> None:
        """Go back to states that `generator_states` gave."""
        for generator, state in zip(self._generators, states):
            generator.set_state(state)

    @abstractmethod
    def size(self) -> int | None:
        """Return batches of a pass; None when that is not known for sure."""

    @abstractmethod
    def begin(self, start: PassStart) -> Iterator[Any]:
        """Begin a pass and note in `start` what decides its batches."""

    @abstractmethod
    def begin_at(self, start: PassStart, position: int) -> Iterator[Any]:
        """Begin a pass again, at its batch `position`. The global random states are left as they are."""


class PlainBatches(BatchSource):
    """Any iterable: to go on in the middle of a pass, its first batches are made again and thrown away.

    Args:
        batches: What gives its batches again when it is iterated over again.
        draws: Whether making a batch may draw random numbers in this process. They are kept apart from those of the
            training then.
        generators: Random generators of torch that belong to the batches.
    """

    def __init__(self, batches: Iterable[Any], *, draws: bool, generators: Sequence[Any] = ()) -> None:
        super().__init__(generators)
        self._batches = batches
        self._draws = draws

    def size(self) -> int | None:
        """Return batches of a pass; None when that is not known for sure."""
        return len(self._batches) if isinstance(self._batches, Sequence) else None

    def begin(self, start: PassStart) -> Iterator[Any]:
        """Begin a pass and note in `start` what decides its batches."""
        start.random = capture_random_states(devices=False)
        start.generators = self.generator_states()
        return self._pass(start)

    def begin_at(self, start: PassStart, position: int) -> Iterator[Any]:
        """Begin a pass again, at its batch `position`."""
        outside = capture_random_states()
        restore_random_states(start.random)
        self.set_generator_states(start.generators)
        try:
            batches = self._pass(start)
            pass_over(batches, position)
        finally:
            restore_random_states(outside)
        return batches

    def _pass(self, start: PassStart) -> Iterator[Any]:
        return drawn_apart(iter(self._batches), start) if self._draws else iter(self._batches)


def drawn_apart(items: Iterator[Any], start: PassStart) -> Iterator[Any]:
    """Take the first item as it comes, because an order is drawn there, and draw for the others apart."""
    lane: RandomLane | None = None
    while True:
        with nullcontext() if lane is None else lane:
            try:
                item = next(items)
            except StopIteration:
                return
        yield item
        if lane is None:
            lane = RandomLane(seeded_random_states(start.key("items")))


def pass_over(items: Iterator[Any], count: int) -> None:
    """Pass over the first items.

    Raises:
        UsageError: If there are fewer.
    """
    found = sum(1 for _ in islice(items, count))
    if found < count:
        raise UsageError(
            f"the checkpoint was made after {count} batches of this pass, and there are {found} now; keep the data and "
            "the batch size of the run"
        )
