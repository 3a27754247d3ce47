"""What every notification has in common: its id, its subject, its attributes, the facts for programs, its signature.

A notification is composed from the record when the run moves, not when it is sent, so every delivery of it is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from spotkeep_jobs.notifications.texts.wording import command_lines
from spotkeep_jobs.record.console_page import training_job_page
from spotkeep_jobs.record.record import Notification, Run
from spotkeep_jobs.record.states import NotificationKind

SUBJECT_CHARACTERS: Final = 99
"""SNS: ASCII, no line break, less than 100 characters (https://docs.aws.amazon.com/sns/latest/api/API_Publish.html)."""
UNKNOWN: Final = "unknown"
_NO_FACTS: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Moment:
    """What happened to a run that a notification is about.

    Attributes:
        run: The run item.
        attempt: The number of the attempt that it happened to.
        deployment: The deployment's name.
        nth: Which one of its kind of the attempt, from 1; 0 where there is one.
        happened_at: When.
        created_at: When the notification is written.
    """

    run: Run
    attempt: int
    deployment: str
    nth: int = 0
    happened_at: datetime
    created_at: datetime


def compose(
    moment: Moment,
    *,
    kind: NotificationKind,
    subject: str,
    paragraphs: list[str],
    commands: Sequence[tuple[str, str]] = (),
    reason: str | None = None,
    facts: Mapping[str, Any] = _NO_FACTS,
) -> Notification:
    """Compose a notification of a run.

    Args:
        moment: What it is about.
        kind: Of what kind that is; the last part but one of the notification's id.
        subject: The end of the subject, after deployment and run.
        paragraphs: The lines of the body.
        commands: What to do next, with what each is for, under them.
        reason: The end reason, for subscribers who filter by it.
        facts: For programs, beside those of the run.
    """
    run, deployment = moment.run, moment.deployment
    notification_id = f"{run.run}/{kind}/{moment.attempt}" + (f"-{moment.nth}" if moment.nth else "")
    attributes = {
        "deployment": deployment,
        "run": run.run,
        "name": run.name,
        "owner": run.owner or UNKNOWN,
        "status": kind.value,
        "capacity": run.capacity,
    }
    return Notification(
        notification_id=notification_id,
        subject_id=run.run,
        kind=kind,
        attempt=moment.attempt,
        nth=moment.nth,
        subject=subject_line(deployment, run.run, subject),
        body=signed(
            [*paragraphs, *_next(commands), *_in_the_console(run)],
            deployment=deployment,
            notification_id=notification_id,
        ),
        attributes=attributes | ({"reason": reason} if reason else {}),
        facts={**_facts_for_programs(run), **facts},
        happened_at=moment.happened_at,
        created_at=moment.created_at,
    )


def _next(commands: Sequence[tuple[str, str]]) -> list[str]:
    return ["", "Next", *command_lines(*commands)] if commands else []


def _in_the_console(run: Run) -> list[str]:
    page = training_job_page(run)
    return [] if page is None else ["", "In the AWS console", f"  {page}"]


def _facts_for_programs(run: Run) -> dict[str, Any]:
    facts: dict[str, Any] = {"job_name": run.job_name, "checkpoint_uri": run.checkpoint_uri}
    if not run.state.ended:
        # No more of a run that goes on: a notification that is composed again, later, says the same.
        return facts
    return facts | {
        "state": run.state.value,
        "instance_type": run.instance_type,
        "instance_count": run.instance_count,
        "interruptions": run.interruptions,
        "output_uri": run.output_uri,
        "cost": None if run.cost is None else run.cost.model_dump(mode="json"),
    }


def subject_line(deployment: str, what: str, words: str) -> str:
    """Write a subject that SNS takes."""
    text = " ".join(f"[{deployment}] {what} {words}".split())
    printable = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return printable if len(printable) <= SUBJECT_CHARACTERS else printable[: SUBJECT_CHARACTERS - 3] + "..."


def signed(lines: list[str], *, deployment: str, notification_id: str) -> str:
    """Make a body of lines, with who sent it and the notification's id under them."""
    signature = [
        "",
        "-- ",
        f"Sent by Spotkeep, deployment {deployment}",
        f"Notification {notification_id}",
    ]
    return "\n".join(lines + signature) + "\n"
