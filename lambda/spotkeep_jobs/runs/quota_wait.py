"""The wait of a run for room in the account's quota, its longest duration, and the order of the next tries. Pure.

A quota of SageMaker counts instances of one type, for spot and on demand apart. While others use it up, SageMaker
refuses CreateTrainingJob. SageMaker has no queue, so the run waits in the table. The controller asks again when a job
ends, and with each of its passes. It asks first for the run that waits longest. When SageMaker refuses it, the
controller does not ask for the others of the same quota. So a thousand waiting runs cost no more calls than one.

Source: https://docs.aws.amazon.com/sagemaker/latest/APIReference/API_CreateTrainingJob.html (ResourceLimitExceeded)
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from spotkeep_jobs.backends.sagemaker.request import with_less_wait
from spotkeep_jobs.document.capacity import fallbacks_of, longest_wait_without_a_job
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.record.record import Attempt, QuotaWait, Run, RunChange, TimelineEntry
from spotkeep_jobs.record.states import RunState, TimelineKind
from spotkeep_jobs.with_changes import with_changes

TRIED_AGAIN_AFTER: Final = timedelta(minutes=4)
"""The time for which a refusal counts as SageMaker's answer. It is a little less than the time between two passes."""
_FILLED: Final = re.compile(r"is (?P<limit>\d+) Instances.*request delta of (?P<asked>\d+) Instances", re.DOTALL)


def wait_for_quota(
    run: Run, *, request: JobRequest | None, attempt: Attempt, reason: str, now: datetime
) -> RunChange | None:
    """Let a run wait after SageMaker has just refused its job for the account's quota.

    Args:
        run: The run item.
        request: Its request, or None if it cannot be read.
        attempt: Its attempt.
        reason: SageMaker's message.
        now: The time.

    Returns:
        The change, or None if the run does not wait. It does not wait if another fallback follows, if the whole quota
        is smaller than the job, or if its longest wait is over.
    """
    if request is None or attempt.fallback + 1 < len(fallbacks_of(request)) or _never_fits(reason):
        return None
    begins = run.quota_wait is None
    since = now if run.quota_wait is None else run.quota_wait.since
    if now >= _ends_at(run, request=request, since=since):
        return None
    entry = TimelineEntry(
        run=run.run,
        attempt=attempt.attempt,
        at=now,
        kind=TimelineKind.QUOTA_WAIT,
        text=f"Waits for room in the account's quota: {reason}",
    )
    return RunChange(
        run=with_changes(
            run,
            state=RunState.WAITING,
            quota_wait=QuotaWait(since=since, refused_at=now, reason=reason),
            updated_at=now,
        ),
        # SageMaker's refusal is its last word: no function is creating the job any more.
        attempt=with_changes(attempt, state=RunState.WAITING, create_begun_at=None),
        timeline=(entry,) if begins else (),
    )


def is_due(run: Run, *, now: datetime) -> bool:
    """Return True if a run's job may be asked for now. That always holds for a run that waits for no quota."""
    return run.quota_wait is None or now - run.quota_wait.refused_at >= TRIED_AGAIN_AFTER


def request_after_wait(run: Run, *, parameters: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """Return a CreateTrainingJob request with a longest wait for capacity reduced by the wait for quota.

    Args:
        run: The run item.
        parameters: The request as it was sent last.
        now: The time.
    """
    if run.quota_wait is None:
        return dict(parameters)
    return with_less_wait(parameters, waited=now - run.quota_wait.refused_at)


def by_quota(runs: Iterable[Run]) -> Sequence[Sequence[Run]]:
    """Put runs that wait for quota into the order in which their jobs are asked for.

    Args:
        runs: Runs that wait for quota, in any order.

    Returns:
        Those of each quota, by capacity and instance type, the one that waits longest first.
    """
    quotas: dict[tuple[str, str], list[tuple[datetime, str, Run]]] = defaultdict(list)
    for run in runs:
        if run.quota_wait is not None:
            quotas[run.place.capacity, run.place.instance_type].append((run.quota_wait.since, run.run, run))
    return [[run for _, _, run in sorted(waiting, key=lambda each: each[:2])] for waiting in quotas.values()]


def has_waited_enough(run: Run, *, request: JobRequest | None, now: datetime) -> bool:
    """Return True if a run has waited for quota for as long as it may. The next refusal ends it.

    Args:
        run: The run item.
        request: Its request, or None if it cannot be read and so bounds no wait.
        now: The time.
    """
    if run.quota_wait is None:
        return False
    return request is None or now >= _ends_at(run, request=request, since=run.quota_wait.since)


def _ends_at(run: Run, *, request: JobRequest, since: datetime) -> datetime:
    wait = longest_wait_without_a_job(request)
    return since + wait if run.deadline_at is None else min(since + wait, run.deadline_at)


def _never_fits(reason: str) -> bool:
    """Return True if the quota that SageMaker names is smaller than the job, even with nothing else running."""
    named = _FILLED.search(reason)
    return named is not None and int(named["limit"]) < int(named["asked"])
