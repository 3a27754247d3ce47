"""The pace at which a sweep asks AWS for the jobs of its trials, a little slower than AWS takes them. Pure.

A hundred trials may begin or end at the same moment, and as many functions may advance their sweep then. AWS throttles
requests that come too fast, and they stay undone once a client has spent its retries. So each job has a moment. The
next free moment is in the sweep's item, and every function writes the item on the version that it has read. Together
the functions keep the pace, without a further call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import in_utc_milliseconds
from spotkeep_jobs.record.sweep import Sweep, Trial

CREATIONS_A_SECOND: Final = 1
"""CreateTrainingJob, of an account in a region.

Source: https://docs.aws.amazon.com/general/latest/gr/sagemaker.html (Service quotas)
"""
SUBMISSIONS_A_SECOND: Final = 5
"""SubmitServiceJob, of an account in a region.

Source: https://docs.aws.amazon.com/batch/latest/userguide/service_limits.html
"""
SHARE: Final = 0.8
"""The share of AWS's rate that a sweep uses. All other launches of the account have the rest."""


def between_jobs(document: Mapping[str, Any]) -> timedelta:
    """Return the time that a sweep lets pass from one job to the next. 0 on EC2, where one call is one fleet.

    Args:
        document: The sweep's document.
    """
    if document.get("backend") == "ec2":
        return timedelta(0)
    a_second = CREATIONS_A_SECOND if document.get("queue") is None else SUBMISSIONS_A_SECOND
    return timedelta(seconds=1 / (SHARE * a_second))


def paced(
    sweep: Sweep, *, asking: Sequence[Trial], now: datetime, within_seconds: float = math.inf
) -> tuple[Sweep, dict[int, datetime]]:
    """Give each trial that asks for a job the moment from which on it may, where that comes in time.

    Moments that come too late for this function are left to the next one.

    Args:
        sweep: The sweep's item.
        asking: Those trials.
        now: The time.
        within_seconds: The seconds that the function still has.

    Returns:
        The sweep's item, with the next moment that is free, and the trials' moments, by their numbers.
    """
    apart = between_jobs(sweep.document)
    if not asking or not apart:
        return sweep, {}
    first = now if sweep.next_job_at is None else max(now, sweep.next_job_at)
    moments = {}
    for position, trial in enumerate(asking):
        moment = first + position * apart
        if (moment - now).total_seconds() >= within_seconds:
            break
        moments[trial.number] = moment
    if not moments:
        return sweep, {}
    return with_changes(sweep, next_job_at=in_utc_milliseconds(first + len(moments) * apart)), moments
