"""Views of training jobs, made of SageMaker's words as its adapter makes them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from spotkeep_jobs.backends.job_view import JobPhase, JobView, PhaseChange
from spotkeep_jobs.backends.sagemaker.job_status import end_reason_of, phase_of, transition_of


def a_change(word: str, started_at: datetime, ended_at: datetime | None = None) -> PhaseChange:
    """An entry of SecondaryStatusTransitions."""
    phase, text = transition_of(word)
    return PhaseChange(phase=phase, started_at=started_at, ended_at=ended_at, text=text)


def a_view(
    status: str = "InProgress",
    secondary_status: str | None = None,
    *,
    story: Iterable[tuple[str, datetime]] = (),
    **fields: Any,
) -> JobView:
    """A job with these statuses, which had those of its story, each since a time."""
    words, times = [word for word, _ in story], [at for _, at in story]
    changes = [a_change(word, at, ended) for (word, at), ended in zip(story, [*times[1:], None], strict=False)]
    said = secondary_status or (words[-1] if words else status if status != "InProgress" else "Starting")
    facts: dict[str, Any] = {"transitions": tuple(changes), "environment": {}, **_said(status, said, words, fields)}
    return JobView(**facts | fields)


def now_says(job: JobView, status: str, secondary_status: str | None = None, **fields: Any) -> JobView:
    """The job with other statuses."""
    return replace(job, **_said(status, secondary_status or status, [], fields), **fields)


def _said(status: str, secondary_status: str, words: list[str], fields: dict[str, Any]) -> dict[str, Any]:
    phase = phase_of(status, secondary_status)
    failure = fields.get("failure_reason")
    reason = end_reason_of(status, secondary_status, transitions=words, failure_reason=failure)
    return {"phase": phase, "end_reason": reason if phase is JobPhase.ENDED else None}
