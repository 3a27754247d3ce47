"""A picture of a forecast. It shows the spread of cost and finish for each policy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from spotkeep_planner.forecast import Forecast

_HOUR_S = 3600.0


def save_forecast_plot(
    forecasts: Sequence[Forecast], path: Path, *, deadline_s: float, currency: str, title: str
) -> None:
    """Draw the forecasts into a PNG (or PDF, SVG) file, by the name's ending.

    Args:
        forecasts: One a policy.
        path: The file.
        deadline_s: Drawn as a line.
        currency: The unit of costs.
        title: Above the picture.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: The file cannot be written.
        ValueError: The file's ending is of no known picture format.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    cost, finish = figure.subplots(1, 2)
    for axes, unit, label, values in (
        (cost, 1.0, f"cost ({currency})", [each.outcomes.cost_usd for each in forecasts]),
        (finish, _HOUR_S, "finished after (hours)", [each.outcomes.finish_s for each in forecasts]),
    ):
        scaled = [np.sort(value) / unit for value in values]
        shares = np.linspace(0, 1, len(scaled[0]))
        for each, value in zip(forecasts, scaled, strict=True):
            (line,) = axes.step(value, shares, where="post", label=each.policy)
            low, high = np.percentile(value, [10, 90])
            axes.axvspan(low, high, alpha=0.08, color=line.get_color())
        axes.set_xlabel(label)
        axes.set_ylabel("share of futures")
        axes.set_ylim(0, 1)
        axes.grid(alpha=0.25)
    finish.axvline(deadline_s / _HOUR_S, color="black", linestyle="--", linewidth=1, label="deadline")
    finish.legend(loc="lower right", frameon=False)
    figure.suptitle(title)
    figure.savefig(path, dpi=150)


def histogram(values: np.ndarray, *, width: int) -> str:
    """Return a row of blocks that shows how often each part of the range comes. For terminals."""
    counts, _ = np.histogram(values, bins=width)
    levels = np.ceil(counts / max(1, counts.max()) * (len(_BLOCKS) - 1)).astype(int)
    return "".join(_BLOCKS[level] for level in levels)


_BLOCKS = " ▁▂▃▄▅▆▇█"
