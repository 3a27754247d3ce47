"""One loop for all who read a record, decide, and write it on the version they read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from spotkeep_jobs.record.run_table_errors import RunChangedError

T = TypeVar("T")
TRIES: Final = 8


def until_written(
    attempt: Callable[[], T],
    *,
    changed: type[Exception] = RunChangedError,
    tries: int = TRIES,
    pause: Callable[[int], None] = lambda _tries: None,
    has_time: Callable[[], bool] = lambda: True,
) -> T:
    """Call what reads, decides and writes. Call it again when another process has written meanwhile.

    Args:
        attempt: Raises `changed` when another process was faster. It must read again at its next call.
        changed: The error that says so.
        tries: How often it is called at most.
        pause: Called with the number of tries so far, from 0, before it is called again.
        has_time: Asked before it is called again: False ends the tries.

    Returns:
        What `attempt` returned.

    Raises:
        changed: The record kept changing under every try.
    """
    for tried in range(tries - 1):
        try:
            return attempt()
        except changed:
            if not has_time():
                raise
            pause(tried)
    return attempt()
