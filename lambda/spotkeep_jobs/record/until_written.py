"""One loop for all functions that read a record, decide, and write it on the version they read."""

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
    """Call a function that reads, decides and writes, again after another process has written meanwhile.

    Args:
        attempt: The function. It raises `changed` when another process was faster, and must read again at its next
            call.
        changed: The type of that error.
        tries: The number of calls at most.
        pause: Called with the number of tries so far, from 0, before the next call.
        has_time: Asked before the next call, and False ends the tries.

    Returns:
        The result of `attempt`.

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
