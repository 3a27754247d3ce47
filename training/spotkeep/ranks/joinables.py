"""What torch wraps around modules and optimizers so that ranks train together, found wherever the script has it.

A script often passes the module without its wrapper, and a framework makes the wrapper in its own loop. So it is looked
for among all objects of the process, which takes some ten milliseconds: seldom, and not at each step.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

from spotkeep.loaded import loaded


class Joinables:
    """The wrappers of this process: `DistributedDataParallel`, `ZeroRedundancyOptimizer` and the like."""

    def __init__(self) -> None:
        self._found: list[weakref.ref[Any]] = []
        self._contexts: list[weakref.ref[Any]] = []
        self._seen: set[int] = set()

    def find(self) -> None:
        """Look for them."""
        join: Any = loaded("torch.distributed.algorithms.join")
        self._found = [] if join is None else _instances(join.Joinable)

    def buffers_made_equal(self, world_size: int) -> list[Any]:
        """Give the buffers that all ranks get from rank 0 at the next forward pass.

        Args:
            world_size: How many ranks there are. A wrapper for some of them makes theirs equal, and no others.
        """
        parallel: Any = loaded("torch.nn.parallel")
        return [
            buffer
            for wrapper in self._alive()
            if isinstance(wrapper, parallel.DistributedDataParallel)
            if wrapper.broadcast_buffers and wrapper.process_group.size() == world_size
            for name, buffer in wrapper.module.named_buffers()
            if name not in wrapper.parameters_to_ignore
        ]

    @property
    def joining(self) -> bool:
        """Whether this process is in a block of `model.join()`, in which ranks wait that have no more batches."""
        # torch does not take the setting back when the block is left. The context is gone then.
        configurations = {id(one._join_config) for one in self._alive() if one._join_config.enable}
        if not configurations <= self._seen:
            join: Any = loaded("torch.distributed.algorithms.join")
            self._contexts = _instances(join.Join)
        self._seen = configurations
        contexts = [context() for context in self._contexts]
        return bool(configurations) and any(one is not None and one._enable for one in contexts)

    def _alive(self) -> list[Any]:
        return [one for one in (reference() for reference in self._found) if one is not None]


def _instances(kind: type) -> list[weakref.ref[Any]]:
    return [weakref.ref(one) for one in gc.get_objects() if issubclass(type(one), kind)]
