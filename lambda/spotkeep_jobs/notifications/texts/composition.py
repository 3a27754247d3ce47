"""What every notification has in common: its id, its subject, its attributes, the facts for programs, its signature.

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
    """Return a notification with its id, its subject as SNS takes it, what subscribers filter by, and its signature.

    Args:
        what: What it is about.
        subject_id: The id of that.
        name: Its name.
        owner: Its owner.
        deployment: The deployment's name.
        kind: Of what kind it is; the last part but one of its id.
        attempt: The attempt, or part, that it is about.
        nth: Which one of its kind of the attempt; 0 where there is one.
        subject: The end of the subject, after deployment and id.
        lines: The body, without who sent it.
        attributes: What subscribers may filter by, beside what they always may.
        facts: For programs.
        happened_at: When it happened.
        created_at: When it is written.
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
