"""Curves of metrics in a terminal, drawn with the dots of braille letters. No package is needed for them.

A letter has two dots beside each other and four below each other, so 60 letters have room for 120 values.

Source: Unicode Standard, block "Braille Patterns" (U+2800 to U+28FF).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from spotkeep_cli.rendering.metric_list import at_step
from spotkeep_cli.rendering.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from spotkeep_jobs.record.record import Metric, ScriptMetrics

Point = tuple[int, float]

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The bit of each dot of a letter, by row and column."""
_FIRST_LETTER = 0x2800
_ROWS, _COLUMNS = 4, 2
_HEIGHT = 8
_WIDEST = 100
_NARROWEST = 16
_LOGARITHMIC_FROM = 30.0
"""Values above zero are drawn on a logarithmic axis where the greatest is so many times the least."""


def metric_curves(metrics: ScriptMetrics, *, width: int) -> RenderableType:
    """Draw the curve of each metric.

    Args:
        metrics: The metrics of a run.
        width: The room, in characters.
    """
    parts: list[RenderableType] = []
    for name, metric in metrics.metrics.items():
        parts += [Text(), Text.assemble("  ", (printable_line(name), "bold"), f"  {_in_words(metric)}")]
        parts += curve(metric.points, width=width)
    return Group(*parts)


def _in_words(metric: Metric) -> str:
    best = "" if metric.best is None else f", best {at_step(metric.best, metric.best_step)}"
    return f"last {at_step(metric.last, metric.last_step)}{best}"


def curve(points: Sequence[Point], *, width: int, unit: str = "step") -> Iterator[RenderableType]:
    """Draw points joined by lines, with the ends of both axes.

    Args:
        points: A step and a value each, in order of the steps.
        width: The room, in characters.
        unit: The word for the steps.
    """
    if not points:
        yield Text("  no step is known of its values, so it has no curve", style="dim")
        return
    values = [value for _, value in points]
    least, greatest = min(values), max(values)
    is_logarithmic = least > 0 and greatest / least >= _LOGARITHMIC_FROM
    labels = [f"{greatest:.4g}", f"{least:.4g}"]
    margin = max(map(len, labels)) + 2
    columns = max(_NARROWEST, min(_WIDEST, width - margin - 2))
    heights = [math.log(value) if is_logarithmic else value for value in values]
    steps = [step for step, _ in points]
    rows = _canvas(steps, heights, columns=columns)
    # A curve without a slope is one line in the middle, and has one label there.
    labelled = {0: labels[0], len(rows) - 1: labels[1]} if least < greatest else {len(rows) // 2: labels[0]}
    for number, row in enumerate(rows):
        label = labelled.get(number, "")
        yield Text.assemble((f"{label.rjust(margin)} ┤" if label else f"{'':{margin}} │", "dim"), (row, "cyan"))
    first, last = f"{steps[0]:,}", f"{steps[-1]:,}"
    unit = f"{unit}, logarithmic values" if is_logarithmic else unit
    gap = max(1, columns - len(first) - len(last))
    below = f"{first}{unit.center(gap) if len(unit) < gap - 1 else ' ' * gap}{last}"
    yield Text(f"{'':{margin}}  {below}", style="dim", no_wrap=True, overflow="ellipsis")


def _canvas(steps: Sequence[int], heights: Sequence[float], *, columns: int) -> list[str]:
    """Draw lines from point to point. Gives the letters of each row, the highest first."""
    wide, high = columns * _COLUMNS, _HEIGHT * _ROWS
    across = [_scaled(step, steps[0], steps[-1], room=wide) for step in steps]
    least, greatest = min(heights), max(heights)
    down = [high - 1 - _scaled(height, least, greatest, room=high) for height in heights]
    letters = [[0] * columns for _ in range(_HEIGHT)]
    for index, (x, y) in enumerate(zip(across, down, strict=True)):
        x_before, y_before = (across[index - 1], down[index - 1]) if index else (x, y)
        for dot in range(count := max(abs(x - x_before), abs(y - y_before), 1) + 1):
            share = dot / (count - 1)
            row, column = round(y_before + share * (y - y_before)), round(x_before + share * (x - x_before))
            letters[row // _ROWS][column // _COLUMNS] |= _DOTS[row % _ROWS][column % _COLUMNS]
    return ["".join(chr(_FIRST_LETTER + bits) if bits else " " for bits in row).rstrip() for row in letters]


def _scaled(value: float, least: float, greatest: float, *, room: int) -> int:
    # Halved first: the distance of two numbers may be no number.
    distance = greatest / 2 - least / 2
    return (room - 1) // 2 if not distance else round((value / 2 - least / 2) / distance * (room - 1))
