"""The words for durations, sums and times, in lines that read well in a mail client."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from spotkeep_jobs.notifications.texts.redaction import without_secrets

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
