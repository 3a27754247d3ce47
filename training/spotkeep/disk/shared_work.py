"""Two threads that share one row of pieces: what keeps a disk, or the memory, busy from Python.

Copying, adding up, reading and writing let go of the interpreter's lock, so a second thread is worth a second
processor. More than two gained nothing on any disk tried.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Callable

Piece = tuple[int, int]
"""A start and an end."""


def pieces(size: int, piece_bytes: int) -> Iterator[Piece]:
    """Cut a length into pieces: the start and end of each."""
    return ((start, min(start + piece_bytes, size)) for start in range(0, size, piece_bytes))


def share(size: int, piece_bytes: int, work: Callable[[Iterator[Piece]], None]) -> None:
    """Let this thread and, for more than one piece, another go through the pieces of a length.

    Returns, or raises what either of them raised, when both are done: neither starts another piece after a failure.

    Args:
        size: The length.
        piece_bytes: The length of a piece; the last may be shorter.
        work: Called in both threads with the pieces that are left, for as long as it asks for more.
    """
    left = _PiecesLeft(size, piece_bytes)
    if size <= piece_bytes:
        work(left)
        return

    def help_along() -> None:
        try:
            work(left)
        except BaseException as problem:  # noqa: BLE001 - it is raised below, in the thread that asked
            left.problem = left.problem or problem

    helper = threading.Thread(target=help_along, name="spotkeep-helper", daemon=True)
    helper.start()
    try:
        help_along()
        helper.join()
    except BaseException as problem:
        # An interruption of this thread: the other one must not go on with memory that changes from here on.
        left.problem = problem
        helper.join()
        raise
    if left.problem is not None:
        raise left.problem


class _PiecesLeft:
    """The pieces that are left, for both threads, until one of them fails."""

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
