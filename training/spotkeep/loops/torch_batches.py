"""torch's DataLoader, so that a pass over it can be taken up in its middle without loading what came before.

The loader that the script made is left alone; a copy of it gets the samplers and the dataset that are needed here. In
the middle of a pass the sampler is asked again for the indices of the batches that were seen, and none is loaded.
Loading in this process draws random numbers between the training's, and those are saved with it. A worker's cannot be,
so there each batch is loaded with random numbers of its own, which follow from the pass and the number of the batch.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch.utils.data import (
    BatchSampler,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from spotkeep.errors import UsageError
from spotkeep.state.random_states import capture_random_states, restore_random_states, seeded_random_numbers

from .batch_passes import BatchSource, PassStart, PlainBatches, drawn_apart, pass_over

# These draw their order at once, or from a generator of their own.
_DRAW_AT_ONCE = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)


def torch_batches(loader: Any) -> BatchSource:
    """Make passes over a DataLoader.

    Raises:
        UsageError: If its batches come in an order that cannot be repeated.
    """
    if loader.num_workers and not getattr(loader, "in_order", True):
        raise UsageError(
            "the DataLoader has in_order=False, so no two passes give the same batches in the same order and a resumed "
            "run would differ; leave it out"
        )
    if isinstance(loader.dataset, IterableDataset):
        alike = copy_loader(loader, persistent_workers=False)
        return PlainBatches(alike, draws=not loader.num_workers, generators=loader_generators(loader))
    return TorchBatches(loader)


class TorchBatches(BatchSource):
    """The batches of a DataLoader over a dataset with indices.

    Args:
        loader: The DataLoader.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__(loader_generators(loader))
        batched = loader.batch_sampler is not None
        self._indices = _IndexPasses(
            loader.batch_sampler if batched else loader.sampler, self, keyed=loader.num_workers > 0
        )
        replaced: dict[str, Any] = {"batch_sampler" if batched else "sampler": self._indices}
        if loader.num_workers:
            replaced["dataset"] = KeyedDataset(loader.dataset)
            replaced["collate_fn"] = KeyedCollate(loader.dataset, loader.collate_fn, batched=batched)
        self._loader = copy_loader(loader, **replaced)
        self._begun = False

    def size(self) -> int | None:
        """Return batches of a pass; None when that is not known for sure."""
        try:
            return len(self._loader)
        except TypeError:  # a sampler without a length
            return None

    def begin(self, start: PassStart) -> Iterator[Any]:
        """Begin a pass and note in `start` what decides its batches."""
        # Workers that stay are seeded in their first pass only. A run that is resumed later starts them anew, and must
        # not draw that seed once more.
        again = self._loader.persistent_workers and start.number > 0 and not self._begun
        self._begun = True
        self._indices.next_pass = _NextPass(
            start, position=0, random=capture_random_states() if again else None, generators=self.generator_states()
        )
        return iter(self._loader)

    def begin_at(self, start: PassStart, position: int) -> Iterator[Any]:
        """Begin a pass again, at its batch `position`."""
        self._begun = True
        outside = capture_random_states()
        self._indices.next_pass = _NextPass(start, position=position, random=start.random, generators=start.generators)
        try:
            return iter(self._loader)
        finally:
            restore_random_states(outside)


@dataclass(frozen=True)
class _NextPass:
    """The pass that the loader is asked for next.

    Attributes:
        start: Where it begins; filled when it does.
        position: Its first batch.
        random: The random states to draw the order with; None: those that are.
        generators: The states of the loader's generators, if `random` is not None.
    """

    start: PassStart
    position: int
    random: dict[str, Any] | None
    generators: list[Any]


class _IndexPasses:
    """Stands for the sampler of a DataLoader, and can begin in the middle.

    Args:
        sampler: The loader's sampler, or its batch sampler.
        source: Whose generators the sampler draws from.
        keyed: Whether each batch of indices comes with a key for its random numbers.
    """

    def __init__(self, sampler: Any, source: TorchBatches, *, keyed: bool) -> None:
        self.next_pass: _NextPass | None = None
        self._sampler = sampler
        self._source = source
        self._keyed = keyed
        samplers = [sampler.sampler] if type(sampler) is BatchSampler else [sampler]
        self._draws_at_once = type(samplers[0]) in _DRAW_AT_ONCE

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        if self.next_pass is None:
            raise RuntimeError("the loader was asked for a pass that was not begun")
        this, self.next_pass = self.next_pass, None
        start = this.start
        if this.random is not None:
            outside = capture_random_states()
            restore_random_states(this.random)
            self._source.set_generator_states(this.generators)
        if not this.position:
            start.random = capture_random_states(devices=False)
            start.generators = self._source.generator_states()
        indices = iter(self._sampler)
        if not self._draws_at_once:
            indices = drawn_apart(indices, start)
        if this.position:
            try:
                pass_over(indices, this.position)
            finally:
                restore_random_states(outside)
        key = start.key("batch")
        for number, index in enumerate(indices, this.position):
            yield KeyedIndex(key=b"%s %d" % (key, number), index=index) if self._keyed else index


@dataclass(frozen=True)
class KeyedIndex:
    """What to load for a batch, and what the random numbers follow from that are drawn while it is loaded."""

    key: bytes
    index: Any


class KeyedDataset:
    """Stands for the dataset of a loader, and leaves the loading to `KeyedCollate`: gives back what comes with a key.

    Everything else is the dataset's. What a `worker_init_fn` sets in `get_worker_info().dataset` is set there too.
    """

    def __init__(self, dataset: Any) -> None:
        vars(self)["_dataset"] = dataset

    def __getattr__(self, name: str) -> Any:
        return getattr(self._dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._dataset, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._dataset, name)

    def __reduce__(self) -> Any:
        # The dataset's own `__getstate__` is about the dataset.
        return KeyedDataset, (self._dataset,)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: Any) -> Any:
        return index if isinstance(index, KeyedIndex) else self._dataset[index]

    def __getitems__(self, keyed: KeyedIndex) -> KeyedIndex:
        return keyed


@dataclass(frozen=True)
class KeyedCollate:
    """Loads a batch and puts it together with random numbers of the batch's own, in whatever process.

    Attributes:
        dataset: The dataset.
        collate: Puts the items of a batch together.
        batched: Whether an index is that of a batch.
    """

    dataset: Any
    collate: Any
    batched: bool = True

    def __call__(self, keyed: KeyedIndex) -> Any:
        """Load what is asked for."""
        with seeded_random_numbers(keyed.key):
            at_once = getattr(self.dataset, "__getitems__", None)
            if not self.batched:
                items = self.dataset[keyed.index]
            elif at_once:
                items = at_once(keyed.index)
            else:
                items = [self.dataset[index] for index in keyed.index]
            return self.collate(items)


def copy_loader(loader: Any, **replaced: Any) -> Any:
    """Copy a loader, subclasses included. A DataLoader refuses to have these attributes set after it was made."""
    alike = copy.copy(loader)
    vars(alike).update(replaced, _iterator=None)
    return alike


def loader_generators(loader: Any) -> list[Any]:
    """Give the random generators that a loader and its samplers were given."""
    found: list[Any] = []
    for holder in (loader, loader.sampler, getattr(loader.batch_sampler, "sampler", None)):
        generator = getattr(holder, "generator", None)
        if generator is not None and not any(generator is known for known in found):
            found.append(generator)
    return found
