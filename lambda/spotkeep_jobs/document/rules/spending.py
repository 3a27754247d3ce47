"""Rules about money: whether max_cost can be kept, and the ceilings of the deployment.

A refusal for a ceiling names the setting that an administrator would change.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Final

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.deployment_policy import SpendingLimits
from spotkeep_jobs.document.fallbacks import first_job, shortest_job_seconds
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules import Rule, rule
from spotkeep_jobs.document.worst_case import ASSUMED_USD_PER_HOUR, unpriced_types, worst_case_usd
from spotkeep_jobs.errors import Problem

COST_READS: Final = (
    "backend",
    "instance_types",
    "instance_type",
    "instance_count",
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


@rule("capacity", "ladder", "instance_types", "instance_type", "spot_only", "max_cost")
def _cost_can_be_kept(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.max_cost is None:
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
        seconds = first_job(request, prices=defaults.prices).max_run_seconds
        if seconds < shortest_job_seconds(request):
            yield Problem(
                field="max_cost",
                found=shown(request.max_cost),
                problem=f"pays for {seconds} s of the first job, which is not worth its start",
                fix="Raise it, or choose a cheaper instance type.",
            )


def another_job_problems(
    request: JobRequest, *, limits: SpendingLimits, prices: Mapping[str, float], begun_at: datetime
) -> Iterator[Problem]:
    """Yield why no other job of a run may follow: the ceilings were lowered since it was launched.

    Args:
        request: The run's accepted request.
        limits: The ceilings of now.
        prices: On-demand US dollars per instance and hour, by instance type. The cost is judged where all are known:
            that they could not be read for a moment ends no run.
        begun_at: When the run was launched.
    """
    yield from _forbidden_types(request, limits)
    yield from _too_much_storage(request, limits)
    if not unpriced_types(request, prices=prices):
        yield from cost_problems(request, limits=limits, prices=prices, now=begun_at)


@rule("backend", "instance_types", "instance_type", "ladder")
def _types_are_allowed(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    yield from _forbidden_types(request, defaults.limits)


@rule("backend", "volume", "volume_size_gb")
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
        now: When the run is launched, or resumed.
        spent_usd: What it has cost so far.
        attempts: How many attempts it has had.
    """
    limit = limits.run_cost_limit_usd
    if limit is None:
        return
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
        "lower max_wait" if request.backend == "ec2" else f"give a max_cost of {limit:g} or less, lower max_run",
        "choose a cheaper instance type",
    ]
    if unpriced:
        ways.append("have the price added to the setting prices")
    fix = f"{', '.join(ways)}, or have the setting run_cost_limit_usd raised."
    yield Problem(
        field="max_wait" if request.backend == "ec2" else "max_run" if request.max_cost is None else "max_cost",
        found=f"{worst:,.2f} USD in the worst case",
        problem=f"lets the run cost more than this deployment's limit of {limit:,.2f} USD{assumed}",
        fix=fix[0].upper() + fix[1:],
    )


RULES: Final[tuple[Rule, ...]] = (
    _cost_can_be_kept,
    _types_are_allowed,
    _storage_is_within_its_limits,
)
