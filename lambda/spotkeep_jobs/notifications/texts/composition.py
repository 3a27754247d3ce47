"""The common parts of notifications, and their common words.

They are the id, the subject, the attributes, the facts for programs and the signature. Durations, sums and times are
written in lines that read well in a mail client.

A notification is composed from the record when the run moves, not when it is sent, so every delivery of it is the same.

Texts that look like secrets are removed from the words of a failure, which go to every subscriber of the deployment. A
failure's reason quotes the failed command with its arguments, and the last lines that a script printed. Secrets are
known by their form, by the name before them or by their place in an address. Others are not recognised.

Sources: "Understand unique ID prefixes" (IAM user guide), RFC 6750 (bearer tokens), RFC 3986, 3.2.1 (user information).
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, Literal

from spotkeep_jobs.record.console_page import training_job_page
from spotkeep_jobs.record.record import Notification, Run
from spotkeep_jobs.record.states import NotificationKind

REDACTED: Final = "[redacted]"

_NAMES: Final = (
    r"(?:token|secret|passwd|password|passphrase|pwd|api[-_]?key|access[-_]?key(?:[-_]?id)?|secret[-_]?key"
    r"|private[-_]?key|credentials?|authorization|x-amz-(?:signature|credential)|sig)"
)
_VALUE: Final = r"""(?:"[^"\n]*"|'[^'\n]*'|["']?[^\s"',;&)}\]]+)"""
_FORMS: Final = (
    # Private keys, whole or cut off.
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL), REDACTED),
    # Who calls, in an address: `https://user:password@host`, `https://token@host`.
    (re.compile(r"(?i)(\b[a-z][a-z0-9+.-]{0,20}://)[^\s/?#@\"']+@"), rf"\1{REDACTED}@"),
    (re.compile(r"(?i)\b(bearer|basic)\s+[a-z0-9._~+/-]{16,}=*"), rf"\1 {REDACTED}"),
    # `--token x`, `['--token', 'x']`.
    (re.compile(rf"""(?i)(--?[a-z0-9_-]{{0,40}}?{_NAMES}(?:["']?\s*,\s*|["']?\s+))(?!-){_VALUE}"""), rf"\1{REDACTED}"),
    # `token=x`, `"token": "x"`.
    (re.compile(rf"""(?i)({_NAMES}["']?\s*[=:]\s*)(?!bearer\b|basic\b){_VALUE}"""), rf"\1{REDACTED}"),
    # AWS's access key ids; secrets have forty letters, digits, slashes and pluses, but not every forty are one.
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,124}\b"), REDACTED),
    (
        re.compile(
            r"(?<![\w/+=])(?=[\w/+]{0,39}[A-Z])(?=[\w/+]{0,39}[a-z])(?=[\w/+]{0,39}\d)[A-Za-z0-9/+]{40}(?![\w/+=])"
        ),
        REDACTED,
    ),
    # Tokens that say whose they are: GitHub, GitLab, Hugging Face, Slack, OpenAI, Anthropic, Google; JSON Web Tokens.
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|glpat-|hf_|xox[a-z]-|sk-|AIza)[\w-]{16,}"), REDACTED),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"), REDACTED),
)


def without_secrets(text: str) -> str:
    """Remove texts that look like secrets, and leave the text around them.

    Args:
        text: The words of a failure, some kilobytes.
    """
    for form, instead in _FORMS:
        text = form.sub(instead, text)
    return text


COLUMNS: Final = 72
_REASON_CHARACTERS: Final = 700
_LABEL_COLUMNS: Final = 13


@dataclass(frozen=True, kw_only=True)
class EndingWords:
    """The words for one end reason in the timeline, in a notification's subject, and in its first sentence."""

    timeline: str
    subject: str
    sentence: str


def spoken_duration(seconds: float) -> str:
    """Write a duration as a person says it, such as `42 s`, `4 min 10 s`, `2 h 14 min`, `3 d 2 h`.

    Args:
        seconds: The duration. A negative one counts as zero.
    """
    total = max(0, round(seconds))
    if total >= 600:
        total = round(total / 60) * 60
    days, rest = divmod(total, 86_400)
    hours, rest = divmod(rest, 3600)
    minutes, left = divmod(rest, 60)
    if days:
        hours += minutes >= 30
        return f"{days + hours // 24} d {hours % 24} h" if hours % 24 else f"{days + hours // 24} d"
    if hours:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    if minutes:
        return f"{minutes} min {left} s" if left else f"{minutes} min"
    return f"{left} s"


def spoken_usd(amount: float) -> str:
    """Write US dollars in cents, and with more places where cents would be zero."""
    if 0 < abs(amount) < 0.01:
        return f"${amount:.4f}".replace("$-", "-$")
    return f"${amount:,.2f}".replace("$-", "-$")


def wrapped(text: str, *, columns: int = COLUMNS) -> list[str]:
    """Break a text into lines."""
    # A date and its time, a number and its unit, stay on one line.
    kept = re.sub(r"(?<=\d) (?=\d|UTC|h\b|min\b|s\b|d\b|%)", "\u00a0", text)
    lines = textwrap.wrap(kept, columns, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\u00a0", " ") for line in lines]


def fact_line(label: str, text: str) -> list[str]:
    """Return a label and its text, in as many lines as they need."""
    indent = " " * (_LABEL_COLUMNS + 2)
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=f"  {label:<{_LABEL_COLUMNS - 1}} ",  # A space also after a label that is wider.
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def command_lines(*commands: tuple[str, str]) -> list[str]:
    """Return commands, each with its purpose beside it where the lines are wide enough."""
    width = max(len(command) for command, _ in commands)
    beside = [f"  {command:<{width}}   {purpose}" for command, purpose in commands]
    if all(len(line) <= COLUMNS for line in beside):
        return beside
    return [line for command, purpose in commands for line in (f"  {command}", f"      {purpose}")]


def quoted_reason(reason: str | None) -> list[str]:
    """Return the reason of a failure in the words of AWS or the script, without secrets, cut for a mail."""
    if not reason or not reason.strip():
        return []
    text = without_secrets(reason.strip())
    if len(text) > _REASON_CHARACTERS:
        text = text[:_REASON_CHARACTERS].rstrip() + " ..."
    lines = ["", "Reason"]
    for line in text.splitlines():
        lines += textwrap.wrap(line, COLUMNS, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False) or [
            ""
        ]
    return lines


def ordinal(nth: int) -> str:
    """Return the nth of something, in words."""
    return {1: "its first", 2: "its second", 3: "its third"}.get(nth, f"its {nth}th")


def clock(at: datetime) -> str:
    """Return a time to the minute, in UTC."""
    return f"{at:%Y-%m-%d %H:%M} UTC"


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
