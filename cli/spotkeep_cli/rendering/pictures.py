"""Pictures for pages, files and notebooks, drawn by matplotlib.

A picture is one figure with a title and a text alternative. A page gets it as SVG in the colours of the page. A file
gets the light colours. Important curves have their names at their ends, so no legend covers a curve.
"""

from __future__ import annotations

import importlib.util
import io
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from spotkeep_cli.errors import CommandLineError, MissingExtraError
from spotkeep_cli.extras import install_command
from spotkeep_cli.rendering.printable import printable_line
from spotkeep_pages.elements import code, element, notice, paragraph
from spotkeep_pages.plots import SERIES, TEXT, plot_style, svg

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.ticker import Formatter

OTHER = SERIES[-1]
"""The colour of what is drawn for comparison."""
MARKED = SERIES[1]
"""The colour of a moment, such as an interruption, and of a limit."""
WIDTH, HEIGHT = 430.0, 290.0
"""The size of a usual picture, in the pixels of a page."""
_SHRINKS, _GROWS = 0.9, 1.5
"""The factors of a wide picture at the least and at the most. On a narrower page it scrolls."""
_PLACES = frozenset({"d", "x", "y", "transform"})
_FINE = re.compile(r"(\d\.\d\d)\d+")
"""Digits below a hundredth of a pixel, which would be half of the page's bytes."""
_LOG_FROM = 30.0
"""Values whose greatest is so many times the least are on a logarithmic axis."""
_FEW = 30
"""More curves than these are drawn fainter."""
_MOST_DIGITS = 12
_LABEL_GAP = 13.0
_DPI = 72
"""A pixel of the page is a point of the figure."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Picture:
    """A figure with its words.

    Attributes:
        name: The name of its file without an ending, such as `objective`. A page has each once.
        title: The title in a few words.
        description: The text alternative. It says the facts that the picture shows.
        figure: The figure.
        names: The text that a pointer finds at a part, by the part's `gid` in the figure. A page has it as a class.
        wide: True for a picture that takes the whole width of a page.
    """

    name: str
    title: str
    description: str
    figure: Figure
    names: Mapping[str, str] = field(default_factory=dict)
    wide: bool = False

    def element(self) -> ET.Element:
        """Return it as a part of a page, with its title, its text alternative and the names of its parts."""
        engine = self.figure.get_layout_engine()
        if engine is not None:
            # Laid out here it is drawn once. matplotlib itself would draw it a second time for its layout.
            with plot_style():
                engine.execute(self.figure)
            self.figure.set_layout_engine("none")
        drawn = svg(self.figure, name=self.name, title=self.title, description=printable_line(self.description))
        for part in drawn.iter():
            gid = part.get("id", "").removeprefix(f"{self.name}-")
            says = self.names.get(gid)
            if says is not None:
                part.set("class", gid)
                part.insert(0, element("title", printable_line(says)))
            for key in part.attrib.keys() & _PLACES:
                part.set(key, _FINE.sub(r"\1", part.attrib[key]))
        content: ET.Element = drawn
        if self.wide:
            width = self.figure.get_figwidth() * _DPI
            drawn.set("style", f"min-width: {_SHRINKS * width:.0f}px; max-width: {_GROWS * width:.0f}px")
            content = element("div", drawn, class_="scroll", tabindex="0", role="group", aria_label=self.title)
        return element("figure", element("figcaption", self.title), content)

    def png(self) -> bytes:
        """Return it as a PNG file in the light colours, without its title."""
        file = io.BytesIO()
        with plot_style():
            self.figure.savefig(file, format="png", dpi=1.5 * _DPI, facecolor="white")
        return file.getvalue()

    def save(self, path: Path) -> Path:
        """Write it into a PNG, SVG or PDF file, by the name's ending.

        Args:
            path: The file. Its folder is made where it is missing.

        Raises:
            CommandLineError: The file cannot be written.
        """
        self.figure.set_layout_engine("constrained")
        title = self.figure.suptitle(printable_line(self.title), fontsize=11, fontweight="bold", color=TEXT)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with plot_style():
                # Without its date an SVG of the same values is the same file.
                metadata = {"Date": None} if path.suffix.lower() == ".svg" else None
                self.figure.savefig(path, dpi=2.5 * _DPI, facecolor="white", metadata=metadata)
        except OSError as error:
            raise CommandLineError(f"{path} cannot be written: {error.strerror}") from error
        finally:
            title.set_text("")
        return path


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A curve of a picture.

    Attributes:
        name: Its label, such as `trial 17`.
        points: Its points, from left to right. Points that are no finite numbers are left out.
        says: The text that a pointer finds at it.
        part: The name of its part of the picture, such as `trial-17`. None for its place.
        colour: Its colour. None to choose one.
        labelled: True to write its name at its end.
    """

    name: str
    points: Sequence[tuple[float, float]]
    says: str = ""
    part: str | None = None
    colour: str | None = None
    labelled: bool = True

    @property
    def finite(self) -> list[tuple[float, float]]:
        """The points that can be drawn."""
        return [(x, y) for x, y in self.points if math.isfinite(x) and math.isfinite(y)]


def can_draw() -> bool:
    """Return True where matplotlib is installed."""
    return importlib.util.find_spec("matplotlib") is not None


def require_drawing(what: str) -> None:
    """Refuse a picture where matplotlib is not installed.

    Args:
        what: The thing that needs it, such as `a picture`.

    Raises:
        MissingExtraError: It is not installed.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise MissingExtraError("planner", what=what, error=error) from None


def lacking_pictures() -> ET.Element:
    """Return the notice of a page for readers without matplotlib."""
    return notice(paragraph("Pictures need matplotlib. This command installs it: ", code(install_command("planner"))))


def laid_out(pictures: Sequence[Picture]) -> list[ET.Element]:
    """Return pictures as parts of a page, usual ones side by side."""
    usual = [picture.element() for picture in pictures if not picture.wide]
    wide = [picture.element() for picture in pictures if picture.wide]
    return [*([element("div", *usual, class_="plots")] if usual else []), *wide]


@contextmanager
def drawing(*, width: float = WIDTH, height: float = HEIGHT) -> Iterator[Figure]:
    """Give a figure to draw into, in the style of all pictures.

    Args:
        width: In pixels of the page.
        height: In pixels of the page.
    """
    from matplotlib.figure import Figure

    with plot_style():
        yield Figure(figsize=(width / _DPI, height / _DPI), dpi=_DPI, layout="constrained")


def curves_picture(
    curves: Sequence[Curve],
    *,
    name: str,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    marks: Sequence[tuple[float, str]] = (),
) -> Picture | None:
    """Draw curves, each with its name at its end. None where no curve has a point.

    Args:
        curves: From the least to the most important. The last one lies on top.
        name: See `Picture`.
        title: See `Picture`.
        description: See `Picture`.
        x_label: The label of the horizontal axis, with its unit.
        y_label: The label of the vertical axis.
        log_x: True for a logarithmic horizontal axis.
        marks: Places on the horizontal axis, each with a text, such as an interruption.
    """
    drawn = [(curve, points) for curve in curves if (points := curve.finite)]
    if not drawn:
        return None
    colours = iter(SERIES[at % (len(SERIES) - 1)] for at in range(len(drawn)))
    faint = 0.7 if len(drawn) <= _FEW else 0.35
    names: dict[str, str] = {}
    with drawing() as figure:
        axes = figure.subplots()
        value_axis(axes.yaxis, [y for _, points in drawn for _, y in points])
        number_axis(axes.xaxis, [x for _, points in drawn for x, _ in points], log=log_x)
        labels: list[tuple[float, float, str, str]] = []
        for at, (curve, points) in enumerate(drawn):
            colour = curve.colour or next(colours)
            gid = curve.part or f"curve-{at}"
            names[gid] = curve.says or curve.name
            few = len(points) <= 12
            axes.plot(
                [x for x, _ in points], [y for _, y in points], gid=gid, color=colour, in_layout=False,
                linewidth=1.8 if curve.labelled else 0.9, alpha=1 if curve.labelled else faint,
                marker="o" if (few and curve.labelled) or len(points) == 1 else None,
                markersize=3.5 if curve.labelled else 2.5,
            )  # fmt: skip
            if curve.labelled and len(drawn) > 1:
                labels.append((*points[-1], curve.name, colour))
        for x, text in marks:
            mark_place(axes, x, text)
        axes.set_xlabel(x_label)
        axes.set_ylabel(printable_line(y_label, longest=40))
        label_ends(axes, labels)
    return Picture(name=name, title=title, description=description, figure=figure, names=names)


def mark_place(axes: Axes, x: float, text: str, *, at_top: bool = True) -> None:
    """Mark a place on the horizontal axis, such as a deadline, with its name beside the line.

    Args:
        axes: The picture.
        x: The place.
        text: Its name.
        at_top: False to write the name at the bottom.
    """
    axes.axvline(x, color=MARKED, linewidth=1.2, linestyle=(0, (3, 3)), zorder=1)
    axes.annotate(
        printable_line(text), (x, float(at_top)), xycoords=("data", "axes fraction"), rotation=90, ha="right",
        va="top" if at_top else "bottom", fontsize=9.5, color=MARKED, xytext=(-2, -2 if at_top else 4),
        textcoords="offset points", in_layout=False,
    )  # fmt: skip


def label_ends(axes: Axes, labels: Sequence[tuple[float, float, str, str]]) -> None:
    """Write names at the right of a picture, beside the ends of its curves, and none over another.

    Args:
        axes: The picture, with all that it shows.
        labels: For each curve the x and y of its end, its name and its colour.
    """
    if not labels:
        return
    to_axes = (axes.transData + axes.transAxes.inverted()).transform
    height = size_of(axes)[1]
    wanted = [float(to_axes((x, y))[1]) * height for x, y, _, _ in labels]
    rising = sorted(range(len(labels)), key=wanted.__getitem__)
    for at, place in zip(rising, spread([wanted[at] for at in rising], gap=_LABEL_GAP, room=height), strict=True):
        x, y, name, colour = labels[at]
        axes.annotate(
            printable_line(name, longest=24), (x, y), xytext=(1.03, place / height), textcoords="axes fraction",
            color=colour, fontsize=10, va="center", ha="left", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "linewidth": 0.6, "alpha": 0.6, "shrinkA": 1, "shrinkB": 2},
        )  # fmt: skip


def size_of(axes: Axes) -> tuple[float, float]:
    """Return about the width and the height of a picture without its labels, in pixels."""
    width, height = axes.bbox.size
    return float(width), float(height)


def spread(places: Sequence[float], *, gap: float, room: float = math.inf) -> list[float]:
    """Return places that are as near to the given ones as a least gap allows, in the same order.

    Args:
        places: In rising order.
        gap: The least distance of two.
        room: The greatest place. 0 is the least. More places than fit go beyond it.
    """
    # Blocks of touching labels, each with the mean of the places that its members want.
    blocks: list[tuple[list[float], int]] = []
    for place in places:
        blocks.append(([place], 1))
        while len(blocks) > 1 and _first_of(blocks[-1][0], gap) < _last_of(blocks[-2][0], gap) + gap:
            (lower, many), (upper, more) = blocks[-2:]
            blocks[-2:] = [(lower + upper, many + more)]
    found = [_first_of(wanted, gap) + at * gap for wanted, _ in blocks for at in range(len(wanted))]
    if math.isinf(room):
        return found
    for at in reversed(range(len(found))):
        found[at] = min(found[at], room - (len(found) - 1 - at) * gap)
    for at in range(len(found)):
        found[at] = max(found[at], at * gap)
    return found


def _first_of(wanted: Sequence[float], gap: float) -> float:
    return sum(place - at * gap for at, place in enumerate(wanted)) / len(wanted)


def _last_of(wanted: Sequence[float], gap: float) -> float:
    return _first_of(wanted, gap) + (len(wanted) - 1) * gap


def value_axis(axis: Axis, values: Sequence[float], *, margin: float = 0.04) -> None:
    """Set up the axis of a measured value. It is logarithmic where the values span powers of ten."""
    number_axis(axis, values, log=spans_powers_of_ten(values), margin=margin)


def spans_powers_of_ten(values: Sequence[float]) -> bool:
    """Return True for positive values, the greatest of which is many times the least."""
    return bool(values) and min(values) > 0 and max(values) / min(values) >= _LOG_FROM


def number_axis(axis: Axis, values: Sequence[float], *, log: bool, margin: float = 0.04) -> None:
    """Set up an axis for numbers, with ticks that can be read and differ.

    Args:
        axis: The axis.
        values: The values that it has to show.
        log: True for a logarithmic axis.
        margin: The room at both ends, as a share of the range.
    """
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    low, high = min(values), max(values)
    axes = axis.axes
    of_x = axis is axes.xaxis
    if log:
        (axes.set_xscale if of_x else axes.set_yscale)("log")
        decades = math.log10(high / low) if high > low else 0.0
        subs = (1.0, 2.0, 5.0) if decades < 2 else (1.0, 3.0) if decades < 3 else (1.0,)
        axis.set_major_locator(LogLocator(subs=subs, numticks=6))
        axis.set_minor_formatter(NullFormatter())
        factor = 10 ** (margin * (decades or 1))
        low, high = low / factor, high * factor
    else:
        axis.set_major_locator(MaxNLocator(nbins=5 if of_x else 6))
        # A constant gets room around it, whatever its size.
        room = margin * (high - low) or 0.1 * abs(high) or 1.0
        low, high = low - room, high + room
    (axes.set_xlim if of_x else axes.set_ylim)(low, high)
    axis.set_major_formatter(tick_formatter())


def tick_formatter() -> Formatter:
    """Return a formatter that writes as many digits as ticks need to differ, without an offset beside the axis."""
    from matplotlib.ticker import Formatter

    class _Ticks(Formatter):
        def __call__(self, x: float, pos: int | None = None) -> str:
            del pos
            return number_text(x)

        def format_ticks(self, values: list[float]) -> list[str]:
            return tick_texts(values)

    return _Ticks()


def tick_texts(values: Sequence[float]) -> list[str]:
    """Return the texts of ticks in one form, with as few digits as tell them apart and stand for them."""
    if len(values) < 2:
        return [number_text(value) for value in values]
    sizes = [abs(value) for value in values if value] or [1.0]
    # 0.00009 beside 0.00012 is no power of ten, but 1e-9 beside 0.001 is.
    plain = _is_plain(max(sizes)) and (_is_plain(min(sizes)) or max(sizes) <= _LOG_FROM * min(sizes))
    step = min(abs(after - before) for before, after in pairwise(values)) or 1.0
    for digits in range(1, _MOST_DIGITS):
        texts = [number_text(value, digits=digits, plain=plain) for value in values]
        numbers = [float(text.replace(",", "")) for text in texts]
        if all(abs(number - value) < step / 50 for number, value in zip(numbers, values, strict=True)):
            return texts
    return [number_text(value, digits=_MOST_DIGITS, plain=plain) for value in values]


def _is_plain(size: float) -> bool:
    return 1e-4 <= size < 1e6


def number_text(value: float, *, digits: int = 4, plain: bool | None = None) -> str:
    """Return a number as people write it, such as `0.001`, `1e-9`, `2,700` or `3e7`.

    Args:
        value: The number.
        digits: The most digits.
        plain: True for no power of ten, and False for one. By default its size decides.
    """
    if value == 0:
        return "0"
    if _is_plain(abs(value)) if plain is None else plain:
        rounded = float(f"{value:.{digits}g}")
        text = f"{rounded:,.{_MOST_DIGITS}f}".rstrip("0").rstrip(".")
        return "0" if text == "-0" else text
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return f"{mantissa}e{int(exponent)}"


def time_unit(longest_s: float) -> tuple[float, str]:
    """Return the seconds of the unit that fits a time, and its name, such as `min`.

    Args:
        longest_s: The longest time to write, in seconds.
    """
    for unit, name, up_to in ((1.0, "s", 120.0), (60.0, "min", 7_200.0), (3_600.0, "h", 172_800.0)):
        if longest_s < up_to:
            return unit, name
    return 86_400.0, "days"
