"""The data of Keras' `fit`, in an order that can be repeated, entered in the middle and recognized again."""

from __future__ import annotations

import hashlib
import logging
import math
import types
from collections.abc import Iterator, Mapping
from typing import Any

import keras
import numpy as np

from spotkeep.errors import UsageError
from spotkeep.loaded import loaded

from .keras_objects import objects_inside

_logger = logging.getLogger("spotkeep")

_DEFAULT_BATCH_SIZE = 32
"""The batch size that `fit` takes where none is given."""


def in_an_order_of_numpy(fitting: Mapping[str, Any]) -> dict[str, Any]:
    """Give the arguments of `fit` with a dataset in place of arrays. NumPy shuffles it before each epoch.

    Other data stays unchanged, and so do arrays that are one long stream (`steps_per_epoch`).
    """
    taken = ("x", "y", "sample_weight", "batch_size", "shuffle", "validation_split")
    arrays = tuple(fitting.get(name) for name in ("x", "y", "sample_weight"))
    leaves = [leaf for leaf in keras.tree.flatten(arrays) if leaf is not None]
    if fitting.get("steps_per_epoch") or not leaves or not all(hasattr(leaf, "__array__") for leaf in leaves):
        return dict(fitting)
    rest = {name: value for name, value in fitting.items() if name not in taken}
    arrays = keras.tree.map_structure(lambda leaf: None if leaf is None else np.asarray(leaf), arrays)
    split = fitting.get("validation_split")
    if split and fitting.get("validation_data") is None:
        kept = int(len(leaves[0]) * (1.0 - split))
        rest["validation_data"] = _part(arrays, slice(kept, None))
        arrays = _part(arrays, slice(kept))
    batch_size = fitting.get("batch_size") or _DEFAULT_BATCH_SIZE
    rest.setdefault("validation_batch_size", batch_size)
    batches = _Batches(arrays, batch_size=batch_size, shuffle=bool(fitting.get("shuffle", True)))
    return {**rest, "x": batches, "shuffle": False}


def _part(arrays: Any, indices: Any) -> Any:
    return keras.tree.map_structure(lambda array: None if array is None else array[indices], arrays)


def build_by(model: Any, x: Any) -> None:
    """Make all variables before `fit`, as it does on the other backends, so that a restore can fill them."""
    if isinstance(x, keras.utils.PyDataset):
        batch = x[0]
    elif hasattr(x, "element_spec"):
        batch = next(iter(x))
    else:
        return
    model._symbolic_build(data_batch=batch)


class _Batches(keras.utils.PyDataset):
    """Arrays in batches, shuffled before each epoch with NumPy's random numbers, which are restored."""

    def __init__(self, arrays: Any, *, batch_size: int, shuffle: bool) -> None:
        super().__init__()
        self._arrays = arrays
        self._batch_size = batch_size
        self._shuffle = shuffle
        first = next(leaf for leaf in keras.tree.flatten(arrays) if leaf is not None)
        self._order = np.arange(len(first))

    def __len__(self) -> int:
        return -(-len(self._order) // self._batch_size)

    def __getitem__(self, index: int) -> Any:
        chosen = self._order[index * self._batch_size : (index + 1) * self._batch_size]
        x, y, weights = _part(self._arrays, chosen)
        return (x,) if y is None else (x, y) if weights is None else (x, y, weights)

    def on_epoch_begin(self) -> None:
        if self._shuffle:
            self._order = np.random.permutation(len(self._order))


def stream_in_place_of(given: Mapping[str, Any]) -> Stream | None:
    """Give a stream in the place of a generator. Warn of data that a later epoch cannot go on with.

    Raises:
        UsageError: If a generator without `steps_per_epoch` has several epochs: it ends in the first, and Keras trains
            on its first two batches again in each later one.
    """
    x, steps = given.get("x"), given.get("steps_per_epoch")
    several = given.get("epochs", 1) - given.get("initial_epoch", 0) > 1
    if isinstance(x, types.GeneratorType) and not steps and several:
        raise UsageError(
            "the data is a generator, which gives its batches once, and there are several epochs: Keras trains on its "
            "first two batches in each later one. Pass steps_per_epoch, with a generator that goes on over all epochs, "
            "or a keras.utils.PyDataset"
        )
    if given.get("epochs", 1) > 1 and _shuffles(x):
        _logger.warning(
            "the tf.data.Dataset shuffles, and begins each process with the order of its first epoch: after an "
            "interruption in a later one the order is another. Give arrays or a keras.utils.PyDataset, or shuffle with "
            "reshuffle_each_iteration=False"
        )
    if isinstance(x, types.GeneratorType) and steps:
        return Stream(x, steps_per_epoch=steps)
    batches = _batches_of(x, batch_size=given.get("batch_size"), steps=steps)
    if steps and batches != steps:
        _logger.warning(
            "an epoch ends in the middle of the data (steps_per_epoch is %s, and the data has %s batches). Where the "
            "next one goes on is not saved: after an interruption in a later epoch the data begins anew. Give a "
            "generator and steps_per_epoch, or a keras.utils.PyDataset whose length is that of an epoch",
            steps,
            "an unknown number of" if batches is None else batches,
        )
    return None


def _shuffles(x: Any) -> bool:
    """Say whether a dataset of TensorFlow draws another order for each epoch."""
    if not hasattr(x, "element_spec") or not hasattr(x, "_inputs"):
        return False
    again = "Shuffle" in type(x).__name__ and getattr(x, "_reshuffle_each_iteration", True) is not False
    return again or any(map(_shuffles, x._inputs()))


def _batches_of(x: Any, *, batch_size: int | None, steps: int | None) -> int | None:
    """Count the batches of data that has a length of its own. None if that is not known."""
    if isinstance(x, keras.utils.PyDataset):
        return None if x.num_batches is None else int(x.num_batches)
    torch_data = loaded("torch.utils.data")
    if torch_data is not None and isinstance(x, torch_data.DataLoader):
        return len(x) if hasattr(x.dataset, "__len__") else None
    leaves = [leaf for leaf in keras.tree.flatten(x) if hasattr(leaf, "__array__") and getattr(leaf, "shape", None)]
    if not leaves:
        return None
    # Without a size of batches Keras divides arrays into as many as there are steps.
    return -(-int(leaves[0].shape[0]) // batch_size) if batch_size else steps


def loads_concurrently(x: Any) -> bool:
    """Say whether threads or processes of Keras load batches at the same time, in no order of their own."""
    return isinstance(x, keras.utils.PyDataset) and (x.workers > 1 or x.use_multiprocessing)


class Stream(keras.utils.PyDataset):
    """The batches of a generator, one after the other over all epochs. It can be begun at any of them.

    Args:
        generator: Gives batches, the same ones in each process.
        steps_per_epoch: Batches of an epoch.
    """

    def __init__(self, generator: Iterator[Any], *, steps_per_epoch: int) -> None:
        super().__init__()
        self.steps_per_epoch = steps_per_epoch
        self._generator = generator
        self._start = 0
        self._made = 0
        self._first: list[Any] = []

    @property
    def num_batches(self) -> None:
        """None, because the end of the generator is not known."""

    def __getitem__(self, index: int) -> Any:
        position = self._start + index
        if position < len(self._first):
            return self._first[position]
        if position < self._made:
            raise UsageError(f"batch {position} of the generator was asked for twice; pass a keras.utils.PyDataset")
        return self._make(position)

    def begin_at(self, batch: int) -> None:
        """Begin at a batch. The earlier ones are made and thrown away."""
        self._start = batch
        if self._made < batch:
            self._make(batch - 1)

    def _make(self, position: int) -> Any:
        batch = None
        while self._made <= position:
            try:
                batch = next(self._generator)
            except StopIteration:
                raise UsageError(
                    f"the generator ended after {self._made} batches, and more of them belong to these epochs"
                ) from None
            self._made += 1
            if self._made <= _LOOKED_AT_FIRST:
                self._first.append(batch)
        return batch


_LOOKED_AT_FIRST = 2
"""Batches that Keras reads before the training begins, and asks for again."""


class Digest:
    """A running digest of an epoch's batches, from a few numbers of each, to recognize them."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)
        self._samples: list[Any] = []
        self.batches = 0

    def add(self, batch: Any) -> None:
        """Take note of a batch. A GPU is not waited for."""
        self._samples += [_sample(leaf) for leaf in objects_inside(batch) if hasattr(leaf, "shape")]
        self.batches += 1
        if len(self._samples) > _MOST_SAMPLES:
            self._take_in()

    def text(self) -> str:
        """Give the digest of all batches up to now."""
        self._take_in()
        return self._hash.hexdigest()

    def _take_in(self) -> None:
        for sample in self._samples:
            content = np.asarray(sample.float().cpu() if hasattr(sample, "cpu") else sample)
            self._hash.update(b"%s %d" % (content.dtype.str.encode(), content.size))
            self._hash.update(content.tobytes())
        self._samples.clear()


_MOST_SAMPLES = 1000


_SAMPLE = 64
"""Number of an array's numbers that are compared, spread over all of it."""


def _sample(leaf: Any) -> Any:
    size = math.prod(leaf.shape)
    every = max(1, size // _SAMPLE)
    if hasattr(leaf, "detach"):
        return leaf.detach().reshape(-1)[::every].clone()
    return np.asarray(leaf).flat[::every]
