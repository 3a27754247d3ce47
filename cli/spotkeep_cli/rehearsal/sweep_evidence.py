"""What really happened in a rehearsal of a sweep, as plain values: the only thing its verdict may use."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from spotkeep_cli.rehearsal.evidence import ReceivedNotification, RehearsedProcess
from spotkeep_jobs.progress.job_events import JobEvent
from spotkeep_jobs.record.sweep import Sweep, Trial
from spotkeep_jobs.sweeps.document import Objective
from spotkeep_local.access.call_rates import CallCounts

Curve = Mapping[int, float]
"""The objective by completed steps."""


@dataclass(frozen=True, kw_only=True)
class TrialTrainingJob:
    """A training job of a trial.

    Attributes:
        name: The training job.
        billable_seconds: Instance seconds, as DescribeTrainingJob says.
        lives: The lives of its process, oldest first.
    """

    name: str
    billable_seconds: float
    lives: tuple[RehearsedProcess, ...]


@dataclass(frozen=True, kw_only=True)
class TrialServiceJob:
    """A service job of a trial in a queue.

    Attributes:
        name: Its name.
        preemptions: How often AWS Batch preempted it.
    """

    name: str
    preemptions: int


@dataclass(frozen=True, kw_only=True)
class RehearsedTrial:
    """What became of one trial.

    Attributes:
        trial: Its record, at the end.
        attempts: The names of its jobs, by the records of its run's attempts.
        interruptions_in_record: How many interruptions these records count.
        jobs: Its training jobs, by the local AWS, oldest first.
        service_jobs: Its service jobs, by AWS Batch; None where it is in no queue.
        curve: The objective at each step that it trained, in all attempts.
        contradictions: Steps that it trained twice, with another objective the second time.
        alone: The objective at each step of the same trial left alone.
    """

    trial: Trial
    attempts: tuple[str, ...]
    interruptions_in_record: int
    jobs: tuple[TrialTrainingJob, ...]
    service_jobs: tuple[TrialServiceJob, ...] | None = None
    curve: Curve
    contradictions: tuple[int, ...]
    alone: Curve

    @property
    def lives(self) -> list[RehearsedProcess]:
        """The lives of its process in all jobs, oldest first."""
        return [life for job in self.jobs for life in job.lives]

    @property
    def interruptions(self) -> int:
        """How often the local AWS took its spot capacity."""
        return sum(life.was_taken for life in self.lives)

    @property
    def preemptions(self) -> int:
        """How often AWS Batch gave its place to another job."""
        return sum(job.preemptions for job in self.service_jobs or ())

    @property
    def is_identical(self) -> bool:
        """Whether its curve is, step for step, that of the same trial left alone."""
        return bool(self.curve) and not self.contradictions and self.curve == self.alone


@dataclass(frozen=True, kw_only=True)
class SweepEvidence:
    """What a rehearsal of a sweep gathered.

    Attributes:
        sweep: Its record, at the end.
        asked_trials: How many trials the job file asks for.
        objective: What it searches for.
        trials: Its trials, in the order of their numbers.
        planned_interruptions: The numbers of the trials that were to lose their capacity.
        other_jobs: Training jobs of the sweep's name that are no trial's.
        ended_invocations: How many invocations of the controller were killed.
        calls: How fast calls came, from the launch to the end.
        notifications: What the subscriber received, in the order of arrival.
        others: The states of the other share's runs, counted; None without a queue.
    """

    sweep: Sweep
    asked_trials: int
    objective: Objective
    trials: Sequence[RehearsedTrial]
    planned_interruptions: Set[int]
    other_jobs: Sequence[str] = ()
    ended_invocations: int
    calls: CallCounts
    notifications: Sequence[ReceivedNotification] = ()
    others: Mapping[str, int] | None = None


def curve_of(events: Iterable[JobEvent], *, metric: str) -> tuple[dict[int, float], tuple[int, ...]]:
    """Return the objective at each step, and the steps at which it was reported twice and differs.

    Args:
        events: What the jobs of a trial logged about themselves.
        metric: The objective.
    """
    curve: dict[int, float] = {}
    contradictions = []
    for event in events:
        value = (event.fields.get("metrics") or {}).get(metric)
        if value is None or event.step is None:
            continue
        if curve.setdefault(event.step, value) != value:
            contradictions.append(event.step)
    return curve, tuple(dict.fromkeys(contradictions))
