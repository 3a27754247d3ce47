"""Passes over batches that can resume in the middle, for any iterable.

A pass is one `for batch in batches`. To go on at its k-th batch, the first k are passed over. The random numbers that
choose them are drawn again, apart from those of the training, which keep their saved state. A digest compares the
passed batches with the trained ones.
"""

from __future__ import annotations

import hashlib
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from spotkeep.errors import UsageError
from spotkeep.state.random_states import RandomLane, capture_random_states, restore_random_states, seeded_random_states

from .global_batches import GlobalBatches
from .order_memory import OrderMemory
from .pass_digest import PassDigest, content_bytes
from .places_of_ranks import OWN, Division

_SECONDS_BETWEEN_LINES = 10.0

_logger = logging.getLogger("spotkeep")


@dataclass
class PassStart:
    """The facts that decide the batches of a pass.

    Attributes:
        number: The number of passes before it.
        random: The random states at its beginning.
        memory: The state of the objects that decide its order then.
        made_in: The epochs that were completed when its loader was made. 0 for a loader that lasts.
    """

    number: int
    random: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    made_in: int = 0

    def key(self, purpose: str) -> bytes:
        """Give bytes that seed other random numbers of this pass. They are the same at each beginning of it."""
        drawn_from = self.random.get("torch")
        words = self.random["python"]["words"] if drawn_from is None else drawn_from.numpy().tobytes()
        return hashlib.blake2b(b"%s %d %s" % (purpose.encode(), self.number, words), digest_size=16).digest()


class BatchSource(ABC):
    """Batches for passes.

    Args:
        name: The source of the batches, for messages.
        memory: The state that decides their order beside global random numbers.

    Attributes:
        digest: The digest of the batches that the last pass has given.
    """

    loads_again = True
    """True if the batches that are passed over are loaded again."""

    order: GlobalBatches | None = None
    """The order, where it is a function of a seed, the epoch and the position."""

    def __init__(self, name: str, memory: OrderMemory) -> None:
        self.name = name
        self.memory = memory
        self.digest = PassDigest()

    @abstractmethod
    def size(self) -> int | None:
        """Return the batches of a pass. None when that is not known for sure."""

    @abstractmethod
    def division(self) -> Division:
        """Return how ranks divide the data."""

    def begin(self, start: PassStart) -> Iterator[Any]:
        """Begin a pass and note in `start` the facts that decide its batches."""
        start.random = capture_random_states(devices=False)
        start.memory = self.memory.capture(large=True)
        self.digest = PassDigest()
        return self._open(start)

    def begin_at(self, start: PassStart, position: int, saved: Mapping[str, Any]) -> Iterator[Any]:
        """Begin a pass again, at its batch `position`. The global random states stay unchanged.

        Args:
            start: The facts that decide its batches.
            position: Batches to pass over.
            saved: The state that `state_dict` gave there. Its digest is None where there is none to compare with.

        Raises:
            UsageError: The passed batches differ from those that the pass had given.
        """
        if self.order is not None:
            self.order.require_facts(saved.get("order"))
        elif saved.get("order") is not None:
            raise UsageError(
                f"the checkpoint was made in the middle of a pass over GlobalBatches, and the {self.name} has another "
                "sampler; go on with GlobalBatches, or change it between two epochs"
            )
        outside = capture_random_states()
        restore_random_states(start.random)
        self.memory.put_back(start.memory)
        self.digest = PassDigest()
        try:
            batches = self._open_at(start, position, saved) if position else self._open(start)
        finally:
            restore_random_states(outside)
        if saved["digest"] is not None:
            self.digest.require_same(saved["digest"], name=self.name + saved.get("ranks", ""))
        self.memory.put_back(saved["memory"], positions=False)
        return batches

    def given(self, batch: Any) -> None:
        """Take note of a batch that the pass gives."""
        self.digest.add(content_bytes(batch))

    def state_dict(self, *, in_pass: bool) -> dict[str, Any]:
        """Give the position of the pass, and the facts that decide the next one."""
        return {
            "memory": self.memory.capture(large=not in_pass),
            "digest": self.digest.state_dict() if self.order is None else None,
            "order": None if self.order is None else self.order.facts(),
        }

    @property
    @abstractmethod
    def iterated(self) -> Any:
        """The object that is iterated over."""

    @abstractmethod
    def _open(self, start: PassStart) -> Iterator[Any]: ...

    @abstractmethod
    def _open_at(self, start: PassStart, position: int, saved: Mapping[str, Any]) -> Iterator[Any]:
        """Begin a pass with the random states and the memory of its beginning, pass batches over, and digest these."""


class PlainBatches(BatchSource):
    """Any iterable. To go on in the middle of a pass, its first batches are made again and thrown away.

    Args:
        batches: An object that gives its batches again when it is iterated over again.
        draws: A batch may draw random numbers in this process, which are kept apart from those of the training.
        memory: The state that decides their order beside global random numbers.
        name: The source of the batches, for messages.
    """

    def __init__(self, batches: Iterable[Any], *, draws: bool, memory: OrderMemory, name: str) -> None:
        super().__init__(name, memory)
        self.loads_again = not isinstance(batches, Sequence)
        self._batches = batches
        self._draws = draws

    def size(self) -> int | None:
        """Return the batches of a pass. None when that is not known for sure."""
        return len(self._batches) if isinstance(self._batches, Sequence) else None

    def division(self) -> Division:
        """Return how ranks divide the data, which is not known of these."""
        return Division(OWN, samples_in_a_batch(self._batches))

    @property
    def iterated(self) -> Any:
        """The object that is iterated over."""
        return self._batches

    def _open(self, start: PassStart) -> Iterator[Any]:
        return drawn_apart(iter(self._batches), start) if self._draws else iter(self._batches)

    def _open_at(
        self,
        start: PassStart,
        position: int,
        saved: Mapping[str, Any],  # noqa: ARG002 - all is made again
    ) -> Iterator[Any]:
        batches = self._open(start)
        began = said_at = time.monotonic()
        for number, batch in enumerate(islice(batches, position), 1):
            self.given(batch)
            if time.monotonic() - said_at > _SECONDS_BETWEEN_LINES:
                said_at = time.monotonic()
                _logger.info("%s: passed over %d of %d batches in %.0f s", self.name, number, position, said_at - began)
        require_count(self.digest.count, position)
        return batches


def samples_in_a_batch(batches: Any) -> int | None:
    """Give the number of samples in a batch of a loader or a sampler. None for an unknown number."""
    for holder in (batches, getattr(batches, "batch_sampler", None)):
        size = getattr(holder, "batch_size", None)
        if type(size) is int and size > 0:
            return size
    return None


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


def require_count(found: int, count: int) -> None:
    """Require as many batches to pass over as the pass had given.

    Raises:
        UsageError: If there were fewer.
    """
    if found < count:
        raise UsageError(
            f"the checkpoint was made after {count} batches of this pass, and there are {found} now; keep the data and "
            "the batch size of the run"
        )
