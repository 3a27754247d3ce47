"""How long an attempt in a queue may train: max_run, over all training jobs that AWS Batch makes for it. Pure.

SageMaker holds each training job to it alone, and after a preemption the next one would begin to count anew.
"""

from __future__ import annotations

from datetime import timedelta

from spotkeep_jobs.backends.job_phases import time_in
from spotkeep_jobs.backends.job_view import ON_INSTANCES_PHASES, JobPhase
from spotkeep_jobs.document.times import format_duration
from spotkeep_jobs.record.record import TimelineEntry
from spotkeep_jobs.record.states import TimelineKind
from spotkeep_jobs.runs.facts import Held, JobFacts


def hold_to_max_run(facts: JobFacts) -> Held:
    """Have a live job end that has trained for as long as it may, over all its training jobs.

    Args:
        facts: What is known.
    """
    run, attempt, job, now = facts.run, facts.attempt, facts.job, facts.now
    if len(job.training_jobs) <= 1 or attempt.job_request is None or attempt.fallback_left_at is not None:
        return Held(run=run, attempt=attempt)
    max_run = int(attempt.job_request["StoppingCondition"]["MaxRuntimeInSeconds"])
    left = timedelta(seconds=max_run) - time_in(job, ON_INSTANCES_PHASES, until=now)
    ends = run.stop_requested_at or job.phase in {JobPhase.STOPPING, JobPhase.UPLOADING}
    if left <= timedelta(0) and not ends:
        text = f"Has trained the {format_duration(max_run)} that it may: its job is asked to end"
        entry = TimelineEntry(run=run.run, attempt=attempt.attempt, at=now, kind=TimelineKind.FALLBACK_LEFT, text=text)
        attempt = attempt.model_copy(update={"fallback_left_at": now, "max_run_is_over": True})
        return Held(run=run, attempt=attempt, timeline=[entry])
    due_again_at = now + max(left, timedelta(0)) if job.phase in ON_INSTANCES_PHASES else None
    return Held(run=run, attempt=attempt, due_again_at=due_again_at)
