"""Plans of jobs in zones whose capacity follows a known law, for pictures and pages."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from spotkeep_cli.planning.job_planning import PlannedJobFile, PlannedType
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.planning import knowledge_from_traces, knowledge_without_history, make_plan
from spotkeep_planner.replay import Past
from tests.models.capacity_traces import capacity_with_known_law

HOUR_S = 3600.0
NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def planned(
    *,
    hours: float = 12,
    deadline_hours: float = 18,
    compare: bool = False,
    zones: int = 1,
    types: int = 1,
    instances: int = 1,
    in_usd: bool = True,
    name: str = "digits",
    remarks: tuple[str, ...] = (),
) -> PlannedJobFile:
    """Return a plan.

    Args:
        hours: The work.
        deadline_hours: The time for it.
        compare: True with other policies.
        zones: The number of zones, each watched for some weeks.
        types: The number of instance types, each cheaper than the next.
        instances: The number of instances.
        in_usd: False where no price is known, and no capacity was watched.
        name: The job's name.
        remarks: The facts that could not be found.
    """
    job = PlannedJob(work_s=hours * HOUR_S, deadline_s=deadline_hours * HOUR_S)
    plans = []
    for at in range(types):
        traces = [
            capacity_with_known_law(
                ticks=3000, tick_s=600.0, run_h=3 + 3 * zone, drought_h=2, seed=4 + zone,
                zone=f"eu-central-1{'abc'[zone]}", price=1.0 - 0.15 * zone + 0.3 * at,
            )
            for zone in range(zones)
        ]  # fmt: skip
        knowledge = knowledge_from_traces(traces, on_demand_price=3.0)
        if not in_usd:
            past = Past.without_capacity(tick_s=600.0, now=NOW)
            knowledge = knowledge_without_history(past=past, zones=["anywhere"], on_demand_price=None, sources=[])
        plan = make_plan(job, knowledge, compare=compare, save_cost_s=30.0)
        plans.append(PlannedType(instance_type=f"ml.g5.{2 ** (at + 1)}xlarge", plan=plan))
    made = PlannedJobFile(
        name=name, instances=instances, types=tuple(plans), work_from="max_run, an upper limit", remarks=remarks
    )
    return replace(made, installation=(("installs", "timm==1.0.9"),))
