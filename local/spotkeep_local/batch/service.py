"""AWS Batch as the local AWS serves it."""

from __future__ import annotations

import time
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.batch import description, request_rules
from spotkeep_local.batch.account import BatchAccount
from spotkeep_local.batch.attempts import needs_of, terminated
from spotkeep_local.batch.records import JobQueue, JobStatus, LocalServiceJob
from spotkeep_local.batch.request_rules import ClientError, refuse
from spotkeep_local.batch.resources import Resources
from spotkeep_local.batch.scheduler import Scheduler
from spotkeep_local.service_base.aws_service import AwsService, RestJsonProtocol, ValidationError
from spotkeep_local.service_base.state_change_events import PublishEvent, StateChangeEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from spotkeep_local.capacity import EventFaults
    from spotkeep_local.options import ServerOptions
    from spotkeep_local.service_base.aws_service import Operation
    from spotkeep_local.training.service import TrainingService

_NOT_OF_THE_JOB: Final = ("clientToken", "tags", "jobName", "jobQueue", "schedulingPriority")
_FILTERS: Final = ("JOB_NAME", "BEFORE_CREATED_AT", "AFTER_CREATED_AT", "QUOTA_SHARE_NAME")


class ServiceJobOperations:
    """Their operations. The caller holds the account's lock.

    Args:
        account: Keeps them.
        announce: Sends the event that a job has another status.
        now: The clock, in epoch seconds.
    """

    def __init__(
        self, account: BatchAccount, *, announce: Callable[[LocalServiceJob], None], now: Callable[[], float]
    ) -> None:
        self._account = account
        self._announce = announce
        self._now = now
        self.operations: dict[str, Operation] = {
            "SubmitServiceJob": self._submit,
            "DescribeServiceJob": self._describe,
            "ListServiceJobs": self._list,
            "UpdateServiceJob": self._update,
            "TerminateServiceJob": self._terminate,
        }

    def end_jobs(self, arn: str) -> None:
        """End the jobs of a queue or of a quota share that is deleted."""
        share = self._account.shares.get(arn)
        for job in list(self._account.jobs.values()):
            of_share = share is not None and job.queue == share.queue and job.share == share.name
            if not job.ended and (job.queue == arn or of_share):
                self._end(job, reason=f"{arn} was deleted")

    def _submit(self, request: dict[str, Any]) -> dict[str, Any]:
        queue = self._account.queue(request["jobQueue"])
        refuse(request_rules.submission_problems(request, self._account.policy_of(queue)))
        self._refuse_disabled(queue, request)
        of_job = {name: value for name, value in request.items() if name not in _NOT_OF_THE_JOB}
        self._refuse_repeated(request["clientToken"], of_job)
        job_id = str(uuid.uuid4())
        payload = request["serviceRequestPayload"]
        job = LocalServiceJob(
            job_id=job_id,
            arn=self._account.arn("service-job", job_id),
            name=request["jobName"],
            queue=queue.arn,
            number=1 + max((job.number for job in self._account.jobs.values()), default=0),
            request=of_job,
            needs=needs_of(payload),
            created_at=self._now(),
            client_token=request["clientToken"],
            priority=request.get("schedulingPriority", 0),
            tags=request.get("tags") or {},
        )
        self._account.jobs[job_id] = job
        return {"jobArn": job.arn, "jobName": job.name, "jobId": job_id}

    def _refuse_disabled(self, queue: JobQueue, request: Mapping[str, Any]) -> None:
        if not queue.enabled:
            raise ClientError(f"Cannot submit to {queue.arn}: its state is DISABLED")
        if (name := request.get("quotaShareName")) is not None:
            share = self._account.share(f"{queue.arn}/quota-share/{name}")
            if not share.enabled:
                raise ClientError(f"Cannot submit to {share.arn}: its state is DISABLED")

    def _refuse_repeated(self, token: str, of_job: Mapping[str, Any]) -> None:
        """Refuse a second request with a token and a payload of before, as the API reference says."""
        for job in self._account.jobs.values():
            if job.client_token == token and job.request == of_job:
                raise ClientError(f"A service job was submitted with the clientToken {token} and this payload before")

    def _describe(self, request: dict[str, Any]) -> dict[str, Any]:
        return description.job(self._account.job(request["jobId"]))

    def _list(self, request: dict[str, Any]) -> dict[str, Any]:
        if "jobQueue" not in request:
            raise ClientError("jobQueue is missing")
        queue = self._account.queue(request["jobQueue"])
        wanted = _wanted(request)
        found = [job for job in self._account.jobs.values() if job.queue == queue.arn and wanted(job)]
        found.sort(key=lambda job: -job.number)
        return description.page([description.summary(job) for job in found], request, member="jobSummaryList")

    def _update(self, request: dict[str, Any]) -> dict[str, Any]:
        job = self._account.job(request["jobId"])
        refuse(request_rules.priority_problems(request))
        if job.ended:
            raise ClientError(f"Cannot update {job.arn}: its status is {job.status.value}")
        priority = request["schedulingPriority"]
        self._account.change_job(job.job_id, lambda job: replace(job, priority=priority))
        return {"jobArn": job.arn, "jobName": job.name, "jobId": job.job_id}

    def _terminate(self, request: dict[str, Any]) -> dict[str, Any]:
        job = self._account.job(request["jobId"])
        if not job.ended:
            self._end(job, reason=request["reason"])
        return {}

    def _end(self, job: LocalServiceJob, *, reason: str) -> None:
        def end(job: LocalServiceJob) -> LocalServiceJob:
            asked = replace(job, terminate_reason=job.terminate_reason or reason)
            # What SageMaker has is stopped first.
            return terminated(asked, now=self._now()) if job.waits else asked

        ended = self._account.change_job(job.job_id, end)
        if ended.status is not job.status:
            self._announce(ended)


def _wanted(request: Mapping[str, Any]) -> Callable[[LocalServiceJob], bool]:
    """Return which jobs a ListServiceJobs request asks for."""
    filters = request.get("filters") or []
    if len(filters) > 1:
        raise ClientError(f"Only one filter can be used at a time, found {len(filters)}")
    status = request.get("jobStatus")
    if not filters:
        only = JobStatus.RUNNING if status is None else status
        return lambda job: job.status == only
    name, values = filters[0].get("name"), filters[0].get("values") or []
    if name not in _FILTERS:
        raise ClientError(f"A filter's name must be one of {', '.join(_FILTERS)}, found {name!r}")
    if len(values) != 1:
        raise ClientError(f"The filter {name} takes one value, found {len(values)}")
    matches = _filter(name, values[0])
    if name == "QUOTA_SHARE_NAME" and status is not None:
        return lambda job: job.status == status and matches(job)
    return matches


def _filter(name: str, value: str) -> Callable[[LocalServiceJob], bool]:
    if name == "JOB_NAME":
        lowered = value.lower()
        if lowered.endswith("*"):
            return lambda job: job.name.lower().startswith(lowered[:-1])
        return lambda job: job.name.lower() == lowered
    if name == "QUOTA_SHARE_NAME":
        return lambda job: job.share == value
    if not value.isdecimal():
        raise ClientError(f"The filter {name} takes a time in epoch milliseconds, found {value!r}")
    moment = int(value) / 1000
    return lambda job: job.created_at < moment if name == "BEFORE_CREATED_AT" else job.created_at > moment


class _BatchProtocol(RestJsonProtocol):
    """Batch's protocol. A request against the model is a ClientException, too."""

    def check(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Check parameters against the model. Raises `ClientError`."""
        try:
            return super().check(operation, parameters)
        except ValidationError as error:
            raise ClientError(error.message) from error


class BatchService:
    """The Batch of one local AWS.

    Args:
        state_dir: The folder where the service keeps its resources and jobs.
        options: The options of the local AWS.
        training: Runs the training jobs.
        publish_event: Puts an `aws.batch` event on the default bus. Called from a thread of its own.
        now: The clock, in epoch seconds.
    """

    def __init__(
        self,
        *,
        state_dir: Path,
        options: ServerOptions,
        training: TrainingService,
        publish_event: PublishEvent,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.account = BatchAccount(state_dir=state_dir, region=options.region, account_id=options.account_id)
        self._events = StateChangeEvents(publish_event)
        self._scheduler = Scheduler(
            self.account,
            training=training,
            send=self._events.send,
            now=now,
            hands_tags_on=options.batch_hands_tags_on,
        )
        jobs = ServiceJobOperations(self.account, announce=self._scheduler.announce, now=now)
        resources = Resources(self.account, end_jobs=jobs.end_jobs)
        self._protocol = _BatchProtocol("batch")
        operations = {**resources.operations, **jobs.operations}
        self.api = AwsService(self._protocol, {name: self._locked(operation) for name, operation in operations.items()})

    def start(self) -> None:
        """Take up the jobs of an earlier server. SageMaker has started before."""
        self._events.start()
        self._scheduler.start()

    def stop(self) -> None:
        """Save everything. Dispatched jobs are followed again by the next `start`."""
        self._scheduler.stop()
        self._events.stop()
        self.account.save()

    def set_event_faults(self, faults: EventFaults) -> None:
        """Set the faults of events that are sent from now on."""
        self._events.set_faults(faults)

    @property
    def control_operations(self) -> dict[str, Operation]:
        """Operations that AWS lets no client call."""
        return {"BatchTags": self._set_tags}

    def _set_tags(self, request: dict[str, Any]) -> dict[str, Any]:
        handed_on = request.get("handed_on")
        if not isinstance(handed_on, bool):
            raise ClientError(f"handed_on must be true or false, found {handed_on!r}")
        self._scheduler.hands_tags_on = handed_on
        return {}

    def call(self, operation: str, request: dict[str, Any]) -> Mapping[str, Any]:
        """Do an operation for another part of this local AWS.

        Raises:
            ServiceError: It is refused.
        """
        return self.api.operations[operation](self._protocol.check(operation, request))

    def _locked(self, operation: Operation) -> Operation:
        def locked(request: dict[str, Any]) -> Mapping[str, Any]:
            with self.account.lock:
                answer = operation(request)
            self.account.changed.set()
            return answer

        return locked
