"""A plan as pictures, with the work and the money over time, their spread at the end, and the alternatives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from spotkeep_cli.planning.plan_view import money_text
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.pictures import (
    MARKED,
    OTHER,
    Picture,
    drawing,
    label_ends,
    mark_place,
    number_axis,
    require_drawing,
    time_unit,
)
from spotkeep_cli.rendering.printable import printable_line
from spotkeep_pages.plots import SERIES, TEXT

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from spotkeep_cli.planning.job_planning import PlannedJobFile
    from spotkeep_planner.forecast import Distribution

OURS = SERIES[0]
_BANDS = ((10, 90, 0.16), (25, 75, 0.28))
"""The lower and the upper percentile of a band, and its strength."""
_BINS = 24
_ROW = 30.0
"""The room of one alternative, in pixels."""


def save_plan_plot(planned: PlannedJobFile, path: Path) -> None:
    """Draw the spread of cost and end into a PNG, SVG or PDF file, by the name's ending.

    Args:
        planned: The plan.
        path: The file.

    Raises:
        MissingExtraError: matplotlib is not installed.
        CommandLineError: The file cannot be written.
    """
    require_drawing("a picture")
    forecasts, deadline = planned.plan.forecasts, quantities.duration(planned.plan.job.deadline_s)
    with drawing(width=760) as figure:
        cost, end = figure.subplots(1, 2)
        if len(forecasts) == 1:
            _draw_cost(cost, planned)
            _draw_end(end, planned)
        else:
            costs = [Alternative(name=each.policy, spread=each.cost_usd) for each in forecasts]
            ends = [Alternative(name=each.policy, spread=each.finish_s) for each in forecasts]
            unit, name = time_unit(max(each.spread.p90 for each in ends))
            label = f"cost ({currency(planned)})"
            _draw_rows(cost, costs, factor=planned.instances, text=money_text(planned), label=label)
            _draw_rows(end, ends, factor=1 / unit, text=quantities.duration, label=f"done after ({name})")
    Picture(
        name="plan",
        title=f"{planned.name} on {planned.types[0].instance_type}, in {deadline}",
        description="The spread of cost and end.",
        figure=figure,
    ).save(path)


def course_pictures(planned: PlannedJobFile) -> list[Picture]:
    """Return the work and the money over time, each with the bands that eight and five in ten futures stay in."""
    best = planned.plan.forecasts[0]
    course = best.outcomes.course
    if course is None:
        return []
    job = planned.plan.job
    unit, name = time_unit(job.deadline_s)
    at = np.concatenate([[0.0], course.at_s]) / unit
    start = np.zeros((1, course.done_s.shape[1]))
    done = np.concatenate([start, course.done_s]) / job.work_s * 100
    with drawing() as work:
        axes = work.subplots()
        number_axis(axes.xaxis, [0.0, job.deadline_s / unit], log=False)
        number_axis(axes.yaxis, [0.0, 100.0], log=False)
        _fan(axes, at, done)
        latest = planned.plan.latest_on_demand_s
        axes.plot(
            [latest / unit, job.deadline_s / unit], [0, 100], color=MARKED, linewidth=1.4, linestyle=(0, (4, 2)),
            gid="latest", in_layout=False,
        )  # fmt: skip
        mark_place(axes, job.deadline_s / unit, "deadline", at_top=False)
        axes.set_xlabel(f"time since the start ({name})")
        axes.set_ylabel("work that is done (%)")
    half = _when(course.at_s, np.median(course.done_s, axis=1), job.work_s / 2)
    descriptions = [
        f"Half of the work is done after {half} in the middle future. "
        f"Eight in ten futures are done after {between(best.finish_s, quantities.duration)}. "
        f"A dashed line ends at the deadline of {quantities.duration(job.deadline_s)}. "
        "A run that has done less than the line says goes on demand.",
    ]
    pictures = [
        Picture(
            name="work",
            title="Work over time",
            description=descriptions[0],
            figure=work,
            names={"latest": "on-demand takes over here at the latest", "median": "the middle future"},
        )
    ]
    money = money_text(planned)
    spent = np.concatenate([start, course.cost_usd]) * planned.instances
    on_demand = on_demand_cost(planned)
    with drawing() as figure:
        axes = figure.subplots()
        number_axis(axes.xaxis, [0.0, job.deadline_s / unit], log=False)
        number_axis(axes.yaxis, [0.0, float(spent.max()), on_demand], log=False)
        _fan(axes, at, spent)
        axes.axhline(on_demand, color=OTHER, linewidth=1.2, linestyle=(0, (4, 2)))
        label_ends(axes, [(axes.get_xlim()[1], on_demand, "on demand", OTHER)])
        axes.set_xlabel(f"time since the start ({name})")
        axes.set_ylabel(f"cost so far ({currency(planned)})")
    pictures.append(
        Picture(
            name="spending",
            title="Money over time",
            description=(
                f"The middle future costs {money(best.cost_usd.p50)} at its end. "
                f"Eight in ten futures cost {between(best.cost_usd, money)}. "
                f"A dashed line shows the {money(on_demand / planned.instances)} of the same work on demand."
            ),
            figure=figure,
            names={"median": "the middle future"},
        )
    )
    return pictures


def _fan(axes: Axes, at: np.ndarray, values: np.ndarray) -> None:
    """Draw the median of futures over time, and bands around it."""
    for low, high, strength in _BANDS:
        lower, upper = np.percentile(values, [low, high], axis=1)
        axes.fill_between(at, lower, upper, color=OURS, alpha=strength, linewidth=0, in_layout=False)
    axes.plot(at, np.median(values, axis=1), color=OURS, linewidth=2, gid="median", in_layout=False)


def _when(at_s: np.ndarray, values: np.ndarray, wanted: float) -> str:
    reached = np.flatnonzero(values >= wanted)
    return quantities.duration(float(at_s[reached[0]])) if len(reached) else "the deadline"


def spread_pictures(planned: PlannedJobFile) -> list[Picture]:
    """Return the spread of the cost and of the end over the futures."""
    best = planned.plan.forecasts[0]
    found = []
    for name, draw, spread, text in (
        ("cost", _draw_cost, best.cost_usd, money_text(planned)),
        ("end", _draw_end, best.finish_s, quantities.duration),
    ):
        with drawing() as figure:
            draw(figure.subplots(), planned)
        description = (
            f"The {name} is {text(spread.p50)} in the middle future, and {between(spread, text)} in eight of ten."
        )
        found.append(Picture(name=name, title=f"The {name} in all futures", description=description, figure=figure))
    return found


def _draw_cost(axes: Axes, planned: PlannedJobFile) -> None:
    values = planned.plan.forecasts[0].outcomes.cost_usd * planned.instances
    _draw_bars(axes, values, label=f"cost ({currency(planned)})", limit=on_demand_cost(planned), limit_text="on demand")


def _draw_end(axes: Axes, planned: PlannedJobFile) -> None:
    finish_s, deadline_s = planned.plan.forecasts[0].outcomes.finish_s, planned.plan.job.deadline_s
    unit, name = time_unit(max(deadline_s, float(finish_s.max())))
    _draw_bars(axes, finish_s / unit, label=f"done after ({name})", limit=deadline_s / unit, limit_text="deadline")


def _draw_bars(axes: Axes, values: np.ndarray, *, label: str, limit: float, limit_text: str) -> None:
    """Draw the futures as bars, with a line over eight in ten of them and a dot at the middle one."""
    low, high = float(values.min()), float(values.max())
    number_axis(axes.xaxis, [low, high, limit], log=False)
    room = (axes.get_xlim()[1] - axes.get_xlim()[0]) / _BINS / 2
    edges = np.linspace(low, high, _BINS + 1) if high - low > room else np.array([low - room, high + room])
    counts, _ = np.histogram(values, bins=edges)
    shares = counts / len(values) * 100
    axes.bar(edges[:-1], shares, np.diff(edges), align="edge", color=OURS, alpha=0.75, linewidth=0)
    p10, p50, p90 = np.percentile(values, [10, 50, 90])
    top = float(shares.max())
    number_axis(axes.yaxis, [0.0, top], log=False)
    axes.set_yticks([tick for tick in axes.get_yticks() if 0 <= tick <= top])
    # Above the bars there is room for the line, and above that for the name of the limit.
    axes.set_ylim(0, top * 1.5)
    axes.plot([p10, p90], [top * 1.08] * 2, color=TEXT, linewidth=1.4, solid_capstyle="butt")
    axes.plot([p50], [top * 1.08], "o", color=TEXT, markersize=4.5)
    axes.annotate(
        "8 in 10",
        ((p10 + p90) / 2, top * 1.08),
        xytext=(0, 5),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        color=TEXT,
    )
    axes.set_xlabel(label)
    axes.set_ylabel("futures (%)")
    mark_place(axes, limit, limit_text)


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """A row of a picture of alternatives."""

    name: str
    spread: Distribution


def costs_picture(alternatives: Sequence[Alternative], *, name: str, title: str, planned: PlannedJobFile) -> Picture:
    """Return the expected cost of alternatives, with the range of eight in ten futures.

    Args:
        alternatives: From above.
        name: See `Picture`.
        title: See `Picture`.
        planned: The plan that they belong to.
    """
    with _rows(alternatives) as figure:
        _draw_rows(
            figure.subplots(), alternatives, factor=planned.instances, text=money_text(planned),
            label=f"expected cost, with eight in ten futures ({currency(planned)})",
        )  # fmt: skip
    return Picture(
        name=name, title=title, description=_in_words(alternatives, "costs", money_text(planned)), figure=figure
    )


def ends_picture(alternatives: Sequence[Alternative], *, name: str, title: str) -> Picture:
    """Return the expected end of alternatives, with the range of eight in ten futures.

    Args:
        alternatives: From above.
        name: See `Picture`.
        title: See `Picture`.
    """
    unit, words = time_unit(max(each.spread.p90 for each in alternatives))
    with _rows(alternatives) as figure:
        _draw_rows(
            figure.subplots(), alternatives, factor=1 / unit, text=quantities.duration,
            label=f"done after, with eight in ten futures ({words})",
        )  # fmt: skip
    description = _in_words(alternatives, "is done after", quantities.duration)
    return Picture(name=name, title=title, description=description, figure=figure)


def _rows(alternatives: Sequence[Alternative]) -> AbstractContextManager[Figure]:
    return drawing(height=70 + _ROW * len(alternatives))


def _draw_rows(
    axes: Axes, alternatives: Sequence[Alternative], *, factor: float, text: Callable[[float], str], label: str
) -> None:
    """Draw a row for each alternative, the first one in colour."""
    scaled = [
        tuple(value * factor for value in (each.spread.p10, each.spread.mean, each.spread.p90)) for each in alternatives
    ]
    number_axis(axes.xaxis, [0.0, *(value for each in scaled for value in each)], log=False)
    for row, (each, (p10, mean, p90)) in enumerate(zip(alternatives, scaled, strict=True)):
        colour = OTHER if row else OURS
        axes.plot([p10, p90], [row, row], color=colour, linewidth=5, alpha=0.35, solid_capstyle="round")
        axes.plot([mean], [row], "o", color=colour, markersize=7)
        axes.annotate(
            text(each.spread.mean), (max(p90, mean), row), xytext=(8, 0), textcoords="offset points", va="center",
            fontsize=10, color=TEXT, fontweight="normal" if row else "bold", in_layout=False,
        )  # fmt: skip
    axes.set_xlim(0, axes.get_xlim()[1] * 1.2)
    axes.set_ylim(len(alternatives) - 0.5, -0.5)
    names = [printable_line(each.name, longest=24) for each in alternatives]
    axes.set_yticks(range(len(alternatives)), names, color=TEXT)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(label)


def _in_words(alternatives: Sequence[Alternative], verb: str, text: Callable[[float], str]) -> str:
    return " ".join(
        f"{each.name} {verb} {text(each.spread.mean)}, {between(each.spread, text)} in eight of ten futures."
        for each in alternatives
    )


def currency(planned: PlannedJobFile) -> str:
    """Return the unit of costs."""
    return "USD" if planned.plan.knowledge.in_usd else "on-demand hours"


def on_demand_cost(planned: PlannedJobFile) -> float:
    """Return the cost of the same work on demand, for all instances."""
    plan = planned.plan
    return plan.knowledge.on_demand_price * plan.job.uninterrupted_s / 3600 * planned.instances


def between(spread: Distribution, text: Callable[[float], str]) -> str:
    """Return the range of eight in ten futures in words, or the one value of all."""
    low, high = text(spread.p10), text(spread.p90)
    return low if low == high else f"{low} to {high}"
