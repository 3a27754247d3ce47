"""One class a kind of thing that can be an orphan: gathers its facts, has them judged, removes what is decided."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from spotkeep_jobs.backends.sagemaker.request import DEPLOYMENT_TAG, RUN_VARIABLE
from spotkeep_jobs.document.deployment_policy import PoolRules
from spotkeep_jobs.orphans.decisions import (
    Context,
    judge_ended_job,
    judge_fleet_orphan,
    judge_job,
    judge_lost_schedule,
    judge_pool,
    judge_prefix,
    judge_recorded_pool,
    judge_schedule,
)
from spotkeep_jobs.orphans.facts import EndedJob, KeptPool, LiveJob, MadeSchedule, StoredPrefix
from spotkeep_jobs.pools.pool_schedules import Firing, plan_schedules
from spotkeep_jobs.record.orphan_findings import GRACE, Finding, Kind
from spotkeep_jobs.runs.run_reconciler import run_of_job

if TYPE_CHECKING:
    from spotkeep_jobs.backends.ec2.facts import Orphan
    from spotkeep_jobs.backends.ec2.sweep import FleetSweep
    from spotkeep_jobs.backends.job_view import JobSummary, JobView
    from spotkeep_jobs.orphans.object_store import RunObjects
    from spotkeep_jobs.pools.scheduler_api import ScheduleGroup
    from spotkeep_jobs.record.record import Pool, Run
    from spotkeep_jobs.record.run_table import RunTable

MOST_DESCRIBED: Final = 50
"""Of the jobs and prefixes that need a closer look, so many are looked at; the next look takes up the rest."""
_EVERY_RUN: Final = 1_000_000
_LONGEST_POOL: Final = timedelta(days=1)
"""A job's pool waits for an hour at most, however it is extended: this is longer than that."""


class AccountJobs(Protocol):
    """The seam to SageMaker: the training jobs of the account and region."""

    def search_in_progress(self, deployment: str, /) -> Iterator[JobView]:
        """The jobs in progress with a deployment's tag, as far as the index knows."""
        ...

    def with_waiting_pool(self, *, since: datetime) -> Iterator[JobSummary]:
        """The ended jobs whose warm pool waits for a next one, whosever they are."""
        ...

    def tags(self, arn: str, /) -> Mapping[str, str]:
        """A job's tags."""
        ...

    def observe(self, job_name: str, /) -> JobView | None:
        """Describe a job; None if there is none of that name."""
        ...

    def stop(self, job_name: str, /) -> bool:
        """Ask a job to stop."""
        ...

    def keep_alive(self, job_name: str, seconds: int, /) -> None:
        """Change the keep-alive period of a pool; 0 ends it."""
        ...


class OrphanSource(Protocol):
    """The seam for a kind of thing: what is left over of it, and how it is removed."""

    @property
    def name(self) -> str:
        """What is looked at, for a message: `training jobs`."""
        ...

    def findings(self) -> Sequence[Finding]:
        """Look, and judge. Changes nothing."""
        ...

    def remove(self, finding: Finding, /) -> None:
        """Remove what a finding of this source is about. Removing it again changes nothing."""
        ...


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What every source has.

    Attributes:
        table: The run table.
        deployment: The deployment's name.
        prices: On-demand US dollars per hour of an instance, by type.
        s3_usd_per_gigabyte_month: What storage costs, asked when it is needed; None where it is not known.
        schedule_group: Where looks at pools are scheduled.
        clock: The time, aware.
    """

    table: RunTable
    deployment: str
    prices: Mapping[str, float]
    s3_usd_per_gigabyte_month: Callable[[], float | None]
    schedule_group: str
    clock: Callable[[], datetime]

    def context(self) -> Context:
        """What decisions need to know, now."""
        return Context(
            deployment=self.deployment,
            now=self.clock(),
            prices=self.prices,
            s3_usd_per_gigabyte_month=self.s3_usd_per_gigabyte_month(),
            schedule_group=self.schedule_group,
        )


class TrainingJobOrphans:
    """Training jobs that run for no run, and runs whose job is over without the controller having seen it."""

    name = "training jobs"

    def __init__(self, jobs: AccountJobs, around: Surroundings) -> None:
        self._jobs = jobs
        self._around = around

    def findings(self) -> Sequence[Finding]:
        """Look at what is in progress; see `OrphanSource.findings`."""
        listed = list(self._jobs.search_in_progress(self._around.deployment))
        in_flight = self._around.table.run_items_in_flight()
        heads = {run.job_name: run for run in in_flight if run.backend == "sagemaker"}
        context = self._around.context()
        unknown = [job.name for job in listed if job.name not in heads]
        found = [judge_job(job, context=context) for job in self._closer(unknown)]
        names = {job.name for job in listed}
        missing = [run for name, run in heads.items() if name not in names]
        found += [judge_ended_job(job, context=context) for job in self._ended(missing, now=context.now)]
        return [finding for finding in found if finding is not None]

    def remove(self, finding: Finding, /) -> None:
        """Stop a job; see `OrphanSource.remove`."""
        self._jobs.stop(finding.subject)

    def _closer(self, unknown: Sequence[str]) -> Iterator[LiveJob]:
        for name in unknown[:MOST_DESCRIBED]:
            job = self._jobs.observe(name)  # The index is a little behind.
            if job is None or job.ended:
                continue
            run = run_of_job(job.name)
            yield LiveJob(
                name=job.name,
                created_at=job.created_at,
                launched=RUN_VARIABLE in job.environment,
                of_tuning_job=job.tuning_job_arn is not None,
                instance_type=job.instance_type,
                instance_count=job.instance_count,
                run=None if run is None else self._around.table.get(run),
            )

    def _ended(self, missing: Sequence[Run], *, now: datetime) -> Iterator[EndedJob]:
        settled = [run for run in missing if now - run.updated_at >= GRACE[Kind.STALE_RECORD]]
        for seen in settled[:MOST_DESCRIBED]:
            job = self._jobs.observe(seen.job_name)
            if job is not None and not job.ended:
                continue
            run = self._around.table.get(seen.run)
            if run is not None and run.job_name == seen.job_name:
                yield EndedJob(
                    run=run,
                    ended_at=None if job is None else job.training_ended_at or job.last_modified_at or job.created_at,
                )


class WarmPoolOrphans:
    """Warm pools that are not recorded, that cost money, or that ended without the controller having seen it."""

    name = "warm pools"

    def __init__(self, jobs: AccountJobs, around: Surroundings) -> None:
        self._jobs = jobs
        self._around = around

    def findings(self) -> Sequence[Finding]:
        """Look at what waits; see `OrphanSource.findings`."""
        listed = list(self._jobs.with_waiting_pool(since=self._around.clock() - _LONGEST_POOL))
        kept = {pool.job_name: pool for pool in self._around.table.kept_pools()}
        context = self._around.context()
        found = [judge_pool(pool, context=context) for pool in self._pools(listed, kept)]
        names = {summary.name for summary in listed}
        found += [judge_recorded_pool(pool, context=context) for name, pool in kept.items() if name not in names]
        return [finding for finding in found if finding is not None]

    def remove(self, finding: Finding, /) -> None:
        """End a pool; see `OrphanSource.remove`."""
        self._jobs.keep_alive(finding.subject, 0)

    def _pools(self, listed: Sequence[JobSummary], kept: Mapping[str, Pool]) -> Iterator[KeptPool]:
        for summary in listed:
            since = summary.ended_at or self._around.clock()
            recorded = kept.get(summary.name)
            if recorded is not None:
                yield KeptPool(job_name=summary.name, kept_since=since, recorded=recorded)
                continue
            if self._jobs.tags(summary.arn).get(DEPLOYMENT_TAG) != self._around.deployment:
                continue
            job = self._jobs.observe(summary.name)
            if job is None or job.warm_pool is None or job.warm_pool.status != "Available":
                continue
            run = run_of_job(summary.name)
            yield KeptPool(
                job_name=summary.name,
                run=None if run is None else self._around.table.get(run),
                kept_since=since,
                instance_type=job.instance_type,
                instance_count=job.instance_count,
                recorded=_recorded_pool(self._around.table, summary.name),
            )


class ScheduleOrphans:
    """Schedules of the deployment's group that look at nothing, and pools that nothing is to look at."""

    name = "schedules"

    def __init__(self, schedules: ScheduleGroup, around: Surroundings) -> None:
        self._schedules = schedules
        self._around = around

    def findings(self) -> Sequence[Finding]:
        """Look at the group; see `OrphanSource.findings`."""
        listed = list(self._schedules.listed())
        table, context = self._around.table, self._around.context()
        kept = list(table.kept_pools())
        found: list[Finding | None] = []
        needed: set[str] = set()
        names = {schedule.name for schedule in listed}
        for pool in kept:
            planned = plan_schedules(pool, rules=PoolRules(), deployment=context.deployment, now=context.now)
            needed |= {schedule.name for schedule in planned}
            ends = [schedule.name for schedule in planned if schedule.payload["firing"] == Firing.EXPIRY]
            if any(name not in names for name in ends):
                found.append(judge_lost_schedule(pool, context=context))
        for schedule in listed:
            if schedule.name in needed or not schedule.name.startswith(f"{context.deployment}-"):
                continue
            payload = self._schedules.payload(schedule.name)
            if payload is None:
                continue  # It has fired since.
            made = MadeSchedule(name=schedule.name, made_at=schedule.made_at, pool=self._pool_of(payload))
            found.append(judge_schedule(made, context=context))
        return [finding for finding in found if finding is not None]

    def remove(self, finding: Finding, /) -> None:
        """Delete a schedule; see `OrphanSource.remove`."""
        self._schedules.delete(finding.subject)

    def _pool_of(self, payload: Mapping[str, object]) -> Pool | None:
        run, attempt = payload.get("run"), payload.get("attempt")
        if not isinstance(run, str) or not isinstance(attempt, int):
            return None
        return self._around.table.pool(run, attempt)


class CheckpointOrphans:
    """What is stored for runs that are not in the table any more."""

    name = "checkpoints"

    def __init__(self, objects: RunObjects, around: Surroundings) -> None:
        self._objects = objects
        self._around = around

    def findings(self) -> Sequence[Finding]:
        """Look at what is stored; see `OrphanSource.findings`."""
        stored = list(self._objects.runs())
        table, context = self._around.table, self._around.context()
        runs = table.list(limit=_EVERY_RUN)
        known = {run.run for run in runs}
        # The list of runs may lag behind, the table itself does not.
        missing = [each for each in stored if each.run not in known and table.get(each.run) is None]
        found = []
        for run in missing[:MOST_DESCRIBED]:
            uri = self._objects.uri(run)
            there = self._objects.stored(run)
            if there is None:
                continue
            prefix = StoredPrefix(
                uri=uri,
                stored_bytes=there.stored_bytes,
                objects=there.objects,
                newest_at=there.newest_at,
                used_by=next((each.run for each in runs if _uses(each, uri)), None),
            )
            found.append(judge_prefix(prefix, context=context))
        return [finding for finding in found if finding is not None]

    def remove(self, finding: Finding, /) -> None:
        """Refuses: checkpoints are removed by a person alone."""
        raise NotImplementedError(finding.subject)


def _uses(run: Run, uri: str) -> bool:
    return uri in run.checkpoint_uri or uri in run.output_prefix or uri in json.dumps(run.request)


def _recorded_pool(table: RunTable, job_name: str) -> Pool | None:
    run = run_of_job(job_name)
    return None if run is None else table.pool(run, int(job_name.rpartition("-")[2]))


class FleetOrphans:
    """What runs on EC2 left: fleets, volumes, snapshots."""

    name = "fleets, volumes and snapshots"

    def __init__(self, sweep: FleetSweep, around: Surroundings) -> None:
        self._sweep = sweep
        self._around = around
        self._found: dict[str, Orphan] = {}

    def findings(self) -> Sequence[Finding]:
        """Look at what carries the deployment's tag; see `OrphanSource.findings`."""

        def failed(_what: str, error: Exception) -> None:
            raise error

        context = self._around.context()
        self._found = {left.thing.id: left for left in self._sweep.orphaned(failed=failed)}
        found = [judge_fleet_orphan(left, context=context) for left in self._found.values()]
        return [finding for finding in found if finding is not None]

    def remove(self, finding: Finding, /) -> None:
        """Delete it; see `OrphanSource.remove`."""
        self._sweep.remove(self._found[finding.subject])
