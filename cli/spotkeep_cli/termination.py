"""Lets SIGTERM end a command as Ctrl-C does: what it started is ended first."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

_SIGNALLED = 128


@contextmanager
def unwinding_on_sigterm() -> Iterator[None]:
    """Raises SystemExit (143) when SIGTERM comes, in the main thread; elsewhere it changes nothing."""

    def leave(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
        raise SystemExit(_SIGNALLED + signum)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
