"""Rules about money and time: what can be counted, and what can be kept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

from spotkeep_jobs.document.deployment_defaults import DeploymentDefaults
from spotkeep_jobs.document.durations import format_duration
from spotkeep_jobs.document.fallbacks import fallbacks_of, first_job, price_of, shortest_job_seconds
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.document.rules.rule import Rule, rule
from spotkeep_jobs.errors import Problem

_PRICED: Final = ("capacity", "ladder", "instance_types", "instance_type", "spot_only")


@rule(*_PRICED, "max_cost")
def _cost_can_be_kept(request: JobRequest, defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.max_cost is None:
        return
    unpriced = _without_a_price(request, defaults)
    yield from unpriced
    if not unpriced and (request.types or request.ladder):
        seconds = first_job(request, prices=defaults.prices).max_run_seconds
        if seconds < shortest_job_seconds(request):
            yield Problem(
                field="max_cost",
                found=shown(request.max_cost),
                problem=f"pays for {seconds} s of the first job, which is not worth its start",
                fix="Raise it, or choose a cheaper instance type.",
            )


def _without_a_price(request: JobRequest, defaults: DeploymentDefaults) -> list[Problem]:
    """Return an amount of dollars, when it is not known how much capacity it pays for."""
    types = {each for fallback in fallbacks_of(request) for each in fallback.instance_types}
    unknown = sorted(each for each in types if price_of([each], prices=defaults.prices) is None)
    if not unknown:
        return []
    return [
        Problem(
            field="max_cost",
            found=shown(request.max_cost),
            problem=f"cannot be kept: this deployment does not know the price of {', '.join(unknown)}",
            fix="Add the price to the setting `prices` of the deployment, or remove max_cost.",
        )
    ]


@rule("deadline", "capacity", "ladder", "spot_only", "checkpoints")
def _deadline_has_a_way_out(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    if request.deadline is None:
        return
    if request.capacity == "spot" or request.spot_only:
        yield Problem(
            field="deadline",
            found=_deadline_shown(request),
            problem="cannot be promised on spot alone: on-demand capacity takes over when time runs short",
            fix="Remove spot_only." if request.spot_only else "Choose capacity: auto, or leave capacity out.",
        )
    elif request.ladder is not None and request.ladder[-1].capacity != "on-demand":
        yield Problem(
            field=f"ladder[{len(request.ladder) - 1}].capacity",
            found=request.ladder[-1].capacity,
            problem="is the last fallback of a run with a deadline, which must be on demand",
            fix="Add a fallback with capacity: on-demand.",
        )
    if request.capacity == "auto" and not request.checkpoints:
        yield Problem(
            field="deadline",
            found=_deadline_shown(request),
            problem="is given with checkpoints: false: what is done on spot could not be taken along on demand",
            fix="Let the script save checkpoints (checkpoints: true), or choose capacity: on-demand.",
        )


@rule("work", "max_run", "max_total_run")
def _work_fits_its_limits(request: JobRequest, _defaults: DeploymentDefaults) -> Iterator[Problem]:
    allowed = request.max_total_run or request.max_run
    if request.work is not None and request.work > allowed:
        yield Problem(
            field="work",
            found=format_duration(request.work),
            problem=f"is above the {format_duration(allowed)} that the run may train "
            f"({'max_total_run' if request.max_total_run else 'max_run'})",
            fix=f"Raise that to more than {format_duration(request.work)}, or lower work.",
        )


DEADLINE_READS: Final = ("deadline", "work", "restart", "max_run", "max_total_run")


def deadline_can_be_kept(request: JobRequest, *, now: datetime) -> Iterator[Problem]:
    """Refuse a deadline that capacity on demand from the very start, with no interruption, would miss."""
    at = request.deadline_at(now)
    needed = request.seconds_on_demand
    if at is None or (at - now).total_seconds() >= needed:
        return
    work = "work" if request.work else "max_total_run" if request.max_total_run else "max_run"
    better = "" if request.work else f", or say how long the training really takes (work; now {work} is taken for it)"
    earliest = (now + timedelta(seconds=needed)).astimezone(UTC)
    yield Problem(
        field="deadline",
        found=_deadline_shown(request),
        problem=f"cannot be kept even on demand: {format_duration(request.work_seconds)} of work and "
        f"{format_duration(needed - request.work_seconds)} to start take {format_duration(needed)}",
        fix=f"Give {format_duration(needed)} or more (the earliest end is {earliest:%Y-%m-%d %H:%M} UTC){better}.",
    )


def _deadline_shown(request: JobRequest) -> str:
    if isinstance(request.deadline, int):
        return format_duration(request.deadline)
    return "nothing" if request.deadline is None else f"{request.deadline:%Y-%m-%d %H:%M} UTC"


RULES: Final[tuple[Rule, ...]] = (
    _cost_can_be_kept,
    _deadline_has_a_way_out,
    _work_fits_its_limits,
)
