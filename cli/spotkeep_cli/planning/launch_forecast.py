"""The forecast of a run with a deadline.

The user sees it before the question to launch. It is sent along as the plan that steers the run. It needs the planner's
packages and the account's facts about capacity. A launch does not need it. Without a forecast, the guard alone protects
the run, and the user is informed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from spotkeep_cli.errors import CommandLineError
from spotkeep_cli.rendering import quantities
from spotkeep_jobs.document.capacity import fallbacks_of
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.runs.steering import on_demand_at_the_latest

if TYPE_CHECKING:
    from datetime import datetime

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.launching.judgement import Judgement
    from spotkeep_cli.planning.job_planning import PlannedJobFile
    from spotkeep_cli.seams import Invocation

_LIKELY = 0.9


@dataclass(frozen=True, kw_only=True, eq=False)
class LaunchForecast:
    """The expected course of a run with a deadline.

    Attributes:
        planned: The plan, or None where none could be made.
        first_type: The instance type that the run begins on, or empty where no deployment names one.
        remarks: The facts that could not be found, and the reason for a missing plan.
        made_at: The time of the forecast.
        deadline_at: The time by which the run must be done, if it is launched now.
        on_demand_at_the_latest: The time at which the guard sends it on demand, if nothing is done by then.
        problems: A max_cost that no run can keep.
        warnings: A max_cost that is probably not enough.
    """

    planned: PlannedJobFile | None
    first_type: str
    remarks: tuple[str, ...]
    made_at: datetime
    deadline_at: datetime
    on_demand_at_the_latest: datetime
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()

    def as_plan(self) -> dict[str, Any] | None:
        """Return the plan as the launcher takes it, for the type that the run begins on. None where there is none."""
        if self.planned is None:
            return None
        types = self.planned.types
        chosen = next((each for each in types if each.instance_type == self.first_type), types[0])
        plan, count = chosen.plan, self.planned.instances
        forecast = plan.forecasts[0]
        in_usd = plan.knowledge.in_usd
        cost = forecast.cost_usd
        return {
            "made_at": self.made_at.isoformat(),
            "table": plan.table.as_one_source().as_document(),
            "cost_usd": {"p10": cost.p10 * count, "p50": cost.p50 * count, "p90": cost.p90 * count} if in_usd else None,
            "finish_seconds": {name: getattr(forecast.finish_s, name) for name in ("p10", "p50", "p90")},
            "chance_of_on_demand": forecast.chance_of_on_demand,
            "spot_usd_per_hour": min(zone.spot_price for zone in plan.zones) if in_usd else None,
            "rests_on": list(plan.knowledge.sources),
        }

    def as_document(self) -> dict[str, Any]:
        """Return the forecast for `--json`."""
        return {
            "deadline_at": self.deadline_at.isoformat(),
            "on_demand_at_the_latest": self.on_demand_at_the_latest.isoformat(),
            "remarks": list(self.remarks),
            "plan": None if self.planned is None else self.planned.as_document(),
        }


def forecast_launch(
    judgement: Judgement, *, deployment: DeploymentClient | None, invocation: Invocation
) -> LaunchForecast | None:
    """Forecast an accepted job. None where it has no deadline, or no spot to wait for.

    Args:
        judgement: The job, accepted.
        deployment: The deployment that it would run in. None where there is none.
        invocation: The outside world.
    """
    document = judgement.request
    if document.get("deadline") is None or document.get("capacity") == "on-demand":
        return None
    from spotkeep_cli.planning.job_planning import PlanOptions, plan_request

    request, now = JobRequest.model_validate(dict(document)), invocation.seams.now()
    deadline_at = request.deadline_at(now) or now
    planned: PlannedJobFile | None = None
    remarks: tuple[str, ...]
    try:
        planned = plan_request(judgement, options=PlanOptions(), deployment=deployment, invocation=invocation)
        remarks = planned.remarks
    except CommandLineError as error:
        hint = f" ({error.hint})" if error.hint else ""
        remarks = (f"No forecast: {error.message}{hint}. The guard alone keeps the deadline.",)
    problems, warnings = _judge_max_cost(request.max_cost, planned)
    return LaunchForecast(
        planned=planned,
        first_type=next(iter(fallbacks_of(request)[0].instance_types), ""),
        remarks=remarks,
        made_at=now,
        deadline_at=deadline_at,
        on_demand_at_the_latest=on_demand_at_the_latest(request, deadline_at=deadline_at, now=now),
        problems=problems,
        warnings=warnings,
    )


def _judge_max_cost(
    max_cost: float | None, planned: PlannedJobFile | None
) -> tuple[tuple[Problem, ...], tuple[Problem, ...]]:
    if max_cost is None or planned is None or not planned.plan.knowledge.in_usd:
        return (), ()
    plan, count = planned.plan, planned.instances
    found = quantities.dollars(max_cost)
    # Never interrupted, in the cheapest zone: with knowledge of the future it could not be cheaper.
    cheapest = min(zone.spot_price for zone in plan.zones) * plan.job.uninterrupted_s / 3600 * count
    costs = plan.forecasts[0].cost_usd
    likely = f"The run is expected to cost {quantities.dollars(costs.p50 * count)}"
    if max_cost < cheapest:
        problem = (
            f"is below the {quantities.dollars(cheapest)} that the work costs on spot that is never interrupted, at "
            "the cheapest zone's price"
        )
        fix = f"Raise it, or remove it. {likely}, nine times in ten at most {quantities.dollars(costs.p90 * count)}."
        return (Problem(field="max_cost", found=found, problem=problem, fix=fix),), ()
    kept = float((plan.forecasts[0].outcomes.cost_usd * count <= max_cost).mean())
    if kept >= _LIKELY:
        return (), ()
    problem = f"is enough in {kept:.0%} of the futures"
    fix = f"{likely}; {quantities.dollars(costs.p90 * count)} is enough nine times in ten. A later deadline costs less."
    return (), (Problem(field="max_cost", found=found, problem=problem, fix=fix),)
