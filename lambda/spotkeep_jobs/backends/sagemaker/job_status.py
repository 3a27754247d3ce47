"""The meaning of SageMaker's terms for the status of a training job. Pure.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_DescribeTrainingJob.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from spotkeep_fleet.training_spec import NOT_STARTED
from spotkeep_jobs.backends.job_view import JobPhase
from spotkeep_jobs.record.states import EndReason

ERROR_OF_SAGEMAKER: Final = "Lost to an error of SageMaker's own (InternalServerError), starts again"
_ENDED: Final = frozenset({"Completed", "Failed", "Stopped", "Deleting"})
"""Statuses after which a job never runs again. `Deleting` follows one of the others."""

_LIMITS: Final = {
    "MaxRuntimeExceeded": EndReason.MAX_RUNTIME_EXCEEDED,
    "MaxWaitTimeExceeded": EndReason.MAX_WAIT_EXCEEDED,
}

_END_WORDS: Final = _ENDED | _LIMITS.keys()

_PHASES: Final = {
    "Pending": (JobPhase.WAITING, "Waits for capacity"),
    "Starting": (JobPhase.WAITING, "Waits for capacity and starts"),
    "LaunchingMLInstances": (JobPhase.WAITING, "Instances are launched"),
    "PreparingTrainingStack": (JobPhase.WAITING, "Instances are prepared"),
    "Restarting": (JobPhase.INTERRUPTED, ERROR_OF_SAGEMAKER),
    "Downloading": (JobPhase.LOADING, "Has capacity, downloads its data"),
    "DownloadingTrainingImage": (JobPhase.LOADING, "Has capacity, downloads its image"),
    "Training": (JobPhase.TRAINING, "Trains"),
    "Interrupted": (JobPhase.INTERRUPTED, "Lost its capacity, waits for new"),
    "Uploading": (JobPhase.UPLOADING, "Uploads its model and output"),
    "Stopping": (JobPhase.STOPPING, "Is being stopped"),
}

_FAILURES: Final = (
    # The class in front of FailureReason.
    ("capacityerror", EndReason.CAPACITY),
    # To SageMaker every exit code is the algorithm's: the runner could not start the command.
    (f"algorithmerror:{NOT_STARTED}".replace(" ", ""), EndReason.INPUT_ERROR),
    ("algorithmerror", EndReason.SCRIPT_FAILED),
    ("clienterror", EndReason.INPUT_ERROR),
    ("internalservererror", EndReason.PLATFORM_ERROR),
)


def phase_of(status: str, secondary_status: str) -> JobPhase:
    """Return the phase of a job."""
    if status in _ENDED:
        return JobPhase.ENDED
    if status == "Stopping":
        return JobPhase.STOPPING
    phase, _ = transition_of(secondary_status)
    return JobPhase.UNKNOWN if phase is JobPhase.ENDED else phase


def transition_of(status: str) -> tuple[JobPhase, str]:
    """Return the phase that an entry of SecondaryStatusTransitions begins, and its line in the timeline."""
    if status in _END_WORDS:
        return JobPhase.ENDED, ""
    return _PHASES.get(status, (JobPhase.UNKNOWN, ""))


def is_internal_server_error(words: str | None) -> bool:
    """Return True if SageMaker itself failed, by its FailureReason or by AWS Batch's copy of that text.

    A failure of another class, or without a class, may recur each time.
    """
    said = (words or "").lower().replace(" ", "")
    return said.removeprefix("receivedstatusfromsagemaker:").startswith("internalservererror")


def end_reason_of(
    status: str, secondary_status: str, *, transitions: Sequence[str], failure_reason: str | None
) -> EndReason:
    """Distinguish the endings of a job.

    Args:
        status: TrainingJobStatus of an ended job.
        secondary_status: SecondaryStatus. MaxRuntimeExceeded and MaxWaitTimeExceeded come with status Stopped and are
            not a user's stop. AWS puts them into the secondary status, and in some answers only into the transitions.
        transitions: The statuses of SecondaryStatusTransitions.
        failure_reason: FailureReason.
    """
    if status == "Completed" or secondary_status == "Completed":
        return EndReason.COMPLETED
    said = (secondary_status, *reversed(transitions))
    limit = next((_LIMITS[word] for word in said if word in _LIMITS), None)
    if limit is not None:
        return limit
    if status == "Failed" or secondary_status == "Failed":
        words = (failure_reason or "").lstrip().replace(" ", "").lower()
        return next((reason for prefix, reason in _FAILURES if words.startswith(prefix)), EndReason.PLATFORM_ERROR)
    if status == "Deleting" and "Stopped" not in said:
        return EndReason.JOB_VANISHED
    return EndReason.STOPPED_BY_USER
