"""Remembers Ctrl-C until somebody acts on it.

Python drops a KeyboardInterrupt that happens to be raised inside a finalizer or a library's callback. A command that
polls must not go on for ever because of that, so the next wait raises it again.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import FrameType, TracebackType


class CtrlC(AbstractContextManager["CtrlC"]):
    """Watches for SIGINT while it is entered, in the main thread.

    Args:
        sleep: Waits so many seconds.
    """

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
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

    def sleep(self, seconds: float) -> None:
        """Waits, unless Ctrl-C was pressed before.

        Raises:
            KeyboardInterrupt: It was, or is.
        """
        if self._pressed:
            raise KeyboardInterrupt
        self._sleep(seconds)

    def _press(self, signum: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of a handler
        self._pressed = True
        raise KeyboardInterrupt
