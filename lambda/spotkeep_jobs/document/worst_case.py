"""What a run may cost in the worst case: all the time it can bill, on its dearest instances. Pure.

Instance time alone: what is stored is bounded by its size (volume_size_limit_gb), not by the hour. Three rules of it:

- An on-demand price is also the bound of a spot price: SageMaker bills a spot job less than that, and a fleet's
  highest price is the on-demand price unless the document names another (`max_price`), which then is the bound.
- On SageMaker a job trains for max_run at most, and the jobs of a run for max_total_run; with a deadline, until then
  and for one max_run more. On EC2 instances bill while they start, too, so max_wait counts, which covers everything.
- A type whose price is not known counts as `ASSUMED_USD_PER_HOUR`: a new, dear type must not be free.

Sources:
    https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html
    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_FleetLaunchTemplateOverridesRequest.html (MaxPrice)
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from spotkeep_jobs.document.fallbacks import types_of
from spotkeep_jobs.document.request import JobRequest

ASSUMED_USD_PER_HOUR: Final = 100.0
"""The price of an instance that the deployment knows no price of: about that of the largest that train."""
_SECONDS_PER_HOUR: Final = 3_600


def unpriced_types(request: JobRequest, *, prices: Mapping[str, float]) -> tuple[str, ...]:
    """Return the instance types of a request whose price is not known, each once."""
    return tuple(each for each in types_of(request) if each not in prices)


def worst_case_usd(
    request: JobRequest, *, prices: Mapping[str, float], now: datetime, spent_usd: float | None = 0.0, attempts: int = 0
) -> float:
    """US dollars of instance time that a run can come to.

    Args:
        request: A validated request, defaults filled in.
        prices: On-demand US dollars per instance and hour, by instance type.
        now: When it is launched, or resumed.
        spent_usd: What it has cost so far; None where that is not known: each attempt then counts as its worst case.
        attempts: How many attempts it has had.
    """
    to_come = _billed_seconds(request, now=now) / _SECONDS_PER_HOUR * request.instance_count * _hourly(request, prices)
    worst = to_come + (attempts * to_come if spent_usd is None else spent_usd)
    # What max_cost leaves is what each next job may use, in the on-demand price: it ends the run.
    return worst if request.max_cost is None else min(worst, request.max_cost)


def _hourly(request: JobRequest, prices: Mapping[str, float]) -> float:
    on_demand = max((prices.get(each, ASSUMED_USD_PER_HOUR) for each in types_of(request)), default=0.0)
    if request.backend != "ec2" or request.capacity != "spot" or request.max_price is None:
        return on_demand
    return max(request.max_price, on_demand) if request.on_demand_base else request.max_price


def _billed_seconds(request: JobRequest, *, now: datetime) -> float:
    if request.backend == "ec2":
        return request.max_wait or request.max_run
    trained: float = request.max_total_run or request.max_run
    deadline_at = request.deadline_at(now)
    if deadline_at is not None and request.max_total_run is None:
        trained = request.max_run + max(0.0, (deadline_at - now).total_seconds())
    jobs = min(request.max_attempts, -(-int(trained) // request.max_run) + request.script_retries)
    return min(trained, request.max_attempts * request.max_run) + jobs * request.keep_alive
