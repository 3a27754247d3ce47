"""Invocations that can be held before any of their AWS calls, gone on with, troubled, or killed there.

Each runs in a thread of its own, and one thread runs at a time: the order of all calls is the story's choice. A process
that dies before its n-th call has died after the (n-1)-th took effect, so dying before calls is dying anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any

_here = threading.local()


class Trouble(StrEnum):
    """What a call can meet."""

    REFUSED = "throttled"
    """It has no effect, and its caller is told to slow down."""
    ANSWER_LOST = "answer lost"
    """It takes effect, and its caller is told of an error."""
    DEATH = "death"
    """The process ends before the call."""


class ProcessDiedError(BaseException):
    """The function's process ended here; no code of it runs any more."""


class Process:
    """One invocation of a function.

    Attributes:
        name: Which function.
        began: When, in seconds of the story.
        timeout: After how many seconds Lambda ends it.
        skew: How far its clock is ahead, in seconds.
        ended: Whether it is over, in whatever way.
        answer: What it returned.
        error: What it raised, other than its death.
        held_before: The call that it was held before, last.
        in_hand: The notification it has published and not yet recorded as sent.
        trouble_met: What its last call met.
        hit: Whether any of its calls met trouble.
    """

    def __init__(self, name: str, work: Callable[[], object], *, began: float, timeout: float, skew: float) -> None:
        self.name = name
        self.began = began
        self.timeout = timeout
        self.skew = skew
        self.ended = False
        self.answer: object = None
        self.error: BaseException | None = None
        self.in_hand: str | None = None
        self.held_before: str | None = None
        self.trouble_met: Trouble | None = None
        self.hit = False
        self._work = work
        self._budget = 0
        self._trouble: Trouble | None = None
        self._turn = threading.Semaphore(0)
        self._yielded = threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @staticmethod
    def current() -> Process | None:
        """The process whose code is running, or None when it is the story's."""
        return getattr(_here, "process", None)

    def go_on(self, calls: int | None = None) -> None:
        """Let it run up to so many calls from here; None lets it run to its end."""
        if not self.ended:
            self._budget = -1 if calls is None else calls
            self._turn.release()
            self._yielded.acquire()

    def meet(self, trouble: Trouble) -> None:
        """Let its next call meet trouble, and hold it afterwards."""
        if not self.ended:
            self._trouble = trouble
            self.go_on(1)

    def die(self) -> None:
        """End it where it is."""
        self.meet(Trouble.DEATH)

    def call(self, operation: str, act: Callable[[], Any], failure: Callable[[str], BaseException]) -> Any:
        """Make one AWS call, in the process's thread."""
        if self._budget == 0:
            self.held_before = operation
            self._yielded.release()
            self._turn.acquire()
        self._budget -= 1
        self.trouble_met = trouble = self._trouble
        self._trouble = None
        if trouble is None:
            return act()
        self.hit = True
        if trouble is Trouble.DEATH:
            raise ProcessDiedError
        if trouble is Trouble.ANSWER_LOST:
            act()
        raise failure(operation)

    def _run(self) -> None:
        _here.process = self
        self._turn.acquire()
        try:
            self.answer = self._work()
        except ProcessDiedError:
            pass
        except BaseException as error:  # noqa: BLE001 - the story judges it
            self.error = error
        self.ended = True
        self._yielded.release()
