"""A dashboard as a picture, the way CloudWatch lays it out."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.dashboard.values import series, total

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from spotkeep_local.dashboard.body import Shown, Widget
    from spotkeep_local.dashboard.reading import Alarm, DashboardView
    from spotkeep_local.dashboard.values import Recorded

_UNIT_WIDTH_IN: Final = 0.58
_UNIT_HEIGHT_IN: Final = 0.42
_COLUMNS: Final = 24
_POINTS_A_LINE: Final = 60
_TITLE_IN: Final = 0.3
_INK, _PALE, _EDGE = "#16191f", "#5f6b7a", "#d5dbdb"
_OK, _ALARM = "#2ca02c", "#d62728"
_COLORS: Final = ("#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f")


def save_dashboard_picture(view: DashboardView, path: Path) -> None:
    """Draw a dashboard into an SVG (or PNG, PDF) file, by the name's ending.

    Args:
        view: What to draw.
        path: The file.

    Raises:
        ImportError: matplotlib is not installed.
        OSError: The file cannot be written.
        ValueError: The file's ending is of no known picture format.
    """
    import matplotlib as mpl
    from matplotlib.figure import Figure

    rows = max(widget.place.y + widget.place.height for widget in view.widgets)
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": view.name, "font.size": 8, "text.color": _INK}):
        figure = Figure(figsize=(_COLUMNS * _UNIT_WIDTH_IN, rows * _UNIT_HEIGHT_IN))
        for widget in view.widgets:
            _draw(figure, widget, view, rows=rows)
        figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)


def _draw(figure: Figure, widget: Widget, view: DashboardView, *, rows: int) -> None:
    place = widget.place
    frame = figure.add_axes(
        (
            place.x / _COLUMNS + 0.002,
            1 - (place.y + place.height) / rows + 0.002,
            place.width / _COLUMNS - 0.004,
            place.height / rows - 0.004,
        )
    )
    frame.set_xticks([])
    frame.set_yticks([])
    for spine in frame.spines.values():
        spine.set_color(_EDGE)
    if widget.view == "text":
        _text(frame, widget.markdown)
        return
    title_share = _TITLE_IN / (place.height * _UNIT_HEIGHT_IN)
    frame.text(0.012, 1 - title_share / 2, widget.title, va="center", weight="bold", size=9)
    inside = frame.inset_axes((0.0, 0.0, 1.0, 1 - title_share))
    inside.axis("off")
    if widget.view == "alarm":
        _alarms(inside, view.alarms)
    elif widget.view == "singleValue":
        _numbers(inside, widget, view.recorded)
    elif widget.view == "bar":
        _bars(inside, widget, view.recorded)
    else:
        _lines(inside, widget, view.recorded)


def _text(axes: Axes, markdown: str) -> None:
    head, _, rest = markdown.partition("\n")
    axes.text(0.008, 0.68, head.lstrip("# "), va="center", size=14, weight="bold")
    axes.text(0.008, 0.25, rest.replace("`", ""), va="center", size=8.5, color=_PALE)


def _alarms(axes: Axes, alarms: tuple[Alarm, ...]) -> None:
    columns = 6
    lines = -(-len(alarms) // columns)
    for number, alarm in enumerate(alarms):
        x, y = (number % columns + 0.012 * columns) / columns * 0.99, 1 - (number // columns + 0.5) / max(lines, 1)
        axes.scatter([x], [y], s=46, marker="s", color=_ALARM if alarm.ringing else _OK, clip_on=False)
        state = "in alarm" if alarm.ringing else "OK"
        axes.text(x + 0.008, y, f"{_words_of(alarm.name)}: {state}", va="center", size=8)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, 1)


def _words_of(alarm_name: str) -> str:
    """`Spotkeep-Events-AlarmsTrackerErrorsAC2ED9F6-0470` is about tracker errors."""
    match = re.search(r"(\w*)Alarms([A-Za-z_]+?)(?:[0-9A-F]{8})?(?:-\w+)?$", alarm_name)
    words = f"{match[1]}{match[2]}" if match else alarm_name
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", words).lower()


def _numbers(axes: Axes, widget: Widget, recorded: Recorded) -> None:
    shown = _visible(widget)
    for number, (each, color) in enumerate(shown):
        value = total(each, widget.shown, recorded)
        x = (number + 0.5) / len(shown)
        axes.text(x, 0.62, _figure_of(value), ha="center", va="center", size=20, color=color if value else _INK)
        axes.text(x, 0.3, _folded(each.label, 110 // (len(shown) * 3)), ha="center", va="center", size=8, color=_PALE)


def _bars(axes: Axes, widget: Widget, recorded: Recorded) -> None:
    shown = _visible(widget)
    values = [total(each, widget.shown, recorded) for each, _ in shown]
    known = [value for value in values if value is not None]
    longest = max([*map(abs, known), 0.0]) or 1.0
    plot = axes.inset_axes((0.5, 0.06, 0.36, 0.9))
    plot.axis("off")
    lowest = min([0.0, *known])
    plot.set_xlim(lowest, longest)
    plot.set_ylim(len(shown) - 0.4, -0.6)
    plot.axvline(0, color=_EDGE, linewidth=1)
    for number, ((each, color), value) in enumerate(zip(shown, values, strict=True)):
        plot.barh(number, value or 0.0, height=0.62, color=color)
        plot.text(lowest - 0.02 * longest, number, each.label, ha="right", va="center", size=8)
        plot.text(max(value or 0.0, 0.0) + 0.02 * longest, number, _figure_of(value), va="center", size=8)


def _lines(axes: Axes, widget: Widget, recorded: Recorded) -> None:
    period_s = max(1.0, (recorded.end - recorded.start) / _POINTS_A_LINE)
    shown = _visible(widget)
    plot = axes.inset_axes((0.07, 0.3, 0.86 if any(each.right for each, _ in shown) else 0.9, 0.66))
    right = plot.twinx() if any(each.right for each, _ in shown) else None
    lines = [series(each, widget.shown, recorded, period_s=period_s) for each, _ in shown]
    if widget.stacked:
        _stack(plot, [color for _, color in shown], [each.label for each, _ in shown], lines)
    else:
        for (each, color), line in zip(shown, lines, strict=True):
            on = right if each.right and right is not None else plot
            # Lines of two axes may lie on each other: the one on the right is thin and on top.
            width = 1.2 if each.right else 3.2
            # A value alone has no line to lie on.
            dot = "o" if len(line) == 1 else None
            on.step(
                *_moments_and_values(line), where="post", color=color, label=each.label, linewidth=width, marker=dot
            )
    both = [plot] if right is None else [plot, right]
    if right is not None:
        right.patch.set_visible(False)
    for axis in both:
        drawn = [line for (each, _), line in zip(shown, lines, strict=True) if each.right == (axis is right)]
        values = [value for line in drawn for _, value in line]
        _axis(axis, recorded, counted=all(value == int(value) for value in values))
        if not any(values):
            axis.set_ylim(0, 1)
    handles = [handle for axis in both for handle in axis.get_legend_handles_labels()[0]]
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.18), "ncols": len(handles)}
    plot.legend(handles=handles, frameon=False, fontsize=7.5, **below)


def _stack(plot: Axes, colors: list[str], labels: list[str], lines: list[list[tuple[float, float]]]) -> None:
    moments = sorted({at for line in lines for at, _ in line})
    known = [dict(line) for line in lines]
    heights = [[line.get(at, 0.0) for at in moments] for line in known]
    plot.stackplot([_day(at) for at in moments], heights, colors=colors, labels=labels, step="post", alpha=0.75)


def _axis(axes: Axes, recorded: Recorded, *, counted: bool) -> None:
    from matplotlib.dates import AutoDateLocator, DateFormatter
    from matplotlib.ticker import MaxNLocator

    locator: Any = AutoDateLocator
    clock: Any = DateFormatter
    axes.set_xlim(_day(recorded.start), _day(recorded.end))
    axes.set_ylim(bottom=0)
    axes.margins(y=0.1)
    axes.xaxis.set_major_locator(locator(maxticks=8))
    axes.xaxis.set_major_formatter(clock("%H:%M"))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4, integer=counted))
    axes.tick_params(colors=_PALE, labelsize=7, length=2)
    axes.grid(axis="y", color=_EDGE, linewidth=0.6)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _visible(widget: Widget) -> list[tuple[Shown, str]]:
    shown = [each for each in widget.shown if each.visible]
    return [(each, each.color or _COLORS[number % len(_COLORS)]) for number, each in enumerate(shown)]


def _moments_and_values(line: list[tuple[float, float]]) -> tuple[list[Any], list[float]]:
    return [_day(at) for at, _ in line], [value for _, value in line]


def _day(at: float) -> Any:
    from matplotlib import dates

    to_number: Any = dates.date2num
    return to_number(datetime.fromtimestamp(at, tz=UTC))


def _figure_of(value: float | None) -> str:
    if value is None:
        return "none"
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 10 else f"{value:.2g}"


def _folded(label: str, columns: int) -> str:
    import textwrap

    return "\n".join(textwrap.wrap(label, max(columns, 14)))
