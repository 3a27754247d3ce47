"""The submission to AWS Batch, and the answer of DescribeServiceJob. Pure.

An attempt is one service job. Its payload is the CreateTrainingJob request that is recorded in the attempt. Batch gives
the training jobs names of its own, and names of service jobs are not unique. Spotkeep knows its own by the marks of
their launch, which are in the environment of the payload.

Tags are not in the payload. AWS's own client (`sagemaker.train.aws_batch`) gives them to the service job alone. AWS
does not say if AWS Batch hands them on to the training jobs. If it did, a payload with tags would name each key twice.
So Spotkeep never asks a training job of a queue for its tags.

Sources: https://docs.aws.amazon.com/batch/latest/APIReference/API_SubmitServiceJob.html
    https://docs.aws.amazon.com/batch/latest/APIReference/API_DescribeServiceJob.html
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from spotkeep_fleet.training_spec import SPEC_VARIABLE
from spotkeep_jobs.backends.sagemaker.training_job import LAUNCH_MARKS, LAUNCH_VARIABLE, RESTARTS
from spotkeep_jobs.document.queue import job_queue_name
from spotkeep_jobs.record.record import QueuePlace

SERVICE_JOB_TYPE: Final = "SAGEMAKER_TRAINING"
MAX_PAYLOAD_BYTES: Final = 10_240
MAX_SUBMISSION_BYTES: Final = 30_720
"""The most bytes of the whole call, with tags, as JSON."""
RETRY_STRATEGY: Final = {
    "attempts": 1 + RESTARTS,
    "evaluateOnExit": [
        {"action": "RETRY", "onStatusReason": "Received status from SageMaker: InternalServerError*"},
        {"action": "RETRY", "onStatusReason": "Received status from SageMaker:InternalServerError*"},
        {"action": "EXIT", "onStatusReason": "*"},
    ],
}
"""AWS's guide writes a space behind the colon, and AWS's own client none.

Sources: https://docs.aws.amazon.com/batch/latest/userguide/service-job-retries.html
    sagemaker.train.aws_batch.constants, of the SageMaker SDK
"""
_ROOM_BYTES: Final = 64
"""Bytes for longer numbers. The request of a run's next job differs only in its numbers. They may be greater."""
_ROOM_OF_A_SUBMISSION_BYTES: Final = 1_024
"""Bytes for the names of the job, its queue and share, its token, and the retry strategy of a failed training job."""
_ENDED_AT_THE_FRONT: Final = "Terminated by JobStateTimeLimit action due to reason: "
_WAITS: Final = frozenset({"SUBMITTED", "PENDING", "RUNNABLE"})
_OVER: Final = frozenset({"SUCCEEDED", "FAILED"})


@dataclass(frozen=True, kw_only=True)
class ServiceJob:
    """The answer of DescribeServiceJob.

    Attributes:
        job_id: AWS Batch's id of it.
        arn: Its ARN.
        name: Its name, which others may have too.
        status: SUBMITTED, PENDING, RUNNABLE, SCHEDULED, STARTING, RUNNING, SUCCEEDED or FAILED.
        status_reason: The reason for its status.
        terminated: True after TerminateServiceJob asked it to end.
        created_at: The time of its submission.
        stopped_at: The time of its end.
        training_jobs: The names of the training jobs that it lists, oldest first.
        preempted: The names of those that Batch reports as preempted. Batch names the most recent ones only.
        environment: The environment variables that its payload asks for.
        tags: Its tags.
    """

    job_id: str
    arn: str
    name: str
    status: str
    status_reason: str | None = None
    terminated: bool = False
    created_at: datetime
    stopped_at: datetime | None = None
    training_jobs: Sequence[str] = ()
    preempted: frozenset[str] = frozenset()
    environment: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def waits(self) -> bool:
        """True while it waits in the queue for its turn."""
        return self.status in _WAITS

    @property
    def never_fits(self) -> bool:
        """True while it waits at the front for more than its queue or share may ever have.

        Source: https://docs.aws.amazon.com/batch/latest/userguide/sm_job_stuck_in_runnable_misconfiguration.html
        """
        return self.waits and (self.status_reason or "").startswith("MISCONFIGURATION:")

    @property
    def ended_at_the_front(self) -> str | None:
        """The reason why a setting of the queue ended it at the queue's front. None where none did.

        Source: https://docs.aws.amazon.com/batch/latest/userguide/sm_job_stuck_in_runnable_time_limit_actions.html
        """
        said = (self.status_reason or "").partition(_ENDED_AT_THE_FRONT)[2]
        return said if self.status == "FAILED" and said else None

    @property
    def over(self) -> bool:
        """True once AWS Batch creates no training job for it any more."""
        return self.status in _OVER


def job_id_of(arn: str) -> str:
    """Return the id of a service job, which ends its ARN."""
    return arn.rpartition("/")[2]


def submission_of(request: Mapping[str, Any], *, place: QueuePlace, deployment: str) -> dict[str, Any]:
    """Return the parameters of SubmitServiceJob.

    Batch retries a training job that failed by an error of SageMaker's own. It retries no other failed one. The
    controller decides about a next job, as for every run. A preempted one goes back to the queue any number of times.

    Args:
        request: The CreateTrainingJob request that is recorded in the attempt.
        place: The queue in which it waits.
        deployment: The deployment's name.
    """
    return {
        "jobName": request["TrainingJobName"],
        "jobQueue": job_queue_name(deployment=deployment, queue=place.queue),
        "serviceJobType": SERVICE_JOB_TYPE,
        "quotaShareName": place.share,
        "schedulingPriority": place.priority,
        "retryStrategy": RETRY_STRATEGY,
        "serviceRequestPayload": payload_of(request),
        "clientToken": client_token_of(request),
        "tags": {tag["Key"]: tag["Value"] for tag in request["Tags"]},
    }


def fits(request: Mapping[str, Any]) -> bool:
    """Return True if AWS Batch takes a request with its tags, and the request of each later job."""
    payload = payload_of(request)
    # As boto3 writes it: letters outside ASCII take six bytes each.
    whole = json.dumps([payload, request.get("Tags", ())])
    return (
        len(payload.encode()) <= MAX_PAYLOAD_BYTES - _ROOM_BYTES
        and len(whole) <= MAX_SUBMISSION_BYTES - _ROOM_OF_A_SUBMISSION_BYTES
    )


def shortened(request: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out of a request the parts that its job has from the training spec as well, as far as AWS Batch needs it.

    AWS Batch takes a request of 10 KiB. SageMaker takes 100 environment variables of 512 bytes and 100 hyperparameters
    of 2,500 characters. Hyperparameters stay where that is enough, because SageMaker shows them. The marks of the
    launch stay, and the place of the spec.

    Args:
        request: The CreateTrainingJob request of a job that runs Spotkeep's runner.

    Returns:
        A request that may still be too long (`fits`), because not all of it is in the spec.
    """
    kept = {name: value for name, value in request["Environment"].items() if name in {*LAUNCH_MARKS, SPEC_VARIABLE}}
    without_variables = {**request, "Environment": kept}
    for short in (request, without_variables):
        if fits(short):
            return dict(short)
    return {**without_variables, "HyperParameters": {}}


def sizes_of(request: Mapping[str, Any]) -> str:
    """Return the largest parts of a request with their sizes, in words."""
    sizes = sorted(((len(as_json(part).encode()), name) for name, part in request.items()), reverse=True)
    return ", ".join(f"{name} {size:,}" for size, name in sizes[:3])


def payload_of(request: Mapping[str, Any]) -> str:
    """Return the request as AWS Batch takes it. Its client token requires the same bytes for the same request.

    Its tags are left out, because the service job carries them (`submission_of`).
    """
    return as_json({name: value for name, value in request.items() if name != "Tags"})


def as_json(value: object) -> str:
    """Return a part of a payload as AWS Batch takes it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def client_token_of(request: Mapping[str, Any]) -> str:
    """Return the token of a launch, the same for every function that submits it. It is not the launch's secret id."""
    return hashlib.sha256(f"service job\n{request['Environment'][LAUNCH_VARIABLE]}".encode()).hexdigest()[:64]


def service_job_of(answer: Mapping[str, Any]) -> ServiceJob:
    """Read an answer of DescribeServiceJob.

    Args:
        answer: The answer as boto3 gives it.
    """
    return ServiceJob(
        job_id=answer["jobId"],
        arn=answer.get("jobArn", ""),
        name=answer["jobName"],
        status=answer["status"],
        status_reason=answer.get("statusReason"),
        terminated=bool(answer.get("isTerminated")),
        created_at=_time(answer.get("createdAt")) or datetime.fromtimestamp(0, tz=UTC),
        stopped_at=_time(answer.get("stoppedAt")),
        training_jobs=tuple(dict.fromkeys(_training_jobs(answer))),
        preempted=frozenset(name for each in _preempted(answer) if (name := _named(each)) is not None),
        environment=_environment_of(answer.get("serviceRequestPayload")),
        tags=answer.get("tags", {}),
    )


def _training_jobs(answer: Mapping[str, Any]) -> Iterator[str]:
    """Yield the names of training jobs. Ended ones come first, by the time they began, and the latest last."""
    attempts: Sequence[Mapping[str, Any]] = [*answer.get("attempts", ()), *_preempted(answer)]
    latest: Mapping[str, Any] = answer.get("latestAttempt", {})
    newest = _named(latest)
    for attempt in sorted(attempts, key=lambda each: each.get("startedAt") or each.get("stoppedAt") or 0):
        name = _named(attempt)
        if name is not None and name != newest:
            yield name
    if newest is not None:
        yield newest


def _preempted(answer: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    summary: Mapping[str, Any] = answer.get("preemptionSummary", {})
    attempts: Sequence[Mapping[str, Any]] = summary.get("recentPreemptedAttempts", ())
    return attempts


def _named(attempt: Mapping[str, Any]) -> str | None:
    resource: Mapping[str, str] = attempt.get("serviceResourceId", {})
    value = resource.get("value")
    return value.rpartition("/")[2] if value else None


def _environment_of(payload: str | None) -> Mapping[str, str]:
    """Read the environment of a payload. None for a payload of another client that is no request."""
    try:
        request = json.loads(payload or "{}")
    except ValueError:
        return {}
    environment = request.get("Environment") if isinstance(request, Mapping) else None
    return environment if isinstance(environment, Mapping) else {}


def _time(milliseconds: int | None) -> datetime | None:
    return None if not milliseconds else datetime.fromtimestamp(milliseconds / 1_000, tz=UTC)
