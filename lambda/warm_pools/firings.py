"""Reads what a schedule fired with: which pool to look at. Pure; nothing else in it is believed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_RUN: Final = re.compile(r"[a-zA-Z0-9](?:-*[a-zA-Z0-9]){0,62}")
_MOST_ATTEMPTS: Final = 999_999


@dataclass(frozen=True, kw_only=True)
class PoolFiring:
    """It is time to look at a pool.

    Attributes:
        run: Its run.
        attempt: Whose job left it.
    """

    run: str
    attempt: int


class NotAFiringError(ValueError):
    """The event names no pool; it says what is wrong with it."""


def firing_of(event: object) -> PoolFiring:
    """Read an event.

    Args:
        event: The input of a schedule; anything at all, when somebody else calls.

    Raises:
        NotAFiringError: It names no run and attempt.
    """
    if not isinstance(event, Mapping):
        raise NotAFiringError(f"the event is a {type(event).__name__}, not an object")
    run, attempt = event.get("run"), event.get("attempt")
    if not isinstance(run, str) or not _RUN.fullmatch(run):
        raise NotAFiringError("it has no `run` that could be a run's id")
    if isinstance(attempt, bool) or not isinstance(attempt, int) or not 1 <= attempt <= _MOST_ATTEMPTS:
        raise NotAFiringError("it has no `attempt` that is a number from 1")
    return PoolFiring(run=run, attempt=attempt)
