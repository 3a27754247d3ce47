"""A sweep as pictures.

They show its objective over time and over money, the curves of its trials, its parameters side by side, and the trials
at each number of steps at which asha compares them (Li et al. 2020). Each trial has its number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING

from spotkeep_cli.errors import UsageError
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.metric_list import at_step
from spotkeep_cli.rendering.pictures import (
    OTHER,
    WIDTH,
    Curve,
    Picture,
    curves_picture,
    drawing,
    label_ends,
    number_axis,
    number_text,
    require_drawing,
    size_of,
    spans_powers_of_ten,
    tick_texts,
    time_unit,
    value_axis,
)
from spotkeep_cli.rendering.printable import printable_line
from spotkeep_cli.sweeps.sweep_view import differing, ended_with_value, in_order, value_text
from spotkeep_jobs.record.states import TrialState
from spotkeep_jobs.sweeps.space import ContinuousParameter, DiscreteParameter
from spotkeep_pages.plots import GROUND, SERIES, SOFT, TEXT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from spotkeep_jobs.record.sweep import Sweep, Trial
    from spotkeep_jobs.sweeps.document import Objective, SweepRequest
    from spotkeep_jobs.sweeps.space import Parameter

    Curves = Mapping[int, Sequence[tuple[int, float]]]

BEST, USUAL = SERIES[1], SERIES[0]
"""The colour of the best trial, and of the others."""
_NAMED_CURVES = 5
"""So many curves have their names beside them. The table of the page has all trials."""
_ALL_NAMED = 7
"""A sweep with so few curves has the names of all."""
_MOST_NUMBERED = 40
"""Of more trials, those alone that improved the best value have their numbers in a picture."""
_MOST_DRAWN = 300
"""Of more trials, the best ones have lines, and the others are points without names."""
_COLUMN = 118.0
"""The room of one parameter, in pixels."""
_MOST_TICKS = 8


@dataclass(frozen=True, kw_only=True, eq=False)
class DrawnSweep:
    """A sweep with everything that its pictures show.

    Attributes:
        sweep: Its item.
        trials: Its trials.
        request: Its request.
        objective: The objective of its request.
        curves: The objective by steps, for each trial that has reported it, by the trial's number.
    """

    sweep: Sweep
    trials: Sequence[Trial]
    request: SweepRequest
    objective: Objective
    curves: Curves

    @property
    def measured(self) -> list[Trial]:
        """The trials with a finite value of the objective, the best first."""
        return in_order((trial for trial in self.trials if value_of(trial) is not None), self.request)

    @property
    def ended(self) -> list[Trial]:
        """The trials that have ended with such a value, in the order of their ends."""
        return [trial for trial in ended_with_value(self.trials) if value_of(trial) is not None]

    def values(self, trials: Sequence[Trial]) -> list[float]:
        """Return the best values of trials that have one."""
        return [value for trial in trials if (value := value_of(trial)) is not None]

    def rank_of(self, values: Sequence[float]) -> Callable[[int], float]:
        """Return the key that puts the places of values in order, the best first."""
        sign = -1 if self.objective.goal == "maximize" else 1
        return lambda place: sign * values[place]

    def so_far(self, trials: Sequence[Trial]) -> list[float]:
        """Return the best value after each of these trials."""
        return list(accumulate(self.values(trials), max if self.objective.goal == "maximize" else min))

    def says(self, trial: Trial) -> str:
        """Return a trial in words, for a pointer."""
        value = value_of(trial)
        metric = "no value" if value is None else f"{self.objective.metric} {at_step(value, trial.best_step)}"
        parameters = ", ".join(f"{name}={value_text(each)}" for name, each in trial.parameters.items())
        usd = None if trial.cost is None else trial.cost.billed_usd
        cost = "" if usd is None else f"; {quantities.dollars(usd)}"
        return f"trial {trial.number}, {trial.state.value.lower()}: {metric}; {parameters}{cost}"

    @property
    def goal(self) -> str:
        """The metric with its better direction."""
        better = "higher" if self.objective.goal == "maximize" else "lower"
        return f"{printable_line(self.objective.metric, longest=30)} ({better} is better)"


def save_plots(drawn: DrawnSweep | None, *, folder: Path) -> list[Path]:
    """Draw a sweep into PNG files.

    Args:
        drawn: The sweep. None for one without an objective.
        folder: The folder of the files. Made if it is missing.

    Returns:
        The files that were written: those for which there is enough to draw.

    Raises:
        UsageError: There is no objective, or no trial with a value yet.
        MissingExtraError: matplotlib is not installed.
        CommandLineError: A file cannot be written.
    """
    require_drawing("a picture")
    if drawn is None:
        raise UsageError("this sweep has no objective to draw", hint="`spotkeep describe` lists its trials")
    if not drawn.measured:
        raise UsageError("no trial has reported the objective yet", hint="try again when one has")
    return [picture.save(folder / f"{picture.name}.png") for picture in sweep_pictures(drawn)]


def sweep_pictures(drawn: DrawnSweep) -> list[Picture]:
    """Return the pictures of a sweep for which there is enough to draw.

    Args:
        drawn: The sweep.
    """
    found = (
        over_time(drawn),
        over_money(drawn),
        learning_curves(drawn),
        at_comparisons(drawn),
        side_by_side(drawn),
    )
    return [picture for picture in found if picture is not None]


def part_of(trial: Trial) -> str:
    """Return the name of a trial's part of a picture."""
    return f"trial-{trial.number}"


def value_of(trial: Trial) -> float | None:
    """Return the best value of a trial. None where it has none that can be compared."""
    return trial.best if trial.best is not None and math.isfinite(trial.best) else None


def over_time(drawn: DrawnSweep) -> Picture | None:
    """Return the objective of the trials over the time of their ends, and the best value so far."""
    trials = drawn.ended
    seconds = [
        (trial.ended_at - drawn.sweep.created_at).total_seconds() for trial in trials if trial.ended_at is not None
    ]
    if len(seconds) < 2:
        return None
    unit, name = time_unit(max(seconds))
    return _so_far(
        drawn,
        trials,
        [each / unit for each in seconds],
        name="objective",
        title=f"{drawn.objective.metric} over time",
        x_label=f"time since the launch ({name})",
        x_texts=[f"after {quantities.duration(each)}" for each in seconds],
    )


def over_money(drawn: DrawnSweep) -> Picture | None:
    """Return the objective of the trials over the cost of all until then. None where a cost is not known."""
    trials = drawn.ended
    usd = [trial.cost.billed_usd for trial in trials if trial.cost is not None and trial.cost.billed_usd is not None]
    # A cost that is not known would be drawn as nothing.
    if len(trials) < 2 or len(usd) < len(trials) or not sum(usd):
        return None
    spent = list(accumulate(usd))
    return _so_far(
        drawn,
        trials,
        spent,
        name="cost",
        title=f"{drawn.objective.metric} over money",
        x_label="cost of the trials so far (USD)",
        x_texts=[f"after {quantities.dollars(each)}" for each in spent],
    )


def _so_far(
    drawn: DrawnSweep,
    trials: Sequence[Trial],
    at: Sequence[float],
    *,
    name: str,
    title: str,
    x_label: str,
    x_texts: Sequence[str],
) -> Picture:
    values, best = drawn.values(trials), drawn.so_far(trials)
    improved = [place for place in range(len(trials)) if not place or best[place] != best[place - 1]]
    names = {}
    with drawing() as figure:
        axes = figure.subplots()
        value_axis(axes.yaxis, values, margin=0.1)
        number_axis(axes.xaxis, [0.0, *at], log=False)
        axes.step([*at, axes.get_xlim()[1]], [*best, best[-1]], where="post", color=TEXT, linewidth=1.6, gid="best")
        names["best"] = "the best value so far"
        drawn_alone = {*improved, *sorted(range(len(trials)), key=drawn.rank_of(values))[:_MOST_DRAWN]}
        rest = [place for place in range(len(trials)) if place not in drawn_alone]
        axes.plot(
            [at[place] for place in rest], [values[place] for place in rest], ".", color=USUAL, alpha=0.4,
            markersize=5, markeredgewidth=0, in_layout=False,
        )  # fmt: skip
        for place in sorted(drawn_alone):
            trial, x, value = trials[place], at[place], values[place]
            better = place in improved
            gid = part_of(trial)
            names[gid] = f"{drawn.says(trial)}; {x_texts[place]}"
            axes.plot(
                [x], [value], "o", gid=gid, in_layout=False, markersize=6 if better else 4.5, zorder=4 if better else 3,
                color=BEST if better else USUAL, alpha=1 if better else 0.55, markeredgewidth=0,
            )  # fmt: skip
        others = [place for place in range(len(trials)) if place not in improved]
        if len(trials) > _MOST_NUMBERED:
            others = []
        down = drawn.objective.goal == "minimize"
        _number_points(
            axes,
            [
                _Numbered(
                    x=at[place], y=values[place], number=trials[place].number, important=place in improved,
                    # Nothing is better than the best so far, so its side is free.
                    below=down if place in improved else not down,
                )
                for place in (*reversed(improved), *others)
            ],
        )  # fmt: skip
        axes.set_xlabel(x_label)
        axes.set_ylabel(drawn.goal)
    last = trials[improved[-1]]
    description = (
        f"{quantities.counted(len(trials), 'trial')} ended with a value of {drawn.objective.metric}. "
        f"The best one is {number_text(best[-1], digits=6)} of trial {last.number}, {x_texts[improved[-1]]}. "
        f"The first one was {number_text(values[0], digits=6)} of trial {trials[0].number}, {x_texts[0]}. "
        f"Trials that were the best when they ended are {_listed([trials[place].number for place in improved])}."
    )
    return Picture(name=name, title=title, description=description, figure=figure, names=names)


def _listed(numbers: Sequence[int]) -> str:
    """Return numbers in words, without those in the middle of a long list."""
    shown = [str(number) for number in numbers]
    return ", ".join(shown if len(shown) <= 12 else [*shown[:6], "...", *shown[-5:]])


@dataclass(frozen=True, kw_only=True)
class _Numbered:
    """A point that gets its number, and the side of it."""

    x: float
    y: float
    number: int
    important: bool
    below: bool


def _number_points(axes: Axes, points: Sequence[_Numbered]) -> None:
    """Write the numbers of points beside them, as long as no number covers another. The first ones come first."""
    width, height = size_of(axes)
    to_axes = (axes.transData + axes.transAxes.inverted()).transform
    taken: list[tuple[float, float, float]] = []
    for point in points:
        number, side = str(point.number), -1 if point.below else 1
        right, up = (float(each) for each in to_axes((point.x, point.y)))
        wide = 6.5 * len(number) + 4
        aside = wide / 2 + 4
        places = ((0.0, 10.0 * side), (-aside, 9.0 * side), (aside, 9.0 * side), (0.0, -10.0 * side))
        for x, y in places[:-1] if point.important else places:
            middle = (right * width + x, up * height + y)
            if any(abs(middle[0] - a) < (wide + w) / 2 and abs(middle[1] - b) < 11 for a, b, w in taken):
                continue
            taken.append((*middle, wide))
            axes.annotate(
                number, (point.x, point.y), xytext=(x, y), textcoords="offset points", ha="center", va="center",
                zorder=5, in_layout=False, color=BEST if point.important else SOFT,
                fontsize=10 if point.important else 9, fontweight="bold" if point.important else "normal",
            )  # fmt: skip
            break


def learning_curves(drawn: DrawnSweep) -> Picture | None:
    """Return the objective by steps, a curve a trial. The best ones have their names."""
    ranked = [trial for trial in drawn.measured if drawn.curves.get(trial.number)]
    without_value = [trial for trial in drawn.trials if trial not in ranked and drawn.curves.get(trial.number)]
    every = [*ranked, *without_value]
    named = len(every) if len(every) <= _ALL_NAMED else _NAMED_CURVES
    curves = []
    for place, trial in reversed(list(enumerate(every))):
        colour = (BEST, USUAL, SERIES[2], SERIES[3], SERIES[4], SERIES[5], SERIES[6])[place] if place < named else OTHER
        curves.append(
            Curve(
                name=f"trial {trial.number}" + (" (best)" if place == 0 and ranked else ""),
                points=drawn.curves[trial.number],
                says=drawn.says(trial),
                part=part_of(trial),
                colour=colour,
                labelled=place < named,
            )
        )
    if not any(curve.finite for curve in curves):
        return None
    others = len(every) - named
    best = ranked[0] if ranked else every[0]
    ends = drawn.curves[best.number]
    description = (
        f"The {drawn.objective.metric} of {quantities.counted(len(every), 'trial')} by steps. "
        f"Trial {best.number} went from {number_text(ends[0][1], digits=6)} at step {ends[0][0]:,} "
        f"to {number_text(ends[-1][1], digits=6)} at step {ends[-1][0]:,}. "
        f"Names have trials {_listed([trial.number for trial in every[:named]])}"
        + (f", and {quantities.counted(others, 'grey curve')} are the others." if others else ".")
    )
    return curves_picture(
        curves,
        name="curves",
        title="Learning curves" + (f": the {named} best of {len(every)} in colour" if others else ""),
        description=description,
        x_label="step",
        y_label=drawn.goal,
        # The lengths of trainings grow by a factor there.
        log_x=drawn.request.asha is not None and all(x > 0 for curve in curves for x, _ in curve.finite),
    )


def at_comparisons(drawn: DrawnSweep) -> Picture | None:
    """Return the value of each trial at each comparison of asha, a line for each that went on."""
    compared = [
        (trial, {step: value for step, value in sorted(trial.values.items()) if math.isfinite(value)})
        for trial in reversed(drawn.measured)
    ]
    compared = [(trial, values) for trial, values in compared if values]
    if not compared or drawn.request.asha is None:
        return None
    steps = sorted({step for _, values in compared for step in values})
    place_of = {step: place for place, step in enumerate(steps)}
    names: dict[str, str] = {}
    labels = []
    with drawing() as figure:
        axes = figure.subplots()
        every = [value for _, values in compared for value in values.values()]
        value_axis(axes.yaxis, every)
        axes.set_xlim(-0.25, len(steps) - 0.75)
        for trial, values in compared[-_MOST_DRAWN:]:
            is_best = trial is compared[-1][0]
            gid = part_of(trial)
            names[gid] = drawn.says(trial)
            axes.plot(
                [place_of[step] for step in values], list(values.values()), gid=gid, in_layout=False, marker="o",
                markersize=5 if is_best else 4, linewidth=2 if is_best else 1.2, color=BEST if is_best else USUAL,
                alpha=1 if is_best else 0.6 if len(values) > 1 else 0.35, zorder=4 if is_best else 3, markeredgewidth=0,
            )  # fmt: skip
            if max(values) == steps[-1]:
                end = (place_of[steps[-1]], values[steps[-1]])
                labels.append((*end, f"trial {trial.number}", BEST if is_best else USUAL))
        counts = [sum(step in values for _, values in compared) for step in steps]
        texts = [f"{step:,}\n{quantities.counted(count, 'trial')}" for step, count in zip(steps, counts, strict=True)]
        axes.set_xticks(range(len(steps)), texts)
        axes.set_xlabel("steps at which trials are compared")
        axes.set_ylabel(drawn.goal)
        label_ends(axes, labels[-_NAMED_CURVES:])
    best, values = compared[-1]
    description = (
        f"asha compares trials at {_listed(steps)} steps, where {_listed(counts)} trials have a value. "
        f"Trial {best.number} is the best, with {number_text(values[max(values)], digits=6)} at step {max(values):,}."
    )
    return Picture(
        name="rungs",
        title="Comparisons of asha: a line is a trial that went on" + _only_the_best(len(compared)),
        description=description,
        figure=figure,
        names=names,
    )


def _only_the_best(count: int) -> str:
    return f" (the {_MOST_DRAWN} best of {count:,})" if count > _MOST_DRAWN else ""


@dataclass(frozen=True, kw_only=True)
class Scale:
    """An axis of the parameters side by side.

    Attributes:
        heights: A height from 0 to 1 for each value.
        ticks: Heights with their labels.
        log: True for a logarithmic axis.
    """

    heights: Sequence[float]
    ticks: Sequence[tuple[float, str]]
    log: bool = False


def scale_of(values: Sequence[object], parameter: Parameter | None = None) -> Scale:
    """Return an axis for values. Numbers stand by their size or its logarithm, and other values by their names.

    Args:
        values: At least one.
        parameter: The values that are possible. None where a list of trials says nothing of them.
    """
    numbers = [number for value in values if (number := _number(value)) is not None]
    if len(numbers) < len(values):
        return _scale_of_words(list(map(value_text, values)), parameter)
    low, high = min(numbers), max(numbers)
    if isinstance(parameter, ContinuousParameter):
        low, high, log = min(low, parameter.low), max(high, parameter.high), parameter.log
    else:
        log = spans_powers_of_ten(numbers) or (parameter is not None and parameter.log)
    place = math.log if log else float
    if low == high:
        return Scale(heights=[0.5] * len(numbers), ticks=[(0.5, number_text(low))], log=log)
    least, width = place(low), place(high) - place(low)
    distinct = sorted(set(numbers))
    ticks = (
        distinct
        if parameter is not None and parameter.size is not None and len(distinct) <= 6
        else _tick_values(low, high, log=log)
    )
    return Scale(
        heights=[(place(number) - least) / width for number in numbers],
        ticks=[((place(tick) - least) / width, text) for tick, text in zip(ticks, tick_texts(ticks), strict=True)],
        log=log,
    )


def _scale_of_words(values: Sequence[str], parameter: Parameter | None) -> Scale:
    """Return an axis for names, in the order of the space. Names that it does not have come after them."""
    possible = parameter.values if isinstance(parameter, DiscreteParameter) else ()
    words = [word for value in possible if (word := value_text(value)) in values]
    words += sorted(set(values) - set(words))
    heights = {word: at / (len(words) - 1) if len(words) > 1 else 0.5 for at, word in enumerate(words)}
    shown = words[:: math.ceil(len(words) / (2 * _MOST_TICKS))]
    return Scale(
        heights=[heights[value] for value in values],
        ticks=[(heights[word], printable_line(word, longest=14)) for word in shown],
    )


def _tick_values(low: float, high: float, *, log: bool) -> list[float]:
    """Return round numbers between two, and both where there are none."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    decades = math.log10(high / low) if log else 0.0
    subs = (1.0, 2.0, 5.0) if decades < 2 else (1.0,)
    locator = LogLocator(subs=subs, numticks=_MOST_TICKS) if log else MaxNLocator(nbins=5)
    room = (high - low) * 1e-9
    found = [float(tick) for tick in locator.tick_values(low, high) if low - room <= tick <= high + room]
    return found if len(found) > 1 else [low, high]


def _number(value: object) -> float | None:
    """Return a number, one that is kept as it is written (`1e-3`) among them. None for another value."""
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _side_by_side_in_groups(scale: Scale) -> Scale:
    """Return an axis on which the lines of one value lie beside each other, not all in one place."""
    groups: dict[float, list[int]] = {}
    for place, height in enumerate(scale.heights):
        groups.setdefault(height, []).append(place)
    if 3 * len(groups) > len(scale.heights):
        return scale
    heights = list(scale.heights)
    most = max(map(len, groups.values()))
    room = min(0.07, 0.5 / len(groups))
    for height, places in groups.items():
        for at, place in enumerate(places):
            heights[place] = height + room * ((at + 0.5) / len(places) - 0.5) * len(places) / most
    return replace(scale, heights=heights)


def side_by_side(drawn: DrawnSweep) -> Picture | None:
    """Return a line for each trial through its parameters to its value, the best in a colour of its own."""
    names = differing(drawn.trials)
    every = drawn.measured
    ranked = every[:_MOST_DRAWN]
    if not names or len(ranked) < 2:
        return None
    failed = [trial for trial in drawn.trials if trial.state is TrialState.FAILED and value_of(trial) is None]
    failed = failed[:_MOST_DRAWN]
    shown = [*ranked, *failed]
    space = {} if drawn.request.parameters is None else drawn.request.parameters.root
    scales = [scale_of([trial.parameters.get(name, "") for trial in shown], space.get(name)) for name in names]
    scales = [_side_by_side_in_groups(scale) for scale in scales]
    objective = scale_of(drawn.values(ranked))
    # Many lines make a dark ground, a few would be hard to see on it.
    weakest = 0.08 if len(ranked) > _MOST_NUMBERED else 0.4
    said = {}
    with drawing(width=max(WIDTH, _COLUMN * (len(names) + 1) + 60), height=330) as figure:
        axes = figure.subplots()
        axes.grid(visible=False)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_xlim(-0.45, len(names) + 0.45)
        axes.set_ylim(-0.06, 1.06)
        for place in reversed(range(len(shown))):
            trial = shown[place]
            heights = [scale.heights[place] for scale in scales]
            is_best, has_failed = place == 0, place >= len(ranked)
            if not has_failed:
                heights.append(objective.heights[place])
            share = 1 - place / max(1, len(ranked) - 1)
            gid = part_of(trial)
            said[gid] = drawn.says(trial)
            axes.plot(
                range(len(heights)), heights, gid=gid, in_layout=False, solid_joinstyle="round",
                color=BEST if is_best else OTHER if has_failed else USUAL,
                alpha=1 if is_best else 0.6 if has_failed else weakest + (0.8 - weakest) * share**3,
                linewidth=2.6 if is_best else 1 + 0.6 * share, linestyle=(0, (2, 2)) if has_failed else "-",
                zorder=4 if is_best else 2,
            )  # fmt: skip
        for column, scale in enumerate([*scales, objective]):
            axes.plot([column, column], [-0.04, 1.04], color=SOFT, linewidth=0.9, zorder=3, in_layout=False)
            for height, text in scale.ticks:
                axes.plot(
                    [column - 0.02, column], [height, height], color=SOFT, linewidth=0.9, zorder=3, in_layout=False
                )
                axes.annotate(
                    text, (column, height), xytext=(-5, 0), textcoords="offset points", ha="right", va="center",
                    fontsize=9.5, color=TEXT, zorder=6,
                    bbox={"facecolor": GROUND, "edgecolor": "none", "pad": 1, "alpha": 0.8},
                )  # fmt: skip
        axes.annotate(
            f"trial {ranked[0].number}", (len(names), objective.heights[0]), xytext=(6, 0), textcoords="offset points",
            color=BEST, fontsize=10, va="center", fontweight="bold", annotation_clip=False,
        )  # fmt: skip
        headings = [
            printable_line(name, longest=18) + ("\n(log)" if scale.log else "")
            for name, scale in zip([*names, drawn.objective.metric], [*scales, objective], strict=True)
        ]
        axes.set_xticks(range(len(headings)), headings, color=TEXT)
        axes.set_yticks([])
        axes.tick_params(length=0)
    best = ranked[0]
    description = (
        f"A line for each of {quantities.counted(len(ranked), 'trial')} through {', '.join(names)} "
        f"to {drawn.objective.metric}. "
        f"The best one, trial {best.number}, has "
        + ", ".join(f"{name} {value_text(best.parameters.get(name, ''))}" for name in names)
        + f" and {drawn.objective.metric} {number_text(drawn.values(ranked)[0], digits=6)}."
        + (f" Dashed lines are {quantities.counted(len(failed), 'trial')} that failed." if failed else "")
    )
    title = "Parameters side by side: the better, the stronger the line" + (", failed ones dashed" if failed else "")
    title += _only_the_best(len(every))
    return Picture(name="parameters", title=title, description=description, figure=figure, names=said, wide=True)
