"""The run record: what is known of a run, its attempts, its timeline and its notifications.

Pure types, read by every function, the command line and the rehearsal. `run_table` stores them in DynamoDB. What
changes them is in `runs` and `pools`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, PlainSerializer

from spotkeep_jobs.record.bounds import (
    MAX_JOB_REQUEST_BYTES,
    MAX_PLAN_BYTES,
    Address,
    AtMost,
    Document,
    Id,
    Label,
    Letter,
    Line,
    PriceNames,
    Words,
)
from spotkeep_jobs.record.caller import Caller
from spotkeep_jobs.record.states import (
    EndReason,
    NotificationKind,
    NotificationState,
    PoolEndReason,
    PoolState,
    RunState,
    TimelineKind,
)
from spotkeep_jobs.with_changes import with_changes

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
    """Write a time as the record does: ISO 8601, UTC, milliseconds, `Z`. Sorts as text."""
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
"""What runs a job: a SageMaker training job, or an EC2 fleet of one instance."""
MetricName: TypeAlias = Annotated[str, AtMost(100)]
Kinds: TypeAlias = Annotated[tuple[NotificationKind, ...], AtMost(len(NotificationKind))]
Goal: TypeAlias = Literal["minimize", "maximize"]
"""Which value of a metric is the best: the least, or the greatest."""


class Record(BaseModel):
    """Base of everything in the run table: frozen. A change is a copy (`with_changes`).

    Unknown fields are ignored, so that an older reader understands what a newer function wrote.
    """

    # A command or an invocation uses few of the records, and each takes a millisecond to prepare.
    model_config = ConfigDict(frozen=True, defer_build=True)

    FORM: ClassVar[int] = 1
    """The number of its form, which its item has as `form`. One more with each change that an older reader would take
    for something else: a new value of an enum, a field with another meaning. A new field is no such change."""


class Cost(Record):
    """The bill of a run or of one attempt, counted against a clean on-demand run of the same work (I8).

    All seconds but `waited_seconds` are instance seconds: wall-clock seconds times the instance count, which is what
    SageMaker bills. A US-dollar field is None when the price of the instance type is not known.
    """

    billed_seconds: float
    """BillableTimeInSeconds x instances: on-demand-equivalent seconds, the spot discount is already in them. Idle warm
    pools are in it too."""
    training_seconds: float
    """TrainingTimeInSeconds x instances: how long instances worked."""
    waited_seconds: float
    """Wall-clock seconds without capacity: before the first start and after each interruption."""
    redone_steps: int | None
    """Steps trained more than once. None: the job did not report its steps."""
    redone_seconds: float | None
    restart_overhead_seconds: float
    """Downloading and loading again after each interruption. A clean run does it once."""
    clean_on_demand_seconds: float
    """What the same work takes on demand, uninterrupted. An upper bound when `redone_seconds` is None."""
    saved_seconds: float
    """`clean_on_demand_seconds - billed_seconds`. Negative when interruptions cost more than the discount."""
    saved_percent: float | None
    aws_saved_percent: float | None
    """As AWS prints it: (1 - billable / training) x 100. Counts work done twice as useful."""
    usd_per_hour: float | None = None
    """On-demand price of one instance."""
    billed_usd: float | None = None
    idle_pool_seconds: float = 0.0
    """The billed seconds in which warm pools of the run's jobs waited for a next job."""
    idle_pool_usd: float | None = None
    clean_on_demand_usd: float | None = None
    saved_usd: float | None = None
    storage_gb_hours: float = 0.0
    """What the run's volume held while it ran. 0 for training jobs, whose storage is in their price."""
    storage_usd: float | None = None
    """The volume's cost, in `billed_usd` as well. None where there is no volume, or its price is not known."""
    snapshot_gb_hours: float = 0.0
    """What the snapshots held that moved the volume from zone to zone, while the run lasted."""
    snapshot_usd: float | None = None
    """The snapshots' cost, in `billed_usd` as well. None where there were none, or their price is not known."""
    root_volume_gb_hours: float = 0.0
    """What the root volumes of a fleet's instances held, each for as long as its instance lived."""
    root_volume_usd: float | None = None
    """The root volumes' cost, in `billed_usd` as well. None where there were none, or a price is not known."""
    unknown_prices: PriceNames = ()
    """Which prices are missing in the figures of a run on EC2."""


class Charges(Record):
    """What the instances of one attempt on a fleet cost, in the prices of the market."""

    instance_seconds: float
    """How long instances ran, a minute at least."""
    instances_usd: float | None = None
    """None where a price is not known."""
    on_demand_usd: float | None = None
    """The same instances for the same time, on demand."""
    storage_gb_hours: float = 0.0
    """What the run's volume held while the attempt lasted."""
    storage_usd: float | None = None
    """The volume's cost, with what is provisioned beside its size. None where a price is not known."""
    snapshot_gb_hours: float = 0.0
    """What the snapshots held that moved the volume, while the attempt lasted."""
    snapshot_usd: float | None = None
    """The snapshots' cost. None where there were none, or their price is not known."""
    root_volume_gb_hours: float = 0.0
    """What the instances' root volumes held, each for as long as its instance lived."""
    root_volume_usd: float | None = None
    """The root volumes' cost. None where a price is not known."""
    unknown: PriceNames = ()
    """Which prices are missing: `spot g5.xlarge in us-east-1a`, `on demand g5.xlarge`, `gp3 storage`,
    `gp3 throughput`."""

    @property
    def billable_seconds(self) -> float | None:
        """The bill in seconds of an instance on demand, as SageMaker states it: the discount is in them."""
        if self.instances_usd is None or not self.on_demand_usd:
            return None
        return self.instance_seconds * self.instances_usd / self.on_demand_usd


class JobUsage(Record):
    """What one attempt's job used and did, before prices: the part of the bill that sums over attempts.

    Seconds are wall-clock seconds of the job. The instance count is beside them.
    """

    instance_count: int
    billable_seconds: float | None
    """None when SageMaker gives none: a job that never launched."""
    training_seconds: float | None
    waited_seconds: float
    redone_steps: int | None
    redone_seconds: float | None
    restart_overhead_seconds: float
    last_step: int | None = None
    """The highest count of completed steps the job reported."""
    log_complete: bool = True
    """False when the job's log could not be read to its end: redone work may be undercounted."""
    pool_idle_seconds: float = 0.0
    """ResourceRetainedBillableTimeInSeconds: how long the job's warm pool waited. Set when that is over."""
    charges: Charges | None = None
    """What an attempt on a fleet cost, whose price is the market's. None for another backend."""


class Progress(Record):
    """How far a run is, by its own word."""

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
    """How long the steps took whose time is known."""
    at_work: bool = True
    """Whether the process that reported last is still the one that works."""
    unsettled_step: int | None = None
    unsettled_at: float | None = None
    """A checkpoint on the job's disk that may not have reached S3."""
    reports_uploads: bool = False
    """Whether the job says when a checkpoint has reached S3."""
    saved_at: float | None = None
    uploaded_at: float | None = None
    """Epoch seconds, by the job's clock: when the newest checkpoint was on its disk, and when one had reached S3."""
    scheduled_seconds: float | None = None
    """How often the script means to save, where it says so."""
    saves_every_seconds: float | None = None
    """How far apart its last two checkpoints were."""


class Metric(Record):
    """What is kept of one metric that the script reports."""

    goal: Goal | None = None
    last_step: int | None = None
    """The step of the last value. None of one that came without."""
    last: float
    best_step: int | None = None
    best: float | None = None
    """None where there is no goal."""
    span: int = 1
    """How many steps share a point of the curve: a power of two."""
    points: Annotated[tuple[tuple[int, float], ...], AtMost(60)] = ()
    """The curve: steps and values, of each span the last."""
    bests: Annotated[tuple[tuple[int, float], ...], AtMost(60)] = ()
    """The best of each span, where there is a goal: it is the best when later steps turn out to be lost."""
    stepless_best: float | None = None
    """The best of the values that came without a step."""


class ScriptMetrics(Record):
    """What a run's script measures, in an item beside the run's."""

    metrics: Annotated[dict[MetricName, Metric], AtMost(40)] = {}
    left_out: bool = False
    """Whether more metrics were reported than are kept."""
    resumes: bool = False
    """Whether a process has begun and has not reported a step: it may train the last ones again."""


class Steered(Record):
    """The decision a run is under: written when the choice changes."""

    choice: Literal["wait", "spot", "on-demand"]
    reason: Words
    decided_at: UtcTime


class Spread(Record):
    """A figure of a forecast: the middle, and the range that eight in ten futures fall into."""

    p10: float
    p50: float
    p90: float


class Plan(Record):
    """What the run was forecast with, and is steered by: the solved policy as a table, in an item beside the run's."""

    made_at: UtcTime
    table: Annotated[dict[str, Any], AtMost(MAX_PLAN_BYTES)]
    """As `spotkeep_planner.steering` writes it."""
    cost_usd: Spread | None = None
    """What all instances cost. None where no price was known."""
    finish_seconds: Spread
    """From the launch."""
    chance_of_on_demand: float
    spot_usd_per_hour: float | None = None
    """The spot price of one instance."""
    rests_on: Annotated[tuple[Words, ...], AtMost(20)] = ()


class RunGroup(Record):
    """Independent runs that were launched as one. Each is a run like any other afterwards."""

    id: Id
    """What was launched. The runs are `<id>-1` to `<id>-<size>`."""
    index: int
    """Which of them this run is, from 1."""
    size: int


class TrialPlace(Record):
    """Which trial of which sweep a run is."""

    sweep: Id
    number: int
    """From 1."""


class LogReading(Record):
    """A reading of a run's log that has begun, and as far as is known has not ended."""

    begun_at: UtcTime
    unfinished: int
    """How many readings have begun since one ended, this one included. One that was not answered has not ended."""


class QuotaWait(Record):
    """A wait for room in the account's quota: SageMaker refuses the job of the run's attempt until there is some."""

    since: UtcTime
    """When SageMaker first refused it."""
    refused_at: UtcTime
    """When SageMaker last refused it."""
    reason: Words
    """Which quota, in SageMaker's words."""


class QueuePlace(Record):
    """Where a job waits for its turn: a queue of AWS Batch's, a share of it, and how soon within the share."""

    queue: Label
    """As the deployment's settings name it."""
    share: Label
    priority: int = 0
    """0 to 9999: the higher one goes first."""


class Place(Record):
    """The capacity that an attempt waits for, or runs on. The function that begins the attempt writes it."""

    backend: BackendName = "sagemaker"
    """The service that runs the job: `sagemaker`, `ec2`."""
    queue: QueuePlace | None = None
    """The job's turn in a queue of AWS Batch's. None where the backend is asked at once."""
    capacity: Capacity
    """`spot` or `on-demand`, as the fallback asks for it."""
    instance_type: Id
    """The first type that the job names, then the type that it got: `ml.g5.xlarge`."""
    instance_count: int = 1
    """The number of instances."""


class PhaseSpan(Record):
    """A phase of a training job, as `JobPhase` names it."""

    phase: Id
    started_at: UtcTime
    ended_at: UtcTime | None = None
    text: Line = ""


class AskedToEnd(Record):
    """A request that a run or an attempt's job ends. Written once, and kept with what has ended."""

    at: UtcTime
    """The time of the request, by the clock of the function that wrote it: `2026-11-22T02:00:00.000Z`."""
    reason: EndReason
    """The end reason that follows from it: `STOPPED_BY_USER`, `MAX_COST`."""
    text: Words
    """The reason in a person's words, as the timeline says it: `A user asked to stop the run`."""


class InstanceTime(Record):
    """For how long the live job of a run has had instances, which are billed."""

    seconds: float = 0.0
    """Wall-clock seconds, up to when it last lost them."""
    since: UtcTime | None = None
    """Since when it has those that it has now. None while it has none."""

    def seconds_until(self, at: datetime) -> float:
        """Return for how long in all, where it has kept those that it has until then.

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
    """Whether SageMaker says that it has ended: it is not described again."""
    phases: Annotated[tuple[PhaseSpan, ...], AtMost(200)]
    """From its first instances on, until it was asked to stop, or ended: all of them, or the last ones."""
    earlier_phases: int = 0
    """How many there were before those."""
    left_at: UtcTime | None = None
    """When it was asked to stop, or ended."""
    preempted: bool = False
    """Whether AWS Batch put its service job back into the queue: it stopped it, or tries it again."""
    failed_in_sagemaker: bool = False
    """Whether it ended by an error of SageMaker's own."""
    training_seconds: int | None = None
    billable_seconds: float | None = None


class EarlierPhases(Record):
    """Phases of a job that are not listed any more, added up: a job may be interrupted for as long as it lives.

    What follows from all of its phases follows from these and from those that are listed. Times are exact sums, so a
    bill comes out the same whichever of them are listed (I8).
    """

    count: int = 0
    interruptions: int = 0
    time: Annotated[dict[Id, timedelta], AtMost(8)] = Field(default_factory=dict)
    """How long it was in each kind of phase."""
    loading_again: timedelta = timedelta(0)
    """How long it loaded from its first interruption on."""
    had_instances: bool = False
    """Whether it had instances before its first interruption."""
    first_on_instances_at: UtcTime | None = None


class EarlierTrainingJobs(Record):
    """The training jobs of an attempt in a queue that are not listed any more, added up."""

    names: Annotated[tuple[Id, ...], AtMost(500)] = ()
    """Of the last of them: their logs are read with the others."""
    left_at: UtcTime | None = None
    """When the last of them was asked to stop, or ended."""
    training_seconds: int | None = None
    billable_seconds: float | None = None
    phases: EarlierPhases = EarlierPhases()
    """Theirs, the preemptions after each, and what is not listed any more of the phases of the one that follows."""


class Run(Record):
    """The run item: what the user asked for and where the run stands.

    `version` counts the changes. Every write names the version it was decided on (optimistic locking).
    """

    run: Id
    name: Label
    owner: Label | None = None
    launched_by: Caller | None = None
    """Who called the launcher. None where it was invoked directly, which names no caller."""
    group: RunGroup | None = None
    """The group of a run that was launched with others in one document."""
    trial: TrialPlace | None = None
    """Which trial of which sweep the run is. None outside a sweep."""
    schedule: Id | None = None
    """The schedule that launched it. None where a user did, or a sweep."""
    adopted: bool = False
    """Whether another client created its job, and no job document is known of it."""
    state: RunState = RunState.LAUNCHING
    end_reason: EndReason | None = None
    failure_reason: Words | None = None
    paused_at_step: int | None = None
    """The completed steps of a run that is paused: as its last attempt says."""
    no_more_jobs_because: Words | None = None
    """Which bound (of the ladder, max_cost, the retries) kept another job from following the last one."""
    place: Place
    """The place of the current attempt: each attempt that begins writes its own into the run."""
    job_name: Id
    """The current attempt's training job. In a queue its service job."""
    job_arn: Address | None = None
    attempt: int = 1
    created_at: UtcTime
    started_at: UtcTime | None = None
    """When the first attempt first had instances."""
    ended_at: UtcTime | None = None
    updated_at: UtcTime
    asked_to_end: AskedToEnd | None = None
    """The user's request to stop. The launcher writes it. A resume clears it."""
    checkpoint_uri: Address
    """The checkpoint prefix: one S3 prefix that at most one live run owns (I1). Empty in an adopted run without one."""
    output_prefix: Address
    """S3OutputPath of every attempt. Lies in the deployment's bucket."""
    output_uri: Address | None = None
    """The model archive, once it is known."""
    notify: Kinds = DEFAULT_NOTIFY
    deadline_at: UtcTime | None = None
    progress: Progress | None = None
    """Followed in runs with a deadline, and where a stale checkpoint is to be notified."""
    steered: Steered | None = None
    max_cost_is_near: bool = False
    """Whether most of its max_cost is spent, which is then in the timeline."""
    volume_id: Id | None = None
    """The volume of a run on EC2, once there is one."""
    volume_is_for_a_person: bool = False
    """Whether only a person deletes that volume: it is the user's, or has something that is not in S3."""
    training_job: Id | None = None
    """The newest training job that AWS Batch made for a run in a queue, and that had instances."""
    waits_because: Words | None = None
    """What EC2 says of why a run there has no instance. None while it has one."""
    quota_wait: QuotaWait | None = None
    """The wait of a run whose job SageMaker refuses for the account's quota. None once the job is created."""
    interruptions: int = 0
    """Over all attempts."""
    log_reading: LogReading | None = None
    """Written before the log is read: it outlives a function that ends while it reads."""
    log_warning: Words | None = None
    """What of its jobs' logs was not taken, notified once."""
    cost: Cost | None = None
    """Set when an attempt ends. Sums all attempts so far."""
    instance_time: InstanceTime | None = None
    """Of the attempt that `cost` does not know yet: of one that is live, or whose bill never came."""
    slot: int | None = None
    """Which of the deployment's places for runs in flight it has, from 0. None when it has ended, or there are none."""
    token: Label
    """The idempotency token the run was opened with."""
    request: Document
    """The validated job document. Empty in an adopted run."""
    version: int = 0

    @property
    def next_pause_at_step(self) -> int | None:
        """Where a resume of a paused run may pause next: twice as far. None where it is not paused."""
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
    """Which fallback of the run's ladder it is on, from 0."""
    state: RunState = RunState.LAUNCHING
    end_reason: EndReason | None = None
    failure_reason: Words | None = None
    paused_at_step: int | None = None
    """The completed steps at which its script paused. Where the log does not say, those that the request names."""
    job_name: Id
    job_arn: Address | None = None
    """None until SageMaker confirmed the job. Of an attempt on a fleet the fleet's id, in a queue its service job's."""
    training_jobs: Annotated[tuple[QueuedTrainingJob, ...], AtMost(100)] = ()
    """In a queue: the training jobs that AWS Batch made, one after another: all of them, or the last ones."""
    earlier_training_jobs: EarlierTrainingJobs = EarlierTrainingJobs()
    """Those before them."""
    place: Place
    created_at: UtcTime
    resumed: bool = False
    """Whether a user's resume began it: a client may repeat that call."""
    begins_at: UtcTime | None = None
    """Before this its job is not created: SageMaker had no capacity for the job before it."""
    no_capacity_since: UtcTime | None = None
    """Since when SageMaker has had none, where it is asked again with this attempt."""
    create_begun_at: UtcTime | None = None
    """When a function other than its writer last began to create its job."""
    launched_at: UtcTime | None = None
    """When the job's ARN was recorded."""
    started_at: UtcTime | None = None
    asked_to_end: AskedToEnd | None = None
    """The controller's request that its job ends. `MAX_WAIT_EXCEEDED` leaves a fallback, `DEADLINE` leaves spot.
    After `MAX_COST` and `MAX_RUNTIME_EXCEEDED` no job follows."""
    ended_at: UtcTime | None = None
    output_uri: Address | None = None
    interruptions: int = 0
    queue_blocked_notified: bool = False
    """Whether its users were notified that it blocks its queue."""
    long_wait_notified: int | None = None
    """After which interruption (0: before the first capacity) a long wait was last notified."""
    stale_notified: int = 0
    """How often a stale checkpoint was notified."""
    stale_notified_of: UtcTime | None = None
    """Which checkpoint was last notified as stale: when it was saved. The attempt's beginning where there was none."""
    seen_modified_at: UtcTime | None = None
    """SageMaker's LastModifiedTime of the job as it was described last: until it moves, nothing happened to the job."""
    reconcile_again_at: UtcTime | None = None
    """When time alone makes a difference, although nothing happens to the job: a wait gets too long."""
    recorded_transitions: int = 0
    """How many of SageMaker's transitions are in the timeline."""
    log_read_at: UtcTime | None = None
    """When its job's log was last read for the metrics in it, while the job lived."""
    usage: JobUsage | None = None
    job_request: Annotated[dict[str, Any], AtMost(MAX_JOB_REQUEST_BYTES)] | None = None
    """The CreateTrainingJob request, exactly as it is sent: a launch cut short is completed with the same."""

    @property
    def log_names(self) -> tuple[str, ...]:
        """The names of the jobs whose logs are the attempt's, in their order."""
        if self.place.queue is None:
            return (self.job_name,)
        return (*self.earlier_training_jobs.names, *(job.name for job in self.training_jobs))

    def to_end(self, reason: EndReason, *, text: str, at: datetime) -> Attempt:
        """Return the attempt as it is once the controller asks its job to end."""
        return with_changes(self, asked_to_end=AskedToEnd(at=at, reason=reason, text=text))

    def job_created_entry(self, *, job_arn: str, at: datetime) -> TimelineEntry:
        """Return what the timeline says of the creation of the job: once, by the function that first records its ARN.

        Args:
            job_arn: As it is recorded.
            at: When the job was created, as far as that function knows.
        """
        if self.place.backend == "ec2":
            text = f"EC2 accepted fleet {job_arn}"
        elif (place := self.place.queue) is not None:
            text = f"AWS Batch took the job into queue {place.queue}, share {place.share}, priority {place.priority}"
        else:
            text = f"SageMaker accepted training job {self.job_name}"
        return TimelineEntry(run=self.run, attempt=self.attempt, at=at, kind=TimelineKind.JOB_CREATED, text=text)


class TimelineEntry(Record):
    """Something that happened to a run, in a person's words.

    Time, attempt and kind together identify an entry: the same happening seen twice is one entry.
    """

    run: Id
    attempt: int
    at: UtcTime
    kind: TimelineKind
    text: Words
    step: int | None = None
    """Completed steps, where the entry is about a step."""
    error_of_aws: bool = False
    """Whether an interruption was an error of AWS's own: it says nothing of capacity."""


class Notification(Record):
    """A message to the subscribers, in the outbox until it is sent (I4)."""

    notification_id: Label
    """The same for every delivery of the same notification: `<run>/<kind>/<attempt>[-<nth>]`."""
    subject_id: Id
    """The run it is about."""
    kind: NotificationKind
    attempt: int = 1
    nth: int = 0
    """Which interruption or resume of the attempt. 0 for endings, of which there is one."""
    state: NotificationState = NotificationState.PENDING
    subject: Line
    body: Letter
    attributes: Annotated[dict[Id, Label], AtMost(20)]
    """SNS message attributes, for filter policies."""
    facts: Document = {}
    """What a program wants to know beside the text: where the checkpoints are. Of an ending the bill and the model."""
    happened_at: UtcTime
    created_at: UtcTime
    claimed_at: UtcTime | None = None
    sent_at: UtcTime | None = None
    message_id: Id | None = None
    """What SNS answered."""
    deliveries: int = 0
    """How often a deliverer claimed it."""
    problem: Words | None = None
    """Why the topic refused it, last."""
    queued_at: UtcTime | None = None
    """When it was put into the dead-letter queue. None while it is not dead, or the queue has not taken it yet."""

    def order(self) -> tuple[datetime, str]:
        """Return what sorts notifications in the order of what happened."""
        return self.happened_at, self.notification_id


class PoolTraits(Record):
    """What SageMaker compares to find a warm pool for a job, in the terms of CreateTrainingJob.

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
    """The time of the request, by the clock of the function that wrote it: `2026-11-22T02:00:00.000Z`."""
    reason: PoolEndReason
    """`STOPPED_BY_USER` from the launcher, `STOPPED_AT_LIMIT` from the controller."""


class Pool(Record):
    """The warm pool that one attempt's job left: its instances wait, billed, for a job that matches.

    SageMaker says a pool's status, not its expiry: that is computed from the job's end and its keep-alive period.
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
    """When the job ended."""
    keep_alive_seconds: int
    """The keep-alive period, as it was last changed."""
    kept_until: UtcTime
    """`kept_since` and the keep-alive period."""
    chain_since: UtcTime
    """When the first of the jobs that handed these instances on to one another was created."""
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
    """When it was seen to be over."""
    end_reason: PoolEndReason | None = None

    def to_end(self, reason: PoolEndReason, *, at: datetime) -> Pool:
        """Return the pool as it is once a user, or the deployment's limit, asks it to end."""
        return with_changes(self, asked_to_end=PoolAskedToEnd(at=at, reason=reason))


class RunChange(Record):
    """One step of a run's record, written in one transaction, on the version it was decided on.

    `run.version` is the version the decision saw. The table writes `version + 1`.
    """

    run: Run
    attempt: Attempt
    next_attempt: Attempt | None = None
    """The attempt that follows in the same transaction: the run does not end, and keeps its checkpoint prefix."""
    timeline: tuple[TimelineEntry, ...] = ()
    notifications: tuple[Notification, ...] = ()
    pool: Pool | None = None
    """The warm pool that the attempt's job left."""
    metrics: ScriptMetrics | None = None
    """What the script measures, where that is new."""

    @property
    def ends_run(self) -> bool:
        """Whether the change ends the run (its checkpoint lock is then released)."""
        return self.run.state.ended


class PoolChange(Record):
    """One step of a warm pool's record, written in one transaction, on the version of its run that it was decided on.

    The pool's own life goes on after its run's: it changes only the run's bill, not its state or its checkpoint lock.
    """

    run: Run
    attempt: Attempt
    """The one whose job left the pool."""
    pool: Pool
    timeline: tuple[TimelineEntry, ...] = ()
    notifications: tuple[Notification, ...] = ()
