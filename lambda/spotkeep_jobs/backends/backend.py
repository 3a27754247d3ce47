"""The interface to the services that run attempts, which are SageMaker, AWS Batch's queues and EC2 fleets. Pure.

A backend describes a job in the types on which decisions rest, and its own terms stay in it. The phases of a job give
its waiting and training time, its losses and its end. A backend lists the phases in order of time. For a job with very
many interruptions it lists the last ones, with the sums of those before them. A position counts from the first phase of
all.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, Protocol

from spotkeep_jobs.record.record import EarlierPhases, InstanceTime, TrainingJobs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from datetime import datetime

    from spotkeep_jobs.record.record import Charges, Nodes, PoolTraits, Volume
    from spotkeep_jobs.record.states import EndReason


class JobPhase(StrEnum):
    """The present phase of a job, in the same terms for every backend."""

    WAITING = "WAITING"
    """It waits for capacity, or has it and no instance is ready yet."""
    INTERRUPTED = "INTERRUPTED"
    """It lost its capacity and waits for new."""
    LOADING = "LOADING"
    """It has capacity and loads its image or its data."""
    TRAINING = "TRAINING"
    UPLOADING = "UPLOADING"
    STOPPING = "STOPPING"
    """It was asked to end, and may still be saving."""
    ENDED = "ENDED"
    """It never runs again."""
    UNKNOWN = "UNKNOWN"
    """The backend uses a term that this version does not know. It gives no hint of the job's phase."""


WAITING_PHASES: Final = frozenset({JobPhase.WAITING, JobPhase.INTERRUPTED})
"""The phases in which a job waits for capacity."""
ON_INSTANCES_PHASES: Final = frozenset({JobPhase.LOADING, JobPhase.TRAINING, JobPhase.UPLOADING})
"""The phases in which a job has capacity, which is billed."""


@dataclass(frozen=True, kw_only=True)
class PhaseChange:
    """A phase that a job was in, or is in.

    Attributes:
        phase: The phase.
        started_at: The time of its start.
        ended_at: The time of its end. None where that is not known.
        text: Its line in the timeline.
        detail: More of it, such as the instance that it is about. Empty where the backend says no more.
        error_of_aws: True for an interruption by an error of AWS's own. False where the capacity went to others.
    """

    phase: JobPhase
    started_at: datetime
    ended_at: datetime | None
    text: str = ""
    detail: str = ""
    error_of_aws: bool = False


@dataclass(frozen=True, kw_only=True)
class WarmPoolStatus:
    """DescribeTrainingJob's description of a job's warm pool.

    Attributes:
        status: Available, InUse, Reused or Terminated.
        idle_seconds: ResourceRetainedBillableTimeInSeconds. None while SageMaker gives none.
        reused_by: The training job that took it over.

    Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_WarmPoolStatus.html
    """

    status: str
    idle_seconds: int | None = None
    reused_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class CostSoFar:
    """The cost of a live attempt on a fleet until now.

    Attributes:
        usd: US dollars of its instances, its volume, its root volumes and its snapshots.
        storage_usd_per_hour: US dollars per hour of the storage that it has now.
        at_on_demand: The spot prices that EC2 does not give, such as `spot g5.xlarge in us-east-1a`. Such an instance
            counts at its on-demand price.
        not_counted: The prices that are missing in it, such as `io2 storage`.
        prices_are_late: True while EC2 throttles the question for spot prices. All of spot then counts as on demand.
    """

    usd: float
    storage_usd_per_hour: float = 0.0
    at_on_demand: tuple[str, ...] = ()
    not_counted: tuple[str, ...] = ()
    prices_are_late: bool = False


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A backend's description of a job, as far as Spotkeep needs it. Times are aware, in UTC. Durations are in seconds.

    `training_seconds` and `billable_seconds` are None for a job that never got capacity.
    """

    name: str
    job_id: str
    """The id of the job at its backend, as `Attempt.job_id` has it. Empty before EC2 has given the fleet one."""
    phase: JobPhase
    end_reason: EndReason | None = None
    """The reason for its end. None while it goes on."""
    created_at: datetime
    last_modified_at: datetime | None = None
    training_started_at: datetime | None = None
    training_ended_at: datetime | None = None
    training_seconds: int | None = None
    billable_seconds: float | None = None
    failure_reason: str | None = None
    instance_type: str | None = None
    instance_count: int = 1
    instance_seconds: float | None = None
    """Seconds that the nodes of a run worked, added up. None where `instance_count` of them worked all the time."""
    model_uri: str | None = None
    transitions: tuple[PhaseChange, ...] = ()
    """Its phases in order of time, either all of them or the last ones."""
    earlier_phases: EarlierPhases = field(default_factory=EarlierPhases)
    """The sums over the phases before those."""
    environment: Mapping[str, str]
    keep_alive_seconds: int = 0
    """The time in seconds for which its instances stay for the next job, as last changed."""
    warm_pool: WarmPoolStatus | None = None
    """The status of its warm pool. None for a job that asked for none, or for which SageMaker keeps none."""
    pool_traits: PoolTraits | None = None
    """The traits that another job must match to take its pool. None for a job that cannot leave one."""
    tuning_job_arn: str | None = None
    """The tuning job that created it, and handed its own tags on to it."""

    session_targets: tuple[str, ...] = ()
    """The targets for sessions of Systems Manager, in the order of its instances, as `Backend.observe` sees them.

    They are containers of a training job while it trains, or the instance of a fleet."""
    remote_debugging_off_in: str | None = None
    """The training job in which remote debugging has to be switched on before its containers take sessions."""

    charges: Charges | None = None
    """The cost of a fleet's instances, once the attempt is over. None for another backend."""
    cost_so_far: CostSoFar | None = None
    """The cost of a live attempt on a fleet, from EC2's prices. None where the run has no max_cost, or EC2 was busy."""
    volume: Volume | None = None
    """The volume of a run on a fleet."""
    nodes: Nodes | None = None
    """The nodes of a run on a fleet. None for a run of one instance, and before the first one has come."""
    waits_because: str | None = None
    """The reason of EC2 or AWS Batch for an attempt without an instance, on a fleet or in a queue.

    None where it has one.
    """

    never_fits: bool = False
    """True where AWS Batch says that it asks for more than its queue or share may ever have. It blocks later ones."""

    training_jobs: TrainingJobs = field(default_factory=TrainingJobs)
    """The training jobs with instances that AWS Batch created for an attempt in a queue."""

    has_more_to_do: bool = False
    """True while `Backend.settle` has a step to take, or a fact to record, for the job's resources."""

    @property
    def phase_count(self) -> int:
        """The number of phases that it has had, listed or not."""
        return self.earlier_phases.count + len(self.transitions)

    @property
    def ended(self) -> bool:
        """True once the job is over for good."""
        return self.phase is JobPhase.ENDED


@dataclass(frozen=True, kw_only=True)
class JobSummary:
    """A line of ListTrainingJobs. A hundred come in one call, but hold little."""

    name: str
    arn: str
    ended_at: datetime | None
    last_modified_at: datetime | None = None


class Backend(Protocol):
    """The calls that Spotkeep makes to a service that runs attempts. Every call is safe to make twice."""

    def create(self, request: Mapping[str, Any], /) -> str:
        """Create a job and return its ARN, or the id of its fleet.

        Raises:
            TrainingJobNameTakenError: A job of that name exists.
            AwsRefusedError: The request will never be accepted. Nothing was created.
            AwsBusyError: It may or may not have been created.
        """
        ...

    def observe(self, job_name: str, /) -> JobView | None:
        """Describe a job. None if there is none of that name. Changes nothing, neither in AWS nor in a record.

        Raises:
            AwsCallError: AWS refused or could not answer.
        """
        ...

    def settle(self, job_name: str, /) -> JobView | None:
        """Take the steps that are due for a job and that its service leaves to Spotkeep. Describe the job afterwards.

        For a fleet with finished training, this deletes the fleet and terminates the instance. It also records facts
        that EC2 would forget. `JobView.has_more_to_do` is true while there is something to do.

        Raises:
            AwsCallError: AWS refused or could not answer.
        """
        ...

    def stop(self, job_name: str, /) -> bool:
        """Ask a job to stop. The container gets SIGTERM, and SIGKILL 120 s later.

        Returns:
            False where the job had stopped already.

        Raises:
            JobNotFoundError: No job has that name.
            AwsCallError: AWS refused or could not answer.
        """
        ...


STOPS_WITHIN_SECONDS: Final = 120
"""The time in seconds that SageMaker gives a stopped job to save. Its instances are billed meanwhile.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_StopTrainingJob.html
"""
_NOT_UNDER_WAY: Final = frozenset({JobPhase.ENDED, JobPhase.UNKNOWN})
"""The phases in which a job does nothing that could end later than it began."""
_WITHOUT_INSTANCES: Final = WAITING_PHASES | {JobPhase.ENDED}


def with_phases(earlier: EarlierPhases, phases: Sequence[PhaseChange], *, until: datetime) -> EarlierPhases:
    """Add phases to the sums of those before them.

    Args:
        earlier: The sums.
        phases: The phases that follow.
        until: The end of the last of them, where it has none of its own.
    """
    time = dict(earlier.time)
    loading_again, had_instances = earlier.loading_again, earlier.had_instances
    interruptions, first_at = earlier.interruptions, earlier.first_on_instances_at
    for entry, lasted in _lasted(phases, until=until):
        time[entry.phase] = time.get(entry.phase, timedelta(0)) + lasted
        interruptions += entry.phase is JobPhase.INTERRUPTED
        if entry.phase in ON_INSTANCES_PHASES:
            had_instances = had_instances or not interruptions
            first_at = first_at or entry.started_at
        if entry.phase is JobPhase.LOADING and interruptions:
            loading_again += lasted
    return EarlierPhases(
        count=earlier.count + len(phases),
        interruptions=interruptions,
        time=time,
        loading_again=loading_again,
        had_instances=had_instances,
        first_on_instances_at=first_at,
    )


def time_in(job: JobView, phases: Collection[JobPhase], *, until: datetime) -> timedelta:
    """Return the time that a job spent in phases of some kinds.

    Args:
        job: Its backend's description of it.
        phases: The kinds.
        until: The end of its present phase.
    """
    earlier = sum((lasted for phase, lasted in job.earlier_phases.time.items() if phase in phases), timedelta(0))
    listed = (lasted for entry, lasted in _lasted(job.transitions, until=until) if entry.phase in phases)
    return sum(listed, earlier)


def time_loading_again(job: JobView, *, continues: bool, until: datetime) -> timedelta:
    """Return the time that a job spent on loading data again.

    Args:
        job: Its backend's description of it.
        continues: True where an attempt before it had loaded all of it. Otherwise time counts from the first
            interruption on, if the job had instances before that.
        until: The end of the job.
    """
    if continues:
        return time_in(job, {JobPhase.LOADING}, until=until)
    all_of_it = with_phases(job.earlier_phases, job.transitions, until=until)
    return all_of_it.loading_again if all_of_it.had_instances else timedelta(0)


def _lasted(phases: Sequence[PhaseChange], *, until: datetime) -> Iterator[tuple[PhaseChange, timedelta]]:
    """Yield the duration of each phase. It lasts until the next one began, where it has no end of its own."""
    for entry, following in zip_longest(phases, phases[1:]):
        end = entry.ended_at or (until if following is None else following.started_at)
        yield entry, max(timedelta(0), end - entry.started_at)


def count_interruptions(job: JobView, *, upto: int | None = None) -> int:
    """Return the number of times that a job lost its capacity.

    Args:
        job: Its backend's description of it.
        upto: The number of its first phases that count. None for all.
    """
    listed = job.transitions if upto is None else job.transitions[: max(0, upto - job.earlier_phases.count)]
    return job.earlier_phases.interruptions + sum(entry.phase is JobPhase.INTERRUPTED for entry in listed)


def has_trained(job: JobView, *, before: int | None = None) -> bool:
    """Return True if a job has been in training.

    Args:
        job: Its backend's description of it.
        before: Only the phases before this position count. None for all.
    """
    listed = job.transitions if before is None else job.transitions[: max(0, before - job.earlier_phases.count)]
    return JobPhase.TRAINING in job.earlier_phases.time or any(entry.phase is JobPhase.TRAINING for entry in listed)


def first_on_instances(job: JobView) -> datetime | None:
    """Return the time at which the job first had capacity. None where it never had."""
    return job.earlier_phases.first_on_instances_at or next(
        (entry.started_at for entry in job.transitions if entry.phase in ON_INSTANCES_PHASES),
        job.training_started_at,
    )


def waiting_since(job: JobView) -> datetime | None:
    """Return the start of the job's present wait. None when it has capacity."""
    if job.phase not in WAITING_PHASES:
        return None
    since = job.created_at
    for entry in job.transitions:
        if entry.phase in ON_INSTANCES_PHASES:
            since = entry.ended_at or entry.started_at
    return since


def on_instances_since(job: JobView, *, now: datetime) -> datetime | None:
    """Return the time from which the job has had its present capacity. None where it has none.

    Args:
        job: Its backend's description of it.
        now: The time. It is returned where no phase gives a start.
    """
    if job.phase not in ON_INSTANCES_PHASES:
        return None
    since = now
    for entry in reversed(job.transitions):
        if entry.phase not in ON_INSTANCES_PHASES:
            break
        since = entry.started_at
    return since


def training_since(job: JobView) -> datetime | None:
    """Return the time from which the job trains. None where it does not, or no phase gives a start."""
    if job.phase is not JobPhase.TRAINING:
        return None
    return next((entry.started_at for entry in reversed(job.transitions) if entry.phase is JobPhase.TRAINING), None)


def has_lost_its_capacity(job: JobView) -> bool:
    """Return True if the job was interrupted since it last had capacity."""
    for entry in reversed(job.transitions):
        if entry.phase is JobPhase.INTERRUPTED:
            return True
        if entry.phase in ON_INSTANCES_PHASES:
            return False
    return job.phase is JobPhase.INTERRUPTED


def interruption_before(job: JobView, position: int) -> PhaseChange | None:
    """Return the interruption that the training at this position ends, if it ends one."""
    for entry in reversed(job.transitions[: position - job.earlier_phases.count]):
        if entry.phase is JobPhase.INTERRUPTED:
            return entry
        if entry.phase is JobPhase.TRAINING:
            return None
    return None


def instance_time(job: JobView) -> InstanceTime:
    """Return the time for which the job has been billed, as far as its phases say, and never less.

    A job that is stopped, or in an unknown phase, keeps the instances that it had. The phases of a training job that
    AWS Batch preempted end with the request to stop.

    Args:
        job: Its backend's description of it.
    """
    earlier = (lasted for phase, lasted in job.earlier_phases.time.items() if phase not in _WITHOUT_INSTANCES)
    seconds = sum(earlier, timedelta(0)).total_seconds()
    jobs = job.training_jobs
    preempted = sum(each.preempted for each in jobs.listed) + jobs.earlier.phases.interruptions
    seconds += float(STOPS_WITHIN_SECONDS * preempted)
    since = None
    for entry in job.transitions:
        if entry.phase in ON_INSTANCES_PHASES:
            since = since or entry.started_at
        elif since is not None and (entry.phase in WAITING_PHASES or entry.phase is JobPhase.ENDED):
            seconds += (entry.started_at - since).total_seconds()
            since = None
    if since is not None and job.ended:
        seconds += ((end_of(job) or since) - since).total_seconds()
        since = None
    return InstanceTime(seconds=round(seconds, 3), since=since)


def end_of(job: JobView) -> datetime | None:
    """Return the end of an ended job. None where its backend does not say."""
    if job.training_ended_at is not None:
        return job.training_ended_at
    if job.transitions:
        last = job.transitions[-1]
        return last.started_at if last.phase in _NOT_UNDER_WAY else last.ended_at or job.last_modified_at
    return job.last_modified_at
