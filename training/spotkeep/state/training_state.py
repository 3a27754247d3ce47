"""The state that a script gives to its Checkpointer, in two parts.

All ranks have the common part, and write it together. Each rank has a part of its own beside it.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Optional

from spotkeep.errors import StateError
from spotkeep.loaded import loaded

from . import arrays
from .differences import divided_paths
from .encoding import EncodedState, encode_state, object_state, objects_in, stateful_kind, with_article
from .restoring import check_state

_Place = Optional[tuple[str, int]]

_LISTED = 4
_MAX_DEPTH = 100


class UpdatedTensors:
    """Finds tensors that torch's optimizers update and the state does not hold.

    A restore brings back such a tensor's momentum, and its values begin anew. A tensor lies in the state when its
    memory does, as a tensor or as one that an object's `state_dict` gives. The list of a module's parameters does not
    count, because a `state_dict` may leave some out (adapters of a large model).

    Args:
        *states: Names and objects. The first holds the common state of all ranks, the others the state of each rank
            alone.
    """

    def __init__(self, *states: Mapping[str, Any]) -> None:
        self._states = states
        self._seen: list[int] = []
        self._held_before: set[_Place] = set()

    def problems(self) -> list[str]:
        """Name each optimizer that updates a tensor of no entry, with its path and the tensor.

        A later call repeats the check only where optimizers have come, or have more to train.
        """
        objects = [found for state in self._states for found in objects_in(state)]
        optimizers = [(path, value) for path, value in objects if _groups(value) is not None]
        trained = [list(_trained(optimizer)) for _, optimizer in optimizers]
        seen, self._seen = self._seen, [len(tensors) for tensors in trained]
        if seen == self._seen:
            return []
        places = {_place(tensor) for tensors in trained for _, tensor in tensors} - {None}
        held: set[_Place] = {None}  # what has no address may be anywhere
        copies: list[Any] = []
        for tensor, is_copy in (found for _, value in objects for found in _held(value)):
            if held >= places:
                break  # an object is asked for its state only where that is needed
            place = _place(tensor)
            held.add(place)
            if is_copy and place not in places:
                copies.append(tensor)
        problems = []
        for (path, _), tensors in zip(optimizers, trained):
            lost = [(group, tensor) for group, tensor in tensors if _place(tensor) not in held]
            # One that the script has replaced in its model (an embedding that was resized) is not trained any more.
            lost = [(group, one) for group, one in lost if one.grad is not None or _place(one) not in self._held_before]
            lost = [(group, tensor) for group, tensor in lost if not _is_among(copies, tensor)]
            if lost:
                problems.append(_problem(path, lost))
        self._held_before |= held & places
        return problems


def _groups(value: Any) -> list[dict[str, Any]] | None:
    """Give the groups of parameters that make an object an optimizer of torch's, or a wrapper of one."""
    groups = None if loaded("torch") is None else getattr(value, "param_groups", None)
    suits = isinstance(groups, list) and all(isinstance(one, dict) and "params" in one for one in groups)
    return groups if suits else None


def _trained(optimizer: Any) -> Iterator[tuple[int, Any]]:
    """Give the tensors that an optimizer may update, with the numbers of its groups. It skips frozen ones."""
    for index, group in enumerate(_groups(optimizer) or ()):
        for tensor in group["params"]:
            if arrays.is_torch_tensor(tensor) and tensor.requires_grad:
                yield index, tensor


def _held(value: Any) -> Iterator[tuple[Any, bool]]:
    """Give the tensors that an entry of a state saves. Each comes with True if it may be a copy of a trained tensor."""
    if arrays.is_torch_tensor(value):
        yield value, False
    elif stateful_kind(value) == "state_dict":
        own: set[_Place] = set()
        torch: Any = loaded("torch")
        if torch is not None and isinstance(value, torch.nn.Module):
            own = {_place(tensor) for tensor in (*value.parameters(), *value.buffers())}
        is_optimizer = _groups(value) is not None
        for tensor in _arrays(object_state(value), 0):
            yield tensor, not is_optimizer and _place(tensor) not in own


def _arrays(value: Any, depth: int) -> Iterator[Any]:
    if arrays.is_torch_tensor(value) or arrays.is_numpy_array(value):
        yield value
    elif isinstance(value, (Mapping, list, tuple)) and depth < _MAX_DEPTH:
        for _, item in _items(value):
            yield from _arrays(item, depth + 1)


def _items(value: Any) -> Iterable[tuple[Any, Any]]:
    return value.items() if isinstance(value, Mapping) else enumerate(value)


def _place(value: Any) -> _Place:
    """Say where a tensor's memory is. None where that cannot be known."""
    if not arrays.is_torch_tensor(value):
        return None
    local = getattr(value, "_local_tensor", value)  # of a tensor that is divided among ranks
    try:
        address = local.untyped_storage().data_ptr() if local.numel() else 0
    except (RuntimeError, NotImplementedError):
        return None
    return (str(local.device), address) if address else None


def _is_among(copies: list[Any], tensor: Any) -> bool:
    """Say whether an object's state has a copy with the tensor's values, and use it up."""
    torch: Any = loaded("torch")
    local = getattr(tensor, "_local_tensor", tensor).detach()
    for index, copy in enumerate(copies):
        if tuple(copy.shape) != tuple(local.shape):
            continue
        copied = torch.as_tensor(copy).detach()
        if torch.equal(copied.to(local.device, local.dtype), local):
            del copies[index]
            return True
    return False


def _problem(path: str, lost: list[tuple[int, Any]]) -> str:
    shown = [f"{_name(tensor)} of shape {tuple(tensor.shape)} in group {group}" for group, tensor in lost[:_LISTED]]
    if len(lost) > _LISTED:
        shown.append(f"{len(lost) - _LISTED} more")
    return (
        f"{path} updates {len(lost)} {'tensor that' if len(lost) == 1 else 'tensors that'} no entry holds: "
        f"{', '.join(shown)}. After an interruption the values would be the script's first ones again. Pass what they "
        "belong to, for example {'model': model, 'loss': loss, 'optimizer': optimizer}. Where that is the model, the "
        "optimizer was made for other tensors than the model's: for a copy, or before the model's were replaced"
    )


def _name(tensor: Any) -> str:
    """Name a parameter as the module does that has it."""
    torch: Any = loaded("torch")
    for module in gc.get_objects():
        if issubclass(type(module), torch.nn.Module):
            for name, parameter in vars(module).get("_parameters", {}).items():
                if parameter is tensor:
                    return f"{name!r} of {with_article(type(module).__name__)}"
    return "one"


class TrainingState:
    """Names and live objects of one training.

    Args:
        common: Names and objects that are the same on all ranks.
        per_rank: Names and objects that each rank has for itself.
    """

    def __init__(self, common: Mapping[str, Any], per_rank: Mapping[str, Any]) -> None:
        self.common = common
        self.per_rank = per_rank
        self._updated = UpdatedTensors(common, per_rank)

    @property
    def whole(self) -> dict[str, Any]:
        """Both parts in one dictionary."""
        return {**self.common, **self.per_rank}

    def check(self) -> bool:
        """Refuse a state that no checkpoint could hold. Gives true when reading a checkpoint overwrites memory of it.

        Raises:
            StateError: If an entry cannot be saved or restored, or an optimizer updates a tensor of no entry.
        """
        holds_arrays = check_state(self.common) | check_state(self.per_rank)
        self.require_updated_tensors()
        return holds_arrays

    def require_updated_tensors(self) -> None:
        """Refuse optimizers of tensors outside the state. A script may add groups and unfreeze layers at any step.

        Raises:
            StateError: Naming them.
        """
        problems = self._updated.problems()
        if problems:
            raise StateError(problems)

    def encode(self) -> EncodedState:
        """Encode both parts as one state.

        Raises:
            StateError: If an entry cannot be saved.
        """
        self.require_updated_tensors()
        return encode_state(self.whole, one_process=True)

    def encode_common(self) -> EncodedState:
        """Encode the common part."""
        return encode_state(dict(self.common))

    def encode_per_rank(self) -> EncodedState:
        """Encode the part of this rank.

        Raises:
            StateError: If an entry cannot be saved, or is divided among the ranks.
        """
        encoded = encode_state(dict(self.per_rank))
        if encoded.divided:
            names = divided_paths(encoded.document).values()
            raise StateError(
                [f"{name} is divided among the ranks: pass its object in state, not in per_rank" for name in names]
            )
        return encoded
