"""What of the facts is a finding, by which rule, and whether it is time to apply it. Pure.

What a person may have made by hand stays: what is removed carries the deployment's tag, and bears the marks of
what this deployment makes. What may be under way is left alone until it has been so for the kind's grace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from spotkeep_fleet.record import VOLUME
from spotkeep_jobs.backends.ec2.facts import Fleet
from spotkeep_jobs.cost.storage_cost import BYTES_A_GIGABYTE, HOURS_A_MONTH
from spotkeep_jobs.record.orphan_findings import GRACE, RULES, Finding, Kind, Rule
from spotkeep_jobs.record.states import PoolState

if TYPE_CHECKING:
    from spotkeep_jobs.backends.ec2.facts import Orphan
    from spotkeep_jobs.orphans.facts import EndedJob, KeptPool, LiveJob, MadeSchedule, StoredPrefix
    from spotkeep_jobs.record.record import Pool

_STOP_JOB: Final = "aws sagemaker stop-training-job --training-job-name {}"
_END_POOL: Final = (
    "aws sagemaker update-training-job --training-job-name {} --resource-config KeepAlivePeriodInSeconds=0"
)
_DELETE_FLEET: Final = "aws ec2 delete-fleets --terminate-instances --fleet-ids {}"
_DELETE_VOLUME: Final = "aws ec2 delete-volume --volume-id {}"
_DELETE_SNAPSHOT: Final = "aws ec2 delete-snapshot --snapshot-id {}"
_SWEEP: Final = "aws lambda invoke --function-name {}-controller /dev/stdout"


@dataclass(frozen=True, kw_only=True)
class Context:
    """What every decision needs to know.

    Attributes:
        deployment: Its name.
        now: The time.
        prices: On-demand US dollars per hour of an instance, by type.
        s3_usd_per_gigabyte_month: What storage costs; None where it is not known.
        schedule_group: Where looks at pools are scheduled.
    """

    deployment: str
    now: datetime
    prices: Mapping[str, float]
    s3_usd_per_gigabyte_month: float | None = None
    schedule_group: str


def judge_job(job: LiveJob, *, context: Context) -> Finding | None:
    """Say whether a training job runs for no run."""
    if job.of_tuning_job:
        return None
    usd_per_hour = _of_instances(job.instance_type, job.instance_count, context)
    if job.run is None:
        return Finding(
            kind=Kind.UNRECORDED_JOB,
            # A user may have tagged a job of their own: only what a launcher made is stopped.
            rule=RULES[Kind.UNRECORDED_JOB] if job.launched else Rule.REPORT,
            subject=job.name,
            since=job.created_at,
            says=f"training job {job.name} carries the deployment's tag and belongs to no run",
            risk="bills until its own time limit; its end is not notified",
            usd_per_hour=usd_per_hour,
            mend=_STOP_JOB.format(job.name),
            due=_is_due(Kind.UNRECORDED_JOB, job.created_at, context),
        )
    if job.run.job_name == job.name and not job.run.state.ended:
        return None
    since = (job.run.ended_at or job.run.updated_at) if job.run.state.ended else job.run.updated_at
    # The list of jobs is a moment older than the record: before the grace is over it may have ended.
    ended = job.run.state.ended
    why = f"its run has ended ({job.run.state})" if ended else f"its run works with {job.run.job_name}"
    return _overdue(
        Kind.OUTLIVING_JOB,
        context=context,
        rule=None if job.launched else Rule.REPORT,
        subject=job.name,
        since=since,
        says=f"training job {job.name} is in progress although {why}",
        risk="bills, and may write the run's checkpoints",
        usd_per_hour=usd_per_hour,
        mend=_STOP_JOB.format(job.name),
    )


def judge_ended_job(job: EndedJob, *, context: Context) -> Finding | None:
    """Say whether a run's record has missed the end of its job."""
    run = job.run
    if run.state.ended or run.job_arn is None:
        return None
    since = job.ended_at or run.updated_at
    found = "SageMaker knows its job no more" if job.ended_at is None else "its job is over"
    return _stale(f"run {run.run} is recorded as {run.state}, and {found}", run.run, since, context)


def judge_pool(pool: KeptPool, *, context: Context) -> Finding | None:
    """Say whether a warm pool waits for no run, or what it costs to wait."""
    recorded = pool.recorded
    if recorded is not None and recorded.state is PoolState.AVAILABLE:
        return Finding(
            kind=Kind.IDLE_POOL,
            rule=RULES[Kind.IDLE_POOL],
            subject=recorded.run,
            since=recorded.kept_since,
            says=f"the warm pool of {recorded.run} waits for a next job until {recorded.kept_until:%H:%M} UTC",
            risk="is billed while it waits",
            usd_per_hour=_of_instances(recorded.traits.instance_type, recorded.traits.instance_count, context),
            mend=f"spotkeep pool stop {recorded.run}",
        )
    run = pool.run
    if run is not None and run.job_name == pool.job_name and not run.state.ended:
        return None  # Its job's end is not recorded yet, and the pool will be with it.
    return _overdue(
        Kind.UNRECORDED_POOL,
        context=context,
        subject=pool.job_name,
        since=pool.kept_since,
        says=f"training job {pool.job_name} left a warm pool that no run knows",
        risk="is billed until it expires; its end is not notified",
        usd_per_hour=_of_instances(pool.instance_type, pool.instance_count, context),
        mend=_END_POOL.format(pool.job_name),
    )


def judge_recorded_pool(pool: Pool, *, context: Context) -> Finding | None:
    """Say whether a pool is recorded as waiting although its time has long been over."""
    if pool.state is not PoolState.AVAILABLE:
        return None
    says = f"the warm pool of {pool.run} is recorded as {pool.state}, and its time is over"
    return _stale(says, pool.run, pool.kept_until, context)


def judge_schedule(schedule: MadeSchedule, *, context: Context) -> Finding | None:
    """Say whether a schedule is to look at nothing."""
    pool = schedule.pool
    if pool is not None and pool.state is PoolState.AVAILABLE:
        return None
    about = "a pool that no run knows" if pool is None else f"the pool of {pool.run}, which is over"
    return _overdue(
        Kind.SPENT_SCHEDULE,
        context=context,
        subject=schedule.name,
        since=schedule.made_at,
        says=f"schedule {schedule.name} is to look at {about}",
        risk="one needless invocation",
        mend=f"aws scheduler delete-schedule --group-name {context.schedule_group} --name {schedule.name}",
    )


def judge_lost_schedule(pool: Pool, *, context: Context) -> Finding | None:
    """Say that a waiting pool has no schedule for its end, if it should have one by now."""
    if pool.state is not PoolState.AVAILABLE or pool.kept_until <= context.now:
        return None
    return _overdue(
        Kind.LOST_SCHEDULE,
        context=context,
        subject=pool.run,
        since=pool.kept_since,
        says=f"nothing is scheduled for the end of the warm pool of {pool.run}",
        risk="its end is notified minutes late",
        mend=_SWEEP.format(context.deployment),
        due=False,
    )


def judge_prefix(prefix: StoredPrefix, *, context: Context) -> Finding | None:
    """Says whether checkpoints belong to no run; a person decides whether they go."""
    if prefix.used_by is not None:
        return None
    monthly = context.s3_usd_per_gigabyte_month
    gigabytes = prefix.stored_bytes / BYTES_A_GIGABYTE
    return _overdue(
        Kind.ORPHANED_CHECKPOINTS,
        context=context,
        subject=prefix.uri,
        since=prefix.newest_at,
        says=f"{prefix.uri} holds {prefix.objects:,} objects ({gigabytes:,.3f} GB) of a run that is not recorded",
        risk="is stored, and billed, until it is deleted",
        usd_per_hour=None if monthly is None else gigabytes * monthly / HOURS_A_MONTH,
        mend=f"aws s3 rm --recursive {prefix.uri}",
        due=False,
    )


def judge_fleet_orphan(left: Orphan, *, context: Context) -> Finding | None:
    """Say whether a fleet, volume or snapshot that is not needed has been so for longer than the sweep takes."""
    thing = left.thing
    since = left.since or context.now
    if isinstance(thing, Fleet):
        return _overdue(
            Kind.UNUSED_FLEET,
            context=context,
            subject=thing.id,
            since=since,
            says=f"fleet {thing.id} may launch instances, and no live run has it (it was made for {left.run})",
            risk="bills an instance until it is deleted",
            mend=_DELETE_FLEET.format(thing.id),
        )
    # What a crash left of a live run has no date: the next sweep takes it, unless nothing sweeps.
    if left.since is not None and not _is_due(Kind.UNUSED_STORAGE, since, context):
        return None
    return Finding(
        kind=Kind.UNUSED_STORAGE,
        rule=RULES[Kind.UNUSED_STORAGE],
        subject=thing.id,
        since=since,
        says=f"{thing.kind} {thing.id} of {left.run} is needed no more",
        risk="bills storage until it is deleted",
        mend=(_DELETE_VOLUME if thing.kind == VOLUME else _DELETE_SNAPSHOT).format(thing.id),
        due=True,
    )


def _stale(says: str, subject: str, since: datetime, context: Context) -> Finding | None:
    return _overdue(
        Kind.STALE_RECORD,
        context=context,
        subject=subject,
        since=since,
        says=says,
        risk="its end is not notified yet: the controller fails, or does not run",
        mend=_SWEEP.format(context.deployment),
        due=False,
    )


def _overdue(
    kind: Kind,
    *,
    context: Context,
    subject: str,
    since: datetime,
    says: str,
    risk: str,
    mend: str,
    rule: Rule | None = None,
    usd_per_hour: float | None = None,
    due: bool = True,
) -> Finding | None:
    """What has been so for its kind's grace, under the kind's rule unless it has a reason for another; else None."""
    if not _is_due(kind, since, context):
        return None
    return Finding(
        kind=kind,
        rule=rule or RULES[kind],
        subject=subject,
        since=since,
        says=says,
        risk=risk,
        usd_per_hour=usd_per_hour,
        mend=mend,
        due=due,
    )


def _is_due(kind: Kind, since: datetime, context: Context) -> bool:
    return context.now - since >= GRACE[kind]


def _of_instances(instance_type: str | None, count: int, context: Context) -> float | None:
    price = None if instance_type is None else context.prices.get(instance_type)
    return None if price is None else price * count
