"""Reads the body of a CloudWatch dashboard into types. Pure.

Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from spotkeep_local.errors import LocalAwsError

View = Literal["text", "alarm", "timeSeries", "bar", "singleValue"]
_METRIC_VIEWS: Final = ("timeSeries", "bar", "singleValue")
_DEFAULT_PERIOD_S: Final = 300


class DashboardBodyError(LocalAwsError, ValueError):
    """The body of a dashboard is none, or holds what cannot be shown here; the text names every such thing."""


@dataclass(frozen=True, kw_only=True)
class MetricKey:
    """Which metric of CloudWatch's.

    Attributes:
        namespace: For example `Spotkeep`.
        name: Of the metric.
        dimensions: Name and value of each, sorted.
    """

    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A line, bar or number of a widget.

    Attributes:
        label: What it is called.
        color: As CSS has it; None where the body says none.
        id: What expressions call it.
        visible: False where it is only there for an expression.
        right: Whether it belongs to the axis on the right.
        statistic: Of the metric's values in a period.
        period_s: Seconds.
        metric: None for an expression.
        expression: Of the ids of other metrics of the widget.
    """

    label: str
    color: str | None = None
    id: str = ""
    visible: bool = True
    right: bool = False
    statistic: str = "Average"
    period_s: int = _DEFAULT_PERIOD_S
    metric: MetricKey | None = None
    expression: str | None = None


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a widget is, from the top left, and how large: in units of a grid that is 24 wide."""

    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, kw_only=True)
class Widget:
    """A field of the dashboard."""

    view: View
    place: Place
    title: str = ""
    markdown: str = ""
    alarm_arns: tuple[str, ...] = ()
    shown: tuple[Shown, ...] = ()
    stacked: bool = False
    whole_range: bool = False
    """Whether there is one value for all of the time shown."""


def widgets_of(body: str) -> tuple[Widget, ...]:
    """The widgets of a dashboard's body.

    Args:
        body: As GetDashboard gives it.

    Raises:
        DashboardBodyError: It cannot be shown.
    """
    try:
        documents = json.loads(body)["widgets"]
    except (ValueError, KeyError, TypeError) as error:
        raise DashboardBodyError(f"the body is no dashboard: {error!r}") from error
    problems = [problem for number, document in enumerate(documents) for problem in _problems(number, document)]
    if problems:
        raise DashboardBodyError("; ".join(problems))
    return tuple(_widget(document) for document in documents)


def _problems(number: int, document: Mapping[str, Any]) -> list[str]:
    kind, properties = document.get("type"), document.get("properties", {})
    if kind in ("text", "alarm"):
        return []
    if kind != "metric":
        return [f"widget {number} is of type {kind}; text, alarm and metric can be shown"]
    problems = []
    if properties.get("view", "timeSeries") not in _METRIC_VIEWS:
        problems.append(f"widget {number} has the view {properties['view']}; can be shown: {', '.join(_METRIC_VIEWS)}")
    if any("." in row or "..." in row for row in properties["metrics"]):
        problems.append(f"widget {number} abbreviates its metrics, which is not read here")
    return problems


def _widget(document: Mapping[str, Any]) -> Widget:
    properties: Mapping[str, Any] = document["properties"]
    place = Place(x=document["x"], y=document["y"], width=document["width"], height=document["height"])
    if document["type"] == "text":
        return Widget(view="text", markdown=properties["markdown"], place=place)
    title = properties.get("title", "")
    if document["type"] == "alarm":
        return Widget(view="alarm", title=title, alarm_arns=tuple(properties["alarms"]), place=place)
    period_s = properties.get("period", _DEFAULT_PERIOD_S)
    return Widget(
        view=properties.get("view", "timeSeries"),
        title=title,
        shown=tuple(_shown(row, period_s) for row in properties["metrics"]),
        stacked=properties.get("stacked", False),
        whole_range=properties.get("setPeriodToTimeRange", False),
        place=place,
    )


def _shown(row: Sequence[Any], period_s: int) -> Shown:
    *names, last = row
    options: Mapping[str, Any] = last if isinstance(last, Mapping) else {}
    if not isinstance(last, Mapping):
        names.append(last)
    metric = None
    if names:
        namespace, name, *rest = names
        dimensions = tuple(sorted(zip(rest[::2], rest[1::2], strict=True)))
        metric = MetricKey(namespace=namespace, name=name, dimensions=dimensions)
    return Shown(
        label=options.get("label") or (metric.name if metric else options["expression"]),
        color=options.get("color"),
        id=options.get("id", ""),
        visible=options.get("visible", True),
        right=options.get("yAxis") == "right",
        statistic=options.get("stat", "Average"),
        period_s=options.get("period", period_s),
        metric=metric,
        expression=options.get("expression"),
    )
