"""The output of `spotkeep plan`.

The answer comes first, then its spread, its zones, and its sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, Fact, facts, table_that_fits

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

    from spotkeep_cli.planning.job_planning import PlannedJobFile
    from spotkeep_cli.planning.launch_forecast import LaunchForecast
    from spotkeep_planner.forecast import Distribution, Forecast
    from spotkeep_planner.planning import CapacityPlan
    from spotkeep_planner.traces import FloatArray

_BARS = 32
_BLOCKS = " ▁▂▃▄▅▆▇█"


def plan_view(planned: PlannedJobFile, *, width: int) -> RenderableType:
    """Return the plan of a job file."""
    plan = planned.plan
    best = plan.forecasts[0]
    heading = Text.assemble(
        (planned.name, "bold"),
        f"  {quantities.duration(plan.job.work_s)} of work in {quantities.duration(plan.job.deadline_s)}, on ",
        f"{'' if planned.instances == 1 else f'{planned.instances} x '}{planned.types[0].instance_type}",
    )
    parts: list[RenderableType] = [heading, facts(answer_facts(planned)), "", *_spread(planned, best, width=width)]
    if len(plan.forecasts) > 1:
        parts += ["", table_that_fits(policy_columns(planned), width=width)]
    if len(plan.zones) > 1:
        parts += ["", table_that_fits(zone_columns(planned), width=width)]
    if len(planned.types) > 1:
        parts += ["", table_that_fits(type_columns(planned), width=width)]
    parts += ["", facts([*planned.installation, *ground_facts(planned)])]
    parts += [Text(remark, style="dim") for remark in planned.remarks]
    return Group(*parts)


def launch_forecast_view(forecast: LaunchForecast) -> RenderableType:
    """Return the forecast of a run with a deadline, before it is launched."""
    latest = quantities.moment(forecast.on_demand_at_the_latest)[:-3]
    rows: list[Fact] = [("deadline", f"{quantities.moment(forecast.deadline_at)[:-3]} UTC")]
    planned = forecast.planned
    if planned is not None:
        rows += [fact for fact in answer_facts(planned) if fact[0] not in ("in time", "save every")]
    in_how_long = (forecast.on_demand_at_the_latest - forecast.made_at).total_seconds()
    rows.append(
        (
            "leaves spot",
            f"at {latest} UTC at the latest (in {_rounded(in_how_long)}), if nothing was done by then"
            if in_how_long > 0
            else "at once: there is no time to try it",
        )
    )
    if planned is not None:
        rows += ground_facts(planned)
    parts: list[RenderableType] = [Text("\nForecast", style="bold"), facts(rows)]
    return Group(*parts, *(Text(remark, style="dim") for remark in forecast.remarks))


def answer_facts(planned: PlannedJobFile) -> list[Fact]:
    """Return the answer of a plan, a line each."""
    plan, best = planned.plan, planned.plan.forecasts[0]
    money = money_text(planned)
    in_time = (
        "yes: on-demand takes over in time, at the latest "
        f"{quantities.duration(plan.latest_on_demand_s)} after the start if nothing was done by then"
        if best.chance_in_time == 1.0
        else f"in {best.chance_in_time:.1%} of the futures"
    )
    on_demand = plan.knowledge.on_demand_price * plan.job.uninterrupted_s / 3600 * planned.instances
    saved = 1 - best.cost_usd.mean * planned.instances / on_demand
    rows: list[Fact] = [
        ("in time", in_time),
        (
            "costs",
            f"{_range(best.cost_usd, money)}; on demand {money(on_demand / planned.instances)}, {saved:.0%} saved",
        ),
        ("done after", _range(best.finish_s, quantities.duration)),
        ("interrupted", _range(best.interruptions, lambda count: f"{count:.0f}") + " times"),
        ("on-demand", _on_demand(best)),
    ]
    interval = plan.interval
    if plan.job.checkpoint_interval_s:
        rows.append(
            (
                "save every",
                f"{_rounded(interval.interval_s)}; without notice an interruption costs "
                f"{_rounded(interval.lost_per_interruption_s)} of work on average",
            )
        )
    rows.append(("goes on demand", _thresholds(plan)))
    return rows


def _on_demand(best: Forecast) -> str:
    if best.chance_of_on_demand == 0:
        return "not needed in any of the futures"
    return (
        f"needed in {best.chance_of_on_demand:.0%} of the futures, "
        f"{quantities.duration(best.on_demand_s.mean)} on average"
    )


def _thresholds(plan: CapacityPlan) -> str:
    start, half, _ = plan.thresholds
    return (
        f"after an hour without spot, when less than {_rounded(start.slack_s)} would be to spare at the start, "
        f"{_rounded(half.slack_s)} half-way"
    )


def _spread(planned: PlannedJobFile, best: Forecast, *, width: int) -> list[RenderableType]:
    bars = max(8, min(_BARS, width - 48))
    lines: list[RenderableType] = []
    money = money_text(planned)
    for label, values, shown in (
        ("cost", best.outcomes.cost_usd, money),
        ("done after", best.outcomes.finish_s, quantities.duration),
    ):
        low, high = float(values.min()), float(values.max())
        if high - low < 1e-9 * max(1.0, high):
            continue
        lines.append(
            Text.assemble(
                (f"  {label:<10}  ", "dim"),
                f"{shown(low):>10} ",
                (histogram(values, width=bars), "cyan"),
                f" {shown(high)}",
            )
        )
    return lines


def policy_columns(planned: PlannedJobFile) -> list[Column]:
    """Return one row a policy, that of this project first."""
    money = money_text(planned)
    every = planned.plan.forecasts
    return [
        Column(heading="POLICY", cells=[each.policy for each in every]),
        Column(heading="COST", cells=[money(each.cost_usd.mean) for each in every], justify="right"),
        Column(
            heading="80% WITHIN",
            cells=[f"{money(each.cost_usd.p10)} - {money(each.cost_usd.p90)}" for each in every],
            importance=2,
            justify="right",
        ),
        Column(
            heading="DONE AFTER", cells=[quantities.duration(each.finish_s.mean) for each in every], justify="right"
        ),
        Column(heading="IN TIME", cells=[f"{each.chance_in_time:.0%}" for each in every], justify="right"),
        Column(
            heading="INTERRUPTED",
            cells=[f"{each.interruptions.mean:.1f}" for each in every],
            importance=1,
            justify="right",
        ),
        Column(
            heading="ON DEMAND",
            cells=[quantities.duration(each.on_demand_s.mean) for each in every],
            importance=0,
            justify="right",
        ),
    ]


def zone_columns(planned: PlannedJobFile) -> list[Column]:
    """Return one row a zone, with the job in that zone alone."""
    money = money_text(planned)
    zones = planned.plan.zones
    return [
        Column(heading="ZONE ALONE", cells=[zone.zone for zone in zones]),
        Column(heading="COST", cells=[money(zone.cost.mean) for zone in zones], justify="right"),
        Column(
            heading="80% WITHIN",
            cells=[f"{money(zone.cost.p10)} - {money(zone.cost.p90)}" for zone in zones],
            importance=1,
            justify="right",
        ),
        Column(
            heading="SPOT/H",
            cells=[money(zone.spot_price) for zone in zones],
            importance=2,
            justify="right",
        ),
        Column(
            heading="AVAILABLE",
            cells=[quantities.UNKNOWN if zone.availability is None else f"{zone.availability:.0%}" for zone in zones],
            importance=0,
            justify="right",
        ),
        Column(
            heading="LASTS",
            cells=[quantities.duration(zone.run_s) for zone in zones],
            importance=3,
            justify="right",
        ),
    ]


def type_columns(planned: PlannedJobFile) -> list[Column]:
    """Return one row an instance type, the cheapest first."""
    money = money_text(planned)
    return [
        Column(heading="TYPE", cells=[each.instance_type for each in planned.types]),
        Column(
            heading="COST",
            cells=[money(each.plan.forecasts[0].cost_usd.mean) for each in planned.types],
            justify="right",
        ),
        Column(heading="CHEAPEST ZONE", cells=[each.plan.zones[0].zone for each in planned.types], importance=0),
    ]


def ground_facts(planned: PlannedJobFile) -> list[Fact]:
    """Return the sources of a plan, a line each."""
    plan = planned.plan
    rows: list[Fact] = [("rests on", "; ".join(plan.knowledge.sources)), ("work", planned.work_from)]
    if len(planned.types) > 1:
        rows.append(("types", "taken to be equally fast"))
    if (count := planned.instances) > 1:
        often = f"forecast as one: {count} that are taken at different times are interrupted more often"
        rows.append(("instances", often))
    rows.append(("intervals", "hold eight in ten times; a restart is taken to cost " + _rounded(plan.job.restart_s)))
    return rows


def money_text(planned: PlannedJobFile) -> Callable[[float], str]:
    """Return the writer of a cost of one instance, as that of all."""
    instances = planned.instances
    if planned.plan.knowledge.in_usd:
        return lambda amount: quantities.dollars(amount * instances)
    return lambda amount: f"{amount * instances:.1f} od-h"


def _range(spread: Distribution, shown: Callable[[float], str]) -> str:
    low, middle, high = shown(spread.p10), shown(spread.p50), shown(spread.p90)
    return middle if low == high else f"{middle} ({low} to {high})"


def _rounded(seconds: float) -> str:
    """Return a duration as precise as it is.

    Above two minutes it has whole minutes. Above six hours it has whole quarters of an hour.
    """
    step = 1 if seconds < 120 else 60 if seconds < 6 * 3600 else 900
    return quantities.duration(round(seconds / step) * step)


def histogram(values: FloatArray, *, width: int) -> str:
    """Return a row of blocks that shows how often each part of the range comes."""
    import numpy as np

    counts, _ = np.histogram(values, bins=width)
    levels = np.ceil(counts / max(1, counts.max()) * (len(_BLOCKS) - 1)).astype(int)
    return "".join(_BLOCKS[level] for level in levels)
