"""AWS Batch's service jobs, in memory, on the model of SageMaker: the training jobs that Batch makes are jobs there.

The methods of a boto3 client are spelled as there, and raise what it raises. Where AWS's documentation leaves it open,
the model does what is harder: it gives training jobs names of its own, forgets a client token after ten minutes, lists
a new service job late, rejects a repeated submission if a test asks for that, deletes training jobs that had no
capacity, and names only the latest of the preempted ones.

Sources: https://docs.aws.amazon.com/batch/latest/APIReference/API_SubmitServiceJob.html
    https://docs.aws.amazon.com/batch/latest/userguide/service-job-status.html
    https://docs.aws.amazon.com/batch/latest/userguide/preemption.html
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tests.models.clock import NOON
from tests.models.faults import Called, Model, client_error
from tests.models.sagemaker import REPLICA_LAG_SECONDS, ModelJob, SageMaker

TOKEN_SECONDS: Final = 600
"""For how long a token is remembered here."""
NAMED_PREEMPTED: Final = 2
"""How many of the preempted training jobs DescribeServiceJob names here."""
MAX_PAYLOAD_BYTES: Final = 10_240
MISFIT: Final = "MISCONFIGURATION:QUOTA_MANAGEMENT_LIMIT_EXCEEDED"
NO_CAPACITY: Final = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
_STATUS_OF: Final = {"Starting": "SCHEDULED", "Downloading": "STARTING"}
_PAGE: Final = 2


@dataclass
class ModelServiceJob:
    """A service job as it really is. Times are seconds of the story."""

    job_id: str
    name: str
    queue: str
    share: str
    priority: int
    payload: str
    token: str
    retry: Mapping[str, Any]
    tags: Mapping[str, str]
    created: float
    status: str = "RUNNABLE"
    reason: str | None = None
    terminated: bool = False
    preempting: bool = False
    attempts: list[dict[str, Any]] = field(default_factory=list)
    preempted: list[dict[str, Any]] = field(default_factory=list)
    training_job: ModelJob | None = None
    """The one that it has now."""
    made: list[ModelJob] = field(default_factory=list)
    """All that it has had."""
    stopped: float | None = None
    had_instances: bool = False
    """Whether it had instances when the preemption in progress began."""
    lost_instances: int = 0
    """How often it was preempted while it had instances, and waits again: until then AWS Batch may still end it. Or
    lost them to an error of SageMaker's own, and was tried again, or terminated instead."""

    @property
    def arn(self) -> str:
        return f"arn:aws:batch:us-east-1:123456789012:service-job/{self.job_id}"

    @property
    def request(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.payload)
        return read

    @property
    def over(self) -> bool:
        return self.status in ("SUCCEEDED", "FAILED")

    @property
    def waits(self) -> bool:
        """Whether it can have its turn."""
        return self.status == "RUNNABLE" and not self.terminated


class Batch(Model):
    """A client of AWS Batch, and what happens to its service jobs.

    Attributes:
        sagemaker: Where the training jobs are.
        jobs: The service jobs, by id.
        queues: The shares of each job queue; None for any queue and share.
        rejects_repeats: Whether a repeated submission is an error, as the API reference says, or gets the same answer.
        refuses: The message of the ClientException that every submission gets, or None.
        hands_tags_on: Whether training jobs get the tags of their service job. AWS does not say; its own client gives
            tags to the service job alone. A payload with tags besides would name each key twice: that is refused.
    """

    def __init__(self, sagemaker: SageMaker, called: Called | None = None) -> None:
        super().__init__(called)
        self.sagemaker = sagemaker
        self.jobs: dict[str, ModelServiceJob] = {}
        self.queues: Mapping[str, tuple[str, ...]] | None = None
        self.rejects_repeats = False
        self.refuses: str | None = None
        self.hands_tags_on = False
        self._submitting = threading.Lock()

    # What a client sees

    def submit_service_job(self, **request: Any) -> dict[str, Any]:
        return self._call("SubmitServiceJob", lambda: self._submit(request))  # type: ignore[no-any-return]

    def describe_service_job(self, *, jobId: str) -> dict[str, Any]:  # noqa: N803
        return self._call("DescribeServiceJob", lambda: self._describe(jobId))  # type: ignore[no-any-return]

    def list_service_jobs(self, **query: Any) -> dict[str, Any]:
        return self._call("ListServiceJobs", lambda: self._list(query))  # type: ignore[no-any-return]

    def terminate_service_job(self, *, jobId: str, reason: str) -> None:  # noqa: N803
        self._call("TerminateServiceJob", lambda: self._terminate(jobId, reason))

    def update_service_job(self, *, jobId: str, schedulingPriority: int) -> dict[str, Any]:  # noqa: N803
        def update() -> dict[str, Any]:
            job = self._known("UpdateServiceJob", jobId)
            job.priority = schedulingPriority
            return {"jobId": job.job_id, "jobName": job.name, "jobArn": job.arn}

        return self._call("UpdateServiceJob", update)  # type: ignore[no-any-return]

    # What happens to service jobs

    def has_its_turn(self, job: ModelServiceJob) -> ModelJob:
        """It is scheduled: a training job is made, which waits for capacity."""
        assert job.waits
        assert job.training_job is None or not job.training_job.live
        name = f"AWSBatch{job.name[:20]}{hashlib.sha256(f'{job.job_id}{len(job.made)}'.encode()).hexdigest()[:30]}"
        tags = [{"Key": key, "Value": value} for key, value in job.tags.items()] if self.hands_tags_on else []
        assert "Tags" not in job.request, "each key would be there twice"
        made = self.sagemaker.made_for({**job.request, "TrainingJobName": name, "Tags": tags})
        job.training_job = made
        job.made.append(made)
        self._becomes(job, "SCHEDULED")
        return made

    def preempts(self, job: ModelServiceJob) -> None:
        """Another job needs its instances: its training job is asked to stop."""
        assert job.training_job is not None
        job.preempting = True
        job.had_instances = job.training_job.on_instances
        job.reason = "PREEMPTION_IN_PROGRESS: Cross-share preemption triggered to reclaim borrowed capacity"
        self.sagemaker.is_asked_to_stop(job.training_job)
        self._event("Batch Service Job Preemption Started", {"preemptedJobArn": job.arn, "status": job.status})

    def never_fits(self, job: ModelServiceJob) -> None:
        """It is at the front and asks for more than its share may ever have: those behind it wait for ever."""
        assert job.waits
        job.reason = f"{MISFIT} - The quota share cannot meet the capacity requirement of the job."
        self._event("Batch Service Job Queue Blocked", {"jobName": job.name, "jobArn": job.arn, "status": job.status})

    def ends_at_the_front(self, job: ModelServiceJob, reason: str, *, terminated: bool) -> None:
        """A time limit of its queue ends it. AWS does not say whether it then counts as terminated."""
        assert job.waits
        job.terminated = terminated
        job.reason = f"Terminated by JobStateTimeLimit action due to reason: {reason}"
        self._becomes(job, "FAILED")

    def catches_up(self) -> None:
        """Batch sees what SageMaker says of all training jobs."""
        for job in self.jobs.values():
            self._notices(job)

    @property
    def unfinished(self) -> list[ModelServiceJob]:
        """The service jobs that are not over, or whose training job is not."""
        return [
            job
            for job in self.jobs.values()
            if not job.over or (job.training_job is not None and job.training_job.live)
        ]

    # Within

    def _submit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._submitting:
            return self._submit_one(request)

    def _submit_one(self, request: Mapping[str, Any]) -> dict[str, Any]:
        def refuse(message: str) -> Exception:
            return client_error("SubmitServiceJob", "ClientException", message)

        queue, share = request["jobQueue"], request["quotaShareName"]
        if self.refuses is not None:
            raise refuse(self.refuses)
        if self.queues is not None and share not in self.queues.get(queue, ()):
            raise refuse(f"{queue} or {share} does not exist")
        if len(request["serviceRequestPayload"].encode()) > MAX_PAYLOAD_BYTES:
            raise refuse("serviceRequestPayload is too large")
        for job in self.jobs.values():
            if job.token == request["clientToken"] and self.sagemaker.seconds - job.created < TOKEN_SECONDS:
                if job.payload != request["serviceRequestPayload"] or self.rejects_repeats:
                    raise refuse("A request with this clientToken was received before")
                return self._submitted(job)
        job = ModelServiceJob(
            job_id=f"00000000-0000-4000-8000-{len(self.jobs):012d}",
            name=request["jobName"],
            queue=queue,
            share=share,
            priority=request["schedulingPriority"],
            payload=request["serviceRequestPayload"],
            token=request["clientToken"],
            retry=request.get("retryStrategy", {"attempts": 1}),
            tags=request["tags"],
            created=self.sagemaker.seconds,
        )
        self.jobs[job.job_id] = job
        return self._submitted(job)

    @staticmethod
    def _submitted(job: ModelServiceJob) -> dict[str, Any]:
        return {"jobId": job.job_id, "jobName": job.name, "jobArn": job.arn}

    def _describe(self, job_id: str) -> dict[str, Any]:
        job = self._known("DescribeServiceJob", job_id)
        if not self.sagemaker.replicas_lag:
            self._notices(job)
        answer: dict[str, Any] = {
            **self._submitted(job),
            "jobQueue": f"arn:aws:batch:us-east-1:123456789012:job-queue/{job.queue}",
            "serviceJobType": "SAGEMAKER_TRAINING",
            "status": job.status,
            "createdAt": _milliseconds(job.created),
            "schedulingPriority": job.priority,
            "quotaShareName": job.share,
            "serviceRequestPayload": job.payload,
            "attempts": list(job.attempts),
            "tags": dict(job.tags),
        }
        if job.reason is not None:
            answer["statusReason"] = job.reason
        if job.training_job is not None:
            answer["latestAttempt"] = {"serviceResourceId": _resource(job.training_job)}
        if job.terminated:
            answer["isTerminated"] = True
        if job.stopped is not None:
            answer["stoppedAt"] = _milliseconds(job.stopped)
        if job.preempted:
            answer["preemptionSummary"] = {
                "preemptedAttemptCount": len(job.preempted),
                "recentPreemptedAttempts": job.preempted[-NAMED_PREEMPTED:],
            }
        return answer

    def _list(self, query: Mapping[str, Any]) -> dict[str, Any]:
        lag = REPLICA_LAG_SECONDS if self.sagemaker.replicas_lag else 0
        names = {value for each in query.get("filters", ()) if each["name"] == "JOB_NAME" for value in each["values"]}
        found = [
            {
                "jobId": job.job_id,
                "jobName": job.name,
                "jobArn": job.arn,
                "serviceJobType": "SAGEMAKER_TRAINING",
                "status": job.status,
                "createdAt": _milliseconds(job.created),
            }
            for job in reversed(self.jobs.values())
            if job.queue == query["jobQueue"]
            and self.sagemaker.seconds - job.created >= lag
            and (job.name in names if names else job.status == query["jobStatus"])
        ]
        first = int(query.get("nextToken", 0))
        more = {"nextToken": str(first + _PAGE)} if first + _PAGE < len(found) else {}
        return {"jobSummaryList": found[first : first + _PAGE], **more}

    def _terminate(self, job_id: str, reason: str) -> None:
        job = self._known("TerminateServiceJob", job_id)
        self.sagemaker.before_removal("service job", job_id)
        self._notices(job)
        if job.over:
            return
        job.terminated, job.reason = True, reason
        if job.training_job is not None and job.training_job.live:
            if job.training_job.status == "InProgress":
                self.sagemaker.is_asked_to_stop(job.training_job)
        else:
            self._becomes(job, "FAILED")

    def _known(self, operation: str, job_id: str) -> ModelServiceJob:
        if job_id not in self.jobs:
            raise client_error(operation, "ClientException", f"Service job {job_id} does not exist")
        return self.jobs[job_id]

    def _notices(self, job: ModelServiceJob) -> None:
        """Let Batch see what SageMaker says of a training job."""
        training = job.training_job
        if training is None or job.over or job.status == "RUNNABLE":
            return
        if training.live:
            if training.status == "InProgress":
                self._becomes(job, _STATUS_OF.get(training.secondary, "RUNNING"))
            return
        attempt = {"serviceResourceId": _resource(training), "stoppedAt": _milliseconds(self.sagemaker.seconds)}
        no_capacity = not training.trained_seconds and (
            (training.failure or "").startswith("CapacityError") or training.secondary == "MaxWaitTimeExceeded"
        )
        lost = any(entry["Status"] == "Downloading" for entry in training.transitions)
        if job.terminated:
            job.attempts.append(attempt)
            job.lost_instances += lost and (training.failure or "").startswith("InternalServerError")
            self._becomes(job, "FAILED")
        elif job.preempting:
            job.preempting = False
            job.lost_instances += job.had_instances
            job.preempted.append(attempt)
            self._becomes(job, "RUNNABLE")
            self._event("Batch Service Job Preemption Completed", {"preemptedJobArn": job.arn, "status": job.status})
        elif no_capacity:
            job.reason = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Unable to provision requested compute resources"
            self._becomes(job, "RUNNABLE")
            if training.name in self.sagemaker.jobs:
                del self.sagemaker.jobs[training.name]
        else:
            job.attempts.append(attempt)
            job.reason = f"Received status from SageMaker: {training.failure or training.status}"
            if training.status == "Failed" and _is_retried(job):
                job.lost_instances += lost
                self._becomes(job, "RUNNABLE")
            else:
                self._becomes(job, "SUCCEEDED" if training.status == "Completed" else "FAILED")

    def _becomes(self, job: ModelServiceJob, status: str) -> None:
        if job.status == status:
            return
        job.status = status
        if job.over:
            job.stopped = self.sagemaker.seconds
        self._event("Batch Service Job State Change", {"jobName": job.name, "jobArn": job.arn, "status": status})

    def _event(self, detail_type: str, detail: Mapping[str, Any]) -> None:
        arn = detail.get("jobArn") or detail["preemptedJobArn"]
        self.sagemaker.events.append(
            {"source": "aws.batch", "detail-type": detail_type, "resources": [arn], "detail": dict(detail)}
        )


def _is_retried(job: ModelServiceJob) -> bool:
    """Say whether a service job's retry strategy has another training job follow the one that failed."""
    if len(job.attempts) >= job.retry["attempts"]:
        return False
    for condition in job.retry.get("evaluateOnExit", ()):
        if fnmatch.fnmatchcase(job.reason or "", condition["onStatusReason"]):
            return bool(condition["action"] == "RETRY")
    return True


def _resource(job: ModelJob) -> dict[str, str]:
    return {"name": "TrainingJobArn", "value": job.arn}


def _milliseconds(seconds: float) -> int:
    return round((NOON.timestamp() + seconds) * 1_000)
