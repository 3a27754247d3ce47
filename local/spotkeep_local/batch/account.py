"""The resources and jobs of one account in Batch, behind one lock, saved at the shutdown."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import TypeAdapter

from spotkeep_local.batch.records import JobQueue, LocalServiceJob, QuotaShare, SchedulingPolicy, ServiceEnvironment
from spotkeep_local.batch.request_rules import ClientError
from spotkeep_local.service_base.state_file import StateFile

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

_ENVIRONMENTS = TypeAdapter(list[ServiceEnvironment])
_POLICIES = TypeAdapter(list[SchedulingPolicy])
_QUEUES = TypeAdapter(list[JobQueue])
_SHARES = TypeAdapter(list[QuotaShare])
_JOBS = TypeAdapter(list[LocalServiceJob])

_Resource = TypeVar("_Resource", ServiceEnvironment, SchedulingPolicy, JobQueue, QuotaShare)


class BatchAccount:
    """Keeps everything by its ARN, and jobs by their ids.

    A reader or writer holds the lock. `changed` wakes the scheduler.

    Args:
        state_dir: The folder where it is saved.
        region: The region of the ARNs.
        account_id: The account id of the ARNs.
    """

    def __init__(self, *, state_dir: Path, region: str, account_id: str) -> None:
        self._prefix = f"arn:aws:batch:{region}:{account_id}"
        self._saved = StateFile(state_dir / "batch.json")
        self.lock = threading.RLock()
        self.changed = threading.Event()
        saved = self._saved.read()
        self.environments = {each.arn: each for each in _ENVIRONMENTS.validate_python(saved.get("environments", []))}
        self.policies = {each.arn: each for each in _POLICIES.validate_python(saved.get("policies", []))}
        self.queues = {each.arn: each for each in _QUEUES.validate_python(saved.get("queues", []))}
        self.shares = {each.arn: each for each in _SHARES.validate_python(saved.get("shares", []))}
        self.jobs = {job.job_id: job for job in _JOBS.validate_python(saved.get("jobs", []))}

    def save(self) -> None:
        """Write it over the last saved one."""
        with self.lock:
            document = {
                "environments": _ENVIRONMENTS.dump_python(list(self.environments.values()), mode="json"),
                "policies": _POLICIES.dump_python(list(self.policies.values()), mode="json"),
                "queues": _QUEUES.dump_python(list(self.queues.values()), mode="json"),
                "shares": _SHARES.dump_python(list(self.shares.values()), mode="json"),
                "jobs": _JOBS.dump_python(list(self.jobs.values()), mode="json"),
            }
        self._saved.write(document)

    def arn(self, kind: str, name: str) -> str:
        """Return the ARN of a resource, for example of `job-queue` and its name."""
        return f"{self._prefix}:{kind}/{name}"

    def environment(self, named: str) -> ServiceEnvironment:
        """Return a service environment by its name or ARN. Raises `ClientError` for a missing one."""
        return self._find(self.environments, named, "service-environment")

    def queue(self, named: str) -> JobQueue:
        """Return a job queue by its name or ARN. Raises `ClientError` for a missing one."""
        return self._find(self.queues, named, "job-queue")

    def policy(self, arn: str) -> SchedulingPolicy:
        """Return a scheduling policy by its ARN. Raises `ClientError` for a missing one."""
        return self._find(self.policies, arn, "scheduling-policy")

    def share(self, arn: str) -> QuotaShare:
        """Return a quota share by its ARN. Raises `ClientError` for a missing one."""
        return self._find(self.shares, arn, "quota-share")

    def job(self, named: str) -> LocalServiceJob:
        """Return a service job by its id or ARN. Raises `ClientError` for a missing one."""
        job = self.jobs.get(named.rpartition("/")[2])
        if job is None or named not in (job.job_id, job.arn):
            raise ClientError(f"Service job {named} does not exist")
        return job

    def policy_of(self, queue: JobQueue) -> SchedulingPolicy | None:
        """Return the scheduling policy of a queue. None for first in, first out."""
        return None if queue.policy is None else self.policies[queue.policy]

    def shares_of(self, queue: JobQueue) -> list[QuotaShare]:
        """Return the quota shares of a queue."""
        return [share for share in self.shares.values() if share.queue == queue.arn]

    def tags(self, arn: str) -> dict[str, str]:
        """Return the tags of a resource or a job. Raises `ClientError` for a missing one."""
        for table in self._tables():
            if arn in table:
                return dict(table[arn].tags)
        return dict(self.job(arn).tags)

    def tags_of(self, arn: str) -> Mapping[str, str]:
        """Return the same for a caller without the lock. A missing resource or job has no tags."""
        with self.lock:
            try:
                return self.tags(arn)
            except ClientError:
                return {}

    def set_tags(self, arn: str, tags: dict[str, str]) -> None:
        """Set all tags of a resource or a job. Raises `ClientError` for a missing one."""
        for table in self._tables():
            if arn in table:
                table[arn] = replace(table[arn], tags=tags)
                return
        self.change_job(self.job(arn).job_id, lambda job: replace(job, tags=tags))

    def change_job(self, job_id: str, change: Callable[[LocalServiceJob], LocalServiceJob]) -> LocalServiceJob:
        """Change a job by a pure function, and return the changed job."""
        self.jobs[job_id] = change(self.jobs[job_id])
        return self.jobs[job_id]

    def _tables(self) -> tuple[dict[str, Any], ...]:
        return (self.environments, self.policies, self.queues, self.shares)

    def _find(self, table: Mapping[str, _Resource], named: str, kind: str) -> _Resource:
        found = table.get(named) or table.get(self.arn(kind, named))
        if found is None:
            raise ClientError(f"{named} does not exist: there is no such {kind.replace('-', ' ')}")
        return found
