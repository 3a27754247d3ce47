"""What a decision about a run rests on, and what a rule makes of it. Pure types.

The facts are made once for each reading of a run, and passed to all that decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobView
    from spotkeep_jobs.document.deployment_facts import DeploymentPolicy
    from spotkeep_jobs.document.request import JobRequest
    from spotkeep_jobs.progress.job_log import JobLog
    from spotkeep_jobs.record.record import Attempt, Notification, Plan, Run, ScriptMetrics, TimelineEntry


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """A run without a job, or whose job its backend does not know.

    Attributes:
        run: The run item.
        request: Its request. None where another version of Spotkeep wrote it with fields that are not known here.
        attempt: Its current attempt.
        earlier: The attempts before it.
        metrics: What the record says that its script measures.
        deployment: Names and prices.
        now: The time of the decision.
    """

    run: Run
    request: JobRequest | None
    attempt: Attempt
    earlier: Sequence[Attempt] = ()
    metrics: ScriptMetrics | None = None
    deployment: DeploymentPolicy
    now: datetime


@dataclass(frozen=True, kw_only=True)
class JobFacts(RunFacts):
    """A run with a job.

    Attributes:
        job: What its backend says of the attempt's job.
        log: The job's own events, as far as they were read.
        plan: The policy that a run with a deadline was launched with. None where it was launched without one.
        chain_since: When the job took over the instances of a warm pool: since when those have been handed on.
    """

    job: JobView
    log: JobLog
    plan: Plan | None = None
    chain_since: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Held:
    """What a run is held to by one rule, and what follows.

    Attributes:
        run: The run item, as the rule leaves it.
        attempt: The attempt, as the rule leaves it.
        timeline: What is new in the timeline.
        notifications: What the users are notified of.
        due_again_at: When time alone makes a difference to the rule, although nothing happens to the job.
    """

    run: Run
    attempt: Attempt
    timeline: Sequence[TimelineEntry] = ()
    notifications: Sequence[Notification] = ()
    due_again_at: datetime | None = None
