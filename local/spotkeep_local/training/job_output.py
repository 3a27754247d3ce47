"""What a job reports of itself on its standard output: lines `spotkeep-event: {json}` among all others.

Only what the service acts on is read here: the step, to take capacity away at the right one, and the step that
was restored, for the facts. Anything else, garbage included, passes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotkeep_local.training.facts import ProcessLifetime

PREFIX = "spotkeep-event:"
_REPORT_COMPLETED_STEPS = ("progress", "saved", "finish")


def observe(lifetime: ProcessLifetime, line: str) -> ProcessLifetime:
    """Return the lifetime after its process printed this line."""
    event = _event(line)
    if event is None:
        return lifetime
    step, total = _count(event.get("step")), _count(event.get("total_steps"))
    if step is None:
        return lifetime
    if event.get("event") == "resume":
        return replace(lifetime, resumed_step=step)
    if event.get("event") not in _REPORT_COMPLETED_STEPS:
        return lifetime
    return replace(
        lifetime,
        last_step_seen=max(step, lifetime.last_step_seen or 0),
        total_steps=lifetime.total_steps if total is None else total,
    )


def _event(line: str) -> dict[str, Any] | None:
    _, found, text = line.partition(PREFIX)
    if not found:
        return None
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
