"""One function for each kind of possible orphan. It lists the things, reads the record, and has each judged.

The controller and `spotkeep doctor --account` use the same list of sources.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from spotkeep_fleet.run_prefixes import PREFIXES, of_team
from spotkeep_jobs.backends.batch.service_job import job_id_of
from spotkeep_jobs.backends.sagemaker.training_job import DEPLOYMENT_TAG, LAUNCH_VARIABLE, RUN_VARIABLE, launch_id_of
from spotkeep_jobs.errors import in_words, isolated
from spotkeep_jobs.orphans.decisions import (
    Context,
    Stored,
    is_named,
    judge_checkpoints,
    judge_fleet_orphan,
    judge_job,
    judge_recorded_pool,
    judge_service_job,
    judge_unrecorded_pool,
    named_prefixes,
)
from spotkeep_jobs.record.states import PoolState
from spotkeep_jobs.runs.run_reconciler import run_of_job

if TYPE_CHECKING:
    from spotkeep_jobs.backends.batch.jobs import ServiceJobs
    from spotkeep_jobs.backends.ec2.fleet_orphans import FleetOrphans
    from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs
    from spotkeep_jobs.record.deployment_records import Finding
    from spotkeep_jobs.record.record import Pool, Run
    from spotkeep_jobs.record.run_table import RunTable


MOST_DESCRIBED: Final = 50
"""The most jobs, pools and prefixes that a pass describes one by one. The next pass continues after them.

Things that the record knows do not count."""
_LONGEST_POOL: Final = timedelta(days=1)
"""A time longer than any warm pool waits. A job's pool waits for an hour at most, however it is extended."""


@dataclass(frozen=True, kw_only=True)
class PossibleOrphan:
    """A finding, and the function that removes its subject.

    Attributes:
        finding: The finding.
        remove: Removes the subject, and has no effect at a second call. None if the controller never removes it.
    """

    finding: Finding
    remove: Callable[[], object] | None = None


@dataclass(frozen=True, kw_only=True)
class Found:
    """The result of a source.

    A thing that cannot be read does not stop the source from examining the others.

    Attributes:
        orphans: The findings.
        looked_to: The last thing that the source examined, or None if it examined all. The next pass continues after
            it.
        unreadable: The things that could not be read, with the reasons.
    """

    orphans: list[PossibleOrphan] = field(default_factory=list)
    looked_to: str | None = None
    unreadable: dict[str, str] = field(default_factory=dict)


OrphanSource = Callable[[str | None], Found]
"""Lists one kind of thing, and judges those behind the last one of the previous pass. Changes nothing."""


def in_turn(names: Iterable[str], *, after: str | None) -> tuple[list[str], str | None]:
    """Choose the names that a pass examines, in order and around, so that each has its turn.

    Args:
        names: All names to examine.
        after: The last name of the previous pass, or None to begin.

    Returns:
        `MOST_DESCRIBED` names at most, and the name after which the next pass continues, or None if these are all.
    """
    ordered = sorted(set(names))
    if len(ordered) <= MOST_DESCRIBED:
        return ordered, None
    first = 0 if after is None else bisect_right(ordered, after)
    chosen = (ordered[first:] + ordered[:first])[:MOST_DESCRIBED]
    return chosen, chosen[-1]


@dataclass(frozen=True, kw_only=True)
class OrphanSearch:
    """The values that every source has.

    Attributes:
        table: The run table.
        deployment: The deployment's name.
        prices: On-demand US dollars per hour of an instance, by type.
        s3_usd_per_gigabyte_month: Returns the price of S3 storage, in US dollars per gigabyte and month, or None if it
            is not known.
        clock: Returns the time, aware.
    """

    table: RunTable
    deployment: str
    prices: Mapping[str, float]
    s3_usd_per_gigabyte_month: Callable[[], float | None]
    clock: Callable[[], datetime]

    def context(self) -> Context:
        """Return the values that decisions need, as they are now."""
        return Context(now=self.clock(), prices=self.prices, s3_usd_per_gigabyte_month=self.s3_usd_per_gigabyte_month())

    def run_of(self, job_name: str) -> Run | None:
        """Read the run that a job's name belongs to, or that was adopted with it. None when there is none."""
        run = run_of_job(job_name)
        return (None if run is None else self.table.runs.get(run)) or self.table.runs.get(job_name)

    def run_marked(self, environment: Mapping[str, str]) -> Run | None:
        """Read the run that a job's environment names. None when there is none."""
        run = environment.get(RUN_VARIABLE)
        return None if run is None else self.table.runs.get(run)

    def is_at_work(self, run: Run | None, environment: Mapping[str, str]) -> bool:
        """Return True if a queue's job has the launch mark of a run's current attempt, and so works on it."""
        if run is None or run.place.queue is None or run.state.ended:
            return False
        attempt = self.table.runs.attempt(run.run, run.attempt)
        return attempt is not None and launch_id_of(attempt) == environment.get(LAUNCH_VARIABLE)

    def pool_of(self, job_name: str) -> Pool | None:
        """Read the pool that is recorded of a job. None when there is none."""
        run = run_of_job(job_name)
        found = None if run is None else self.table.pools.get(run, int(job_name.rpartition("-")[2]))
        return found or self.table.pools.get(job_name, 1)


def _look_at(
    names: Iterable[str],
    *,
    after: str | None,
    judge: Callable[[str], PossibleOrphan | None],
    unreadable: Mapping[str, str],
    also: Sequence[PossibleOrphan] = (),
) -> Found:
    """Judge each name that has its turn.

    A record that cannot be read gives no finding. The things that belong to it are judged by themselves.

    Args:
        names: All names to examine.
        after: The last name that the previous pass examined.
        judge: Reads one thing, and returns a finding about it or None.
        unreadable: The records that could not be read, with the reasons.
        also: Findings of earlier steps.
    """
    chosen, looked_to = in_turn(names, after=after)
    found = Found(orphans=[*also], looked_to=looked_to, unreadable={**unreadable})

    def look_at(name: str) -> None:
        if (orphan := judge(name)) is not None:
            found.orphans.append(orphan)

    for name in chosen:
        isolated(found.unreadable, name, partial(look_at, name))
    return found


def orphaned_jobs(jobs: SageMakerTrainingJobs, around: OrphanSearch, after: str | None = None) -> Found:
    """Find training jobs in progress that run for no run."""
    listed = list(jobs.search_in_progress(around.deployment))
    unreadable: dict[str, str] = {}
    runs = around.table.runs.items_in_flight(unreadable=unreadable)
    in_flight = [run for run in runs if run.place.backend == "sagemaker"]
    known = {name for run in in_flight for name in (run.job_name, run.training_job)}
    context = around.context()

    def judge(name: str) -> PossibleOrphan | None:
        job = jobs.observe(name)  # The index is a little behind.
        if job is None or job.ended:
            return None
        run = around.run_of(name) or around.run_marked(job.environment)
        if around.is_at_work(run, job.environment):
            return None
        finding = judge_job(job, run, context=context)
        return None if finding is None else PossibleOrphan(finding=finding, remove=partial(jobs.stop, name))

    names = (job.name for job in listed if job.name not in known)
    return _look_at(names, after=after, judge=judge, unreadable=unreadable)


def orphaned_service_jobs(
    queues: ServiceJobs, around: OrphanSearch, after: str | None = None, *, names: Sequence[str]
) -> Found:
    """Find service jobs of the deployment's queues that wait, or run, for no run.

    Args:
        queues: The service jobs.
        around: The values that every source has.
        after: The last job that the previous pass examined.
        names: The deployment's queues.
    """
    listed = list(queues.unfinished(names))
    unreadable: dict[str, str] = {}
    runs = around.table.runs.items_in_flight(unreadable=unreadable)
    in_flight = [run for run in runs if run.place.queue is not None]
    known = {job_id_of(run.job_id) for run in in_flight if run.job_id is not None}
    context = around.context()

    def judge(job_id: str) -> PossibleOrphan | None:
        service_job = queues.own_unfinished(job_id)
        if service_job is None:
            return None
        run = around.run_marked(service_job.environment)
        if around.is_at_work(run, service_job.environment):
            return None
        finding = judge_service_job(service_job, run, context=context)
        remove = partial(queues.terminate, service_job)
        return None if finding is None else PossibleOrphan(finding=finding, remove=remove)

    ids = (job_id for job_id in listed if job_id not in known)
    return _look_at(ids, after=after, judge=judge, unreadable=unreadable)


def orphaned_pools(jobs: SageMakerTrainingJobs, around: OrphanSearch, after: str | None = None) -> Found:
    """Find warm pools that wait. A recorded pool costs money, and a pool without a record belongs to no run."""
    listed = {summary.name: summary for summary in jobs.with_waiting_pool(since=around.clock() - _LONGEST_POOL)}
    unreadable: dict[str, str] = {}
    recorded = [pool for pool in around.table.pools.kept(unreadable=unreadable) if pool.job_name in listed]
    context = around.context()

    def judge(name: str) -> PossibleOrphan | None:
        if jobs.tags(listed[name].arn).get(DEPLOYMENT_TAG) != around.deployment:
            return None
        job = jobs.observe(name)
        if job is None or job.warm_pool is None or job.warm_pool.status != "Available":
            return None
        # Read after the job: what is recorded in between is never taken for an orphan.
        run, pool = around.run_of(name), around.pool_of(name)
        if pool is not None and pool.state is PoolState.AVAILABLE:
            return PossibleOrphan(finding=judge_recorded_pool(pool, context=context))
        kept_since = listed[name].ended_at or context.now
        finding = judge_unrecorded_pool(job, run, kept_since=kept_since, context=context)
        return None if finding is None else PossibleOrphan(finding=finding, remove=partial(jobs.keep_alive, name, 0))

    unknown = listed.keys() - {pool.job_name for pool in recorded}
    known = [PossibleOrphan(finding=judge_recorded_pool(pool, context=context)) for pool in recorded]
    return _look_at(unknown, after=after, judge=judge, unreadable=unreadable, also=known)


def orphaned_checkpoints(objects: RunObjects, around: OrphanSearch, after: str | None = None) -> Found:
    """Find objects that belong to no run, sweep or schedule in the table, and that none of them uses."""
    listed = {stored.prefix: stored for stored in objects.runs()}
    ids, names = set[str](), set[str]()
    for run, text in around.table.named_in_records():
        ids.add(run)
        names.update(objects.named_in(text))
    context = around.context()

    def judge(prefix: str) -> PossibleOrphan | None:
        # The list of records may lag behind, the table itself does not.
        if around.table.is_recorded(listed[prefix].run):
            return None
        stored = objects.stored(listed[prefix])
        finding = None if stored is None else judge_checkpoints(objects.uri(listed[prefix]), stored, context=context)
        return None if finding is None else PossibleOrphan(finding=finding)

    forgotten = (prefix for prefix, stored in listed.items() if stored.run not in ids and not is_named(prefix, names))
    return _look_at(forgotten, after=after, judge=judge, unreadable={})


def orphaned_fleets(fleets: FleetOrphans, around: OrphanSearch) -> Found:
    """Find fleets, volumes and snapshots that the controller has not deleted yet."""
    found = Found()

    def failed(what: str, error: Exception) -> None:
        found.unreadable[what] = in_words(error)

    context = around.context()
    findings = [judge_fleet_orphan(each, context=context) for each in fleets.find(failed=failed)]
    found.orphans.extend(PossibleOrphan(finding=finding) for finding in findings if finding is not None)
    return found


def sources_of(
    *,
    around: OrphanSearch,
    jobs: SageMakerTrainingJobs,
    s3: Any,
    checkpoint_bucket: str,
    isolated_teams: Sequence[str] = (),
    fleets: FleetOrphans | None,
    queues: ServiceJobs | None = None,
    queue_names: Sequence[str] = (),
) -> dict[str, OrphanSource]:
    """Return every source with real clients, by the kind of thing that it lists.

    Args:
        around: The values that every source has.
        jobs: SageMaker's training jobs, as the caller may see them.
        s3: A client of S3.
        checkpoint_bucket: The bucket with the runs' objects.
        isolated_teams: Teams with objects that are listed separately.
        fleets: Lists EC2's resources, or None in a deployment without fleets.
        queues: The service jobs of AWS Batch, or None if the caller may not see them.
        queue_names: The deployment's queues.
    """
    objects = RunObjects(s3, bucket=checkpoint_bucket, isolated_teams=isolated_teams)
    sources: dict[str, OrphanSource] = {
        "training jobs": partial(orphaned_jobs, jobs, around),
        "warm pools": partial(orphaned_pools, jobs, around),
        "checkpoints": partial(orphaned_checkpoints, objects, around),
    }
    if queues is not None and queue_names:
        sources["service jobs"] = partial(orphaned_service_jobs, queues, around, names=queue_names)
    if fleets is not None:
        sources["fleets, volumes and snapshots"] = lambda _after: orphaned_fleets(fleets, around)
    return sources


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A prefix with objects of a run, a sweep or a schedule.

    Attributes:
        run: The id of the run, sweep or schedule.
        prefix: The beginning of the objects' keys, such as `sources/<run>/`. For an isolated team it lies below the
            team's prefix.
    """

    run: str
    prefix: str


class RunObjects:
    """Lists objects by run."""

    def __init__(self, client: Any, *, bucket: str, isolated_teams: Sequence[str] = ()) -> None:
        """Bind the bucket.

        Args:
            client: A boto3 client of S3.
            bucket: The checkpoint bucket.
            isolated_teams: Teams with runs that are listed separately.
        """
        self._client = client
        self._bucket = bucket
        self._teams = (None, *isolated_teams)

    def runs(self) -> Iterator[StoredRun]:
        """List the prefixes of runs below which anything is stored."""
        for prefix in (of_team(prefix, team) for team in self._teams for prefix in PREFIXES):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self._bucket, Prefix=prefix, Delimiter="/"
            )
            for page in pages:
                for found in page.get("CommonPrefixes", ()):
                    key = str(found["Prefix"])
                    yield StoredRun(run=key.removeprefix(prefix).rstrip("/"), prefix=key)

    def stored(self, run: StoredRun) -> Stored | None:
        """Return the size and number of the objects below a prefix. None when there is no object."""
        total, objects, newest_at = 0, 0, None
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._bucket, Prefix=run.prefix)
        for page in pages:
            for found in page.get("Contents", ()):
                total += int(found["Size"])
                objects += 1
                newest_at = found["LastModified"] if newest_at is None else max(newest_at, found["LastModified"])
        return None if newest_at is None else Stored(stored_bytes=total, objects=objects, newest_at=newest_at)

    def uri(self, run: StoredRun) -> str:
        """Return the address of the objects (`s3://bucket/runs/<run>/`)."""
        return f"s3://{self._bucket}/{run.prefix}"

    def named_in(self, text: str) -> Iterator[str]:
        """Yield the prefixes of runs with addresses in a text, or the part of each prefix that the text has."""
        return named_prefixes(text, bucket=self._bucket)
