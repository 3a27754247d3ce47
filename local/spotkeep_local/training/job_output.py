"""What a job reports of itself on its standard output: lines `spotkeep-event: {json}` among all others.

Only what the service acts on is read here: the step, to take capacity away at the right one, and the step that
was restored, for the facts. Anything else, garbage included, passes.

Of a script with several trainings the steps of all are added up.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotkeep_local.training.facts import ProcessLifetime

PREFIX = "spotkeep-event:"
_RESUME = "resume"
_REPORT_COMPLETED_STEPS = ("progress", "saved", "finish")


def observe(lifetime: ProcessLifetime, line: str) -> ProcessLifetime:
    """Return the lifetime after its process printed this line."""
    event = _event(line)
    if event is None:
        return lifetime
    step, total, kind = _count(event.get("step")), _count(event.get("total_steps")), event.get("event")
    if step is None or kind not in (_RESUME, *_REPORT_COMPLETED_STEPS):
        return lifetime
    training = event.get("training")
    if isinstance(training, str):
        done = dict(lifetime.steps_of_trainings)
        done[training] = step if kind == _RESUME else max(step, done.get(training, 0))
        lifetime, step = replace(lifetime, steps_of_trainings=done), sum(done.values())
    if kind == _RESUME:
        trained = (lifetime.last_step_seen or 0) > (lifetime.resumed_step or 0)
        # A training that begins after another one has trained took up nothing.
        return lifetime if isinstance(training, str) and trained else replace(lifetime, resumed_step=step)
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
