"""A sweep as pictures.

They show its objective over time and cost, its parameters side by side, and the rungs of asha. A rung of asha is a
number of steps at which trials are compared (Li et al. 2020).
"""

from __future__ import annotations

import math
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from spotkeep_cli.errors import MissingExtraError, UsageError
from spotkeep_cli.sweeps.sweep_view import best_so_far, differing, ended_with_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from spotkeep_jobs.record.sweep import Sweep, Trial
    from spotkeep_jobs.sweeps.document import Objective, SweepRequest

_SECONDS_PER_HOUR = 3600


def save_plots(sweep: Sweep, trials: Sequence[Trial], request: SweepRequest, *, folder: Path) -> list[Path]:
    """Draw a sweep into PNG files.

    Args:
        sweep: Its item.
        trials: Its trials.
        request: Its request, with an objective.
        folder: The folder of the files. Made if it is missing.

    Returns:
        The files that were written: those for which there is enough to draw.

    Raises:
        UsageError: There is no objective, or no trial with a value yet.
        MissingExtraError: matplotlib is not installed.
        OSError: A file cannot be written.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingExtraError("planner", what="a picture", error=error) from None
    if request.objective is None:
        raise UsageError("this sweep has no objective to draw", hint="`spotkeep describe` lists its trials")
    measured = [trial for trial in trials if trial.best is not None]
    if not measured:
        raise UsageError("no trial has reported the objective yet", hint="try again when one has")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, draw in (("objective", draw_objective), ("parameters", _parameters), ("rungs", _rungs)):
        figure = Figure(figsize=(9, 4), layout="constrained")
        if draw(figure, sweep, measured, request.objective):
            path = folder / f"{name}.png"
            figure.savefig(path, dpi=150)
            written.append(path)
    return written


def draw_objective(figure: Figure, sweep: Sweep, trials: Sequence[Trial], objective: Objective) -> bool:
    """Draw each trial's best value, and the best of all so far, over time and, where it is known, over cost."""
    ended = ended_with_value(trials)
    if not ended:
        return False
    values = [float(trial.best or 0.0) for trial in ended]
    best = best_so_far(ended, objective)
    hours = [
        (trial.ended_at - sweep.created_at).total_seconds() / _SECONDS_PER_HOUR for trial in ended if trial.ended_at
    ]
    charts = [(hours, "hours since the launch")]
    usd = [trial.cost.billed_usd for trial in ended if trial.cost is not None and trial.cost.billed_usd is not None]
    if len(usd) == len(ended):  # A cost that is not known would be drawn as nothing.
        charts.append((list(accumulate(usd)), "cost (USD)"))
    all_axes: list[Axes] = list(figure.subplots(1, len(charts), sharey=True, squeeze=False)[0])
    for axes, (at, label) in zip(all_axes, charts, strict=True):
        axes.scatter(at, values, s=14, alpha=0.5, label="a trial")
        axes.step(at, best, where="post", color="black", label="the best so far")
        axes.set_xlabel(label)
        axes.grid(alpha=0.25)
    all_axes[0].set_ylabel(objective.metric)
    figure.legend(*all_axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.suptitle(f"{sweep.sweep}: {objective.goal} {objective.metric}")
    return True


def _parameters(figure: Figure, sweep: Sweep, trials: Sequence[Trial], objective: Objective) -> bool:
    """Draw a line for each trial through its parameters to its value, the best in the darkest colour."""
    names = differing(trials)
    if not names or len(trials) < 2:
        return False
    values = [float(trial.best or 0.0) for trial in trials]
    places = [placed([trial.parameters.get(name) for trial in trials]) for name in names]
    columns = [*(heights for heights, _ in places), placed(values)[0]]
    axes: Axes = figure.subplots()
    order = sorted(range(len(trials)), key=lambda at: values[at], reverse=objective.goal == "minimize")
    for rank, at in enumerate(order):
        share = rank / max(1, len(order) - 1)
        axes.plot(
            [column[at] for column in columns], color=(0.1, 0.3, 0.7), alpha=0.1 + 0.9 * share**2, linewidth=1 + share
        )
    axes.set_xticks(range(len(columns)), [*names, objective.metric])
    axes.set_yticks([])
    for column, (_, labels) in enumerate([*places, placed(values)]):
        for height, text in labels:
            axes.annotate(
                text,
                (column, height),
                fontsize=7,
                ha="right",
                va="center",
                xytext=(-4, 0),
                textcoords="offset points",
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 1},
            )
    axes.margins(x=0.08)
    axes.set_title(f"{sweep.sweep}: the better, the darker")
    return True


def placed(values: Sequence[object]) -> tuple[list[float], list[tuple[float, str]]]:
    """Return a height from 0 to 1 for each value, and labels.

    Numbers are placed by size (or its logarithm), other values by name.
    """
    numbers = [number for value in values if (number := _number(value)) is not None]
    if len(numbers) == len(values):
        low, high = min(numbers), max(numbers)
        log = low > 0 and high / low >= 100
        scaled = [math.log(number) if log else number for number in numbers]
        least, most = min(scaled), max(scaled)
        width = (most - least) or 1.0
        return [(each - least) / width for each in scaled], [(0.0, f"{low:.3g}"), (1.0, f"{high:.3g}")]
    words = sorted({str(value) for value in values})
    heights = {word: at / max(1, len(words) - 1) for at, word in enumerate(words)}
    return [heights[str(value)] for value in values], [(height, word[:12]) for word, height in heights.items()]


def _number(value: object) -> float | None:
    """Return a number, one that is kept as it is written (`1e-3`) among them. None for another value."""
    if not isinstance(value, int | float | str) or isinstance(value, bool):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _rungs(figure: Figure, sweep: Sweep, trials: Sequence[Trial], objective: Objective) -> bool:
    """Draw the value of each trial at each rung of asha, a line for each that went on."""
    if not any(trial.values for trial in trials):
        return False
    axes: Axes = figure.subplots()
    for trial in trials:
        steps = sorted(trial.values)
        went_on = len(steps) > 1
        axes.plot(
            steps, [trial.values[step] for step in steps], marker="o", markersize=3, alpha=0.9 if went_on else 0.3,
            linewidth=1.2 if went_on else 0,
        )  # fmt: skip
    rungs = sorted({step for trial in trials for step in trial.values})
    axes.set_xscale("log")
    axes.set_xticks(rungs, [f"{step:,}" for step in rungs])
    axes.minorticks_off()
    axes.set_xlabel("rung: steps at which trials are compared")
    axes.set_ylabel(objective.metric)
    axes.grid(alpha=0.25)
    axes.set_title(f"{sweep.sweep}: {len(trials)} trials, those that went on as lines")
    return True
