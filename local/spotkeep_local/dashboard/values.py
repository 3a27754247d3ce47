"""The values of a widget's lines and bars, from what was recorded. Pure.

Statistics are CloudWatch's; of its metric math, the four operations on numbers and metrics.
Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/using-metric-math.html
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spotkeep_local.dashboard.body import DashboardBodyError, MetricKey, Shown

_STATISTICS: Final[Mapping[str, Callable[[Sequence[float]], float]]] = {
    "Sum": sum,
    "Maximum": max,
    "Minimum": min,
    "Average": lambda values: sum(values) / len(values),
    "SampleCount": len,
}
_OPERATIONS: Final[Mapping[type[ast.operator], Callable[[float, float], float]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_COMPARISONS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "GreaterThanOrEqualToThreshold": operator.ge,
    "GreaterThanThreshold": operator.gt,
    "LessThanThreshold": operator.lt,
    "LessThanOrEqualToThreshold": operator.le,
}


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A value that was recorded.

    Attributes:
        metric: Of what.
        at: Epoch seconds.
        value: In the metric's unit.
    """

    metric: MetricKey
    at: float
    value: float


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What was recorded between two moments, in epoch seconds."""

    start: float
    end: float
    samples: Mapping[MetricKey, Sequence[Sample]] = field(default_factory=dict)

    @classmethod
    def of(cls, samples: Iterable[Sample], *, start: float, end: float) -> Recorded:
        """Sort samples by metric and time; those outside are left out."""
        by_metric: dict[MetricKey, list[Sample]] = {}
        for sample in sorted(samples, key=lambda each: each.at):
            if start <= sample.at <= end:
                by_metric.setdefault(sample.metric, []).append(sample)
        return cls(start=start, end=end, samples=by_metric)


def total(shown: Shown, beside: Sequence[Shown], recorded: Recorded) -> float | None:
    """The one value of a line over all of the time; None where there is none.

    Args:
        shown: The line.
        beside: All lines of its widget: what an expression may name.
        recorded: What was recorded.
    """
    if shown.metric is not None:
        values = [sample.value for sample in recorded.samples.get(shown.metric, ())]
        return _STATISTICS[shown.statistic](values) if values else None
    return _computed(
        shown, {each.id: total(each, beside, recorded) for each in beside if each.id and each.metric is not None}
    )


def series(shown: Shown, beside: Sequence[Shown], recorded: Recorded, *, period_s: float) -> list[tuple[float, float]]:
    """The values of a line, one a period, with the time at which the period begins.

    Args:
        shown: The line.
        beside: All lines of its widget.
        recorded: What was recorded.
        period_s: Seconds.
    """
    if shown.metric is not None:
        periods: dict[int, list[float]] = {}
        for sample in recorded.samples.get(shown.metric, ()):
            periods.setdefault(int((sample.at - recorded.start) // period_s), []).append(sample.value)
        statistic = _STATISTICS[shown.statistic]
        return [(recorded.start + number * period_s, statistic(values)) for number, values in sorted(periods.items())]
    lines = {
        each.id: dict(series(each, beside, recorded, period_s=period_s)) for each in beside if each.id and each.metric
    }
    moments = sorted({at for line in lines.values() for at in line})
    computed = [(at, _computed(shown, {name: line.get(at) for name, line in lines.items()})) for at in moments]
    return [(at, value) for at, value in computed if value is not None]


def is_in_alarm(
    *, metric: MetricKey, statistic: str, period_s: float, comparison: str, threshold: float, recorded: Recorded
) -> bool:
    """Whether the newest period breaches a threshold; without a value it does not (notBreaching).

    Args:
        metric: What is watched.
        statistic: Of its values in the period.
        period_s: Seconds.
        comparison: CloudWatch's word for it.
        threshold: What it is held against.
        recorded: What was recorded.
    """
    since = recorded.end - period_s
    values = [sample.value for sample in recorded.samples.get(metric, ()) if sample.at >= since]
    return bool(values) and _COMPARISONS[comparison](_STATISTICS[statistic](values), threshold)


def _computed(shown: Shown, values: Mapping[str, float | None]) -> float | None:
    """The value of an expression; None where one that it needs is missing, or it divides by zero."""
    try:
        return _evaluated(ast.parse(shown.expression or "", mode="eval").body, values)
    except SyntaxError as error:
        raise DashboardBodyError(f"the expression {shown.expression!r} is not read here: {error}") from error
    except (_MissingError, ZeroDivisionError):
        return None


class _MissingError(Exception):
    """A metric of an expression has no value."""


def _evaluated(node: ast.expr, values: Mapping[str, float | None]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name(id=name) if name in values:
            value = values[name]
            if value is None:
                raise _MissingError
            return value
        case ast.BinOp(left=left, op=operation, right=right) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](_evaluated(left, values), _evaluated(right, values))
        case _:
            raise DashboardBodyError(f"an expression holds {ast.unparse(node)!r}, which is not read here")
