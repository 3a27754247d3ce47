"""What a job's events say about its steps: how far it came, and what it trained twice. Pure, event by event.

Progress is reported every few seconds, not at every step, so of each interruption the steps after the last report stay
uncounted.

Of a script with several trainings (`training` in its events) the steps of all are added up: a training that begins or
goes on after another one goes on from the sum. The script takes them up in the same order at each start.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spotkeep_jobs.progress.job_events import MOST, JobEvent, JobEventKind
from spotkeep_jobs.record.record import Attempt

REPORTS_A_STEP: Final = frozenset({JobEventKind.PROGRESS, JobEventKind.SAVED, JobEventKind.FINISH})
MOST_TRAININGS: Final = 1000
"""So many trainings of a script are counted apart. The steps of further ones count as those of one more."""


@dataclass(frozen=True, kw_only=True)
class StepsTrained:
    """What a job's own events say about its steps.

    Attributes:
        last_step: The highest count of completed steps; None when the job reported none.
        redone_steps: Steps trained more than once.
        seconds_per_step: Measured over all steps whose time is known; None when there are none.
        loading_again_seconds: From the start of a process to its resumed step, for every start that repeats one.
    """

    last_step: int | None = None
    redone_steps: int = 0
    seconds_per_step: float | None = None
    loading_again_seconds: float = 0.0


def trained_before(earlier: Sequence[Attempt]) -> bool:
    """Return whether earlier attempts of a run had instances: then the first start of the next one repeats one."""
    return any(attempt.usage is not None and attempt.usage.training_seconds for attempt in earlier)


class StepCount:
    """Follows a job's steps through its events, which come in order of time."""

    def __init__(self, *, earlier: Sequence[Attempt] = ()) -> None:
        """Begin where the attempts before ended.

        Args:
            earlier: The run's earlier attempts.
        """
        reached = [attempt.usage.last_step for attempt in earlier if attempt.usage is not None]
        self._highest = max((step for step in reached if step is not None), default=None)
        self._starts = 1 if trained_before(earlier) else 0
        self._reported = False
        self._position: int | None = None
        self._position_at = 0.0
        self._started_at: float | None = None
        self._of_trainings: dict[str | None, int] = {}
        self._of_all = 0
        self._redone = 0
        self._timed_steps = 0
        self._timed_seconds = 0.0
        self._loading_again = 0.0

    def add(self, event: JobEvent) -> None:
        """Take the next event."""
        if event.kind is JobEventKind.START:
            self._starts += 1
            self._position, self._started_at = None, event.at
            self._of_trainings, self._of_all = {}, 0
        elif event.step is None:
            return
        elif event.kind is JobEventKind.RESUME:
            if self._starts > 1 and self._started_at is not None:
                self._loading_again += max(0.0, event.at - self._started_at)
            self._started_at = None
            self._reach(self._with_the_others(event, event.step), event.at)
        elif event.kind in REPORTS_A_STEP:
            self._report(self._with_the_others(event, event.step), event.at)

    def trained(self) -> StepsTrained:
        """Return what the events so far say."""
        return StepsTrained(
            last_step=self._highest if self._reported else None,
            redone_steps=min(self._redone, MOST - 1),
            seconds_per_step=self._timed_seconds / self._timed_steps if self._timed_steps else None,
            loading_again_seconds=self._loading_again,
        )

    def _with_the_others(self, event: JobEvent, step: int) -> int:
        """Return the steps of all trainings of this process: this one's, and what the others have come to."""
        training = event.fields.get("training")
        if training not in self._of_trainings and len(self._of_trainings) >= MOST_TRAININGS:
            training = None
        known = self._of_trainings.get(training, 0)
        # A save that took a while names a step before the last one reported.
        now = step if event.kind is JobEventKind.RESUME else max(step, known)
        self._of_trainings[training] = now
        self._of_all += now - known
        return min(self._of_all - now + step, MOST - 1)

    def _report(self, step: int, at: float) -> None:
        self._reported = True
        untimed = self._position is None
        # No word of where it resumed: it was just before the first step it reports.
        position = max(0, step - 1) if self._position is None else self._position
        if step <= position and not untimed:
            return
        if self._highest is not None:
            self._redone += max(0, min(step, self._highest) - position)
        if not untimed and at >= self._position_at:
            self._timed_steps += step - position
            self._timed_seconds += at - self._position_at
        self._reach(step, at)

    def _reach(self, step: int, at: float) -> None:
        self._reported = True
        self._position, self._position_at = step, at
        self._highest = step if self._highest is None else max(self._highest, step)
