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

Span = tuple[int, int]

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
        """Give the memory that optimizers update, those that have done a step since the last call."""
        stepped = list(self._stepped)
        self._stepped.clear()
        return UpdatedMemory(span for optimizer in stepped for span in _spans(_tensors(optimizer)))

    def _see(self, optimizer: Any) -> None:
        self._stepped.add(optimizer)
        self._before()


class UpdatedMemory:
    """Memory of tensors on the CPU.

    Args:
        spans: The addresses of each one, of its first byte and of the one after its last.
    """

    def __init__(self, spans: Iterator[Span]) -> None:
        self._spans = sorted(spans)
        self._starts = [start for start, _ in self._spans]

    def __bool__(self) -> bool:
        return bool(self._spans)

    def holds(self, span: Span) -> bool:
        """Say whether one of the tensors has all of some memory."""
        index = bisect.bisect_right(self._starts, span[0]) - 1
        return index >= 0 and span[1] <= self._spans[index][1]


def names_of(state: Mapping[str, Any], memory: Sequence[Span]) -> list[str]:
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
            if any(start < high and low < end for start, end in _spans([tensor]) for low, high in memory):
                names.append(name)
    return names


def _before_step(optimizer: Any, *_: Any) -> None:
    for steps in list(_all):
        steps._see(optimizer)


def _tensors(optimizer: Any) -> Iterator[Any]:
    for group in optimizer.param_groups:
        yield from group["params"]
    yield from _inside(list(optimizer.state.values()), 0)


def _inside(value: Any, depth: int) -> Iterator[Any]:
    if arrays.is_torch_tensor(value):
        yield value
    elif isinstance(value, (dict, list, tuple)) and depth < _MAX_DEPTH:
        for item in value.values() if isinstance(value, dict) else value:
            yield from _inside(item, depth + 1)


def _spans(tensors: Iterable[Any]) -> Iterator[Span]:
    for tensor in tensors:
        place = arrays.address_of(tensor)
        if place is not None and place[0] == "cpu":
            local = getattr(tensor, "_local_tensor", tensor)
            yield place[1], place[1] + local.numel() * local.element_size()
