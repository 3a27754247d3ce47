"""Which kind of passes can be made over what a training script iterates over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from spotkeep.errors import UsageError
from spotkeep.loaded import loaded

from .batch_passes import BatchSource, PlainBatches


def batch_source(batches: Iterable[Any]) -> BatchSource:
    """Choose how passes over these batches are taken up in their middle.

    Raises:
        UsageError: If they cannot be.
    """
    if isinstance(batches, Iterator):
        raise UsageError(
            f"a {type(batches).__name__} gives its batches only once, so an epoch cannot be taken up in its middle; "
            "pass something that can be iterated over again: a list, a DataLoader, an object with __iter__"
        )
    torch_data = loaded("torch.utils.data")
    if torch_data is not None and isinstance(batches, torch_data.DataLoader):
        from .torch_batches import torch_batches

        return torch_batches(batches)
    return PlainBatches(batches, draws=not isinstance(batches, Sequence))
