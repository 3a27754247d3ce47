"""A few threads that share one row of pieces: what keeps a disk, or the memory, busy from Python.

Copying, adding up, reading and writing let go of the interpreter's lock, so a second thread is worth a second
processor. More than two gain nothing where all of them wait for the same thing, memory or a disk.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from typing import Callable

Piece = tuple[int, int]
"""A start and an end."""


def pieces(size: int, piece_bytes: int) -> Iterator[Piece]:
    """Cut a length into pieces: the start and end of each."""
    return ((start, min(start + piece_bytes, size)) for start in range(0, size, piece_bytes))


def share(size: int, piece_bytes: int, work: Callable[[Iterator[Piece]], None], *, threads: int = 2) -> None:
    """Let this thread and, for more than one piece, others go through the pieces of a length.

    Returns, or raises what one of them raised, when all are done: none starts another piece after a failure.

    Args:
        size: The length.
        piece_bytes: The length of a piece; the last may be shorter.
        work: Called in every thread with the pieces that are left, for as long as it asks for more.
        threads: How many, this one included; never more than there are pieces.
    """
    left = _PiecesLeft(size, piece_bytes)

    def help_along() -> None:
        try:
            work(left)
        except BaseException as problem:  # noqa: BLE001 - it is raised below, in the thread that asked
            left.problem = left.problem or problem

    helpers = [
        threading.Thread(target=help_along, name="spotkeep-helper", daemon=True)
        for _ in range(min(threads, -(-size // piece_bytes)) - 1)
    ]
    try:
        for helper in helpers:
            helper.start()
        help_along()
        _join(helpers)
    except BaseException as problem:
        # An interruption of this thread: the others must not go on with memory that changes from here on.
        left.problem = problem
        _join(helpers)
        raise
    if left.problem is not None:
        raise left.problem


def _join(threads: Iterable[threading.Thread]) -> None:
    for thread in threads:
        if thread.ident is not None:  # else it was never started
            thread.join()


class _PiecesLeft:
    """The pieces that are left, for all threads, until one of them fails."""

    def __init__(self, size: int, piece_bytes: int) -> None:
        self._left = pieces(size, piece_bytes)
        self._lock = threading.Lock()
        self.problem: BaseException | None = None

    def __iter__(self) -> Iterator[Piece]:
        return self

    def __next__(self) -> Piece:
        with self._lock:
            if self.problem is not None:
                raise StopIteration
            return next(self._left)
