"""Decides if a thing is a finding, by which rule, and if it is time to apply the rule. Pure.

A thing that a person may have made by hand stays. Only things with the deployment's tag and the marks of this
deployment are removed. A thing that may still be in use is left alone for its kind's grace period.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Final

from spotkeep_fleet.record import VOLUME
from spotkeep_fleet.run_prefixes import PREFIXES, TEAMS_PREFIX
from spotkeep_jobs.backends.ec2.facts import Fleet
from spotkeep_jobs.backends.sagemaker.training_job import RUN_VARIABLE
from spotkeep_jobs.cost.storage_cost import BYTES_A_GIGABYTE, HOURS_A_MONTH
from spotkeep_jobs.record.deployment_records import GRACE, RULES, Finding, OrphanKind

if TYPE_CHECKING:
    from spotkeep_jobs.backends.backend import JobView
    from spotkeep_jobs.backends.batch.service_job import ServiceJob
    from spotkeep_jobs.backends.ec2.facts import Orphan
    from spotkeep_jobs.record.record import Pool, Run


_OF_A_RUN: Final = rf"(?:{TEAMS_PREFIX}[\w-]+/)?(?:{'|'.join(PREFIXES)})[\w-]+/?"
_STOP_JOB: Final = "aws sagemaker stop-training-job --training-job-name {}"
_TERMINATE: Final = "aws batch terminate-service-job --reason orphan --job-id {}"
_END_POOL: Final = (
    "aws sagemaker update-training-job --training-job-name {} --resource-config KeepAlivePeriodInSeconds=0"
)
_DELETE_FLEET: Final = "aws ec2 delete-fleets --terminate-instances --fleet-ids {}"
_DELETE_VOLUME: Final = "aws ec2 delete-volume --volume-id {}"
_DELETE_SNAPSHOT: Final = "aws ec2 delete-snapshot --snapshot-id {}"


@dataclass(frozen=True, kw_only=True)
class Stored:
    """The objects below one prefix of a run.

    Attributes:
        stored_bytes: The size of the current versions, in bytes.
        objects: Number of objects.
        newest_at: The time when the newest object was written.
    """

    stored_bytes: int
    objects: int
    newest_at: datetime


@dataclass(frozen=True, kw_only=True)
class Context:
    """The values that every decision needs.

    Attributes:
        now: The time.
        prices: On-demand US dollars per hour of an instance, by type.
        s3_usd_per_gigabyte_month: The price of S3 storage, in US dollars per gigabyte and month. None if it is not
            known.
    """

    now: datetime
    prices: Mapping[str, float]
    s3_usd_per_gigabyte_month: float | None = None


def judge_job(job: JobView, run: Run | None, *, context: Context) -> Finding | None:
    """Return a finding if a training job in progress, with the deployment's tag, belongs to no live run.

    Args:
        job: The job.
        run: The run that its name belongs to, read after the job was listed, or None when there is none.
        context: The deployment's prices, and the time.
    """
    if RUN_VARIABLE not in job.environment:
        return None  # Another client's: it is a run of its own, or will be with the next pass.
    usd_per_hour = _of_instances(job.instance_type, job.instance_count, context)
    if run is None:
        return Finding(
            kind=OrphanKind.UNRECORDED_JOB,
            rule=RULES[OrphanKind.UNRECORDED_JOB],
            subject=job.name,
            since=job.created_at,
            says=f"training job {job.name} carries the deployment's tag and belongs to no run",
            risk="bills until its own time limit; its end is not notified",
            usd_per_hour=usd_per_hour,
            mend=_STOP_JOB.format(job.name),
            due=_is_due(OrphanKind.UNRECORDED_JOB, job.created_at, context),
        )
    if run.job_name == job.name and not run.state.ended:
        return None
    # The list of jobs is a moment older than the record: before the grace is over the job may have ended.
    since = (run.ended_at or run.updated_at) if run.state.ended else run.updated_at
    why = f"its run has ended ({run.state})" if run.state.ended else f"its run works with {run.job_name}"
    return _overdue(
        OrphanKind.OUTLIVING_JOB,
        context=context,
        subject=job.name,
        since=since,
        says=f"training job {job.name} is in progress although {why}",
        risk="bills, and may write the run's checkpoints",
        usd_per_hour=usd_per_hour,
        mend=_STOP_JOB.format(job.name),
    )


def judge_service_job(job: ServiceJob, run: Run | None, *, context: Context) -> Finding | None:
    """Return a finding if a queue's service job, with the deployment's tag, waits or runs for no live run.

    Args:
        job: The service job, which does not work on the current attempt of a live run.
        run: The run that its environment names, read after the job was listed, or None when there is none.
        context: The time.
    """
    if RUN_VARIABLE not in job.environment:
        return None  # Another client submitted it: its own affair, and its own bill.
    if run is None:
        kind, since, why = OrphanKind.UNRECORDED_JOB, job.created_at, "no run knows it"
    else:
        kind, since = OrphanKind.OUTLIVING_JOB, run.ended_at or run.updated_at
        why = f"its run {'has ended' if run.state.ended else f'works with {run.job_name}'}"
    return _overdue(
        kind,
        context=context,
        subject=job.job_id,
        since=since,
        says=f"service job {job.name} is {job.status} in its queue although {why}",
        risk="has its turn one day, bills, and may write the run's checkpoints",
        mend=_TERMINATE.format(job.job_id),
    )


def judge_recorded_pool(pool: Pool, *, context: Context) -> Finding:
    """Return a finding with the cost of a warm pool that is recorded as waiting."""
    return Finding(
        kind=OrphanKind.IDLE_POOL,
        rule=RULES[OrphanKind.IDLE_POOL],
        subject=pool.run,
        since=pool.kept_since,
        says=f"the warm pool of {pool.run} waits for a next job until {pool.kept_until:%H:%M} UTC",
        risk="is billed while it waits",
        usd_per_hour=_of_instances(pool.traits.instance_type, pool.traits.instance_count, context),
        mend=f"spotkeep pool stop {pool.run}",
    )


def judge_unrecorded_pool(job: JobView, run: Run | None, *, kept_since: datetime, context: Context) -> Finding | None:
    """Return a finding if a warm pool that is not recorded as waiting belongs to no run.

    Args:
        job: The ended job, with the deployment's tag, that left the warm pool.
        run: The run that its name belongs to, read after the job was listed, or None when there is none.
        kept_since: The time when the job ended.
        context: The deployment's prices, and the time.
    """
    if run is not None and run.job_name == job.name and not run.state.ended:
        return None  # Its job's end is not recorded yet, and the pool will be with it.
    return _overdue(
        OrphanKind.UNRECORDED_POOL,
        context=context,
        subject=job.name,
        since=kept_since,
        says=f"training job {job.name} left a warm pool that no run knows",
        risk="is billed until it expires; its end is not notified",
        usd_per_hour=_of_instances(job.instance_type, job.instance_count, context),
        mend=_END_POOL.format(job.name),
    )


def judge_checkpoints(uri: str, stored: Stored, *, context: Context) -> Finding | None:
    """Return a finding with the cost of objects that no record has or uses. Only a person may delete them.

    Args:
        uri: The address `s3://bucket/runs/<run>/` or `s3://bucket/sources/<run>/`. An isolated team's address lies
            below the team's prefix.
        stored: The objects below that address.
        context: The deployment's prices, and the time.
    """
    monthly = context.s3_usd_per_gigabyte_month
    gigabytes = stored.stored_bytes / BYTES_A_GIGABYTE
    return _overdue(
        OrphanKind.ORPHANED_CHECKPOINTS,
        context=context,
        subject=uri,
        since=stored.newest_at,
        says=f"{uri} holds {stored.objects:,} objects ({gigabytes:,.3f} GB) of a run that is not recorded",
        risk="is stored, and billed, until it is deleted",
        usd_per_hour=None if monthly is None else gigabytes * monthly / HOURS_A_MONTH,
        mend=f"aws s3 rm --recursive {uri}",
    )


def named_prefixes(text: str, *, bucket: str) -> Iterator[str]:
    """Yield the prefixes of runs with addresses in a text.

    A data channel may name the beginning of several prefixes, as S3 does. For example, `s3://bucket/runs/resnet` also
    names the prefix of `resnet-2`, and is yielded as it is. An address without a run (`s3://bucket/runs/`) yields
    nothing. Otherwise such an address in one record would hide every orphan for a year.

    Args:
        text: A user's document, or an address.
        bucket: The checkpoint bucket.

    Yields:
        `runs/<run>/`, or as much of it as the text has.
    """
    for found in re.finditer(rf"s3://{re.escape(bucket)}/({_OF_A_RUN})", text):
        yield found[1]


def is_named(prefix: str, names: Collection[str]) -> bool:
    """Return True if a prefix of a run's objects is among the names in the records.

    Args:
        prefix: The prefix `runs/<run>/`.
        names: The results of `named_prefixes`.
    """
    return any(prefix[:length] in names for length in range(1, len(prefix) + 1))


def judge_fleet_orphan(orphan: Orphan, *, context: Context) -> Finding | None:
    """Return a finding if a fleet, volume or snapshot has not been needed for longer than a removal takes."""
    thing = orphan.thing
    since = orphan.since or context.now
    if isinstance(thing, Fleet):
        return _overdue(
            OrphanKind.UNUSED_FLEET,
            context=context,
            subject=thing.id,
            since=since,
            says=f"fleet {thing.id} may launch instances, and no live run has it (it was made for {orphan.run})",
            risk="bills an instance until it is deleted",
            mend=_DELETE_FLEET.format(thing.id),
        )
    # What a crash left of a live run has no date: the controller's next pass deletes it.
    if orphan.since is not None and not _is_due(OrphanKind.UNUSED_STORAGE, since, context):
        return None
    return Finding(
        kind=OrphanKind.UNUSED_STORAGE,
        rule=RULES[OrphanKind.UNUSED_STORAGE],
        subject=thing.id,
        since=since,
        says=f"{thing.kind} {thing.id} of {orphan.run} is needed no more",
        risk="bills storage until it is deleted",
        mend=(_DELETE_VOLUME if thing.kind == VOLUME else _DELETE_SNAPSHOT).format(thing.id),
        due=True,
    )


def _overdue(
    kind: OrphanKind,
    *,
    context: Context,
    subject: str,
    since: datetime,
    says: str,
    risk: str,
    mend: str,
    usd_per_hour: float | None = None,
) -> Finding | None:
    """Return the finding if its cause has lasted for the kind's grace period, or None."""
    if not _is_due(kind, since, context):
        return None
    return Finding(
        kind=kind,
        rule=RULES[kind],
        subject=subject,
        since=since,
        says=says,
        risk=risk,
        usd_per_hour=usd_per_hour,
        mend=mend,
        due=True,
    )


def _is_due(kind: OrphanKind, since: datetime, context: Context) -> bool:
    return context.now - since >= GRACE[kind]


def _of_instances(instance_type: str | None, count: int, context: Context) -> float | None:
    price = None if instance_type is None else context.prices.get(instance_type)
    return None if price is None else price * count
