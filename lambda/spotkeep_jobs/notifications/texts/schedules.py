"""The notification of a schedule that fired while the launcher refused its document."""

from __future__ import annotations

from datetime import datetime

from spotkeep_jobs.notifications.texts.composition import addressed
from spotkeep_jobs.notifications.texts.wording import clock, command_lines, quoted_reason, wrapped
from spotkeep_jobs.record.record import Notification
from spotkeep_jobs.record.schedule import Schedule
from spotkeep_jobs.record.states import NotificationKind


def refused_firing_notification(
    *,
    schedule: Schedule,
    fired_at: datetime,
    refusal: str,
    next_firing: datetime | None,
    deployment: str,
    now: datetime,
) -> Notification:
    """Compose the notification that a firing launched nothing.

    Args:
        schedule: The schedule's item.
        fired_at: The schedule's time of the firing. Each try of it has the same.
        refusal: The launcher's refusal of its document.
        next_firing: The time of the next firing. None for never, or for an unknown one.
        deployment: The deployment's name.
        now: The time when the notification is written.
    """
    again = "" if next_firing is None else f"It fires again at {clock(next_firing)}. "
    lines = [
        *wrapped(
            f"Your schedule {schedule.schedule} fired at {clock(fired_at)}, and launched nothing: the deployment "
            "refuses its job file."
        ),
        *quoted_reason(refusal),
        "",
        *wrapped(f"{again}While it is refused for the same reason, no other notification is sent."),
        "",
        "Next",
        *command_lines(
            ("spotkeep schedules ls", "when it fires, and what it launched last"),
            (f"spotkeep schedules rm {schedule.schedule}", "remove it, then launch the changed file"),
        ),
    ]
    return addressed(
        what="schedule",
        subject_id=schedule.schedule,
        name=schedule.name,
        owner=schedule.owner,
        deployment=deployment,
        kind=NotificationKind.FAILED,
        nth=int(fired_at.timestamp()),
        subject="launched nothing: its job file is refused",
        lines=lines,
        facts={"refusal": refusal},
        happened_at=fired_at,
        created_at=now,
    )
