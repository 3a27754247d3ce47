"""A plan as a page, with the forecast, its spread and the alternatives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_cli.planning.plan_plots import (
    Alternative,
    between,
    costs_picture,
    course_pictures,
    ends_picture,
    on_demand_cost,
    spread_pictures,
)
from spotkeep_cli.planning.plan_view import (
    answer_facts,
    ground_facts,
    money_text,
    policy_columns,
    type_columns,
    zone_columns,
)
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import page_facts, page_table
from spotkeep_cli.rendering.pictures import can_draw, lacking_pictures, laid_out
from spotkeep_pages.elements import badge, bullets, command, figures, notice, paragraph
from spotkeep_pages.page import Section, page

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from spotkeep_cli.planning.job_planning import PlannedJobFile
    from spotkeep_cli.terminal import NextStep
    from spotkeep_pages.elements import Content


def plan_html(planned: PlannedJobFile, *, steps: Sequence[NextStep], made_by: str, now: datetime) -> str:
    """Return the page of a plan.

    Args:
        planned: The plan.
        steps: The useful next commands.
        made_by: The command that made it.
        now: The time.
    """
    best = planned.plan.forecasts[0]
    in_time = best.chance_in_time == 1.0
    return page(
        kind="Plan",
        title=planned.name,
        status=badge(
            "in time" if in_time else f"in time in {best.chance_in_time:.0%}", tone="good" if in_time else "warning"
        ),
        lead=list(_lead(planned, steps=steps)),
        sections=[
            *_pictures(planned),
            *_alternatives(planned),
            Section("In words", [page_facts(answer_facts(planned))]),
            Section("What it rests on", [page_facts([*planned.installation, *ground_facts(planned)])]),
        ],
        footer=f"{made_by}, {quantities.moment(now)} UTC",
    )


def _lead(planned: PlannedJobFile, *, steps: Sequence[NextStep]) -> Iterator[Content]:
    plan, money = planned.plan, money_text(planned)
    best, job = plan.forecasts[0], plan.job
    instances = "" if planned.instances == 1 else f" on {planned.instances} instances"
    yield paragraph(
        f"{quantities.duration(job.work_s)} of work in {quantities.duration(job.deadline_s)}, "
        f"on {planned.types[0].instance_type}{instances}."
    )
    if planned.remarks:
        yield notice(bullets(planned.remarks), tone="warning")
    on_demand = on_demand_cost(planned) / planned.instances
    yield figures(
        [
            ("Costs", money(best.cost_usd.p50), between(best.cost_usd, money)),
            ("Saved", f"{1 - best.cost_usd.mean / on_demand:.0%}", f"on demand it costs {money(on_demand)}"),
            ("Done after", quantities.duration(best.finish_s.p50), between(best.finish_s, quantities.duration)),
            ("Interruptions", f"{best.interruptions.p50:.0f}", between(best.interruptions, "{:.0f}".format)),
            ("Needs on-demand", f"{best.chance_of_on_demand:.0%}", "of the futures"),
        ]
    )
    yield paragraph("Ranges hold in eight of ten futures.", class_="soft")
    for step in steps:
        yield command(step.command, purpose=step.what[:1].upper() + step.what[1:])


def _pictures(planned: PlannedJobFile) -> Iterator[Section]:
    if not can_draw():
        yield Section("Pictures", [lacking_pictures()])
        return
    course = course_pictures(planned)
    if course:
        words = paragraph(
            "A line is the middle future. The darker band holds half of the futures, and the lighter one eight in ten. "
            "A run that comes down to the dashed line goes on demand, so that it keeps the deadline."
        )
        yield Section("The forecast", [words, *laid_out(course)])
    yield Section("The spread", laid_out(spread_pictures(planned)))


def _alternatives(planned: PlannedJobFile) -> Iterator[Section]:
    plan = planned.plan
    policies = [Alternative(name=each.policy, spread=each.cost_usd) for each in plan.forecasts]
    zones = [Alternative(name=each.zone, spread=each.cost) for each in plan.zones]
    types = [Alternative(name=each.instance_type, spread=each.plan.forecasts[0].cost_usd) for each in planned.types]
    for heading, name, alternatives, columns in (
        ("Policies", "policies", policies, policy_columns(planned)),
        ("Zones alone", "zones", zones, zone_columns(planned)),
        ("Instance types", "types", types, type_columns(planned)),
    ):
        if len(alternatives) < 2:
            continue
        pictures = []
        if can_draw():
            pictures.append(costs_picture(alternatives, name=name, title=f"{heading} by cost", planned=planned))
            if name == "policies":
                ends = [Alternative(name=each.policy, spread=each.finish_s) for each in plan.forecasts]
                pictures.append(ends_picture(ends, name="ends", title=f"{heading} by end"))
        yield Section(heading, [*laid_out(pictures), page_table(columns, caption=f"{heading} in figures")])
