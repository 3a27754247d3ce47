"""What rehearsals do with the runs that they launch: find them, hear of their ends, leave none of them behind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from spotkeep_jobs.facts.record import Attempt, Run

if TYPE_CHECKING:
    from spotkeep_rehearsal.evidence import ReceivedNotification
    from spotkeep_rehearsal.staging import Observer, Stage
    from spotkeep_rehearsal.subscriber import Subscriber

_QUIET_SECONDS = 3
"""How long to listen on for what should not come: a second notification, from an event that was delivered twice."""
_LONGEST_NOTICE_SECONDS = 60
_ENDINGS = frozenset({"completed", "failed", "stopped"})


class Runs(Protocol):
    """The run table, as far as a rehearsal reads it."""

    def get(self, run: str) -> Run | None:
        """The head of a run."""

    def attempts(self, run: str) -> Sequence[Attempt]:
        """Every attempt of a run, first to last."""


class Launched(Protocol):
    """The deployed app, as far as what was launched there goes."""

    @property
    def runs(self) -> Runs:
        """The run table."""

    def stop(self, *, run: str) -> None:
        """Ask a run to end, the way a user would."""


def head_of(runs: Runs, name: str) -> Run:
    """Return the head of a run that was launched.

    Raises:
        KeyError: It is not in the run table.
    """
    run = runs.get(name)
    if run is None:
        raise KeyError(f"run {name} was launched and is not in the run table")
    return run


def collect_notifications(
    subscriber: Subscriber, awaited: Collection[str], *, observer: Observer
) -> list[ReceivedNotification]:
    """Listen until each run's ending was told, and a little longer for what should not come."""
    notifications: list[ReceivedNotification] = []
    deadline = time.monotonic() + _LONGEST_NOTICE_SECONDS
    quiet_since = time.monotonic()
    while time.monotonic() < deadline:
        arrived = [notification for notification in subscriber.receive(wait_seconds=1) if notification.run in awaited]
        notifications += arrived
        for notification in arrived:
            observer.notification_received(notification)
            quiet_since = time.monotonic()
        told = {notification.run for notification in notifications if notification.status in _ENDINGS}
        if told == set(awaited) and time.monotonic() - quiet_since >= _QUIET_SECONDS:
            break
    return notifications


@contextlib.contextmanager
def none_left_behind(
    deployment: Launched, runs: Collection[str], *, stage: Stage, observer: Observer
) -> Iterator[None]:
    """Stop the runs of a rehearsal that ends early: the local AWS would train them on, now or when it is up again.

    They are stopped by their record, which outlives the local AWS, and not by their processes.
    """
    try:
        yield
    except BaseException:
        for run in runs:
            try:
                head = deployment.runs.get(run)
                if head is not None and not head.state.ended:
                    observer.stage_note(stage, f"stopping {run}")
                    deployment.stop(run=run)
            except Exception as problem:  # noqa: BLE001 - what ended the rehearsal is what its user must hear of
                observer.stage_note(stage, f"{run} could not be stopped: {problem}")
        raise
