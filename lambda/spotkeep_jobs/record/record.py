"""The run record, with its attempts, its timeline and its notifications.

Pure types, read by every function, the command line and the rehearsal. `run_table` stores them in DynamoDB. The code
that changes them is in `runs` and `pools`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer

from spotkeep_jobs.record.fields import (
    MAX_JOB_REQUEST_BYTES,
    MAX_PLAN_BYTES,
    Address,
    AtMost,
    Caller,
    Document,
    Id,
    Label,
    Letter,
    Line,
    PriceNames,
    Words,
    with_changes,
)
from spotkeep_jobs.record.states import (
    EndReason,
    NotificationKind,
    NotificationState,
    PoolEndReason,
    PoolState,
    RunState,
    TimelineKind,
)

DEFAULT_NOTIFY: Final = (
    NotificationKind.COMPLETED,
    NotificationKind.FAILED,
    NotificationKind.STOPPED,
    NotificationKind.LOG_REFUSED,
    NotificationKind.QUEUE_BLOCKED,
    NotificationKind.POOL_EXPIRING,
    NotificationKind.POOL_EXPIRED,
)


def format_time(at: datetime) -> str:
    """Write a time as the record does, as ISO 8601 in UTC with milliseconds and `Z`. Sorts as text."""
    return at.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def in_utc_milliseconds(at: datetime) -> datetime:
    """Return a time as the record keeps it. One fact is then one record, for `with_changes` does not convert values."""
    at = at.astimezone(UTC)
    return at.replace(microsecond=at.microsecond // 1000 * 1000)


UtcTime: TypeAlias = Annotated[
    AwareDatetime, AfterValidator(in_utc_milliseconds), PlainSerializer(format_time, when_used="json")
]
Capacity: TypeAlias = Literal["spot", "on-demand"]
BackendName: TypeAlias = Literal["sagemaker", "ec2"]
"""The service that runs a job, as a SageMaker training job or an EC2 fleet of one instance."""
MetricName: TypeAlias = Annotated[str, AtMost(100)]
Kinds: TypeAlias = Annotated[tuple[NotificationKind, ...], AtMost(len(NotificationKind))]
Goal: TypeAlias = Literal["minimize", "maximize"]
"""The best value of a metric, which is the least or the greatest."""


class Record(BaseModel):
    """Base of everything in the run table, which is frozen. A change is a copy (`with_changes`).

    Unknown fields are ignored, so that an older reader understands the items of a newer function.
    """

    # A command or an invocation uses few of the records, and each takes a millisecond to prepare.
    model_config = ConfigDict(frozen=True, defer_build=True)

    FORM: ClassVar[int] = 1
    """The number of its form, which its item has as `form`.

    Each change that an older reader would misread adds one. Examples are a new value of an enum, or a field with
    another meaning. A new field is no such change."""


class Cost(Record):
    """The bill of a run or of one attempt, counted against a clean on-demand run of the same work (I8).

    All seconds but `waited_seconds` are instance seconds. These are wall-clock seconds times the instance count, which
    SageMaker bills. A US-dollar field is None when the price of the instance type is not known.
    """

    billed_seconds: float
    """BillableTimeInSeconds times the instance count, in on-demand-equivalent seconds.

    The spot discount is already in them. So are idle warm pools."""
    training_seconds: float
    """TrainingTimeInSeconds times the instance count, which is the time that instances worked."""
    waited_seconds: float
    """Wall-clock seconds without capacity, before the first start and after each interruption."""
    redone_steps: int | None
    """Steps trained more than once. None: the job did not report its steps."""
    redone_seconds: float | None
    restart_overhead_seconds: float
    """Downloading and loading again after each interruption. A clean run does it once."""
    clean_on_demand_seconds: float
    """The time of the same work on demand, uninterrupted. An upper bound when `redone_seconds` is None."""
    saved_seconds: float
    """`clean_on_demand_seconds - billed_seconds`. Negative when interruptions cost more than the discount."""
    saved_percent: float | None
    aws_saved_percent: float | None
    """The saving as AWS prints it, which is (1 - billable / training) x 100. It counts work done twice as useful."""
    usd_per_hour: float | None = None
    """On-demand price of one instance."""
    billed_usd: float | None = None
    idle_pool_seconds: float = 0.0
    """The billed seconds in which warm pools of the run's jobs waited for a next job."""
    idle_pool_usd: float | None = None
    clean_on_demand_usd: float | None = None
    saved_usd: float | None = None
    storage_gb_hours: float = 0.0
    """GB-hours of the run's volume while the run lasted. 0 for training jobs, as their price includes storage."""
    storage_usd: float | None = None
    """The volume's cost, in `billed_usd` as well. None where there is no volume, or its price is not known."""
    snapshot_gb_hours: float = 0.0
    """GB-hours of the snapshots that moved the volume from zone to zone, while the run lasted."""
    snapshot_usd: float | None = None
    """The snapshots' cost, in `billed_usd` as well. None where there were none, or their price is not known."""
    root_volume_gb_hours: float = 0.0
    """GB-hours of the root volumes of a fleet's instances, each for as long as its instance lived."""
    root_volume_usd: float | None = None
    """The root volumes' cost, in `billed_usd` as well. None where there were none, or a price is not known."""
    unknown_prices: PriceNames = ()
    """The names of the missing prices in the figures of a run on EC2."""


class Charges(Record):
    """The cost of one attempt on a fleet, in the prices of the market."""

    instance_seconds: float
    """Seconds that instances ran, a minute at least."""
    instances_usd: float | None = None
    """None where a price is not known."""
    on_demand_usd: float | None = None
    """The same instances for the same time, on demand."""
    storage_gb_hours: float = 0.0
    """GB-hours of the run's volume while the attempt lasted."""
    storage_usd: float | None = None
    """The volume's cost in US dollars, with provisioned IOPS and throughput. None where a price is not known."""
    snapshot_gb_hours: float = 0.0
    """GB-hours of the snapshots that moved the volume, while the attempt lasted."""
    snapshot_usd: float | None = None
    """The snapshots' cost. None where there were none, or their price is not known."""
    root_volume_gb_hours: float = 0.0
    """GB-hours of the instances' root volumes, each for as long as its instance lived."""
    root_volume_usd: float | None = None
    """The root volumes' cost. None where a price is not known."""
    unknown: PriceNames = ()
    """The names of the missing prices, such as `spot g5.xlarge in us-east-1a`, `on demand g5.xlarge`, `gp3 storage`,
    `gp3 throughput`."""

    @property
    def billable_seconds(self) -> float | None:
        """The bill in seconds of an instance on demand, as SageMaker states it. The discount is in them."""
        if self.instances_usd is None or not self.on_demand_usd:
            return None
        return self.instance_seconds * self.instances_usd / self.on_demand_usd


class JobUsage(Record):
    """The usage of one attempt's job before prices, which is the part of the bill that sums over attempts.

    Seconds are wall-clock seconds of the job. The instance count is beside them.
    """

    instance_count: int
    billable_seconds: float | None
    """BillableTimeInSeconds. None when SageMaker gives none, as for a job that never launched."""
    training_seconds: float | None
    waited_seconds: float
    redone_steps: int | None
    redone_seconds: float | None
    restart_overhead_seconds: float
    last_step: int | None = None
    """The highest count of completed steps the job reported."""
    log_complete: bool = True
    """False when the job's log could not be read to its end. Redone work may then be undercounted."""
    pool_idle_seconds: float = 0.0
    """ResourceRetainedBillableTimeInSeconds, the time that the job's warm pool waited. Set when the pool is over."""
    charges: Charges | None = None
    """The cost of an attempt on a fleet, in the prices of the market. None for another backend."""


class Progress(Record):
    """The progress of a run, as its script reports it."""

    step: int
    """Completed steps, at the last report."""
    total_steps: int | None = None
    """Steps of the whole training. None where the job does not say."""
    durable_step: int = 0
    """The step of the newest checkpoint that is taken to be in S3."""
    reported_at: UtcTime
    read_to: float
    """Epoch seconds of the last event that is in here, by the job's clock."""
    timed_steps: int = 0
    timed_seconds: float = 0.0
    """Seconds that the `timed_steps` took, which are the steps of known duration."""
    at_work: bool = True
    """True while the process that reported last is still at work."""
    unsettled_step: int | None = None
    unsettled_at: float | None = None
    """A checkpoint on the job's disk that may not have reached S3."""
    reports_uploads: bool = False
    """True when the job reports each checkpoint that has reached S3."""
    saved_at: float | None = None
    uploaded_at: float | None = None
    """Epoch seconds by the job's clock.

    `saved_at` is when the newest checkpoint was on its disk, `uploaded_at` when one had reached S3.
    """
    scheduled_seconds: float | None = None
    """Seconds between two checkpoints as the script plans them, where the script states it."""
    saves_every_seconds: float | None = None
    """Seconds between its last two checkpoints."""


class Metric(Record):
    """The kept values of one metric that the script reports."""

    goal: Goal | None = None
    last_step: int | None = None
    """The step of the last value. None when that value came without a step."""
    last: float
    best_step: int | None = None
    best: float | None = None
    """None where there is no goal."""
    span: int = 1
    """The number of steps that share a point of the curve, a power of two."""
    points: Annotated[tuple[tuple[int, float], ...], AtMost(60)] = ()
    """The curve, with the last step and value of each span."""
    bests: Annotated[tuple[tuple[int, float], ...], AtMost(60)] = ()
    """The best step and value of each span, where there is a goal.

    One of them becomes the best when later steps turn out to be lost.
    """
    stepless_best: float | None = None
    """The best of the values that came without a step."""


class ScriptMetrics(Record):
    """The metrics that a run's script reports, in an item beside the run's."""

    metrics: Annotated[dict[MetricName, Metric], AtMost(40)] = {}
    left_out: bool = False
    """True when the script reported more metrics than are kept."""
    resumes: bool = False
    """True while a process has begun and has not reported a step. It may train the last steps again."""


class Steered(Record):
    """The current decision about a run's capacity, written when the choice changes."""

    choice: Literal["wait", "spot", "on-demand"]
    reason: Words
    decided_at: UtcTime


class Spread(Record):
    """A figure of a forecast, with the median and the range that eight in ten futures fall into."""

    p10: float
    p50: float
    p90: float


class Plan(Record):
    """The forecast of a run and the policy that steers it.

    The solved policy is a table, in an item beside the run's.
    """

    made_at: UtcTime
    table: Annotated[dict[str, Any], AtMost(MAX_PLAN_BYTES)]
    """As `spotkeep_planner.steering` writes it."""
    cost_usd: Spread | None = None
    """The cost of all instances in US dollars. None where no price was known."""
    finish_seconds: Spread
    """From the launch."""
    chance_of_on_demand: float
    spot_usd_per_hour: float | None = None
    """The spot price of one instance."""
    rests_on: Annotated[tuple[Words, ...], AtMost(20)] = ()


class RunGroup(Record):
    """Independent runs that were launched as one. Each is a run like any other afterwards."""

    id: Id
    """The id of the launch. The runs are `<id>-1` to `<id>-<size>`."""
    index: int
    """The number of this run in the group, from 1."""
    size: int


class TrialPlace(Record):
    """The sweep of a run, and the number of its trial there."""

    sweep: Id
    number: int
    """From 1."""


class LogReading(Record):
    """A reading of a run's log that has begun, and as far as is known has not ended."""

    begun_at: UtcTime
    unfinished: int
    """The number of readings that have begun since one ended, this one included.

    A reading without an answer has not ended.
    """


class QuotaWait(Record):
    """A wait for room in the account's quota. SageMaker refuses the job of the run's attempt until there is some."""

    since: UtcTime
    """The time when SageMaker first refused it."""
    refused_at: UtcTime
    """The time when SageMaker last refused it."""
    reason: Words
    """The name of the quota, in SageMaker's words."""


class QueuePlace(Record):
    """The place where a job waits for its turn, in a job queue of AWS Batch.

    The job waits in a share of the queue, with a priority within the share.
    """

    queue: Label
    """As the deployment's settings name it."""
    share: Label
    priority: int = 0
    """A number from 0 to 9999. The higher one goes first."""


class Place(Record):
    """The capacity that an attempt waits for, or runs on. The function that begins the attempt writes it."""

    backend: BackendName = "sagemaker"
    """The service that runs the job, `sagemaker` or `ec2`."""
    queue: QueuePlace | None = None
    """The job's turn in a queue of AWS Batch's. None where the backend is asked at once."""
    capacity: Capacity
    """`spot` or `on-demand`, as the fallback asks for it."""
    instance_type: Id
    """The first type that the job names, then the type that it got, such as `ml.g5.xlarge`."""
    instance_count: int = 1
    """The number of instances."""


class PhaseSpan(Record):
    """A phase of a training job, as `JobPhase` names it."""

    phase: Id
    started_at: UtcTime
    ended_at: UtcTime | None = None
    text: Line = ""


class AskedToEnd(Record):
    """A request that a run or an attempt's job ends. Written once, and kept in the ended run or attempt."""

    at: UtcTime
    """The time of the request, by the clock of the function that wrote it, such as `2026-11-22T02:00:00.000Z`."""
    reason: EndReason
    """The end reason that follows from it, such as `STOPPED_BY_USER` or `MAX_COST`."""
    text: Words
    """The reason as the timeline shows it, such as `A user asked to stop the run`."""


class StaleCheckpointNotice(Record):
    """The last notification that an attempt's newest checkpoint is too old. The controller writes it."""

    nth: int
    """The number of such notifications of the attempt, such as 2."""
    newest_at: UtcTime
    """The time of that checkpoint, such as `2026-11-22T02:00:00.000Z`. Without one, the attempt's beginning."""


class LastReconciliation(Record):
    """The last reconciliation of an attempt with its live job. The controller writes it."""

    job_modified_at: UtcTime | None = None
    """SageMaker's LastModifiedTime of the job, such as `2026-11-22T02:00:00.000Z`.

    Until it moves, nothing happened to the job. None where the backend gives none."""
    again_at: UtcTime | None = None
    """The time of the next reconciliation when nothing happens to the job. For example, a wait gets too long."""


class InstanceTime(Record):
    """The time for which the live job of a run has had instances, which AWS bills."""

    seconds: float = 0.0
    """Wall-clock seconds, up to when it last lost them."""
    since: UtcTime | None = None
    """The time from which it has its present instances. None while it has none."""

    def seconds_until(self, at: datetime) -> float:
        """Return the seconds with instances until a time, if the job keeps its present ones until then.

        Args:
            at: A time.
        """
        now_seconds = 0.0 if self.since is None else max(0.0, (at - self.since).total_seconds())
        return self.seconds + now_seconds


class QueuedTrainingJob(Record):
    """A training job that AWS Batch made for an attempt in a queue, and that had instances."""

    name: Id
    """AWS Batch's own."""
    over: bool = False
    """True when SageMaker reports that it has ended. It is then not described again."""
    phases: Annotated[tuple[PhaseSpan, ...], AtMost(200)]
    """Its phases from its first instances until it was asked to stop, or ended. All of them, or the last ones."""
    earlier_phases: int = 0
    """The number of phases before those."""
    left_at: UtcTime | None = None
    """The time when it was asked to stop, or ended."""
    preempted: bool = False
    """True when AWS Batch put its service job back into the queue, after a stop or for a retry."""
    failed_in_sagemaker: bool = False
    """True when it ended by an error of SageMaker's own."""
    training_seconds: int | None = None
    billable_seconds: float | None = None


class EarlierPhases(Record):
    """Sums over the phases of a job that are not listed any more.

    A job may be interrupted for as long as it lives, so only the last phases are listed. These sums and the listed
    phases together stand for all of its phases. Times are exact sums, so a bill comes out the same whichever of them
    are listed (I8).
    """

    count: int = 0
    interruptions: int = 0
    time: Annotated[dict[Id, timedelta], AtMost(8)] = Field(default_factory=dict)
    """The time in each kind of phase."""
    loading_again: timedelta = timedelta(0)
    """The time of loading after its first interruption."""
    had_instances: bool = False
    """True when it had instances before its first interruption."""
    first_on_instances_at: UtcTime | None = None


class EarlierTrainingJobs(Record):
    """Sums over the training jobs of an attempt in a queue that are not listed any more."""

    names: Annotated[tuple[Id, ...], AtMost(500)] = ()
    """The names of the last of them. Their logs are read with the others."""
    left_at: UtcTime | None = None
    """The time when the last of them was asked to stop, or ended."""
    training_seconds: int | None = None
    billable_seconds: float | None = None
    phases: EarlierPhases = EarlierPhases()
    """Sums over their phases and the preemptions after each.

    Phases of the following job that are not listed any more are in them, too.
    """


class Run(Record):
    """The run item, with the user's request and the state of the run.

    `version` counts the changes. Every write names the version that it was decided on (optimistic locking).
    """

    run: Id
    name: Label
    owner: Label | None = None
    launched_by: Caller | None = None
    """The caller of the launcher. None after a direct invocation, which names no caller."""
    group: RunGroup | None = None
    """The group of a run that was launched with others in one document."""
    trial: TrialPlace | None = None
    """The trial that the run is, and its sweep. None outside a sweep."""
    schedule: Id | None = None
    """The schedule that launched it. None for a launch of a user or of a sweep."""
    adopted: bool = False
    """True when another client created its job, without a job document."""
    state: RunState = RunState.LAUNCHING
    end_reason: EndReason | None = None
    failure_reason: Words | None = None
    paused_at_step: int | None = None
    """The completed steps of a paused run, from its last attempt."""
    no_more_jobs_because: Words | None = None
    """The bound (of the ladder, max_cost, the retries) that kept another job from following the last one."""
    place: Place
    """The place of the current attempt. Each attempt that begins writes its own into the run."""
    job_name: Id
    """The current attempt's training job. In a queue its service job."""
    job_id: Address | None = None
    """The current attempt's `job_id`. The function that writes the attempt's writes this one with it."""
    attempt: int = 1
    created_at: UtcTime
    started_at: UtcTime | None = None
    """The time when the first attempt first had instances."""
    ended_at: UtcTime | None = None
    updated_at: UtcTime
    asked_to_end: AskedToEnd | None = None
    """The user's request to stop. The launcher writes it. A resume clears it."""
    checkpoint_uri: Address
    """The checkpoint prefix, one S3 prefix that at most one live run owns (I1). Empty in an adopted run without one."""
    output_prefix: Address
    """S3OutputPath of every attempt. Lies in the deployment's bucket."""
    output_uri: Address | None = None
    """The model archive, once it is known."""
    notify: Kinds = DEFAULT_NOTIFY
    deadline_at: UtcTime | None = None
    progress: Progress | None = None
    """Followed in runs with a deadline, and where a stale checkpoint causes a notification."""
    steered: Steered | None = None
    max_cost_is_near: bool = False
    """True when most of its max_cost is spent, and the timeline has an entry about it."""
    volume_id: Id | None = None
    """The volume of a run on EC2, once there is one."""
    volume_is_for_a_person: bool = False
    """True when only a person deletes that volume. It is the user's, or has data that is not in S3."""
    training_job: Id | None = None
    """The newest training job that AWS Batch made for a run in a queue, and that had instances."""
    waits_because: Words | None = None
    """EC2's reason why a run there has no instance. None while it has one."""
    quota_wait: QuotaWait | None = None
    """The wait of a run when SageMaker refuses its job for the account's quota. None once the job is created."""
    interruptions: int = 0
    """Over all attempts."""
    log_reading: LogReading | None = None
    """Written before a function reads the log. It stays when that function ends before the reading does."""
    log_warning: Words | None = None
    """The part of its jobs' logs that was not taken, notified once."""
    cost: Cost | None = None
    """Set when an attempt ends. Sums all attempts so far."""
    instance_time: InstanceTime | None = None
    """The instance time of the attempt that `cost` does not include yet. It is live, or its bill never came."""
    slot: int | None = None
    """The number of its slot among the deployment's slots for runs in flight, from 0.

    None when it has ended, or there are none.
    """
    token: Label
    """The idempotency token the run was opened with."""
    request: Document
    """The validated job document. Empty in an adopted run."""
    version: int = 0

    @property
    def next_pause_at_step(self) -> int | None:
        """The step where a resume of a paused run may pause next, twice as far. None for a run that is not paused."""
        return None if self.paused_at_step is None else 2 * self.paused_at_step

    def to_end(self, reason: EndReason, *, text: str, at: datetime) -> Run:
        """Return the run as it is once a user has asked to stop it."""
        asked = AskedToEnd(at=at, reason=reason, text=text)
        return with_changes(self, state=RunState.STOPPING, asked_to_end=asked, updated_at=at)


class Attempt(Record):
    """One training job that works on a run."""

    run: Id
    attempt: int
    fallback: int = 0
    """The number of the ladder's fallback that it is on, from 0."""
    state: RunState = RunState.LAUNCHING
    end_reason: EndReason | None = None
    failure_reason: Words | None = None
    paused_at_step: int | None = None
    """The completed steps at which its script paused. Where the log does not say, those that the request names."""
    job_name: Id
    job_id: Address | None = None
    """The id of the job at its backend, from the launcher or the controller once the backend has confirmed the job.

    On SageMaker it is the training job's ARN, in a queue the service job's ARN, and on EC2 the fleet's id, such as
    `fleet-0a1b2c3d`."""
    training_jobs: Annotated[tuple[QueuedTrainingJob, ...], AtMost(100)] = ()
    """In a queue, the training jobs that AWS Batch made one after another. All of them, or the last ones."""
    earlier_training_jobs: EarlierTrainingJobs = EarlierTrainingJobs()
    """Those before them."""
    place: Place
    created_at: UtcTime
    resumed: bool = False
    """True when a user's resume began it. A client may repeat that call."""
    begins_at: UtcTime | None = None
    """The earliest time at which its job is created, after SageMaker had no capacity for the job before it."""
    no_capacity_since: UtcTime | None = None
    """The time since when SageMaker has had no capacity, where this attempt asks it again."""
    create_begun_at: UtcTime | None = None
    """The time when a function other than its writer last began to create its job."""
    launched_at: UtcTime | None = None
    """The time when the job's ARN was recorded."""
    started_at: UtcTime | None = None
    asked_to_end: AskedToEnd | None = None
    """The controller's request that its job ends. `MAX_WAIT_EXCEEDED` leaves a fallback, `DEADLINE` leaves spot.
    After `MAX_COST` and `MAX_RUNTIME_EXCEEDED` no job follows."""
    ended_at: UtcTime | None = None
    output_uri: Address | None = None
    interruptions: int = 0
    queue_blocked_notified: bool = False
    """True when its users were notified that it blocks its queue."""
    long_wait_notified: int | None = None
    """The interruption after which a long wait was last notified. 0 stands for the wait before the first capacity."""
    stale_notice: StaleCheckpointNotice | None = None
    """None while the users got no notification of a stale checkpoint."""
    last_reconciled: LastReconciliation | None = None
    """None before the first reconciliation with the job, and after the attempt's end."""
    recorded_transitions: int = 0
    """The number of SageMaker's transitions in the timeline."""
    log_read_at: UtcTime | None = None
    """The time when its job's log was last read for its metrics, while the job lived."""
    usage: JobUsage | None = None
    job_request: Annotated[dict[str, Any], AtMost(MAX_JOB_REQUEST_BYTES)] | None = None
    """The CreateTrainingJob request, exactly as it is sent. A launch cut short is completed with the same request."""

    @property
    def log_names(self) -> tuple[str, ...]:
        """The names of the jobs that wrote the attempt's logs, in their order."""
        if self.place.queue is None:
            return (self.job_name,)
        return (*self.earlier_training_jobs.names, *(job.name for job in self.training_jobs))

    def to_end(self, reason: EndReason, *, text: str, at: datetime) -> Attempt:
        """Return the attempt as it is once the controller asks its job to end."""
        return with_changes(self, asked_to_end=AskedToEnd(at=at, reason=reason, text=text))

    def job_created_entry(self, *, job_id: str, at: datetime) -> TimelineEntry:
        """Return the timeline entry for the creation of the job.

        The function that first records the job's id writes it, once.

        Args:
            job_id: As it is recorded.
            at: The time when the job was created, as far as that function knows.
        """
        if self.place.backend == "ec2":
            text = f"EC2 accepted fleet {job_id}"
        elif (place := self.place.queue) is not None:
            text = f"AWS Batch took the job into queue {place.queue}, share {place.share}, priority {place.priority}"
        else:
            text = f"SageMaker accepted training job {self.job_name}"
        return TimelineEntry(run=self.run, attempt=self.attempt, at=at, kind=TimelineKind.JOB_CREATED, text=text)


class TimelineEntry(Record):
    """An event in the life of a run, in plain words.

    Time, attempt and kind together identify an entry. The same event seen twice is one entry.
    """

    run: Id
    attempt: int
    at: UtcTime
    kind: TimelineKind
    text: Words
    step: int | None = None
    """Completed steps, where the entry is about a step."""
    error_of_aws: bool = False
    """True when an interruption was an error of AWS's own. It proves nothing about capacity."""


class Notification(Record):
    """A message to the subscribers, in the outbox until it is sent (I4)."""

    notification_id: Label
    """The id `<run>/<kind>/<attempt>[-<nth>]`, the same for every delivery of the same notification."""
    subject_id: Id
    """The run it is about."""
    kind: NotificationKind
    attempt: int = 1
    nth: int = 0
    """The number of the interruption or resume of the attempt. 0 for endings, of which there is one."""
    state: NotificationState = NotificationState.PENDING
    subject: Line
    body: Letter
    attributes: Annotated[dict[Id, Label], AtMost(20)]
    """SNS message attributes, for filter policies."""
    facts: Document = {}
    """Facts for a program beside the text, such as the place of the checkpoints.

    The notification of an ending has the bill and the model, too.
    """
    happened_at: UtcTime
    created_at: UtcTime
    claimed_at: UtcTime | None = None
    sent_at: UtcTime | None = None
    message_id: Id | None = None
    """The message id in the answer of SNS."""
    deliveries: int = 0
    """The number of claims by deliverers."""
    problem: Words | None = None
    """The reason of the topic's last refusal."""
    queued_at: UtcTime | None = None
    """The time when it was put into the dead-letter queue.

    None while it is not dead, or the queue has not taken it yet.
    """

    def order(self) -> tuple[datetime, str]:
        """Return a key that sorts notifications in the order of their events."""
        return self.happened_at, self.notification_id


class PoolTraits(Record):
    """The traits that SageMaker compares to find a warm pool for a job, in the terms of CreateTrainingJob.

    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/train-warm-pools.html (Matching training jobs)
    """

    role_arn: Address
    instance_type: Label
    """One type. Several, joined by `or`, in a job that names several."""
    instance_count: int
    volume_size_gb: int
    volume_kms_key_id: Address | None = None
    subnets: Annotated[tuple[Id, ...], AtMost(16)] = ()
    """Sorted."""
    security_group_ids: Annotated[tuple[Id, ...], AtMost(16)] = ()
    """Sorted."""
    inter_container_encryption: bool = False
    network_isolation: bool = False
    session_tag_chaining: bool = False


class PoolAskedToEnd(Record):
    """A request that a warm pool ends. Written once, and kept with the pool that has ended."""

    at: UtcTime
    """The time of the request, by the clock of the function that wrote it, such as `2026-11-22T02:00:00.000Z`."""
    reason: PoolEndReason
    """`STOPPED_BY_USER` from the launcher, `STOPPED_AT_LIMIT` from the controller."""


class Pool(Record):
    """The warm pool of one attempt's ended job. Its instances wait, billed, for a job that matches.

    SageMaker states a pool's status, not its expiry. Spotkeep computes the expiry from the job's end and its keep-alive
    period.
    """

    run: Id
    attempt: int
    name: Label
    """The run's name."""
    owner: Label | None = None
    job_name: Id
    state: PoolState = PoolState.AVAILABLE
    traits: PoolTraits
    kept_since: UtcTime
    """The time when the job ended."""
    keep_alive_seconds: int
    """The keep-alive period, as it was last changed."""
    kept_until: UtcTime
    """`kept_since` and the keep-alive period."""
    chain_since: UtcTime
    """The creation time of the first of the jobs that handed these instances on to one another."""
    usd_per_hour: float | None = None
    """On-demand price of one instance. None when it is not known."""
    asked_to_end: PoolAskedToEnd | None = None
    """The request that it ends, of a user or of the deployment's limit."""
    reminded_for: UtcTime | None = None
    """The expiry that its users have been reminded of."""
    reminders: int = 0
    idle_seconds: float | None = None
    """ResourceRetainedBillableTimeInSeconds, wall-clock, when the pool is over."""
    reused_by: Id | None = None
    """The training job that took it over."""
    ended_at: UtcTime | None = None
    """The time when it was seen to be over."""
    end_reason: PoolEndReason | None = None

    def to_end(self, reason: PoolEndReason, *, at: datetime) -> Pool:
        """Return the pool as it is once a user, or the deployment's limit, asks it to end."""
        return with_changes(self, asked_to_end=PoolAskedToEnd(at=at, reason=reason))


class RunChange(Record):
    """One step of a run's record, written in one transaction, on the version that it was decided on.

    `run.version` is the version that the decision was made on. The table writes `version + 1`.
    """

    run: Run
    attempt: Attempt
    next_attempt: Attempt | None = None
    """The attempt that follows in the same transaction. The run does not end, and keeps its checkpoint prefix."""
    timeline: tuple[TimelineEntry, ...] = ()
    notifications: tuple[Notification, ...] = ()
    pool: Pool | None = None
    """The warm pool that the attempt's job left."""
    metrics: ScriptMetrics | None = None
    """The script's metrics, where they are new."""

    @property
    def ends_run(self) -> bool:
        """True when the change ends the run, which releases its checkpoint lock."""
        return self.run.state.ended


class PoolChange(Record):
    """One step of a warm pool's record, written in one transaction, on the version of its run that it was decided on.

    The pool outlives its run. It changes only the run's bill, not its state or its checkpoint lock.
    """

    run: Run
    attempt: Attempt
    """The attempt of the job that the pool comes from."""
    pool: Pool
    timeline: tuple[TimelineEntry, ...] = ()
    notifications: tuple[Notification, ...] = ()
