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
    NotificationKind.STUCK,
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
"""The service that runs a job, as a SageMaker training job or an EC2 fleet."""
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

    All seconds but `waited_seconds` and `worked_seconds` are instance seconds. These are wall-clock seconds times the
    instance count, which SageMaker bills. A US-dollar field is None when the price of the instance type is not known.
    """

    billed_seconds: float
    """BillableTimeInSeconds times the instance count, in on-demand-equivalent seconds.

    The spot discount is already in them. So are idle warm pools."""
    training_seconds: float
    """TrainingTimeInSeconds times the instance count, which is the time that instances worked."""
    worked_seconds: float | None = None
    """Wall-clock seconds in which its jobs worked, those of each job once. None in an older record."""
    waited_seconds: float
    """Wall-clock seconds without capacity, before the first start and after each interruption."""
    redone_steps: int | None
    """Steps trained more than once. None: the job did not report its steps."""
    redone_seconds: float | None
    """Instance seconds of the redone steps, from the job's log. None: the job did not report its steps."""
    restart_overhead_seconds: float
    """Downloading and loading again after each interruption. A clean run does it once."""
    clean_on_demand_seconds: float
    """The time of the same work on demand, uninterrupted. An upper bound when `redone_seconds` is None."""
    saved_seconds: float
    """`clean_on_demand_seconds - billed_seconds`. Negative when interruptions cost more than the discount."""
    saved_percent: float | None
    """The saving in percent, such as 62.5. Of seconds, or on EC2 of dollars. None where it is not known."""
    aws_saved_percent: float | None
    """The saving as AWS prints it, which is (1 - billable / training) x 100. It counts repeated work as useful."""
    usd_per_hour: float | None = None
    """On-demand price of one instance."""
    billed_usd: float | None = None
    """The whole bill in US dollars, such as 0.0153."""
    idle_pool_seconds: float = 0.0
    """The billed seconds in which warm pools of the run's jobs waited for a next job."""
    idle_pool_usd: float | None = None
    """The cost of `idle_pool_seconds` in US dollars. It is in `billed_usd` as well."""
    clean_on_demand_usd: float | None = None
    """The cost of `clean_on_demand_seconds` in US dollars."""
    saved_usd: float | None = None
    """`clean_on_demand_usd` less `billed_usd`."""
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

    @property
    def saves_at_most(self) -> bool:
        """True for a saving that is a ceiling.

        A price that is missing where the saving is known is one of storage. Unknown repeated work saved nothing.
        """
        return self.saved_percent is not None and (bool(self.unknown_prices) or self.redone_seconds is None)


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
        if not self.instance_seconds:
            return 0.0
        if self.instances_usd is None or not self.on_demand_usd:
            return None
        return self.instance_seconds * self.instances_usd / self.on_demand_usd


class JobUsage(Record):
    """The usage of one attempt's job before prices, which is the part of the bill that sums over attempts.

    Seconds are wall-clock seconds of the job. The instance count is beside them.
    """

    instance_count: int
    """The number of instances of the job, such as 2. Of a run with nodes the most that it may have."""
    instance_seconds: float | None = None
    """Seconds that the nodes of a run worked, added up. None where `instance_count` of them worked all the time."""
    billable_seconds: float | None
    """BillableTimeInSeconds. None when SageMaker gives none, as for a job that never launched."""
    training_seconds: float | None
    """TrainingTimeInSeconds. None for a job that never launched."""
    waited_seconds: float
    """Seconds without capacity, before the first start and after each interruption."""
    redone_steps: int | None
    """Steps trained more than once, from the job's log. None: the job did not report its steps."""
    redone_seconds: float | None
    """Seconds of the redone steps. None: the job did not report its steps."""
    restart_overhead_seconds: float
    """Seconds of downloading and loading again after each interruption."""
    last_step: int | None = None
    """The highest count of completed steps the job reported."""
    log_complete: bool = True
    """False when the job's log could not be read to its end. Redone work may then be undercounted."""
    pool_idle_seconds: float = 0.0
    """ResourceRetainedBillableTimeInSeconds, the time that the job's warm pool waited. Set when the pool is over."""
    charges: Charges | None = None
    """The cost of an attempt on a fleet, in the prices of the market. None for another backend."""

    @property
    def instances(self) -> float:
        """The number of instances that worked at a time. Of a run with nodes it is the mean."""
        if self.instance_seconds is None or not self.training_seconds:
            return self.instance_count
        return self.instance_seconds / self.training_seconds


class Progress(Record):
    """The progress of a run, as its script reports it."""

    step: int
    """Completed steps, at the last report."""
    total_steps: int | None = None
    """Steps of the whole training. None where the job does not say."""
    durable_step: int = 0
    """The step of the newest checkpoint that is taken to be in S3."""
    reported_at: UtcTime
    """The time of the last report, such as `2026-11-22T02:00:00.000Z`."""
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
    """The better direction, as the job document says, such as `minimize`. None where it says none."""
    last_step: int | None = None
    """The step of the last value. None when that value came without a step."""
    last: float
    """The last value, such as 0.25."""
    best_step: int | None = None
    """The step of `best`. None when that value came without a step."""
    best: float | None = None
    """None where there is no goal."""
    span: int = 1
    """The number of steps that share a point of the curve, a power of two."""
    points: Annotated[tuple[tuple[int, float], ...], AtMost(63)] = ()
    """The curve, with the last step and value of each span, and those of the first, least and greatest value."""
    bests: Annotated[tuple[tuple[int, float], ...], AtMost(60)] = ()
    """The best step and value of each span, where there is a goal.

    One of them becomes the best when later steps turn out to be lost.
    """
    stepless_best: float | None = None
    """The best of the values that came without a step."""


class ScriptMetrics(Record):
    """The metrics that a run's script reports, in an item beside the run's."""

    metrics: Annotated[dict[MetricName, Metric], AtMost(40)] = {}
    """The metrics by name, such as `loss`."""
    left_out: bool = False
    """True when the script reported more metrics than are kept."""
    resumes: bool = False
    """True while a process has begun and has not reported a step. It may train the last steps again."""


class Steered(Record):
    """The current decision about a run's capacity, written when the choice changes."""

    choice: Literal["wait", "spot", "on-demand"]
    """The choice, such as `spot`. The controller writes it."""
    reason: Words
    """The reason for the choice, in words for the timeline."""
    decided_at: UtcTime
    """The time of the choice, such as `2026-11-22T02:00:00.000Z`."""


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
    """The time of the launch, which made the plan, such as `2026-11-22T02:00:00.000Z`."""
    table: Annotated[dict[str, Any], AtMost(MAX_PLAN_BYTES)]
    """As `spotkeep_planner.steering` writes it."""
    cost_usd: Spread | None = None
    """The cost of all instances in US dollars. None where no price was known."""
    finish_seconds: Spread
    """From the launch."""
    chance_of_on_demand: float
    """The chance that the run needs on-demand capacity, from 0 to 1."""
    spot_usd_per_hour: float | None = None
    """The spot price of one instance."""
    rests_on: Annotated[tuple[Words, ...], AtMost(20)] = ()
    """The assumptions of the forecast, a sentence each."""


class RunGroup(Record):
    """Independent runs that were launched as one. Each is a run like any other afterwards."""

    id: Id
    """The id of the launch. The runs are `<id>-1` to `<id>-<size>`."""
    index: int
    """The number of this run in the group, from 1."""
    size: int
    """The number of runs in the group, such as 3."""


class TrialPlace(Record):
    """The sweep of a run, and the number of its trial there."""

    sweep: Id
    """The id of the sweep, such as `search-1a2b3c4d`."""
    number: int
    """From 1."""


class LogReading(Record):
    """A reading of a run's log that has begun, and as far as is known has not ended."""

    begun_at: UtcTime
    """The time when it began, by the clock of the function that reads."""
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
    """The name of the share, as the job document or the deployment's settings say."""
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
    """The number of instances. Of a run with nodes the most that it may have."""


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


class Ending(Record):
    """The end of an attempt, and of the run that ends with it. The function that ends them writes it."""

    at: UtcTime
    """The time of the end, such as `2026-11-22T02:00:00.000Z`. Where the backend names none, the time of the write."""
    reason: EndReason
    """The reason for the end, such as `SCRIPT_FAILED`."""
    failure_reason: Words | None = None
    """The backend's words about a failure, such as SageMaker's FailureReason. None where it gives none."""
    paused_at_step: int | None = None
    """The completed steps at which the script paused, such as 500. Where the log names none, those of the request."""
    no_more_jobs_because: Words | None = None
    """The bound that kept another job from following, in a run's ending, such as `its deadline has passed`."""


class WithEnding(Record):
    """A run or an attempt, which ends."""

    ending: Ending | None = None
    """The end, from the function that ends it. None while it goes on. A resume clears that of a run."""

    @property
    def end_reason(self) -> EndReason | None:
        """The reason for the end. None while it goes on."""
        return None if self.ending is None else self.ending.reason

    @property
    def failure_reason(self) -> str | None:
        """The backend's words about a failure. None while it goes on, and where the backend gives none."""
        return None if self.ending is None else self.ending.failure_reason

    @property
    def ended_at(self) -> datetime | None:
        """The time of the end. None while it goes on."""
        return None if self.ending is None else self.ending.at


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


class CountedCost(Record):
    """The cost of a run with a max_cost while its job lives. The controller counts it at each pass."""

    usd: float
    """US dollars of the run until then, such as 2.41. The attempts before are in it."""
    at: UtcTime
    """The time of the count, such as `2026-11-22T02:00:00.000Z`."""
    remark: Words = ""
    """The prices that are missing in it, in a clause, such as `without io2 storage, as no price is known`."""


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
    """TrainingTimeInSeconds. None while SageMaker gives none."""
    billable_seconds: float | None = None
    """BillableTimeInSeconds. None while SageMaker gives none."""


class EarlierPhases(Record):
    """Sums over the phases of a job that are not listed any more.

    A job may be interrupted for as long as it lives, so only the last phases are listed. These sums and the listed
    phases together stand for all of its phases. Times are exact sums, so a bill comes out the same whichever of them
    are listed (I8).
    """

    count: int = 0
    """The number of these phases."""
    interruptions: int = 0
    """The number of interruptions in them."""
    time: Annotated[dict[Id, timedelta], AtMost(8)] = Field(default_factory=dict)
    """The time in each kind of phase."""
    loading_again: timedelta = timedelta(0)
    """The time of loading after its first interruption."""
    had_instances: bool = False
    """True when it had instances before its first interruption."""
    first_on_instances_at: UtcTime | None = None
    """The time of its first instances, such as `2026-11-22T02:03:00.000Z`. None without instances."""


class EarlierTrainingJobs(Record):
    """Sums over the training jobs of an attempt in a queue that are not listed any more."""

    names: Annotated[tuple[Id, ...], AtMost(500)] = ()
    """The names of the last of them. Their logs are read with the others."""
    left_at: UtcTime | None = None
    """The time when the last of them was asked to stop, or ended."""
    training_seconds: int | None = None
    """The sum of their TrainingTimeInSeconds."""
    billable_seconds: float | None = None
    """The sum of their BillableTimeInSeconds."""
    phases: EarlierPhases = EarlierPhases()
    """Sums over their phases and the preemptions after each.

    Phases of the following job that are not listed any more are in them, too.
    """


class TrainingJobs(Record):
    """The training jobs with instances that AWS Batch makes for an attempt in a queue. The controller writes them."""

    listed: Annotated[tuple[QueuedTrainingJob, ...], AtMost(100)] = ()
    """The training jobs in the order that AWS Batch made them. All of them, or the last ones."""
    earlier: EarlierTrainingJobs = EarlierTrainingJobs()
    """Sums over the training jobs before those."""


class Retry(Record):
    """A repeat of the request to SageMaker after a pause. The controller writes it into the attempt that repeats."""

    at: UtcTime
    """The earliest time at which the job is created, such as `2026-11-22T02:00:00.000Z`."""
    no_capacity_since: UtcTime | None = None
    """The time since when SageMaker has had no capacity, such as `2026-11-22T01:30:00.000Z`.

    None after errors of SageMaker's own."""


class Hangs(Record):
    """The times at which a run's training stood still. The controller writes them, from the log of each job."""

    count: int = 0
    """The number of these times, such as 2."""
    restarts: int = 0
    """The number of times that the command was ended and started again for one."""
    newest_at: UtcTime | None = None
    """The time at which the newest one was noticed, by the job's clock, such as `2026-11-22T02:30:00.000Z`."""
    still_since: UtcTime | None = None
    """The time since when it stands still. None while it moves."""


class Notified(Record):
    """The notifications that an attempt's users got, each of which comes once. The controller writes it."""

    queue_blocked: bool = False
    """True after the notification that the attempt blocks its queue."""
    long_wait: int | None = None
    """The number of interruptions at the last notification of a long wait, such as 2. 0 before the first capacity."""
    stale_checkpoint: StaleCheckpointNotice | None = None
    """The last notification of a stale checkpoint, such as the attempt's second one."""


class Volume(Record):
    """The EBS volume of a run on EC2. The controller writes it, from the fleet's record."""

    id: Id
    """EC2's id of it, such as `vol-0a1b2c3d4e5f60718`."""
    is_for_a_person: bool = False
    """True when only a person deletes it. It is the user's, or has data that is not in S3."""


class Nodes(Record):
    """The nodes of a run on EC2, as its leader last wrote them. The controller copies them from the fleet record."""

    connected: int
    """The number of nodes that are connected with the leader, itself included, such as 3."""
    in_world: int
    """The number of nodes that train together, such as 2. 0 while they wait for others."""


class Run(WithEnding):
    """The run item, with the user's request and the state of the run.

    `version` counts the changes. Every write names the version that it was decided on (optimistic locking).
    """

    run: Id
    """The run's id, from the user or from the launcher, such as `digits-1a2b3c4d`. It never changes."""
    name: Label
    """The run's name in the job document, such as `digits`. Several runs may have it."""
    owner: Label | None = None
    """The user that the job document or the job's tag names, such as `ada`. None where neither does."""
    launched_by: Caller | None = None
    """The caller of the launcher, such as `ada`. None after a direct invocation, which names no caller."""
    group: RunGroup | None = None
    """The group of a run that was launched with others in one document, such as run 2 of 3. The launcher writes it."""
    trial: TrialPlace | None = None
    """The sweep and the number of the trial that the run is, such as trial 7. The controller writes it."""
    schedule: Id | None = None
    """The id of the schedule that launched it, such as `nightly`. None for a launch of a user or of a sweep."""
    adopted: bool = False
    """True when another client created its job, without a job document. The controller writes it."""
    state: RunState = RunState.LAUNCHING
    """The state of the run, such as `TRAINING`. The launcher and the controller write it."""
    place: Place
    """The place of the current attempt. Each attempt that begins writes its own into the run."""
    job_name: Id
    """The name of the current attempt's job, such as `digits-1a2b3c4d-1`. In a queue that of its service job."""
    job_id: Address | None = None
    """The current attempt's `job_id`. The function that writes the attempt's writes this one with it."""
    attempt: int = 1
    """The number of the current attempt, from 1. A resume and the controller add one."""
    created_at: UtcTime
    """The time of the launch, by the launcher's clock, such as `2026-11-22T02:00:00.000Z`."""
    started_at: UtcTime | None = None
    """The time when the first attempt first had instances, such as `2026-11-22T02:03:00.000Z`, from the backend."""
    updated_at: UtcTime
    """The time of the last change, by the clock of the function that wrote it, such as `2026-11-22T02:10:00.000Z`."""
    asked_to_end: AskedToEnd | None = None
    """The user's request to stop. The launcher writes it. A resume clears it."""
    checkpoint_uri: Address
    """The checkpoint prefix, one S3 prefix that at most one live run owns (I1). Empty in an adopted run without one."""
    output_prefix: Address
    """The S3OutputPath of every attempt, from the launcher. It lies in the deployment's bucket."""
    output_uri: Address | None = None
    """The address of the model archive. The controller writes it when the job ends. None until then."""
    notify: Kinds = DEFAULT_NOTIFY
    """The kinds of notification that the job document asks for, such as `COMPLETED`. The launcher writes them."""
    deadline_at: UtcTime | None = None
    """The time until which the job document wants the run to end, from the launcher. None without a deadline."""
    progress: Progress | None = None
    """The last report of the script. The controller writes it in runs with a deadline or a checkpoint alert."""
    steered: Steered | None = None
    """The controller's last choice of capacity in a run with a deadline, such as `on-demand`. None in other runs."""
    max_cost_is_near: bool = False
    """True when most of its max_cost is spent, and the timeline has an entry about it. The controller writes it."""
    volume: Volume | None = None
    """The volume of a run on EC2, once there is one. The controller writes it."""
    nodes: Nodes | None = None
    """The nodes of a run on EC2, once one has come. None for a run of one instance. The controller writes it."""
    training_job: Id | None = None
    """The name of the newest training job that AWS Batch made for a run in a queue, and that had instances."""
    waits_because: Words | None = None
    """The reason of EC2 or AWS Batch for a run without an instance. The controller writes it. None while it has one."""
    quota_wait: QuotaWait | None = None
    """The wait of a run when SageMaker refuses its job for the account's quota. None once the job is created."""
    interruptions: int = 0
    """The number of interruptions over all attempts, such as 3. The controller writes it."""
    hangs: Hangs = Hangs()
    """The times at which its training stood still. None are counted where the job document has no `stuck`."""
    log_reading: LogReading | None = None
    """The reading of its log that has begun. It stays when a function ends before the reading does."""
    log_warning: Words | None = None
    """The part of its jobs' logs that was not taken, in words. The controller writes it, and notifies once."""
    cost: Cost | None = None
    """The bill of all attempts that have ended. The controller writes it at each end."""
    instance_time: InstanceTime | None = None
    """The seconds with instances that `cost` does not include yet. The attempt is live, or its bill never came."""
    slot: int | None = None
    """The number of its slot among the deployment's slots for runs in flight, from 0.

    None when it has ended, or there are none.
    """
    token: Label
    """The idempotency token of the launch, from the client or the launcher, such as `0123456789abcdef`."""
    request: Document
    """The validated job document, from the launcher. A resume may change it. Empty in an adopted run."""
    version: int = 0
    """The number of changes, from 0. The table adds one at each write."""

    @property
    def node_range(self) -> tuple[int, int] | None:
        """The fewest and the most nodes that train together. None for a run that has at most one instance on EC2."""
        nodes = self.request.get("nodes")
        return (nodes["min"], nodes["max"]) if nodes is not None and nodes["max"] > 1 else None

    @property
    def instances(self) -> str:
        """The number of its instances in words, such as `1`, or `2 to 8` of a run with nodes."""
        least, most = self.node_range or (self.place.instance_count, self.place.instance_count)
        return f"{most}" if least == most else f"{least} to {most}"

    @property
    def changed_instances(self) -> bool:
        """True where a job that worked had another number of instances than the last. False where that is not known."""
        cost = self.cost
        if cost is None or cost.worked_seconds is None or self.node_range is not None:
            return False
        # Both are rounded, and the backends count whole seconds.
        return abs(cost.training_seconds - cost.worked_seconds * self.place.instance_count) >= 0.5

    @property
    def had_several_instances(self) -> bool:
        """True where a time of its bill is that of several instances, which its last job or an earlier one had."""
        return self.place.instance_count > 1 or self.changed_instances

    @property
    def paused_at_step(self) -> int | None:
        """The completed steps of a paused run. None for a run that is not paused."""
        return None if self.ending is None else self.ending.paused_at_step

    @property
    def next_pause_at_step(self) -> int | None:
        """The step where a resume of a paused run may pause next, twice as far. None for a run that is not paused."""
        return None if self.paused_at_step is None else 2 * self.paused_at_step

    def to_end(self, reason: EndReason, *, text: str, at: datetime) -> Run:
        """Return the run as it is once a user has asked to stop it."""
        asked = AskedToEnd(at=at, reason=reason, text=text)
        return with_changes(self, state=RunState.STOPPING, asked_to_end=asked, updated_at=at)


class Attempt(WithEnding):
    """One training job that works on a run."""

    run: Id
    """The id of its run, such as `digits-1a2b3c4d`."""
    attempt: int
    """The number of the attempt in its run, from 1."""
    fallback: int = 0
    """The number of the fallback that it asks for, from 0. The function that begins the attempt writes it."""
    state: RunState = RunState.LAUNCHING
    """The state of the attempt, such as `TRAINING`. The launcher and the controller write it."""
    job_name: Id
    """The name of its job, such as `digits-1a2b3c4d-1`. In a queue that of its service job."""
    job_id: Address | None = None
    """The id of the job at its backend, from the launcher or the controller once the backend has confirmed the job.

    On SageMaker it is the training job's ARN, in a queue the service job's ARN, and on EC2 the fleet's id, such as
    `fleet-0a1b2c3d`."""
    training_jobs: TrainingJobs = TrainingJobs()
    """In a queue, the training jobs that AWS Batch made one after another. Without entries elsewhere."""
    place: Place
    """The capacity that it waits for or runs on. The controller adds the instance type that it got."""
    created_at: UtcTime
    """The time when it began, by the clock of the function that began it, such as `2026-11-22T02:00:00.000Z`."""
    resumed: bool = False
    """True when a user's resume began it. A client may repeat that call."""
    retry: Retry | None = None
    """The pause before its job is created. None for an attempt whose job is created at once."""
    create_begun_at: UtcTime | None = None
    """The time when a function other than its writer last began to create its job. None before that."""
    launched_at: UtcTime | None = None
    """The time when the backend had created its job, from the function that recorded `job_id`."""
    started_at: UtcTime | None = None
    """The time when it first had instances, from the backend. None before that."""
    asked_to_end: AskedToEnd | None = None
    """The controller's request that its job ends. `MAX_WAIT_EXCEEDED` leaves a fallback, `DEADLINE` leaves spot.
    After `MAX_COST` and `MAX_RUNTIME_EXCEEDED` no job follows."""
    output_uri: Address | None = None
    """The address of its model archive, from the backend at its end. None without a model."""
    interruptions: int = 0
    """The number of times that it lost its capacity, such as 2. The controller writes it."""
    notified: Notified = Notified()
    """The notifications of it that are not sent twice."""
    last_reconciled: LastReconciliation | None = None
    """The controller's last reconciliation with the live job. None before the first, and after the attempt's end."""
    counted_cost: CountedCost | None = None
    """The cost of the run as it was last counted. None without a max_cost, and after the attempt's end."""
    recorded_transitions: int = 0
    """The number of the job's phases that the timeline shows, such as 5. The controller writes it."""
    log_read_at: UtcTime | None = None
    """The time when the controller last read its live job's log for metrics, or for a training that hangs."""
    usage: JobUsage | None = None
    """The usage of its job before prices. The controller writes it at the end. None where the job left none."""
    job_request: Annotated[dict[str, Any], AtMost(MAX_JOB_REQUEST_BYTES)] | None = None
    """The CreateTrainingJob request, exactly as it is sent. A launch cut short is completed with the same request."""

    @property
    def log_names(self) -> tuple[str, ...]:
        """The names of the jobs that wrote the attempt's logs, in their order."""
        if self.place.queue is None:
            return (self.job_name,)
        return (*self.training_jobs.earlier.names, *(job.name for job in self.training_jobs.listed))

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
    """The id of the run."""
    attempt: int
    """The number of the attempt, from 1."""
    at: UtcTime
    """The time of the event, such as `2026-11-22T02:00:00.000Z`."""
    kind: TimelineKind
    """The kind of event, such as `INTERRUPTED`."""
    text: Words
    """The event in words, such as `Lost its capacity, waits for new`."""
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
    """The id of its run, such as `digits-1a2b3c4d`."""
    attempt: int
    """The number of the attempt whose job left it, from 1."""
    name: Label
    """The run's name."""
    owner: Label | None = None
    """The run's owner, such as `ada`."""
    job_name: Id
    """The name of the job that left it."""
    state: PoolState = PoolState.AVAILABLE
    """The state of the pool, such as `AVAILABLE`. The controller writes it."""
    traits: PoolTraits
    """The traits that a next job must match."""
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
    """The number of reminders that its users got, such as 1."""
    idle_seconds: float | None = None
    """ResourceRetainedBillableTimeInSeconds, wall-clock, when the pool is over."""
    reused_by: Id | None = None
    """The training job that took it over."""
    ended_at: UtcTime | None = None
    """The time when it was seen to be over."""
    end_reason: PoolEndReason | None = None
    """The reason for the end, such as `EXPIRED`. None while it is there."""

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
