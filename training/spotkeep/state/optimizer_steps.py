"""The steps of torch's optimizers, as their public hooks show them, and the memory that such a step changes."""

from __future__ import annotations

import bisect
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Callable

from spotkeep.loaded import loaded

from . import arrays
from .encoding import objects_in
from .state_dicts import is_module, is_optimizer, module_tensors, without_wrapper

Memory = tuple[str, int, int]
"""A device, the address of the first byte, and of the one after the last."""

_MAX_DEPTH = 3
_hooked: list[Any] = []
_all: weakref.WeakSet[OptimizerSteps] = weakref.WeakSet()


class OptimizerSteps:
    """Sees each step of an optimizer in this process before it changes anything.

    Args:
        before: Called then, in the thread of the step.
    """

    def __init__(self, before: Callable[[], None]) -> None:
        self._before = before
        self._stepped: weakref.WeakSet[Any] = weakref.WeakSet()
        self.begin()

    def begin(self) -> None:
        """Register the hook with torch, once the script has loaded it."""
        register = getattr(loaded("torch.optim.optimizer"), "register_optimizer_step_pre_hook", None)
        if register is not None and not _hooked:
            _hooked.append(register(_before_step))
        _all.add(self)

    def take_updated(self) -> UpdatedMemory:
        """Give the memory that optimizers update, those that have done a step since the last call.

        Memory on the CPU that a GPU may write to by itself is left out.
        """
        stepped = list(self._stepped)
        self._stepped.clear()
        tensors = (tensor for optimizer in stepped for tensor in _tensors(optimizer))
        return UpdatedMemory(_memory_of(tensor for tensor in tensors if not _is_written_by_devices(tensor)))

    def _see(self, optimizer: Any) -> None:
        self._stepped.add(optimizer)
        self._before()


class UpdatedMemory:
    """Memory of tensors.

    Args:
        tensors: The memory of each one.
    """

    def __init__(self, tensors: Iterable[Memory]) -> None:
        self._tensors = sorted(tensors)
        self._starts = [(device, start) for device, start, _ in self._tensors]

    def __bool__(self) -> bool:
        return bool(self._tensors)

    def holds(self, memory: Memory) -> bool:
        """Say whether one of the tensors has all of some memory."""
        device, start, end = memory
        index = bisect.bisect_right(self._starts, (device, start)) - 1
        return index >= 0 and self._tensors[index][0] == device and end <= self._tensors[index][2]


def names_of(state: Mapping[str, Any], memory: Sequence[Memory]) -> list[str]:
    """Name the tensors of a state that have some of the memory."""
    names = []
    named: Iterable[tuple[str, Any]]
    for path, value in objects_in(state):
        if is_module(value):
            named = ((f"{path}.{name}", tensor) for name, tensor in module_tensors(without_wrapper(value)))
        elif is_optimizer(value):
            named = (
                (f"{path}, {key} of a parameter of shape {tuple(parameter.shape)}", tensor)
                for parameter, values in value.state.items()
                for key, tensor in values.items()
            )
        else:
            named = [(path, value)]
        for name, tensor in named:
            if any(_overlap(one, other) for one in _memory_of([tensor]) for other in memory):
                names.append(name)
    return names


def _before_step(optimizer: Any, *_: Any) -> None:
    cuda = loaded("torch").cuda
    if cuda.is_initialized() and cuda.is_current_stream_capturing():
        return  # into a graph: nothing changes now, and its replays show no step
    for steps in list(_all):
        steps._see(optimizer)


def _tensors(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]
    yield from _inside(list(optimizer.state.values()), 0)


def _is_written_by_devices(tensor: Any) -> bool:
    local = getattr(tensor, "_local_tensor", tensor)
    return bool(local.is_cpu and loaded("torch").cuda.is_initialized() and local.is_pinned())


def _inside(value: Any, depth: int) -> Iterator[Any]:
    if arrays.is_torch_tensor(value):
        yield value
    elif isinstance(value, (dict, list, tuple)) and depth < _MAX_DEPTH:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _inside(item, depth + 1)


def _memory_of(tensors: Iterable[Any]) -> Iterator[Memory]:
    for tensor in tensors:
        place = arrays.address_of(tensor)
        if place is not None:
            local = getattr(tensor, "_local_tensor", tensor)
            yield (*place, place[1] + local.numel() * local.element_size())


def _overlap(one: Memory, other: Memory) -> bool:
    return one[0] == other[0] and one[1] < other[2] and other[1] < one[2]
