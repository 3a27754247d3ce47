"""The facts behind each decision about a run, and the result of each rule. Pure types.

The facts are made once for each reading of a run, and passed to every rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spotkeep_jobs.backends.job_view import JobView
    from spotkeep_jobs.document.deployment_facts import DeploymentPolicy
    from spotkeep_jobs.document.request import JobRequest
    from spotkeep_jobs.progress.job_log import JobLog
    from spotkeep_jobs.record.record import Attempt, Notification, Plan, Run, ScriptMetrics, TimelineEntry

LAUNCH_SETTLES: Final = timedelta(minutes=5)
"""The age at which a function that began to create a job is over for certain.

No function runs so long, even with a minute for differences between clocks.
"""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """The facts of a run without a job, or with a job that its backend does not know.

    The request is None if another version of Spotkeep wrote it with fields unknown to this version.

    Attributes:
        run: The run item.
        request: The run's request, or None.
        attempt: The run's current attempt.
        earlier: The attempts before it.
        metrics: The recorded metrics of the run's script.
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
    """The facts of a run with a job.

    Attributes:
        job: The backend's description of the attempt's job.
        log: The job's own events, up to the last line that was read.
        plan: The policy that a run with a deadline was launched with, if any.
        chain_since: The time when the job took over the instances of a warm pool. They have been handed on since then.
    """

    job: JobView
    log: JobLog
    plan: Plan | None = None
    chain_since: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Held:
    """The result of one rule for a run.

    Attributes:
        run: The run item after the rule.
        attempt: The attempt after the rule.
        timeline: New entries of the timeline.
        notifications: Notifications to the users.
        due_again_at: The time when the rule may decide differently, even if nothing happens to the job.
    """

    run: Run
    attempt: Attempt
    timeline: Sequence[TimelineEntry] = ()
    notifications: Sequence[Notification] = ()
    due_again_at: datetime | None = None
