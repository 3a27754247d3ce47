"""Save the state of the script's callbacks with their `state_dict`. The log names callbacks without one."""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from spotkeep.errors import UsageError
from spotkeep.state import arrays
from spotkeep.state.encoding import encode_state

_logger = logging.getLogger("spotkeep")

_CONTAINERS = (list, dict, set, bytearray)
# Attributes of a callback by which LightGBM decides when to call it.
_OF_THE_LIBRARY = frozenset({"order", "before_iteration"})


def has_state(callback: Any) -> bool:
    """Say whether a callback has `state_dict` and `load_state_dict`."""
    return callable(getattr(callback, "state_dict", None)) and callable(getattr(callback, "load_state_dict", None))


def warn_of_what_is_not_saved(callbacks: Iterable[Any], *, known: tuple[type, ...]) -> None:
    """Name in the log each callback that may keep something which no checkpoint holds.

    Args:
        callbacks: Those of the script: objects or functions.
        known: Kinds of which all is saved that they keep, or that keep nothing.
    """
    for callback in callbacks:
        if not (has_state(callback) or isinstance(callback, known)) and _may_keep_something(callback):
            warn_of(callback)


def warn_of(callback: Any) -> None:
    """Name in the log a callback of which nothing is saved."""
    _logger.warning(
        "what the callback %s keeps is not saved; if it keeps anything from one batch, round or epoch to the next, "
        "give it state_dict and load_state_dict",
        getattr(callback, "__qualname__", type(callback).__name__),
    )


def _may_keep_something(callback: Any) -> bool:
    if isinstance(callback, functools.partial):
        values = (*callback.args, *callback.keywords.values())
        return any(isinstance(value, _CONTAINERS) for value in values) or _may_keep_something(callback.func)
    if inspect.ismethod(callback):
        return _may_keep_something(callback.__self__)
    if inspect.isfunction(callback):
        used = inspect.getclosurevars(callback).nonlocals
        return any(isinstance(value, _CONTAINERS) for value in used.values()) or bool(_own_attributes(callback))
    return bool(_own_attributes(callback))


def _own_attributes(callback: Any) -> set[str]:
    return {*getattr(callback, "__dict__", ())} - _OF_THE_LIBRARY


def require_same_form(state: Mapping[str, Any], *, rounds_per_step: int, callbacks: int) -> None:
    """Require that a training in steps of boosting rounds goes on in the form in which it was saved.

    Args:
        state: The saved state, with "rounds per step" and "callbacks".
        rounds_per_step: Those of this process.
        callbacks: Their number in this process.

    Raises:
        UsageError: If a step has another number of rounds.
        ValueError: If there are more callbacks, or fewer.
    """
    if state["rounds per step"] != rounds_per_step:
        raise UsageError(
            f"the checkpoint was made with rounds_per_step={state['rounds per step']}, and here it is "
            f"{rounds_per_step}; keep it for the whole run"
        )
    if len(state["callbacks"]) != callbacks:
        raise ValueError(f"{len(state['callbacks'])} callbacks were saved, and there are {callbacks} here")


def state_of_ranks(callback: Any, states: Sequence[Any], *, rank: int, world_size: int) -> Any:
    """Give a callback's state for this rank, from those that another number of ranks has saved.

    Raises:
        ValueError: It differs from rank to rank, and the callback has no `load_rank_states`.
    """
    if has_state(callback) and callable(getattr(callback, "load_rank_states", None)):
        callback.load_rank_states(states, rank=rank, world_size=world_size)
        return callback.state_dict()
    if not all_alike(states):
        raise ValueError(
            f"the callback {type(callback).__name__} has another state on each of the {len(states)} ranks that saved "
            f"it. Start with {len(states)} ranks, or give it load_rank_states(states, *, rank, world_size), which "
            "makes its state of theirs"
        )
    return states[0]


def all_alike(states: Sequence[Any]) -> bool:
    """Say whether the states of ranks are equal."""
    first = _content(states[0])
    return all(_content(state) == first for state in states[1:])


def _content(state: Any) -> tuple[Any, list[bytes]]:
    """Give a state in a form that can be compared."""
    encoded = encode_state({"state": state})
    return encoded.document, [bytes(arrays.host_bytes(blob.raw)) for blob in encoded.blobs]
