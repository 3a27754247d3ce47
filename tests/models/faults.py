"""The one injector of faults and crashes: every call of a model of AWS goes through it.

A test strikes one call, or runs an invocation of a function as a `Process`, which can be held before any of its AWS
calls, continued, struck, or killed there. A process that dies before its n-th call has died after the (n-1)-th took
effect, so dying before calls is dying anywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from enum import StrEnum
from typing import Any

from botocore.exceptions import ClientError

Called = Callable[[str, Callable[[], Any]], Any]
"""Makes one AWS call: takes its operation, and what it does."""

_here = threading.local()


class Fault(StrEnum):
    """What a call can meet."""

    REFUSED = "throttled"
    """It has no effect, and its caller gets an error."""
    ANSWER_LOST = "answer lost"
    """It takes effect, and its caller gets an error."""
    DEATH = "death"
    """The process ends before the call."""


class ProcessDiedError(BaseException):
    """The function's process ended here; no code of it runs any more."""


def client_error(operation: str, code: str, message: str | None = None, **more: Any) -> ClientError:
    """Return an error as a boto3 client raises it."""
    answer: Any = {"Error": {"Code": code, "Message": message or code}, **more}
    return ClientError(answer, operation)


def _refusal(_fault: Fault, operation: str) -> Exception:
    return client_error(operation, "ThrottlingException", "Rate exceeded")


def meet(
    fault: Fault | None,
    operation: str,
    act: Callable[[], Any],
    *,
    error_of: Callable[[Fault, str], Exception] = _refusal,
) -> Any:
    """Make a call that meets a fault, or none.

    Args:
        fault: What it meets.
        operation: Of the call.
        act: What the call does.
        error_of: Returns what its caller gets.
    """
    if fault is None:
        return act()
    if fault is Fault.DEATH:
        raise ProcessDiedError
    if fault is Fault.ANSWER_LOST:
        act()
    raise error_of(fault, operation)


def directly(_operation: str, act: Callable[[], Any]) -> Any:
    """Make a call that meets nothing."""
    return act()


class Faults:
    """The calls that were made, and the fault that one of the next ones meets.

    Attributes:
        calls: The operations, in the order of the calls.
        before_call: Called with the operation before each call; may raise.
    """

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.before_call: Callable[[str], object] = lambda _operation: None
        self._fault: Fault | None = None
        self._skip = 0
        self._operation: str | None = None

    def strike(self, fault: Fault | None, *, call: int = 0, operation: str | None = None) -> None:
        """Let one of the next calls meet a fault; `calls` begins anew.

        Args:
            fault: What it meets; None takes back what was asked for before.
            call: How many calls come before it.
            operation: Only calls of this operation count.
        """
        self.calls.clear()
        self._fault, self._skip, self._operation = fault, call, operation

    def __call__(self, operation: str, act: Callable[[], Any]) -> Any:
        """Make one call."""
        self.calls.append(operation)
        self.before_call(operation)
        process = Process.current()
        return meet(self._due(operation), operation, act) if process is None else process.call(operation, act)

    def _due(self, operation: str) -> Fault | None:
        if self._fault is None or self._operation not in (None, operation):
            return None
        self._skip -= 1
        if self._skip >= 0:
            return None
        fault, self._fault = self._fault, None
        return fault


class Model:
    """A model of an AWS client: every call of it goes through `_call`.

    Attributes:
        before_call: Called with the operation before each call; may raise.
    """

    def __init__(self, called: Called | None = None) -> None:
        """Make the model.

        Args:
            called: Makes its calls; None for an injector of its own.
        """
        self.before_call: Callable[[str], object] = lambda _operation: None
        self._called = called or Faults()
        self._refusals: dict[str | None, Exception] = {}

    def refuse(self, error: Exception, *, operation: str | None = None) -> None:
        """Let every call from now on fail; only those of one operation, where it is given."""
        self._refusals[operation] = error

    def _call(self, operation: str, act: Callable[[], Any]) -> Any:
        self.before_call(operation)
        error = self._refusals.get(operation, self._refusals.get(None))
        if error is not None:
            raise error
        return self._called(operation, act)


class Process:
    """One invocation of a function, in a thread of its own.

    One thread runs at a time: the order of all calls is the story's choice.

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
        fault_met: What its last call met.
        hit: Whether any of its calls met a fault.
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
        self.fault_met: Fault | None = None
        self.hit = False
        self._work = work
        self._budget = 0
        self._fault: Fault | None = None
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

    def meet(self, fault: Fault) -> None:
        """Let its next call meet a fault, and hold it afterwards."""
        if not self.ended:
            self._fault = fault
            self.go_on(1)

    def die(self) -> None:
        """End it where it is."""
        self.meet(Fault.DEATH)

    def call(
        self,
        operation: str,
        act: Callable[[], Any],
        *,
        chosen: Callable[[str], Fault | None] = lambda _operation: None,
        error_of: Callable[[Fault, str], Exception] = _refusal,
    ) -> Any:
        """Make one AWS call, in the process's thread.

        Args:
            operation: Of the call.
            act: What the call does.
            chosen: Returns what it meets if nothing else was asked for.
            error_of: Returns what the function gets when it meets something.
        """
        if self._budget == 0:
            self.held_before = operation
            self._yielded.release()
            self._turn.acquire()
        self._budget -= 1
        self.fault_met = fault = self._fault or chosen(operation)
        self._fault = None
        self.hit = self.hit or fault is not None
        return meet(fault, operation, act, error_of=error_of)

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
