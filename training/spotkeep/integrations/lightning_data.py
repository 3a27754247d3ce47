"""Loaders of Lightning's training data that can begin an epoch at any batch.

The content of a batch depends on the epoch and the batch's number alone, in any process and however early it is loaded.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any, Callable

import torch

from spotkeep.errors import UsageError
from spotkeep.loops.batch_passes import require_count
from spotkeep.loops.global_batches import refuse_global_batches
from spotkeep.loops.order_memory import OrderMemory
from spotkeep.loops.pass_digest import PassDigest, index_bytes
from spotkeep.loops.torch_batches import (
    KeyedCollate,
    KeyedDataset,
    KeyedIndex,
    copy_loader,
    loader_generators,
    require_order_of,
)
from spotkeep.state.random_states import RandomLane, seeded_random_numbers, seeded_random_states


class EpochLoader:
    """Stands for a training loader. Its random numbers are kept apart from those of the training.

    Args:
        loader: The loader, which gives this rank's part of the data.
        next_pass: Gives the key of the next pass on all ranks, its number in the epoch, and its first batch.
        rank: The rank of this process, if there are others. Draws during the load of a batch are its own.
        restored: The result of `order` at the position of the restored run.
    """

    def __init__(
        self,
        loader: Any,
        next_pass: Callable[[int, int], tuple[bytes, int, int]],
        *,
        rank: int | None = None,
        restored: dict[str, Any] | None = None,
    ) -> None:
        refuse_global_batches(loader, "Lightning")
        self._loader = loader
        self._next_pass = next_pass
        self._restored = restored
        # Generators of another kind go on from pass to pass, and are remembered.
        self._generators = [one for one in loader_generators(loader) if isinstance(one, torch.Generator)]
        parts = {name: getattr(loader, name) for name in ("generator", "sampler", "batch_sampler", "dataset")}
        self._memory = OrderMemory(parts)
        if restored is not None:
            _require_same_batches(restored["batch_size"], loader.batch_size, ranks_changed=restored["ranks_changed"])
            # Before Lightning sets the sampler's epoch, which may be the next one.
            self._memory.put_back(restored["begin"])
        self._begins: dict[int, dict[str, Any]] = {}  # by the number of the pass in the epoch
        batched = loader.batch_sampler is not None
        self._order = _KeyedOrder(loader.batch_sampler if batched else loader.sampler, rank=rank)
        self._copy = copy_loader(
            loader,
            **{"batch_sampler" if batched else "sampler": self._order},
            dataset=KeyedDataset(loader.dataset),
            collate_fn=KeyedCollate(loader.dataset, loader.collate_fn, batched=batched),
        )
        self._passes = 0
        self._key = b""

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name == "_loader":
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __iter__(self) -> Iterator[Any]:
        # Not before the first batch is asked for: Lightning asks for an iterator and leaves it, to see whether it can.
        key, number, position = self._next_pass(len(self), 0)
        if key == self._key:  # once more in the same epoch: the other loaders are longer
            key, number, position = self._next_pass(len(self), self._passes)
            self._passes += 1
        else:
            self._key, self._passes = key, 1
            self._begins.clear()
        restored, self._restored = self._restored, None
        self._begins[number] = self._memory.capture(large=True)
        place = (restored or {}).get("place")

        def check(sampler: Any) -> None:
            if place is not None:
                name = f"loader of the training data, with another number of ranks than {place.division.replicas},"
                require_order_of(place, sampler, self._memory, name=name)

        self._order.begin(key, number, position, None if restored is None else restored["digest"], check)
        with seeded_random_numbers(key):
            for generator in self._generators:
                generator.manual_seed(int.from_bytes(key[:7], "little"))
            batches = iter(self._copy)
        yield from batches

    def order(self, batches: int) -> dict[str, Any]:
        """Give the facts beside the key that decide the order of the next batch, after so many batches of the epoch."""
        number, position = divmod(batches, len(self)) if len(self) else (0, 0)
        begin = self._begins.get(number)
        return {
            "begin": self._memory.capture(large=True) if begin is None else begin,
            "position": position,
            "digest": self._order.digest(number, position),
            "batch_size": self._loader.batch_size,
            "ranks_changed": False,
        }

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state. Its presence makes Lightning resume this loader in the middle of an epoch."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the empty state, in which there is nothing to go back to."""


def _require_same_batches(saved: int | None, here: int | None, *, ranks_changed: bool) -> None:
    """Refuse batches of another size where another number of ranks goes on, because places are counted in batches.

    Raises:
        UsageError: They have another size.
    """
    if ranks_changed and saved != here:
        raise UsageError(
            f"each rank had batches of {saved} when the checkpoint was made, and has batches of {here} now; with "
            "another number of ranks keep the batch size of each rank"
        )


class _KeyedOrder:
    """Stands for a sampler. It draws its order from a key, and can begin at any batch."""

    def __init__(self, sampler: Any, *, rank: int | None) -> None:
        self._sampler = sampler
        self._suffix = b"" if rank is None else b" of %d" % rank
        self._key = b""
        self._number = self._position = 0
        self._expected: dict[str, Any] | None = None
        self._check: Callable[[Any], None] = lambda _: None
        self._digest = PassDigest()
        self._ahead: deque[bytes] = deque()

    def begin(
        self, key: bytes, number: int, position: int, expected: dict[str, Any] | None, check: Callable[[Any], None]
    ) -> None:
        """Get ready for a pass.

        Args:
            key: The key of its order.
            number: Its number in the epoch.
            position: Its first batch.
            expected: The digest of the batches before it, if that is known.
            check: Is called with the sampler where the pass begins, with the random numbers of its order.
        """
        self._check = check
        self._key, self._number, self._position, self._expected = key, number, position, expected
        self._digest = PassDigest()
        self._ahead.clear()

    def digest(self, number: int, count: int) -> dict[str, Any] | None:
        """Give the digest of the first batches of a pass. None for another pass."""
        while self._ahead and self._digest.count < count:
            self._digest.add(self._ahead.popleft())
        return self._digest.state_dict() if number == self._number and self._digest.count == count > 0 else None

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        if name == "_sampler":
            raise AttributeError(name)
        return getattr(self._sampler, name)

    def __iter__(self) -> Iterator[KeyedIndex]:
        key, position = self._key, self._position
        lane = RandomLane(seeded_random_states(key))
        with lane:
            self._check(self._sampler)
        indices = iter(self._sampler)
        with lane:
            for index in islice(indices, position):
                self._digest.add(index_bytes(index))
        require_count(self._digest.count, position)
        if self._expected is not None and position:
            self._digest.require_same(self._expected, name="loader of the training data")
        number = position
        while True:
            with lane:
                try:
                    index = next(indices)
                except StopIteration:
                    return
            self._ahead.append(index_bytes(index))
            yield KeyedIndex(key=b"%s %d%s" % (key, number, self._suffix), index=index)
            number += 1
