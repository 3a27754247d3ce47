"""Batches of all ranks together, in an order that is a function of a seed, the epoch and the position.

Nothing of the order is kept or read. A batch far behind the beginning costs as much as the first one. The number of
ranks divides a batch among them, and decides nothing else.
"""

from __future__ import annotations

import hashlib
import logging
import math
import struct
from collections.abc import Iterator
from typing import Any

from spotkeep.errors import UsageError
from spotkeep.loaded import loaded

_logger = logging.getLogger("spotkeep")

_RULE = 1
"""Number of the rule that makes the order. Another rule needs another number, because checkpoints hold it."""

_ROUNDS = 8
_MASK = 2**64 - 1


class GlobalBatches:
    """A batch sampler that gives each rank its slice of one common batch. Its batches do not depend on the ranks.

    ```python
    batches = GlobalBatches(len(data), batch_size=256, seed=7)
    loader = training.loader(DataLoader(data, batch_sampler=batches, num_workers=4))
    ```

    Each sample comes once an epoch. An epoch is a pass over the loader, and `ResumableTraining` counts them. Of a
    loader that is made in each epoch it counts the epochs. Elsewhere call `set_epoch`.

    Args:
        length: Number of samples in the data set.
        batch_size: Number of samples in a batch of all ranks together.
        seed: Seed of the order, and of random numbers that are drawn while a sample is loaded.
        shuffle: An order for each epoch. Without it the samples come by their indices.
        drop_last: Leave out the samples at the end of an epoch that make no whole batch.
        uneven: Let slices of a batch differ by one sample. Multiply the loss by `weight`, because ranks that average
            their gradients count each rank alike.
        rank: Number of this rank. Default: that of `torch.distributed`, or 0.
        world_size: Number of ranks. Default: that of `torch.distributed`, or 1.
        virtual_ranks: The `VirtualRanks` of the training. A batch of the loader is then a list with a micro-batch for
            each virtual rank of this rank, which are loaded and put together one by one.

    Raises:
        UsageError: A number makes no sense, or the ranks cannot divide the batches.
    """

    def __init__(
        self,
        length: int,
        *,
        batch_size: int,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        uneven: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
        virtual_ranks: Any = None,
    ) -> None:
        for name, value in (("length", length), ("batch_size", batch_size)):
            if type(value) is not int or value < 1:
                raise UsageError(f"{name} is {value!r}; pass a whole number above zero")
        self.length = length
        self.batch_size = batch_size
        self.seed = seed
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.epoch: int | None = None
        self.virtual_ranks: tuple[int, ...] = () if virtual_ranks is None else virtual_ranks.numbers
        if self.virtual_ranks:
            if rank is not None or world_size is not None or uneven:
                raise UsageError(
                    "GlobalBatches got virtual_ranks, which say the rank and the number of ranks, and count each "
                    "micro-batch alike; leave out rank, world_size and uneven"
                )
            rank, world_size = self.virtual_ranks[0], virtual_ranks.count
        own = _rank_and_world_size() if rank is None or world_size is None else (rank, world_size)
        self._ranks_are_found = rank is None and world_size is None
        self.rank = own[0] if rank is None else rank
        self.world_size = own[1] if world_size is None else world_size
        if not 0 <= self.rank < self.world_size:
            raise UsageError(f"rank is {self.rank} of {self.world_size}; pass a number from 0 to world_size - 1")
        self._require_division(uneven=uneven)

    def __len__(self) -> int:
        """Return the number of batches in an epoch."""
        return self.length // self.batch_size if self.drop_last else -(-self.length // self.batch_size)

    def __iter__(self) -> Iterator[list[int]]:
        if self.virtual_ranks:
            raise UsageError(
                "GlobalBatches with virtual_ranks gives several micro-batches at once, and a DataLoader alone would "
                "put them into one; pass the loader to training.loader of a ResumableTraining, and loop over what it "
                "returns"
            )
        return self.batches(0 if self.epoch is None else self.epoch)

    def set_epoch(self, epoch: int) -> None:
        """Choose the order of the next pass. `ResumableTraining` counts the passes where this is not called."""
        self.epoch = epoch

    def batches(self, epoch: int, first: int = 0) -> Iterator[Any]:
        """Give this rank's slices of an epoch, from batch number `first` on, each a list of indices.

        With virtual ranks an item is a list of such slices, one for each virtual rank of this rank.

        Raises:
            UsageError: The ranks of `torch.distributed` are others than when this object was made.
        """
        self._require_ranks()
        order = _Order(self.length, seed=self.seed, epoch=epoch) if self.shuffle else range(self.length)
        for number in range(first, len(self)):
            slices = [self._slice(number, rank) for rank in self.virtual_ranks or (self.rank,)]
            found = [[order[position] for position in range(start, stop)] for start, stop in slices]
            yield found if self.virtual_ranks else found[0]

    def weight(self, number: int) -> float:
        """Give the factor for this rank's loss, a mean over its slice, where ranks average their gradients.

        It is the share of this rank in the batch with that number in its epoch, times the number of ranks. An even
        division gives 1.0.

        Raises:
            UsageError: An epoch has no batch of that number.
        """
        if not 0 <= number < len(self):
            raise UsageError(
                f"weight was asked for batch {number} of an epoch of {len(self)}; pass the number of the batch in its "
                "epoch, for example of enumerate(loader, loader.start)"
            )
        start, stop = self._slice(number, self.rank)
        return (stop - start) * self.world_size / self._size(number)

    def order_key(self, epoch: int) -> bytes:
        """Give the source of random numbers that are drawn while samples of an epoch are loaded."""
        return b"samples %d %d" % (self.seed, epoch)

    def facts(self) -> dict[str, Any]:
        """Give all that decides the batches of an epoch."""
        names = ("length", "batch_size", "seed", "shuffle", "drop_last")
        return {"rule": _RULE, **{name: getattr(self, name) for name in names}}

    def require_facts(self, saved: dict[str, Any] | None) -> None:
        """Refuse another order than that of a checkpoint, with each difference."""
        if saved is None:
            raise UsageError(
                "the checkpoint was made in the middle of a pass in another order than that of GlobalBatches; go on "
                "with the sampler of that run, or change it between two epochs"
            )
        here = self.facts()
        changed = [
            f"{name} was {saved.get(name)!r} and is {value!r}"
            for name, value in here.items()
            if saved.get(name) != value
        ]
        if changed:
            raise UsageError(
                f"the checkpoint was made in the middle of a pass over GlobalBatches, and {', '.join(changed)}, so the "
                "batches that are left would be others; change it back, or change it between two epochs"
            )

    def require_samples(self, count: int) -> None:
        """Compare the length with the number of samples in a data set. Samples that never come are named in the log.

        Raises:
            UsageError: The data set has fewer samples.
        """
        if count < self.length:
            raise UsageError(
                f"GlobalBatches has a length of {self.length}, and the data set has {count} samples; pass len(data)"
            )
        if count > self.length and self.rank == 0:
            _logger.warning(
                "GlobalBatches has a length of %d, and the data set has %d samples: the last %d never come; pass "
                "len(data)",
                *(self.length, count, count - self.length),
            )

    def _size(self, number: int) -> int:
        return min(self.batch_size, self.length - number * self.batch_size)

    def _slice(self, number: int, rank: int) -> tuple[int, int]:
        size, begin = self._size(number), number * self.batch_size
        share, more = divmod(size, self.world_size)
        start = begin + rank * share + min(rank, more)
        return start, start + share + (rank < more)

    def _require_ranks(self) -> None:
        """Refuse a division for ranks that are not those of now. Each rank would train on slices of others."""
        now = _rank_and_world_size()
        if self._ranks_are_found and now not in ((0, 1), (self.rank, self.world_size)):
            raise UsageError(
                f"GlobalBatches was made for rank {self.rank} of {self.world_size}, and this process is rank {now[0]} "
                f"of {now[1]}; make it after torch.distributed.init_process_group, or pass rank= and world_size="
            )

    def _require_division(self, *, uneven: bool) -> None:
        """Refuse a rank without a slice of each batch, or with fewer samples than the others."""
        ranks, last = self.world_size, self.length % self.batch_size
        named, fewer, way = "ranks", "start fewer ranks", "start another number of ranks, or pass uneven=True and "
        way += "multiply the loss by weight(number)"
        if self.virtual_ranks:
            named, fewer, way = "virtual ranks", "take fewer virtual ranks", "take another number of virtual ranks"
        sizes = [("batch_size", self.batch_size)] if len(self) and self.length >= self.batch_size else []
        sizes += [("the last batch of an epoch", last)] if last and not self.drop_last else []
        if not sizes:
            raise UsageError(
                f"{self.length} samples make no batch of {self.batch_size}; pass a smaller batch_size, or leave out "
                "drop_last"
            )
        way_out = ", or drop_last=True" if last and not self.drop_last else ""
        for name, size in sizes:
            if size < ranks:
                raise UsageError(
                    f"{name} has {size} samples for {ranks} {named}, so one would have none; {fewer}, or pass another "
                    f"batch_size{way_out}"
                )
        odd = [f"{name} ({size})" for name, size in sizes if size % ranks]
        if odd and not uneven:
            raise UsageError(
                f"{ranks} {named} cannot divide {' and '.join(odd)} into equal slices; pass another "
                f"batch_size{way_out}, or {way}"
            )
        if odd and self.rank == 0:
            _logger.warning(
                "%d ranks divide %s into slices that differ by one sample: multiply each rank's loss by weight(number)",
                ranks,
                " and ".join(odd),
            )


def refuse_global_batches(loader: Any, framework: str) -> None:
    """Refuse these batches in a framework that counts places and divides loaders in its own way.

    Raises:
        UsageError: The loader has them.
    """
    sampler = getattr(loader, "batch_sampler", None)
    if isinstance(sampler, GlobalBatches) or isinstance(getattr(sampler, "batch_sampler", None), GlobalBatches):
        raise UsageError(
            f"{framework} divides the batches of its loaders among the ranks, and GlobalBatches has divided them "
            f"already; give {framework} a DataLoader with a batch_size, or write the loop with ResumableTraining and "
            "pass it the loader as it is"
        )


class _Order:
    """A permutation of the numbers below a length, which gives any of its places by itself.

    It is a Feistel network over two factors whose product is the length or little more. A number beyond the length goes
    through the network again (a walk along its cycle).
    """

    def __init__(self, length: int, *, seed: int, epoch: int) -> None:
        self._length = length
        self._left = math.isqrt(length - 1) + 1
        self._right = -(-length // self._left)
        text = b"order %d %d %d %d" % (_RULE, length, seed, epoch)
        self._keys = struct.unpack(f"<{_ROUNDS}Q", hashlib.blake2b(text, digest_size=8 * _ROUNDS).digest())

    def __getitem__(self, position: int) -> int:
        found = self._moved(position)
        while found >= self._length:
            found = self._moved(found)
        return found

    def _moved(self, number: int) -> int:
        right, left = divmod(number, self._left)
        modulus, other = self._left, self._right
        for key in self._keys:
            mixed = ((right ^ key) * 0x9E3779B97F4A7C15) & _MASK
            mixed = ((mixed ^ (mixed >> 32)) * 0xD6E8FEB86659FD93) & _MASK
            left, right = right, (left + (mixed ^ (mixed >> 32))) % modulus
            modulus, other = other, modulus
        return right * self._left + left


def _rank_and_world_size() -> tuple[int, int]:
    distributed = loaded("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return distributed.get_rank(), distributed.get_world_size()
