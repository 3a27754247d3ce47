"""Moves many parts between two places in a few threads, at a given pace. One problem ends all of them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable
from typing import Callable, TypeVar

_WORKERS = 4
_POLL_SECONDS = 0.2

_Part = TypeVar("_Part")


class TransferCancelledError(Exception):
    """The transfer was broken off because something else is more urgent."""


def transfer(
    parts: Iterable[_Part], move: Callable[[_Part], None], *, cancelled: threading.Event, workers: int = _WORKERS
) -> None:
    """Move all parts, some at a time.

    Args:
        parts: The parts to move. Asked for the next part when a thread is free for it.
        move: Moves one part. Called in several threads.
        cancelled: When it is set, no other part is begun.
        workers: Number of threads.

    Raises:
        TransferCancelledError: If it was set.
        Exception: The first problem of `move` or `parts`.
    """
    left = iter(parts)
    lock = threading.Lock()
    problems: list[BaseException] = []

    def work() -> None:
        try:
            while not problems:
                with lock:
                    part = next(left, None)
                if part is None:
                    return
                require_not_cancelled(cancelled)
                move(part)
        except BaseException as problem:  # noqa: BLE001 - it is raised again below, in the thread that asked
            problems.append(problem)

    helpers = [threading.Thread(target=work, name="spotkeep-transfer", daemon=True) for _ in range(workers - 1)]
    # Where the system starts no more threads, those that are there move it all.
    with contextlib.suppress(RuntimeError):
        for helper in helpers:
            helper.start()
    work()
    for helper in helpers:
        if helper.ident is not None:  # else it was never started
            helper.join()
    if problems:
        raise problems[0]


def require_not_cancelled(cancelled: threading.Event) -> None:
    """Break off if that is wanted.

    Raises:
        TransferCancelledError: If it is.
    """
    if cancelled.is_set():
        raise TransferCancelledError


class Pace:
    """Keeps transfers below a limit, on average over a part, and measures their speed.

    Args:
        bytes_per_second: The limit. None for no limit.
    """

    def __init__(self, bytes_per_second: float | None) -> None:
        self._bytes_per_second = bytes_per_second
        self._lock = threading.Lock()
        self._free_at = 0.0
        self._sent_bytes = 0
        self._sent_seconds = 0.0

    @property
    def measured_bytes_per_second(self) -> float | None:
        """Speed of the transfers so far, in bytes a second. None before the first one."""
        return self._sent_bytes / self._sent_seconds if self._sent_seconds > 0 else None

    def measure(self, sent_bytes: int, seconds: float) -> None:
        """Count a transfer for the speed."""
        self._sent_bytes += sent_bytes
        self._sent_seconds += seconds

    def lift(self) -> None:
        """Go as fast as it goes from now on."""
        self._bytes_per_second = None

    def wait(self, size: int, *, cancelled: threading.Event) -> None:
        """Wait for this part's turn.

        Raises:
            TransferCancelledError: If `cancelled` was set meanwhile.
        """
        with self._lock:
            rate = self._bytes_per_second
            begin = max(self._free_at, time.monotonic())
            if rate is not None:
                self._free_at = begin + size / rate
        while self._bytes_per_second is not None and (seconds := begin - time.monotonic()) > 0:
            if cancelled.wait(min(seconds, _POLL_SECONDS)):
                raise TransferCancelledError
