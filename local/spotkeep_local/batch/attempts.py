"""The way of a service job from one status to the next, as its training job goes. Pure functions.

    SUBMITTED -> RUNNABLE -> SCHEDULED -> STARTING -> RUNNING -> SUCCEEDED | FAILED
                    ^            |           |           |
                    +------------+-----------+-----------+     no capacity, another attempt, or preempted

Within one attempt a status never goes back. A managed spot job that SageMaker starts again stays RUNNING.

Sources: "Mapping AWS Batch service job status to SageMaker AI status", "Service job retry strategies", "Jobs stuck in
RUNNABLE due to capacity", "Preemption" in the AWS Batch user guide.
"""

from __future__ import annotations

import fnmatch
import json
import re
import secrets
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.batch.records import JobStatus, LocalServiceJob, ServiceJobAttempt, StopCause
from spotkeep_local.training.job import SecondaryStatus, Status, TrainingJob

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

NO_CAPACITY: Final = "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - Unable to provision requested compute resources"
NO_CAPACITY_PAUSE_SECONDS: Final = 1.0
"""The seconds that a job waits after SageMaker had no capacity for it. AWS gives no figure."""
ENDED_AT_THE_FRONT: Final = "Terminated by JobStateTimeLimit action due to reason: "
_FRONT_REASONS: Final = ("CAPACITY:", "MISCONFIGURATION:")
TIMED_OUT: Final = "Job attempt duration exceeded timeout"
_RECEIVED: Final = "Received status from SageMaker: "
_MOST_PREEMPTED_KEPT: Final = 10
_MOST_NAME_CHARACTERS: Final = 63
_PREFIX: Final = "AWSBatch"
_HASH_CHARACTERS: Final = 32
_ORDER: Final = (JobStatus.RUNNABLE, JobStatus.SCHEDULED, JobStatus.STARTING, JobStatus.RUNNING)
_STATUS_OF: Final[Mapping[SecondaryStatus, JobStatus]] = {
    SecondaryStatus.DOWNLOADING: JobStatus.STARTING,
    SecondaryStatus.TRAINING: JobStatus.RUNNING,
    SecondaryStatus.UPLOADING: JobStatus.RUNNING,
}


def training_job_name(job_name: str) -> str:
    """Return a new name for a training job in Batch's form, which is AWSBatch, the job's name and a hash.

    A character that a training job's name may not hold becomes a hyphen, and a long name is cut. AWS shows names, not
    the rule.
    """
    room = _MOST_NAME_CHARACTERS - len(_PREFIX) - _HASH_CHARACTERS
    kept = re.sub(r"[^a-zA-Z0-9]+", "-", job_name)[:room].strip("-")
    return f"{_PREFIX}{kept}{secrets.token_hex(_HASH_CHARACTERS // 2)}"


def training_request(job: LocalServiceJob, *, hands_tags_on: bool) -> dict[str, Any]:
    """Return the CreateTrainingJob request of a job at its dispatch. It is the payload, with Batch's name of it.

    Args:
        job: The job.
        hands_tags_on: The training job gets the service job's tags, beside those of the payload. SageMaker refuses a
            key that is there twice.

    Raises:
        ValueError: The payload is no JSON object. Batch takes any text at the submission.
    """
    payload = json.loads(job.request["serviceRequestPayload"])
    if not isinstance(payload, dict):
        raise ValueError("serviceRequestPayload is not a JSON object")  # noqa: TRY004 - as of what is not JSON
    request = payload | {"TrainingJobName": job.training_job}
    if not hands_tags_on or not job.tags:
        return request
    own = [{"Key": key, "Value": value} for key, value in job.tags.items()]
    return request | {"Tags": [*(payload.get("Tags") or ()), *own]}


def needs_of(payload: str) -> dict[str, int]:
    """Return the instances that a payload asks for, by type. Empty where it does not say."""
    try:
        resources = json.loads(payload)["ResourceConfig"]
        groups = resources.get("InstanceGroups") or [resources]
        needs: dict[str, int] = {}
        for group in groups:
            kind = group["InstanceType"]
            needs[kind] = needs.get(kind, 0) + int(group.get("InstanceCount", 1))
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}
    return needs


def dispatched(job: LocalServiceJob, *, now: float) -> LocalServiceJob:
    """Return a job that is being handed to SageMaker, with the name of its training job."""
    return replace(
        job,
        status_reason=None,
        training_job=training_job_name(job.name),
        scheduled_at=now,
        started_at=None,
        stopped_at=None,
        stop_cause=None,
        promised=False,
    )


def refused(job: LocalServiceJob, *, code: str, message: str, now: float) -> LocalServiceJob:
    """Return a job after SageMaker refused to create its training job.

    After a used quota or too many calls the job waits, as for capacity, unless it was terminated.
    """
    if job.terminate_reason is not None:
        return terminated(job, now=now)
    reason = f"{_RECEIVED}{code}: {message}"
    if code in ("ResourceLimitExceeded", "ThrottlingException"):
        return _runnable(job, reason=reason, not_before=now + NO_CAPACITY_PAUSE_SECONDS)
    return _after_failure(
        job, ServiceJobAttempt(training_job=None, started_at=None, stopped_at=now, reason=reason), now=now
    )


def follow(job: LocalServiceJob, training: TrainingJob | None, *, now: float) -> LocalServiceJob:
    """Return a job in the status of its training job.

    Args:
        job: The service job.
        training: Its training job. None while SageMaker has none by that name.
        now: The time in epoch seconds.
    """
    if job.training_job is None or training is None:
        return job
    started = training.training_started_at
    job = replace(job, latest_training_job=training.arn, started_at=started)
    if started is not None:
        job = replace(job, front_reason=None)
    if not training.ended:
        status = _STATUS_OF.get(training.secondary, JobStatus.SCHEDULED)
        return replace(job, status=max(job.status, status, key=_ORDER.index))
    attempt = ServiceJobAttempt(training_job=training.arn, started_at=started, stopped_at=now, reason=_reason(training))
    return _after(job, attempt, training, now=now)


def _after(job: LocalServiceJob, attempt: ServiceJobAttempt, training: TrainingJob, *, now: float) -> LocalServiceJob:
    if training.status is Status.COMPLETED:
        return _ended(_counting(job, attempt), JobStatus.SUCCEEDED, reason=attempt.reason, now=now)
    if job.terminate_reason is not None:
        return terminated(_counting(job, attempt), now=now)
    if job.stop_cause is StopCause.PREEMPTION:
        return _after_preemption(job, replace(attempt, reason="Preempted"), now=now)
    if job.stop_cause is StopCause.TIMEOUT:
        return _failed(job, replace(attempt, reason=TIMED_OUT), now=now)
    if _had_no_capacity(training):
        return _runnable(job, reason=NO_CAPACITY, not_before=now + NO_CAPACITY_PAUSE_SECONDS)
    return _after_failure(job, attempt, now=now)


def terminated(job: LocalServiceJob, *, now: float) -> LocalServiceJob:
    """Return a job that TerminateServiceJob ended."""
    return _ended(job, JobStatus.FAILED, reason=job.terminate_reason, now=now)


def held_up(job: LocalServiceJob, *, now: float) -> LocalServiceJob:
    """Return a job that waits, with why and since when it cannot leave the front of its queue."""
    code = (job.status_reason or "").partition(" - ")[0]
    if not job.waits or not code.startswith(_FRONT_REASONS) or code == job.front_reason:
        return job
    return replace(job, front_reason=code, front_since=now)


def ended_at_the_front(
    job: LocalServiceJob, actions: Sequence[Mapping[str, Any]], *, now: float
) -> LocalServiceJob | None:
    """Return a job that its queue's time limits end now. None if they end none.

    Args:
        job: A job that waits.
        actions: The queue's jobStateTimeLimitActions.
        now: The time.
    """
    until = front_limit_of(job, actions)
    if until is None or now < until:
        return None
    return _ended(job, JobStatus.FAILED, reason=f"{ENDED_AT_THE_FRONT}{job.front_reason}", now=now)


def front_limit_of(job: LocalServiceJob, actions: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the time at which its queue's time limits end a job. None without one."""
    limits = [float(each["maxTimeSeconds"]) for each in actions if each["reason"] == job.front_reason]
    return job.front_since + min(limits) if limits and job.waits and job.front_reason is not None else None


def times_out_at(job: LocalServiceJob) -> float | None:
    """Return the time at which a job's present attempt is stopped. None without a limit or before its start."""
    limit = (job.request.get("timeoutConfig") or {}).get("attemptDurationSeconds")
    return None if limit is None or job.started_at is None else job.started_at + float(limit)


def _reason(training: TrainingJob) -> str:
    message = training.transitions[-1].message if training.transitions else training.status.value
    return _RECEIVED + (training.failure_reason or message)


def _had_no_capacity(training: TrainingJob) -> bool:
    if training.status is Status.FAILED:
        return (training.failure_reason or "").startswith("CapacityError")
    return training.secondary is SecondaryStatus.MAX_WAIT_EXCEEDED and training.training_started_at is None


def _after_preemption(job: LocalServiceJob, attempt: ServiceJobAttempt, *, now: float) -> LocalServiceJob:
    count = job.preempted_count + 1
    job = replace(job, preempted=(*job.preempted, attempt)[-_MOST_PREEMPTED_KEPT:], preempted_count=count)
    retries = (job.request.get("preemptionConfiguration") or {}).get("preemptionRetriesBeforeTermination")
    if retries is not None and count > retries:
        reason = f"Preempted {count} times; preemptionRetriesBeforeTermination is {retries}"
        return _ended(job, JobStatus.FAILED, reason=reason, now=now)
    return _runnable(job, reason=None, not_before=0.0)


def _after_failure(job: LocalServiceJob, attempt: ServiceJobAttempt, *, now: float) -> LocalServiceJob:
    strategy = job.request.get("retryStrategy") or {"attempts": 1}
    if len(job.attempts) + 1 >= strategy["attempts"] or not _is_retried(strategy, attempt.reason):
        return _failed(job, attempt, now=now)
    return _runnable(_counting(job, attempt), reason=attempt.reason, not_before=0.0)


def _failed(job: LocalServiceJob, attempt: ServiceJobAttempt, *, now: float) -> LocalServiceJob:
    return _ended(_counting(job, attempt), JobStatus.FAILED, reason=attempt.reason, now=now)


def _counting(job: LocalServiceJob, attempt: ServiceJobAttempt) -> LocalServiceJob:
    return replace(job, attempts=(*job.attempts, attempt))


def _ended(job: LocalServiceJob, status: JobStatus, *, reason: str | None, now: float) -> LocalServiceJob:
    return replace(job, status=status, status_reason=reason, stopped_at=now, training_job=None, stop_cause=None)


def _is_retried(strategy: Mapping[str, Any], reason: str) -> bool:
    """Return the decision of the first matching condition. AWS retries without a match."""
    for condition in strategy.get("evaluateOnExit") or ():
        # A pattern knows the asterisk alone.
        pattern = re.sub(r"[?\[\]]", lambda match: f"[{match[0]}]", str(condition.get("onStatusReason", "*")))
        if fnmatch.fnmatchcase(reason, pattern):
            return bool(condition.get("action") == "RETRY")
    return True


def _runnable(job: LocalServiceJob, *, reason: str | None, not_before: float) -> LocalServiceJob:
    return replace(
        job,
        status=JobStatus.RUNNABLE,
        status_reason=reason,
        training_job=None,
        started_at=None,
        stop_cause=None,
        not_before=not_before,
    )
