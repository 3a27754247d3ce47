"""Puts restored values into the objects of a running script, all or none.

Arrays and tensors are filled in place, objects get their `load_state_dict` (or their generator state), dictionaries and
lists get the restored content. What would not fit is found first, and nothing is changed then.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import Any

from spotkeep.errors import StateError, StateMismatchError, UsageError

from . import arrays
from .encoding import encode_state, set_object_state, stateful_kind, with_article


def check_state(state: Mapping[str, Any]) -> bool:
    """Refuse a state that could not be saved, or not be restored in place, before any training is spent on it.

    Returns:
        Whether it holds arrays or tensors, into which a checkpoint is read.

    Raises:
        UsageError: If it is not a mapping of names.
        StateError: Naming every entry at fault.
    """
    if not isinstance(state, Mapping) or not all(isinstance(name, str) for name in state):
        raise UsageError("the state is not a mapping of names to objects; pass for example {'model': model}")
    problems = [
        f"state[{name!r}]: {with_article(type(value).__name__)} cannot be changed in place, nor can the state, which "
        f"is {with_article(type(state).__name__)}; pass the state as a dictionary and read state[{name!r}] from it"
        for name, value in state.items()
        if not (_fillable(value) or isinstance(state, MutableMapping))
    ]
    if problems:
        raise StateError(problems)
    return bool(encode_state(dict(state)).blobs)


def require_fit(state: Mapping[str, Any], restored: Mapping[str, Any], *, step: int) -> None:
    """Find out whether a restored state fits a live one. Looks at forms only, not at what arrays hold.

    Raises:
        StateMismatchError: Naming everything that does not fit.
    """
    problems = [f"the checkpoint has no state[{name!r}]" for name in state if name not in restored]
    problems += [
        f"the checkpoint has state[{name!r}], this script does not pass it" for name in restored if name not in state
    ]
    for name in state:
        if name in restored:
            problems += _mismatches(state[name], restored[name], f"state[{name!r}]")
    if problems:
        raise StateMismatchError(step, problems)


def restore_state(state: Mapping[str, Any], restored: Mapping[str, Any], *, step: int) -> None:
    """Make a live state equal to a restored one.

    Raises:
        StateMismatchError: If something does not fit. Unless an object's own loader refused, nothing was changed.
    """
    require_fit(state, restored, step=step)
    name = ""
    try:
        for name in state:
            if _fillable(state[name]):
                _fill(state[name], restored[name])
            elif isinstance(state, MutableMapping):
                state[name] = restored[name]
    except (ValueError, TypeError, KeyError, RuntimeError, AttributeError) as error:
        raise StateMismatchError(step, [f"state[{name!r}] refused what was saved: {error}"]) from error


def _fillable(value: Any) -> bool:
    return (
        isinstance(value, (dict, list))
        or arrays.is_numpy_array(value)
        or arrays.is_torch_tensor(value)
        or (stateful_kind(value) is not None)
    )


def _mismatches(live: Any, saved: Any, path: str) -> list[str]:
    if arrays.is_numpy_array(live) or arrays.is_torch_tensor(live):
        same_kind = arrays.is_torch_tensor if arrays.is_torch_tensor(live) else arrays.is_numpy_array
        if not same_kind(saved):
            return [f"{path}: the checkpoint has a {type(saved).__name__}, the script a {type(live).__name__}"]
        if live.shape != saved.shape or live.dtype != saved.dtype:
            return [
                f"{path}: the checkpoint has {saved.dtype} of shape {tuple(saved.shape)}, "
                f"the script {live.dtype} of shape {tuple(live.shape)}"
            ]
        if arrays.is_numpy_array(live) and not live.flags.writeable:
            return [f"{path}: the script's array is read-only"]
        return []
    if isinstance(live, dict):
        if not isinstance(saved, dict):
            return [f"{path}: the checkpoint has a {type(saved).__name__}, the script a dictionary"]
        problems = [f"the checkpoint has no {path}[{key!r}]" for key in live if key not in saved and _held(live[key])]
        for key in live:
            if key in saved:
                problems += _mismatches(live[key], saved[key], f"{path}[{key!r}]")
        return problems
    if isinstance(live, list):
        if not isinstance(saved, list):
            return [f"{path}: the checkpoint has a {type(saved).__name__}, the script a list"]
        if len(live) != len(saved):
            if any(_held(item) for item in live):
                return [f"{path}: the checkpoint has {len(saved)} items, the script {len(live)}"]
            return []
        return [
            problem
            for index, item in enumerate(live)
            for problem in _mismatches(item, saved[index], f"{path}[{index}]")
        ]
    return []


def _held(value: Any) -> bool:
    """Say whether the script may hold on to this very object, so that replacing it would go unnoticed."""
    return arrays.is_numpy_array(value) or arrays.is_torch_tensor(value) or stateful_kind(value) is not None


def _fill(live: Any, saved: Any) -> None:
    if live is saved:
        return  # it was filled in place
    if arrays.is_numpy_array(live):
        live[...] = saved
    elif arrays.is_torch_tensor(live):
        if live.data_ptr() != saved.data_ptr():
            live.detach().copy_(saved)
    elif isinstance(live, dict):
        for key in [key for key in live if key not in saved]:
            del live[key]
        for key, value in saved.items():
            if key in live and _fillable(live[key]):
                _fill(live[key], value)
            else:
                live[key] = value
    elif isinstance(live, list):
        if len(live) != len(saved):
            live[:] = saved
            return
        for index, value in enumerate(saved):
            if _fillable(live[index]):
                _fill(live[index], value)
            else:
                live[index] = value
    else:
        set_object_state(live, saved)
