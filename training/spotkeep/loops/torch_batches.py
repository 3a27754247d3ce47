"""torch's DataLoader with passes that can resume in the middle without loading the earlier batches.

The script's loader stays unchanged. A copy of it gets the samplers and the dataset of this module. In the middle of a
pass the sampler gives the indices of the earlier batches again, and none is loaded. Where the order is a function of
numbers that the sampler has, the indices are not given again either. Loading in this process draws random numbers
between the training's, and those are saved with it. A worker's random numbers cannot be saved. So there each batch is
loaded with random numbers of its own, which depend on the pass and the number of the batch.

A subclass with an `__iter__` of its own may ask for batches ahead, leave some out or put some together. There the
earlier batches are loaded again. The loaders of accelerate and Fabric give the batches of their inner loader.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Callable

from torch import Generator, __version__
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)

from spotkeep.errors import UsageError
from spotkeep.state.encoding import with_article
from spotkeep.state.random_states import (
    capture_random_states,
    restore_random_states,
    seed_random_numbers,
    seeded_random_numbers,
)

from .batch_passes import BatchSource, PassStart, PlainBatches, drawn_apart, require_count, samples_in_a_batch
from .global_batches import GlobalBatches, refuse_global_batches
from .order_memory import OrderMemory, generators_in, seeded_generators
from .pass_digest import PassDigest, index_bytes
from .places_of_ranks import DEALT, GLOBAL, OWN, Division, SavedPlace

_logger = logging.getLogger("spotkeep")

# These draw their order at once, or from a generator of their own.
_DRAW_AT_ONCE = (RandomSampler, SequentialSampler, SubsetRandomSampler, WeightedRandomSampler, DistributedSampler)
# Loaders around a loader, which give its batches one by one: their classes, and where the inner one stands.
_AROUND_ONE = {
    "accelerate.data_loader.DataLoaderShard": "base_dataloader",
    "lightning.fabric.wrappers._FabricDataLoader": "_dataloader",
    "lightning_fabric.wrappers._FabricDataLoader": "_dataloader",
}
_DEALING = ("num_replicas", "rank", "shuffle", "seed", "epoch", "drop_last", "num_samples", "total_size")
"""Attributes of a DistributedSampler. With the length of its dataset they decide its order."""
_MOSAIC = "streaming.base.dataset"
"""The module of mosaicml-streaming's StreamingDataset."""
_SHARD = "accelerate.data_loader.BatchSamplerShard"
_LOADERS = ("torch.utils.data.dataloader", "torchdata.stateful_dataloader.stateful_dataloader")
"""The modules with the `__iter__` of a DataLoader and of torchdata's StatefulDataLoader."""

_OF_A_PASS = {"_iterator": None, "next_iter_state": None, "_initial_iter_for_state_dict": False}
"""Attributes of a loader's pass and their first values.

They hold the pass, torchdata's place to begin, and a mark of its first report.
"""


def is_loader(batches: Any) -> bool:
    """Say whether `torch_batches` is for these batches."""
    return isinstance(batches, DataLoader) or _inner_name(batches) is not None


def torch_batches(loader: Any, named: Sequence[Any] = ()) -> BatchSource:
    """Make passes over a DataLoader, or over a loader of accelerate or Fabric around one.

    Args:
        loader: The loader.
        named: Objects that decide the order of its batches, as the script named them.

    Raises:
        UsageError: If its batches come in an order that cannot be repeated.
    """
    inner_name = _inner_name(loader)
    inner = loader if inner_name is None else getattr(loader, inner_name)
    if inner.num_workers and not getattr(inner, "in_order", True):
        raise UsageError(
            "the DataLoader has in_order=False, so no two passes give the same batches in the same order and a resumed "
            "run would differ; leave it out"
        )
    if _name_of(inner.batch_sampler) == _SHARD:
        refuse_global_batches(inner, "accelerate")
    stream = isinstance(inner.dataset, IterableDataset)
    if any(kind.__module__ == _MOSAIC for kind in type(inner.dataset).__mro__):
        raise UsageError(
            f"the {type(inner.dataset).__name__} of mosaicml-streaming counts its epochs in shared memory, so no pass "
            "over it can be begun again after the first epoch. Leave training.loader out: use a Checkpointer with the "
            "StreamingDataLoader in its state, which goes on by its own place on any number of ranks "
            "(`spotkeep help exact-data`)"
        )
    if inner.num_workers and inner.persistent_workers:
        _warn_of_workers_that_stay(inner.dataset, stream=stream)
    one_by_one = inner_name is not None or type(inner).__iter__.__module__ in _LOADERS
    if not stream and one_by_one and not getattr(loader, "skip_batches", 0):
        return TorchBatches(loader, named)
    alike = copy_loader(loader, persistent_workers=False)
    memory = OrderMemory(_roots(inner, alike), named)
    return PlainBatches(alike, draws=not inner.num_workers, memory=memory, name=type(loader).__name__)


def _inner_name(loader: Any) -> str | None:
    return _AROUND_ONE.get(_name_of(loader))


def _name_of(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__name__}"


def _roots(inner: Any, alike: Any) -> dict[str, Any]:
    """Give the objects that may decide the order of a loader's batches."""
    parts = {name: getattr(inner, name) for name in ("generator", "sampler", "batch_sampler", "dataset")}
    return {**parts, "loader": alike}


def _warn_of_workers_that_stay(dataset: Any, *, stream: bool) -> None:
    if stream:
        _logger.warning(
            "the loader has persistent_workers=True over %s: its workers are started anew for each pass, so what the "
            "dataset counts in a worker begins anew; call set_epoch in each epoch, before the loop over the loader",
            with_article(type(dataset).__name__),
        )
    elif callable(getattr(dataset, "set_epoch", None)):
        _logger.warning(
            "the loader has persistent_workers=True and %s has set_epoch: workers that stay do not see what it sets, "
            "and those of a resumed run do, so the two would differ; pass persistent_workers=False, or let set_epoch "
            "write to shared memory",
            type(dataset).__name__,
        )


class TorchBatches(BatchSource):
    """The batches of a DataLoader over a dataset with indices.

    Args:
        loader: The DataLoader, or accelerate's or Fabric's around one.
        named: Objects that decide the order of its batches, as the script named them.
    """

    loads_again = False

    def __init__(self, loader: Any, named: Sequence[Any] = ()) -> None:
        inner_name = _inner_name(loader)
        inner = loader if inner_name is None else getattr(loader, inner_name)
        batched = inner.batch_sampler is not None
        # A loader around another one asks for a batch before it gives the one before: what is drawn while that is
        # loaded comes at another time than in a training that goes on there.
        self._sampler = inner.batch_sampler if batched else inner.sampler
        self.order = self._sampler if isinstance(self._sampler, GlobalBatches) else None
        keyed = inner.num_workers > 0 or inner_name is not None or self.order is not None
        self._indices = _IndexPasses(self._sampler, keyed=keyed)
        replaced: dict[str, Any] = {"batch_sampler" if batched else "sampler": self._indices}
        if keyed:
            replaced["dataset"] = KeyedDataset(inner.dataset)
            replaced["collate_fn"] = KeyedCollate(inner.dataset, inner.collate_fn, batched=batched)
        self._inner = _copied(inner, replaced)
        vars(self._inner)["_get_iterator"] = self._get_iterator
        self._loader = self._inner if inner_name is None else _copied(loader, {inner_name: self._inner})
        self._start = PassStart(number=0)
        self._samples: int | None = None  # of the data set, as it was compared with the order
        super().__init__(type(loader).__name__, OrderMemory(_roots(inner, self._loader), named))

    def size(self) -> int | None:
        """Return the batches of a pass. None when that is not known for sure."""
        try:
            return len(self._loader)
        except TypeError:  # a sampler without a length
            return None

    def division(self) -> Division:
        """Return how ranks divide the data. A loader of accelerate deals out batches, on one rank, too."""
        sampler, batch = self._sampler, samples_in_a_batch(self._sampler)
        if self.order is not None:
            return Division(GLOBAL, batch)
        if _name_of(sampler) == _SHARD:
            ranks = sampler.num_processes
            if sampler.split_batches:
                return Division(DEALT, sampler.batch_size // ranks, ranks, turns="slices")
            return Division(DEALT, batch, ranks, turns="batches")
        if type(sampler) is BatchSampler and hasattr(self._loader, "base_dataloader"):
            return Division(DEALT, batch, turns="batches")
        if self._inner.batch_sampler is None:
            batch = 1
        dealing = _each(sampler)
        if type(dealing).__iter__ is DistributedSampler.__iter__:
            return Division(DEALT, batch, dealing.num_replicas, dealing.total_size)
        return Division(OWN, batch)

    def given(self, batch: Any) -> None:  # noqa: ARG002 - its indices are known
        """Take note of a batch that the pass gives."""
        indices = self._indices.this_pass
        if indices is not None and indices.ahead:
            self.digest.add(indices.ahead.popleft())

    def state_dict(self, *, in_pass: bool) -> dict[str, Any]:
        """Give the position of the pass, and the facts that decide the next one."""
        indices = self._indices.this_pass
        asked, ended = (0, False) if indices is None else (indices.asked, indices.ended)
        facts = None if indices is None else indices.facts
        return {**super().state_dict(in_pass=in_pass), "asked": asked, "ended": ended, "sampler": facts}

    def _open(self, start: PassStart) -> Iterator[Any]:
        self._require_samples()
        self._start = start
        self._indices.next_pass(start)
        batches: Iterator[Any] = iter(self._loader)
        return batches

    def _open_at(self, start: PassStart, position: int, saved: Mapping[str, Any]) -> Iterator[Any]:
        self._require_samples()
        self._start = start
        # A loader around another one does something at its end, and may begin when its first batch is asked for: it
        # gives the last of the batches that were given once more.
        again = int(self._loader is not self._inner)
        facts = None if saved["digest"] is None else saved.get("sampler")
        over = _PassOver(position - again, saved["asked"], ended=saved["ended"], digest=self.digest, facts=facts)
        place = saved.get("as_of")

        def check() -> None:
            if place is not None:
                require_order_of(place, self._sampler, self.memory, name=self.name + saved["ranks"])

        self._indices.next_pass(start, over, check)
        batches: Iterator[Any] = iter(self._loader)
        if again:
            self.given(next(batches, None))
        elif self._indices.this_pass is not None:
            self._indices.this_pass.arrive()
        if self._indices.jumped:
            self.digest = PassDigest.of(saved["digest"], count=position)
        return batches

    def _require_samples(self) -> None:
        """Compare the data set with the order, at the first pass and where the number of its samples has changed."""
        if self.order is None:
            return
        try:
            count = len(self._inner.dataset)
        except (TypeError, NotImplementedError):  # a data set without a length
            return
        if count != self._samples:
            self._samples = count
            self.order.require_samples(count)

    @property
    def iterated(self) -> Any:
        """The loader that is iterated over."""
        return self._loader

    def _get_iterator(self) -> Any:
        """Stand for the loader's own method, which draws the seed of the workers."""
        inner = self._inner
        if not inner.persistent_workers or not inner.num_workers or not self._start.number:
            return type(inner)._get_iterator(inner)
        # Workers that stay are seeded in their first pass only. A run that is resumed later starts them anew, and must
        # not draw that seed once more.
        own = inner.generator
        vars(inner)["generator"] = Generator()
        try:
            return type(inner)._get_iterator(inner)
        finally:
            vars(inner)["generator"] = own


def _each(sampler: Any) -> Any:
    """Give the sampler of single samples in a batch sampler of torch."""
    return sampler.sampler if type(sampler) is BatchSampler else sampler


def order_facts(sampler: Any) -> dict[str, Any] | None:
    """Give all that decides the batches of a sampler.

    None where they follow from anything else, such as random numbers or code that is not torch's.
    """
    each = _each(sampler)
    facts: dict[str, Any] = {"kind": type(each).__name__}
    if type(each) is SequentialSampler:
        facts["samples"] = len(each.data_source)
    elif type(each) is DistributedSampler:
        facts.update(samples=len(each.dataset), torch=str(__version__))
        facts.update({name: getattr(each, name) for name in _DEALING})
    else:
        return None
    if each is not sampler:
        facts.update(batch_size=sampler.batch_size, drop_last_batch=sampler.drop_last)
    return facts if all(type(value) in (int, bool, str) for value in facts.values()) else None


def batches_from(sampler: Any, first: int) -> Iterator[Any]:
    """Give the batches of a sampler with `order_facts`, from the batch number `first` on."""
    each = _each(sampler)
    done = first if each is sampler else first * sampler.batch_size
    sequential = type(each) is SequentialSampler
    rest = iter(range(len(each.data_source))[done:]) if sequential else islice(iter(each), done, None)
    return rest if each is sampler else iter(BatchSampler(rest, sampler.batch_size, sampler.drop_last))


def require_order_of(place: SavedPlace, sampler: Any, memory: OrderMemory, *, name: str) -> None:
    """Compare the batches of rank 0 of another number of ranks with those that the order gives it now.

    The sampler is at the beginning of the pass. Memory and global random numbers stay unchanged.

    Raises:
        UsageError: They are others.
    """
    kept, random_states, count = memory.capture(large=True), capture_random_states(devices=False), place.positions[0]
    digest = PassDigest()
    for index in islice(_batches_of_rank_0(sampler, place.division), count):
        digest.add(index_bytes(index))
    memory.put_back(kept)
    restore_random_states(random_states)
    require_count(digest.count, count)
    digest.require_same(place.digests[0] or {}, name=name)


def _batches_of_rank_0(sampler: Any, before: Division) -> Iterator[Any]:
    """Give the batches of indices that rank 0 has where ranks divide the sampler's order as before."""
    common = sampler.batch_sampler if _name_of(sampler) == _SHARD else sampler
    each = _each(common)
    if type(each).__iter__ is DistributedSampler.__iter__:
        dealing = DistributedSampler(
            each.dataset, before.replicas, 0, shuffle=each.shuffle, seed=each.seed, drop_last=each.drop_last
        )
        dealing.set_epoch(each.epoch)
        return iter(dealing if common is each else BatchSampler(dealing, before.batch or 1, drop_last=False))
    split = before.turns == "slices"
    if type(common) is BatchSampler:
        size = (before.batch or 1) * (before.replicas if split else 1)
        if before.turns == "samples":
            each = islice(each, 0, None, before.replicas)
        common = BatchSampler(each, size, common.drop_last)
    if before.turns == "samples" or before.replicas == 1:
        return iter(common)
    return iter(sys.modules["accelerate.data_loader"].BatchSamplerShard(common, before.replicas, 0, split))


@dataclass(frozen=True)
class _PassOver:
    """The batches to pass over at the beginning of a pass.

    Attributes:
        position: Batches that were given.
        asked: Batches that the sampler was asked for. Workers are ahead of the training.
        ended: The sampler had no more then.
        digest: Takes the batches that were given.
        facts: The `order_facts` of that pass. A sampler with the same ones begins behind these batches. None where they
            are to be compared.
    """

    position: int
    asked: int
    ended: bool
    digest: PassDigest
    facts: Mapping[str, Any] | None = None


class _IndexPasses:
    """Stands for the sampler of a DataLoader, and can begin in the middle. Everything else is the sampler's.

    Args:
        sampler: The loader's sampler, or its batch sampler.
        keyed: Each batch of indices comes with a key for its random numbers.

    Attributes:
        this_pass: The pass over the loader. None before it asks for it.
        jumped: True where this pass has begun in its middle, and has given no earlier batch again.
    """

    def __init__(self, sampler: Any, *, keyed: bool) -> None:
        self.this_pass: _IndexPass | None = None
        self.jumped = False
        self._next: tuple[PassStart, _PassOver | None] | None = None
        self._check: Callable[[], None] | None = None
        self._sampler = sampler
        self._keyed = keyed
        self._draws_at_once = type(_each(sampler)) in _DRAW_AT_ONCE

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        if name == "_sampler":
            raise AttributeError(name)
        return getattr(self._sampler, name)

    def __iter__(self) -> Iterator[Any]:
        # With workers torch asks twice, and takes what the second one gives. Who asks later is the script.
        if self._next is None or (self.this_pass is not None and self.this_pass.arrived):
            indices: Iterator[Any] = iter(self._sampler)
            return indices
        start, over = self._next
        key = start.key("batch") if self._keyed else None
        facts = order_facts(self._sampler)
        if over is not None and facts is not None and facts == over.facts:
            self.jumped = True
            indices = batches_from(self._sampler, over.position)
            self.this_pass = _IndexPass(indices, key=key, over=None, first=over.position, facts=facts)
            return self.this_pass
        if isinstance(self._sampler, GlobalBatches):
            self.this_pass = _global_pass(self._sampler, start, 0 if over is None else over.position)
            return self.this_pass
        indices = iter(self._sampler)
        if self._check is not None:
            self._check()
        if not self._draws_at_once:
            indices = drawn_apart(indices, start)
        self.this_pass = _IndexPass(indices, key=key, over=over, facts=facts)
        return self.this_pass

    def next_pass(
        self, start: PassStart, over: _PassOver | None = None, check: Callable[[], None] | None = None
    ) -> None:
        """Get ready for a pass over the loader, and for a check before its sampler is asked."""
        self._next, self._check, self.this_pass, self.jumped = (start, over), check, None, False


def _global_pass(sampler: GlobalBatches, start: PassStart, first: int) -> _IndexPass:
    """Give a pass that begins at any batch. Nothing is passed over."""
    epoch = start.made_in + start.number if sampler.epoch is None else sampler.epoch
    key = sampler.order_key(epoch)
    own = tuple(b"%s of %d" % (key, rank) for rank in sampler.virtual_ranks or (sampler.rank,))
    of_batch = own if sampler.virtual_ranks else own[0]
    return _IndexPass(sampler.batches(epoch, first), key=of_batch, over=None, first=first, samples=key)


class _IndexPass:
    """The batches of indices of a pass.

    Args:
        indices: The batches, from the first one that is not left out.
        key: The source of their keys, or one for each micro-batch of a batch. None without keys.
        over: The batches to pass over.
        first: The number of batches that are left out.
        samples: The source of keys for samples. None without keys for them.
        facts: The `order_facts` of the sampler.

    Attributes:
        arrived: All batches to pass over are passed over.
        asked: The number of batches that the sampler was asked for.
        ended: The sampler had no more.
        ahead: For the digest, the batches that it gave and the loader did not yet.
    """

    def __init__(
        self,
        indices: Iterator[Any],
        *,
        key: bytes | tuple[bytes, ...] | None,
        over: _PassOver | None,
        first: int = 0,
        samples: bytes | None = None,
        facts: dict[str, Any] | None = None,
    ) -> None:
        self.facts = facts
        self.arrived = False
        self.asked = first
        self.ended = False
        self.ahead: deque[bytes] = deque()
        self._indices = indices
        self._key = key
        self._over = over
        self._samples = samples
        self._number = first if over is None else over.position
        self._kept: deque[Any] = deque()

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        self.arrive()
        index = self._kept.popleft() if self._kept else self._ask()
        self.ahead.append(index_bytes(index))
        self._number += 1
        if self._key is None:
            return index
        if isinstance(self._key, tuple):
            return [self._keyed(key, part) for key, part in zip(self._key, index)]
        return self._keyed(self._key, index)

    def _keyed(self, key: bytes, index: Any) -> KeyedIndex:
        return KeyedIndex(key=b"%s %d" % (key, self._number - 1), index=index, samples=self._samples)

    def arrive(self) -> None:
        """Ask the sampler again for the earlier batches, and keep those that the loader has not given yet."""
        if self.arrived:
            return
        self.arrived, over = True, self._over
        if over is None:
            return
        for number, index in enumerate(islice(self._indices, over.asked)):
            self.asked += 1
            if number < over.position:
                over.digest.add(index_bytes(index))
            else:
                self._kept.append(index)
        require_count(self.asked, over.asked)
        if over.ended:
            self.ended = not list(islice(self._indices, 1))

    def _ask(self) -> Any:
        if self.ended:
            raise StopIteration
        try:
            index = next(self._indices)
        except StopIteration:
            self.ended = True
            raise
        self.asked += 1
        return index


@dataclass(frozen=True)
class KeyedIndex:
    """The index to load for a batch, and the key of the random numbers that are drawn while it is loaded.

    Attributes:
        key: The key of the batch.
        index: The index, or a list of indices.
        samples: With the index of a sample the key of its own random numbers. None where a batch has one key.
    """

    key: bytes
    index: Any
    samples: bytes | None = None


class KeyedDataset:
    """Stands for the dataset of a loader, and leaves the loading of keyed indices to `KeyedCollate`.

    Everything else is the dataset's. Attributes that a `worker_init_fn` sets in `get_worker_info().dataset` are set
    there too.
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

    def __getitems__(self, keyed: KeyedIndex | list[KeyedIndex]) -> KeyedIndex | list[KeyedIndex]:
        return keyed


@dataclass(frozen=True)
class KeyedCollate:
    """Loads a batch and puts it together with random numbers of the batch's own, in any process.

    Attributes:
        dataset: The dataset.
        collate: Puts the items of a batch together.
        batched: True if an index is that of a batch.
    """

    dataset: Any
    collate: Any
    batched: bool = True

    def __call__(self, keyed: KeyedIndex | list[KeyedIndex]) -> Any:
        """Load the items of these indices, of several micro-batches one after the other."""
        if isinstance(keyed, list):
            return [self(part) for part in keyed]
        generators = generators_in((self.dataset, self.collate))
        with seeded_random_numbers(keyed.key), seeded_generators(generators, keyed.key):
            at_once = getattr(self.dataset, "__getitems__", None)
            if keyed.samples is not None:
                items = [self._sample(keyed.samples, index, generators) for index in keyed.index]
                seed_random_numbers(keyed.key)
            elif not self.batched:
                items = self.dataset[keyed.index]
            elif at_once:
                items = at_once(keyed.index)
            else:
                items = [self.dataset[index] for index in keyed.index]
            return self.collate(items)

    def _sample(self, key: bytes, index: int, generators: Sequence[Any]) -> Any:
        own, at_once = b"%s %d" % (key, index), getattr(self.dataset, "__getitems__", None)
        seed_random_numbers(own)
        with seeded_generators(generators, own):
            return at_once([index])[0] if at_once else self.dataset[index]


def copy_loader(loader: Any, **replaced: Any) -> Any:
    """Copy a loader with other attributes, subclasses included.

    A loader around another one hands them to the inner one.
    """
    for name in ("base_dataloader", "_dataloader"):
        if isinstance(vars(loader).get(name), DataLoader):
            return _copied(loader, {name: _copied(vars(loader)[name], replaced)})
    return _copied(loader, replaced)


def _copied(loader: Any, replaced: Mapping[str, Any]) -> Any:
    # A DataLoader refuses to have some of its attributes set, and accelerate's loaders cannot be copied.
    alike = object.__new__(type(loader))
    vars(alike).update(vars(loader))
    vars(alike).update(replaced)
    for name, at_first in _OF_A_PASS.items():
        if name in vars(alike):
            vars(alike)[name] = at_first
    return alike


def loader_generators(loader: Any) -> list[Any]:
    """Give the random generators that a loader and its samplers were given."""
    found: list[Any] = []
    for holder in (loader, loader.sampler, getattr(loader.batch_sampler, "sampler", None)):
        generator = getattr(holder, "generator", None)
        if generator is not None and not any(generator is known for known in found):
            found.append(generator)
    return found
