"""The end of a command by a signal. SIGINT (Ctrl-C) is not lost, and SIGTERM ends it as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType, TracebackType


_SIGNALLED = 128


class CtrlC(AbstractContextManager["CtrlC"]):
    """Remembers SIGINT while it is entered, in the main thread.

    Python drops a KeyboardInterrupt that happens to be raised inside a finalizer or a library's callback. A command
    that polls must not go on for ever because of that, so the next wait raises it again.

    Args:
        pause: Waits.
    """

    def __init__(self, pause: Callable[[], None]) -> None:
        self._pause = pause
        self._pressed = False
        self._previous: Any = None

    def __enter__(self) -> CtrlC:
        if threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._press)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def pause(self) -> None:
        """Wait, unless Ctrl-C was pressed before.

        Raises:
            KeyboardInterrupt: It was, or is.
        """
        if self._pressed:
            raise KeyboardInterrupt
        self._pause()

    def _press(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        self._pressed = True
        raise KeyboardInterrupt


@contextmanager
def unwinding_on_sigterm() -> Iterator[None]:
    """Raise SystemExit (143) when SIGTERM comes, in the main thread. Elsewhere it changes nothing."""

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
