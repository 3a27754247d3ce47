"""torch's wrappers around modules and optimizers for training with several ranks, found anywhere in the script.

A script often passes the module without its wrapper, and a framework makes the wrapper in its own loop. So the search
goes through all objects of the process. That takes some ten milliseconds, and happens rarely, not at each step.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Mapping
from typing import Any

from spotkeep.loaded import loaded
from spotkeep.state.arrays import is_torch_tensor
from spotkeep.state.encoding import objects_in


class Joinables:
    """The wrappers of this process, such as `DistributedDataParallel` and `ZeroRedundancyOptimizer`."""

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
            world_size: Number of ranks. A wrapper for some of them makes theirs equal, and no others.
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

    def problems(self, *states: Mapping[str, Any]) -> list[str]:
        """Name values that they keep between steps and that no entry of the state holds.

        Args:
            *states: Names and objects.
        """
        alive = self._alive()
        zero: Any = loaded("torch.distributed.optim")
        divided = [one for one in alive if zero is not None and isinstance(one, zero.ZeroRedundancyOptimizer)]
        hooks = [
            (hook.__name__, kept)
            for wrapper in alive
            for hook, kept in getattr(wrapper, "_comm_hooks", ())
            if _keeps_something(kept)
        ]
        if not divided and not hooks:
            return []
        entries = [found for state in states for found in objects_in(state)]
        held = {id(inner) for _, entry in entries for inner in (entry, *_reachable(entry))}
        return [
            f"{path} is a ZeroRedundancyOptimizer, of which each rank has a part: pass that part, "
            "per_rank={'optimizer': optimizer.optim}"
            for path, entry in entries
            if any(entry is one for one in divided) and not _gives_its_state(entry)
        ] + [
            f"the communication hook {name} of a DistributedDataParallel keeps a {type(kept).__name__} from step to "
            "step, and no entry holds it: pass an object with state_dict and load_state_dict for it in per_rank "
            "(docs/distributed-training.md shows one)"
            for name, kept in hooks
            if id(kept) not in held
        ]

    @property
    def joining(self) -> bool:
        """True while this process is in a block of `model.join()`, in which ranks without more batches wait."""
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


def _reachable(entry: Any) -> list[Any]:
    """Give the objects that an object refers to, directly or by an attribute."""
    return [inner for outer in gc.get_referents(entry) for inner in (outer, *gc.get_referents(outer))]


def _keeps_something(kept: Any) -> bool:
    """Say whether a hook's state changes from step to step.

    It does if it holds a count of iterations, as torch's hooks do, or tensors.
    """
    values = [
        getattr(kept, name, None) for name in (*getattr(type(kept), "__slots__", ()), *getattr(kept, "__dict__", ()))
    ]
    tensors = [item for value in values for item in (value.values() if isinstance(value, dict) else [value])]
    return isinstance(getattr(kept, "iter", None), int) or any(map(is_torch_tensor, tensors))


def _gives_its_state(optimizer: Any) -> bool:
    try:
        optimizer.state_dict()
    except RuntimeError:
        return False
    return True


def _instances(kind: type) -> list[weakref.ref[Any]]:
    return [weakref.ref(one) for one in gc.get_objects() if issubclass(type(one), kind)]
