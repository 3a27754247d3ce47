"""The notification of a tuning job's end."""

from __future__ import annotations

from datetime import datetime

from spotkeep_jobs.notifications.texts.composition import UNKNOWN, signed, subject_line
from spotkeep_jobs.notifications.texts.wording import clock, quoted_reason, wrapped
from spotkeep_jobs.record.record import Notification
from spotkeep_jobs.record.states import NotificationKind


def tuning_notification(
    *,
    tuning_job: str,
    kind: NotificationKind,
    trainings: str,
    failure_reason: str | None,
    happened_at: datetime,
    deployment: str,
    created_at: datetime,
) -> Notification:
    """Tell the end of a tuning job (not a run of Spotkeep's: SageMaker's own hyperparameter tuning).

    Args:
        tuning_job: Its name.
        kind: How it ended.
        trainings: A sentence about its training jobs.
        failure_reason: SageMaker's words, if it failed.
        happened_at: When it ended.
        deployment: The deployment's name.
        created_at: When the notification is written.
    """
    verb = {NotificationKind.COMPLETED: "completed", NotificationKind.FAILED: "failed"}.get(kind, "was stopped")
    body = [
        *wrapped(f"The tuning job {tuning_job} {verb} at {clock(happened_at)}. {trainings}"),
        *quoted_reason(failure_reason),
        "",
        "Next",
        "  aws sagemaker describe-hyper-parameter-tuning-job \\",
        f"    --hyper-parameter-tuning-job-name {tuning_job}",
    ]
    notification_id = f"tuning:{tuning_job}/{kind}"
    return Notification(
        notification_id=notification_id,
        subject_id=tuning_job,
        kind=kind,
        subject=subject_line(deployment, f"tuning job {tuning_job}", verb),
        body=signed(body, deployment=deployment, notification_id=notification_id),
        attributes={
            "deployment": deployment,
            "run": tuning_job,
            "name": tuning_job,
            "owner": UNKNOWN,
            "status": kind.value,
            "capacity": "tuning",
        },
        happened_at=happened_at,
        created_at=created_at,
    )
