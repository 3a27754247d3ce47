"""Bars on one axis of time or of steps. Their text keeps its size on any screen. Pure.

They need no library, so that a rehearsal without any package has its picture, too. A place along the axis is a
percentage.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from spotkeep_pages.elements import element

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from xml.etree import ElementTree as ET

HATCHED = ("repeated", "waited")
"""Kinds that differ without colours, too."""
_BAR, _ABOVE, _BELOW = 22, 11, 3
_MOST_LABELS, _MOST_READ = 6, 4
_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_SECONDS = (
    *(0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30),
    *(number * _MINUTE for number in (1, 2, 5, 10, 15, 30)),
    *(number * _HOUR for number in (1, 2, 3, 6, 12)),
    *(number * _DAY for number in (1, 2, 7, 14, 30)),
)


@dataclass(frozen=True)
class Span:
    """A part of a bar.

    Attributes:
        begin: Its begin on the axis.
        end: Its end on the axis.
        kind: A class of the style sheet, such as `trained`, `repeated`, `waited`, `started` or `lost`.
        text: Its meaning in words.
    """

    begin: float
    end: float
    kind: str
    text: str


@dataclass(frozen=True)
class Mark:
    """A moment on a bar.

    Attributes:
        at: Its place on the axis.
        kind: A class of the style sheet, such as `interrupted` or `saved`.
        text: Its meaning in words.
    """

    at: float
    kind: str
    text: str


@dataclass(frozen=True)
class Lane:
    """A bar with its name.

    Attributes:
        name: Its name.
        spans: Its parts in order.
        marks: The moments on it.
    """

    name: str
    spans: Sequence[Span]
    marks: Sequence[Mark] = ()


def bars(lanes: Sequence[Lane], *, name: str, caption: str, unit: str, legend: Mapping[str, str]) -> ET.Element:
    """Return bars as a figure. The texts of spans and marks are the alternative for readers who do not see it.

    Args:
        lanes: The bars from above.
        name: A name that no other picture of the page has.
        caption: A sentence below the figure.
        unit: The unit of the axis. `seconds` gets labels such as `5m`.
        legend: For each kind its meaning, such as `wrote a checkpoint file`. Kinds that no bar has are left out.
    """
    ends = [span.end for lane in lanes for span in lane.spans] + [mark.at for lane in lanes for mark in lane.marks]
    longest = max([*ends, 0.0]) or 1.0
    labels = _labels(longest, unit=unit)
    kinds = {span.kind for lane in lanes for span in lane.spans} | {mark.kind for lane in lanes for mark in lane.marks}
    rows = [
        element(
            "li",
            element("p", lane.name),
            _bar(lane, name=f"{name}-{number}", longest=longest, labels=labels, said=_in_words(lane, legend=legend)),
        )
        for number, lane in enumerate(lanes, start=1)
    ]
    keys = (
        element("li", element("span", class_=f"key {kind}", aria_hidden="true"), meaning)
        for kind, meaning in legend.items()
        if kind in kinds
    )
    return element(
        "figure",
        element("ol", *rows, class_="lanes"),
        _axis(labels, longest=longest),
        element("ul", *keys, class_="legend"),
        element("figcaption", caption),
    )


def _bar(lane: Lane, *, name: str, longest: float, labels: Mapping[float, str], said: str) -> ET.Element:
    height = _ABOVE + _BAR + _BELOW
    parts = [
        element("line", x1=x, x2=x, y1=str(_ABOVE), y2=str(height), class_="grid")
        for x in (_percent(at, longest) for at in labels)
    ]
    for span in lane.spans:
        width = _percent(span.end - span.begin, longest)
        box = {"x": _percent(span.begin, longest), "y": str(_ABOVE), "width": width, "height": str(_BAR)}
        parts.append(element("rect", element("title", span.text), class_=span.kind, **box))
        if span.kind in HATCHED:
            parts.append(element("rect", fill=f"url(#{name}-hatch)", class_="hatch", **box))
    for mark in lane.marks:
        triangle = element("path", d=f"M-6 0H6L0 {_ABOVE - 1}Z")
        line = element("path", d=f"M0 {_ABOVE - 1}V{height}", class_="stem")
        shape = (
            (triangle, line) if mark.kind == "interrupted" else (line, element("circle", cy=str(_ABOVE - 5), r="3.5"))
        )
        parts.append(
            element(
                "svg", element("title", mark.text), *shape, x=_percent(mark.at, longest), class_=f"mark {mark.kind}"
            )
        )
    hatch = element(
        "pattern",
        element("path", d="M-1 7L7 -1M-1 1L1 -1M5 7L7 5"),
        id=f"{name}-hatch",
        width="6",
        height="6",
        patternUnits="userSpaceOnUse",
    )
    return element("svg", element("defs", hatch), *parts, height=str(height), role="img", aria_label=said)


def _in_words(lane: Lane, *, legend: Mapping[str, str]) -> str:
    """Return a bar for readers who do not see it. Of many marks of a kind it says the number."""
    numbers = Counter(mark.kind for mark in lane.marks)
    parts = [(mark.at, 0, mark.text) for mark in lane.marks if numbers[mark.kind] <= _MOST_READ]
    parts += [(span.begin, 1, span.text) for span in lane.spans]
    many = [f"{legend[kind]} {number} times" for kind, number in numbers.items() if number > _MOST_READ]
    return "; ".join([*(text for _, _, text in sorted(parts)), *many]) or "nothing"


def _axis(labels: Mapping[float, str], *, longest: float) -> ET.Element:
    parts = [
        element("text", text, x=_percent(at, longest), y="14", text_anchor=_anchor(at / longest))
        for at, text in labels.items()
    ]
    return element("svg", *parts, class_="axis", height="20", aria_hidden="true")


def _anchor(share: float) -> str:
    return "start" if share < 0.04 else "end" if share > 0.96 else "middle"


def _percent(value: float, longest: float) -> str:
    return f"{max(0.0, value) / longest * 100:.3f}%"


def _labels(longest: float, *, unit: str) -> dict[float, str]:
    """Return round places on the axis with their labels, the unit at the last."""
    if unit == "seconds":
        step = next((float(each) for each in _SECONDS if longest / each < _MOST_LABELS), longest)
        return {at: _duration(at) for at in _multiples(step, longest)}
    power = 10.0 ** math.floor(math.log10(longest))
    step = next(each for each in (power / 5, power / 2, power, power * 2) if longest / each < _MOST_LABELS)
    places = _multiples(max(1.0, step), longest)
    return {at: f"{at:,.0f} {unit}" if at == places[-1] else f"{at:,.0f}" for at in places}


def _multiples(step: float, longest: float) -> list[float]:
    return [number * step for number in range(int(longest / step * (1 + 1e-9)) + 1)]


def _duration(seconds: float) -> str:
    for unit, length in (("d", _DAY), ("h", _HOUR), ("m", _MINUTE)):
        if seconds >= length:
            whole, rest = divmod(round(seconds), length)
            return f"{whole}{unit}" if not rest else f"{whole}{unit} {_duration(rest)}"
    return f"{seconds:g}s"
