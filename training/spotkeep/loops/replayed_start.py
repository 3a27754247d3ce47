"""The start of an epoch that goes on in its middle: the lines before the loop over its batches run once more."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from spotkeep.state.encoding import stateful_kind
from spotkeep.state.random_states import capture_random_states, restore_random_states
from spotkeep.state.state_dicts import is_module

_logger = logging.getLogger("spotkeep")

_PLAIN = (bool, int, float, str)
_DEEPEST = 6
_MOST = 256


class ReplayedStart:
    """The random states and the plain values of a state, before an epoch that goes on in its middle starts again.

    The lines before the loop over its batches run again, and the state is already as they left it. Arrays are left out,
    and so is the state of modules and of objects without a `step`, such as loaders, because it may change by reading.

    Args:
        state: As for a `Checkpointer`.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state
        self._random = capture_random_states()
        self._before = dict(_plain_values(state, "state", 0))

    def is_over(self) -> None:
        """Put the random states back, since the loop over the batches is where it was. Warn of values that changed."""
        restore_random_states(self._random)
        after = dict(_plain_values(self._state, "state", 0))
        # By their texts, because a NaN equals nothing, and False equals 0.
        changed = [path for path, value in self._before.items() if path in after and repr(after[path]) != repr(value)]
        if not changed:
            return
        path, more = changed[0], f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        _logger.warning(
            "lines before the loop over the batches changed %s from %r to %r%s. This epoch goes on in its middle, so "
            "they have run twice, and the training goes on with another state than without an interruption. Put them "
            "after that loop, or below `if loader.start == 0:`",
            *(path, self._before[path], after[path], more),
        )


def _plain_values(value: Any, path: str, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, _PLAIN):
        yield path, value
    elif isinstance(value, (Mapping, list, tuple)):
        if depth < _DEEPEST and len(value) <= _MOST:
            for key, item in value.items() if isinstance(value, Mapping) else enumerate(value):
                yield from _plain_values(item, f"{path}[{key!r}]", depth + 1)
    elif callable(getattr(value, "step", None)) and not is_module(value):
        groups = getattr(value, "param_groups", None)
        if isinstance(groups, list):
            # The parameters and the moments of an optimizer are arrays.
            options = [{name: option for name, option in group.items() if name != "params"} for group in groups]
            yield from _plain_values(options, f"{path}.param_groups", depth + 1)
        elif stateful_kind(value) == "state_dict":
            yield from _plain_values(value.state_dict(), path, depth + 1)
