"""The money of a run, with its worst case, its max_cost, and the ceilings of the deployment.

The worst case is all the time that a run can bill, on its dearest instances. It is instance time alone, as storage is
bounded by its size (volume_size_limit_gb) and not by the hour. A max_cost bounds it on both backends. It has
three rules.

- An on-demand price is also the bound of a spot price. SageMaker bills a spot job less than that. A fleet's highest
  price is the on-demand price unless the document names another (`max_price`), which then is the bound.
- On SageMaker a job trains for max_run at most, and the jobs of a run for max_total_run. With a deadline they train
  until then, and for one max_run more. On EC2 instances bill while they start, too, so max_wait counts, which covers
  everything. A deadline bounds a run on EC2 like one on SageMaker.
- A type without a known price counts as `ASSUMED_USD_PER_HOUR`, since a new, dear type must not be free.

A refusal for a ceiling names the setting that an administrator would change.

Sources:
    https://docs.aws.amazon.com/sagemaker/latest/dg/model-managed-spot-training.html

    https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_FleetLaunchTemplateOverridesRequest.html (MaxPrice)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field, Strict

from spotkeep_jobs.document.capacity import (
    FLEET_ENDS_WITHIN_SECONDS,
    first_job,
    fleet_seconds,
    least_max_cost,
    price_of,
    shortest_job_seconds,
    types_of,
)
from spotkeep_jobs.document.instance_types import is_training_type
from spotkeep_jobs.document.reading import Rule, rule, shown
from spotkeep_jobs.document.times import format_duration
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, SpendingLimits
    from spotkeep_jobs.document.request import JobRequest


UsDollars = Annotated[float, Strict(), Field(gt=0, le=1_000_000, allow_inf_nan=False)]
ASSUMED_USD_PER_HOUR: Final = 100.0
"""The price of an instance type without a known price, which is about that of the largest that train."""
_SECONDS_PER_HOUR: Final = 3_600


def unpriced_types(request: JobRequest, *, prices: Mapping[str, float]) -> tuple[str, ...]:
    """Return the instance types of a request that have no known price, each once."""
    return tuple(each for each in types_of(request) if each not in prices)


def worst_case_usd(
    request: JobRequest, *, prices: Mapping[str, float], now: datetime, spent_usd: float | None = 0.0, attempts: int = 0
) -> float:
    """Return the worst-case cost of a run's instance time, in US dollars.

    Args:
        request: A validated request, defaults filled in.
        prices: On-demand US dollars per instance and hour, by instance type.
        now: The time of its launch or resume.
        spent_usd: Its cost so far. None where that is not known, so that each attempt counts as its worst case.
        attempts: The number of attempts it has had.
    """
    to_come = _billed_seconds(request, now=now) / _SECONDS_PER_HOUR * request.hosts * _hourly(request, prices)
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
        return fleet_seconds(request, begun_at=now) or request.max_run
    trained: float = request.max_total_run or request.max_run
    deadline_at = request.deadline_at(now)
    if deadline_at is not None and request.max_total_run is None:
        trained = request.max_run + max(0.0, (deadline_at - now).total_seconds())
    jobs = min(request.max_attempts, -(-int(trained) // request.max_run) + request.script_retries)
    return min(trained, request.max_attempts * request.max_run) + jobs * request.keep_alive


COST_READS: Final = (
    "backend",
    "instance_types",
    "instance_type",
    "instance_count",
    "nodes",
    "ladder",
    "capacity",
    "spot_only",
    "max_run",
    "max_total_run",
    "max_wait",
    "max_attempts",
    "max_cost",
    "max_price",
    "deadline",
    "keep_alive",
    "script_retries",
    "on_demand_base",
)


@rule(
    "backend",
    "capacity",
    "ladder",
    "instance_types",
    "instance_type",
    "instance_count",
    "nodes",
    "spot_only",
    "max_cost",
)
def _cost_can_be_kept(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.max_cost is None or not defaults.prices_are_known:
        return
    unpriced = sorted(unpriced_types(request, prices=defaults.prices))
    if unpriced:
        yield Problem(
            field="max_cost",
            found=shown(request.max_cost),
            problem=f"cannot be kept: this deployment does not know the price of {', '.join(unpriced)}",
            fix="Add the price to the setting `prices` of the deployment, or remove max_cost.",
        )
    elif request.types or request.ladder:
        job = first_job(request, prices=defaults.prices)
        seconds = job.max_run_seconds
        if seconds < shortest_job_seconds(request):
            problem = f"pays for {seconds} s of the first job, which is not worth its start"
            if request.backend == "ec2":
                problem = (
                    f"is not worth a start: {format_duration(FLEET_ENDS_WITHIN_SECONDS)} at the on-demand price are "
                    "kept for the end of a fleet, and a minute is not left"
                )
            least = least_max_cost(request, job.fallback, prices=defaults.prices)
            instances = "" if request.hosts == 1 else f" for {request.hosts} instances"
            yield Problem(
                field="max_cost",
                found=shown(request.max_cost),
                problem=problem,
                fix=f"Give {least:.2f} or more{instances}, or choose a cheaper instance type.",
            )


def another_job_problems(
    request: JobRequest, *, limits: SpendingLimits, prices: Mapping[str, float], begun_at: datetime
) -> Iterator[Problem]:
    """Yield the ceilings that forbid another job of a run, because they were lowered since its launch.

    Args:
        request: The run's accepted request.
        limits: The ceilings of now.
        prices: On-demand US dollars per instance and hour, by instance type. The cost is judged only where all are
            known, so a failed reading of prices ends no run.
        begun_at: The time of the run's launch.
    """
    yield from _forbidden_types(request, limits)
    yield from _too_much_storage(request, limits)
    if not unpriced_types(request, prices=prices):
        yield from cost_problems(request, limits=limits, prices=prices, now=begun_at)


@rule("backend", "instance_types", "instance_type", "ladder")
def _types_are_allowed(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    yield from _forbidden_types(request, defaults.limits)


@rule("backend", "nodes", "volume", "volume_size_gb")
def _storage_is_within_its_limits(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    yield from _too_much_storage(request, defaults.limits)


def _forbidden_types(request: JobRequest, limits: SpendingLimits) -> Iterator[Problem]:
    places = {"instance_types": request.types}
    places |= {
        f"ladder[{number}].instance_types": fallback.types for number, fallback in enumerate(request.ladder or ())
    }
    for field, types in places.items():
        for each in types:
            if any(fnmatchcase(each, pattern) for pattern in limits.allowed_instance_types):
                continue
            yield Problem(
                field=field,
                found=shown(each),
                problem=f"is not a type that this deployment allows: {', '.join(limits.allowed_instance_types)}",
                fix="Choose one that is allowed, or have the setting allowed_instance_types extended.",
            )


def _too_much_storage(request: JobRequest, limits: SpendingLimits) -> Iterator[Problem]:
    on_ec2 = request.backend == "ec2"
    size = request.volume_or_default.size_gb if on_ec2 else request.volume_size_gb
    if request.several_nodes is not None and request.volume is None:
        return  # Their root disks are the deployment's own.
    if limits.volume_size_limit_gb is not None and size > limits.volume_size_limit_gb:
        yield Problem(
            field="volume.size_gb" if on_ec2 else "volume_size_gb",
            found=f"{size:,}",
            problem=f"is above this deployment's limit of {limits.volume_size_limit_gb:,}",
            fix=f"Give {limits.volume_size_limit_gb:,} at most, or have the setting volume_size_limit_gb raised.",
        )
    iops = request.volume_or_default.iops if on_ec2 else None
    if limits.volume_iops_limit is not None and iops is not None and iops > limits.volume_iops_limit:
        yield Problem(
            field="volume.iops",
            found=f"{iops:,}",
            problem=f"is above this deployment's limit of {limits.volume_iops_limit:,}",
            fix=f"Give {limits.volume_iops_limit:,} at most, or have the setting volume_iops_limit raised.",
        )


def cost_problems(
    request: JobRequest,
    *,
    limits: SpendingLimits,
    prices: Mapping[str, float],
    now: datetime,
    spent_usd: float | None = 0.0,
    attempts: int = 0,
) -> Iterator[Problem]:
    """Yield a worst case that is above the ceiling.

    Args:
        request: A request that was read, defaults filled in.
        limits: The ceilings.
        prices: On-demand US dollars per instance and hour, by instance type.
        now: The time of the run's launch or resume.
        spent_usd: Its cost so far.
        attempts: The number of attempts it has had.
    """
    limit = limits.run_cost_limit_usd
    known = request.backend == "ec2" or all(is_training_type(each, priced=prices) for each in types_of(request))
    if limit is None or not known:
        return  # A type that does not exist is refused for itself.
    worst = worst_case_usd(request, prices=prices, now=now, spent_usd=spent_usd, attempts=attempts)
    if worst <= limit:
        return
    unpriced = unpriced_types(request, prices=prices)
    assumed = (
        f" ({', '.join(unpriced)}, whose price is not known, counted as {ASSUMED_USD_PER_HOUR:.0f} USD an hour)"
        if unpriced
        else ""
    )
    ways = [
        f"give a max_cost of {limit:g} or less, lower {'max_wait' if request.backend == 'ec2' else 'max_run'}",
        "choose a cheaper instance type",
    ]
    if unpriced:
        ways.append("have the price added to the setting prices")
    fix = f"{', '.join(ways)}, or have the setting run_cost_limit_usd raised."
    yield Problem(
        field="max_cost" if request.max_cost is not None else "max_wait" if request.backend == "ec2" else "max_run",
        found=f"{worst:,.2f} USD in the worst case",
        problem=f"lets the run cost more than this deployment's limit of {limit:,.2f} USD{assumed}",
        fix=fix[0].upper() + fix[1:],
    )


RULES: Final[tuple[Rule, ...]] = (
    _cost_can_be_kept,
    _types_are_allowed,
    _storage_is_within_its_limits,
)


def spending_warnings(request: JobRequest, deployment: DeploymentDefaults) -> Iterator[str]:
    """Yield a max_cost that may end the run before its work is done, or that nothing is known of."""
    if request.max_cost is not None and not deployment.prices_are_known:
        yield (
            f"max_cost {request.max_cost:.2f} USD is not judged without a deployment, which has the prices. A "
            f"deployment refuses it where it does not know the price of {', '.join(types_of(request))}."
        )
    price = price_of(types_of(request), prices=deployment.prices)
    if price is None:
        return
    on_demand_usd = request.seconds_on_demand / 3_600 * price * request.hosts
    # Without `work` or a deadline, max_run is a limit: how long the training takes is not known.
    work_is_known = request.deadline is not None or (request.capacity == "on-demand" and request.work is not None)
    if work_is_known and request.max_cost is not None and request.max_cost < on_demand_usd:
        before = "its work is done" if request.deadline is None else "its deadline is kept"
        yield (
            f"max_cost {request.max_cost:.2f} USD may end the run before {before}: all of its work on demand would "
            f"cost {on_demand_usd:.2f} USD."
        )
