"""The common parts of notifications.

They are the id, the subject, the attributes, the facts for programs and the signature.

A notification is composed from the record when the run moves, not when it is sent, so every delivery of it is the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal

from spotkeep_jobs.notifications.texts.wording import command_lines
from spotkeep_jobs.record.console_page import training_job_page
from spotkeep_jobs.record.record import Notification, Run
from spotkeep_jobs.record.states import NotificationKind

SUBJECT_CHARACTERS: Final = 99
"""SNS: ASCII, no line break, less than 100 characters (https://docs.aws.amazon.com/sns/latest/api/API_Publish.html)."""
_NO_FACTS: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Moment:
    """The event in a run that a notification is about.

    Attributes:
        run: The run item.
        attempt: The number of the event's attempt.
        deployment: The deployment's name.
        nth: The number among events of its kind in the attempt, from 1. 0 for a kind that comes once.
        happened_at: The time of the event.
        created_at: The time when the notification is written.
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
        moment: The event.
        kind: Its kind, the last part but one of the notification's id.
        subject: The end of the subject, after deployment and run.
        paragraphs: The lines of the body.
        commands: Commands for the reader, each with its purpose, under the lines.
        reason: The end reason, for subscribers that filter by it.
        facts: Facts for programs, beside those of the run.
    """
    run = moment.run
    return addressed(
        what="run",
        subject_id=run.run,
        name=run.name,
        owner=run.owner,
        deployment=moment.deployment,
        kind=kind,
        attempt=moment.attempt,
        nth=moment.nth,
        subject=subject,
        lines=[*paragraphs, *_next(commands), *_in_the_console(run)],
        attributes={"capacity": run.place.capacity} | ({"reason": reason} if reason else {}),
        facts={**_facts_for_programs(run), **facts},
        happened_at=moment.happened_at,
        created_at=moment.created_at,
    )


def addressed(
    *,
    what: Literal["run", "sweep", "schedule"],
    subject_id: str,
    name: str,
    owner: str | None,
    deployment: str,
    kind: NotificationKind,
    attempt: int = 1,
    nth: int = 0,
    subject: str,
    lines: list[str],
    attributes: Mapping[str, str] = _NO_FACTS,
    facts: Mapping[str, Any] = _NO_FACTS,
    happened_at: datetime,
    created_at: datetime,
) -> Notification:
    """Return a notification with its id, its subject in SNS's form, the attributes for filters, and its signature.

    Args:
        what: The kind of its object, such as a run.
        subject_id: The id of the object.
        name: The object's name.
        owner: The object's owner.
        deployment: The deployment's name.
        kind: The notification's kind, the last part but one of its id.
        attempt: The number of the attempt or part.
        nth: The number among notifications of its kind in the attempt. 0 for a kind that comes once.
        subject: The end of the subject, after deployment and id.
        lines: The body, without the signature.
        attributes: More attributes for filters of subscribers.
        facts: Facts for programs.
        happened_at: The time of the event.
        created_at: The time when it is written.
    """
    notification_id = f"{subject_id}/{kind}/{attempt}" + (f"-{nth}" if nth else "")
    signature = ["", "-- ", f"Sent by Spotkeep, deployment {deployment}", f"Notification {notification_id}"]
    return Notification(
        notification_id=notification_id,
        subject_id=subject_id,
        kind=kind,
        attempt=attempt,
        nth=nth,
        subject=_subject_line(f"[{deployment}] {subject_id} {subject}"),
        body="\n".join([*lines, *signature]) + "\n",
        attributes={
            "deployment": deployment,
            what: subject_id,
            "name": name,
            "owner": owner or "unknown",
            "status": kind.value,
            **attributes,
        },
        facts=dict(facts),
        happened_at=happened_at,
        created_at=created_at,
    )


def _subject_line(words: str) -> str:
    text = " ".join(words.split())
    printable = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
    return printable if len(printable) <= SUBJECT_CHARACTERS else printable[: SUBJECT_CHARACTERS - 3] + "..."


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
        "instance_type": run.place.instance_type,
        "instance_count": run.place.instance_count,
        "interruptions": run.interruptions,
        "output_uri": run.output_uri,
        "cost": None if run.cost is None else run.cost.model_dump(mode="json"),
    }
