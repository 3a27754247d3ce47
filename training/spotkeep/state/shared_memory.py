"""Arrays and tensors in a state's dictionaries and lists that at first share memory with another part of the state.

A script may keep the best weights as `{"best": dict(model.state_dict())}`. They are the model's own memory, until it
puts a copy there. A checkpoint from later has two values for that memory. So before such a checkpoint is read, the
tensor gets memory of its own. Where the two values are equal afterwards, the two are one again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Optional

from spotkeep.loaded import loaded

from . import arrays
from .encoding import object_state, stateful_kind

_MAX_DEPTH = 100
_Address = Optional[tuple[str, int]]


class SharedMemory:
    """Arrays and tensors in a live state's dictionaries and lists that share memory with another part of it.

    Args:
        state: Names and objects.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        held = [found for value in state.values() for found in _held(value, 0)]
        self._parted: list[tuple[Any, Any, Any]] = []
        if not held:
            return
        taken = {_address(value) for value in state.values()}
        for value in state.values():
            taken |= {_address(tensor) for tensor in _in_objects(value, 0)}
        for container, key, value in held:
            address = _address(value)
            if address is not None and address in taken:
                self._parted.append((container, key, value))
            taken.add(address)

    def part(self) -> None:
        """Give each of them memory of its own."""
        for container, key, value in self._parted:
            container[key] = value.clone() if arrays.is_torch_tensor(value) else value.copy()

    def join_where_equal(self) -> None:
        """Put those back that equal the memory they shared."""
        for container, key, value in self._parted:
            if _is_there(container, key) and _same(container[key], value):
                container[key] = value


def _held(value: Any, depth: int) -> Iterator[tuple[Any, Any, Any]]:
    """Find arrays and tensors directly in dictionaries and lists. Each comes with its container, key and value."""
    if type(value) is not list and not isinstance(value, dict):
        return
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if arrays.is_numpy_array(item) or (arrays.is_torch_tensor(item) and not item.requires_grad):
            yield value, key, item
        elif depth < _MAX_DEPTH:
            yield from _held(item, depth + 1)


def _in_objects(value: Any, depth: int) -> Iterator[Any]:
    """Find the arrays and tensors that objects give as their state."""
    if arrays.is_numpy_array(value) or arrays.is_torch_tensor(value):
        return
    if isinstance(value, (dict, list)):
        for item in (value.values() if isinstance(value, dict) else value) if depth < _MAX_DEPTH else ():
            yield from _in_objects(item, depth + 1)
    elif stateful_kind(value) == "state_dict":
        yield from (found for _, _, found in _held({"": object_state(value)}, depth))


def _address(value: Any) -> _Address:
    if arrays.is_numpy_array(value):
        return ("cpu", value.__array_interface__["data"][0]) if value.size else None
    return arrays.address_of(value) if arrays.is_torch_tensor(value) else None


def _is_there(container: Any, key: Any) -> bool:
    return key in container if isinstance(container, dict) else key < len(container)


def _same(one: Any, other: Any) -> bool:
    """Say whether two arrays or tensors have the same bits."""
    if type(one) is not type(other) or one.shape != other.shape or one.dtype != other.dtype:
        return False
    if arrays.is_numpy_array(one):
        return bool(one.tobytes() == other.tobytes())
    torch: Any = loaded("torch")
    return bool(torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8)))
