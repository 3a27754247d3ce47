"""A dashboard's body and a function's log give the numbers that CloudWatch would show."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.dashboard.body import DashboardBodyError, MetricKey, Shown, widgets_of
from spotkeep_local.dashboard.embedded_metrics import samples_of
from spotkeep_local.dashboard.values import Recorded, Sample, is_in_alarm, series, total

LOST = MetricKey(namespace="Spotkeep", name="LostTime", dimensions=(("service", "spotkeep"),))


def recorded(*values: tuple[float, float]) -> Recorded:
    return Recorded.of([Sample(metric=LOST, at=at, value=value) for at, value in values], start=0, end=600)


def line(**values: float) -> str:
    metrics = [{"Name": name, "Unit": "Count"} for name in values]
    directive = {"Namespace": "Spotkeep", "Dimensions": [["service"]], "Metrics": metrics}
    return json.dumps({"_aws": {"Timestamp": 5_000, "CloudWatchMetrics": [directive]}, "service": "spotkeep", **values})


def body(*metrics: Any, **properties: Any) -> str:
    widget = {"type": "metric", "x": 0, "y": 0, "width": 6, "height": 6}
    return json.dumps({"widgets": [{**widget, "properties": {"metrics": metrics, **properties}}]})


def test_a_line_of_a_log_gives_its_metrics_and_no_other_line_does() -> None:
    assert list(samples_of(line(LostTime=61.5))) == [Sample(metric=LOST, at=5.0, value=61.5)]
    assert list(samples_of('{"level": "INFO", "message": "swept"}')) == []
    assert list(samples_of("START RequestId: 1")) == []


@given(
    st.text()
    | st.recursive(st.none() | st.text() | st.integers(), lambda x: st.dictionaries(st.text(), x)).map(json.dumps)
)
def test_no_line_breaks_the_reader(text: str) -> None:
    assert list(samples_of(text)) == []


@pytest.mark.parametrize(("statistic", "value"), [("Sum", 6), ("Maximum", 3), ("Minimum", 1), ("SampleCount", 3)])
def test_a_total_is_the_statistic_of_all_that_was_recorded(statistic: str, value: float) -> None:
    shown = Shown(label="lost", statistic=statistic, metric=LOST)
    assert total(shown, [shown], recorded((1, 1), (2, 2), (300, 3))) == value
    assert total(shown, [shown], recorded()) is None


def test_a_line_has_one_value_a_period_and_none_where_nothing_was_recorded() -> None:
    shown = Shown(label="lost", statistic="Sum", metric=LOST)
    values = recorded((1, 1), (2, 2), (300, 3))
    assert series(shown, [shown], values, period_s=60) == [(0, 3), (300, 3)]
    hours = Shown(label="hours", expression="lost / 3600")
    beside = [Shown(label="", id="lost", statistic="Sum", metric=LOST, visible=False), hours]
    assert series(hours, beside, values, period_s=60) == [(0, 3 / 3600), (300, 3 / 3600)]


@given(saved=st.floats(0, 1e6), billed=st.floats(0, 1e6))
def test_a_percentage_is_computed_from_sums(saved: float, billed: float) -> None:
    keys = {name: MetricKey(namespace="Spotkeep", name=name) for name in ("saved", "billed")}
    values = {"saved": saved, "billed": billed}
    found = Recorded.of([Sample(metric=keys[name], at=1, value=values[name]) for name in keys], start=0, end=9)
    percent = Shown(label="%", expression="100 * saved / (saved + billed)")
    beside = [*(Shown(label="", id=name, statistic="Sum", metric=key) for name, key in keys.items()), percent]
    computed = total(percent, beside, found)
    if saved + billed == 0:
        assert computed is None
    else:
        assert computed is not None
        assert math.isclose(computed, 100 * saved / (saved + billed))


def test_an_expression_of_what_was_not_recorded_has_no_value_and_a_strange_one_is_refused() -> None:
    lost = Shown(label="", id="lost", statistic="Sum", metric=LOST)
    assert total(Shown(label="", expression="lost / 3600"), [lost], recorded()) is None
    with pytest.raises(DashboardBodyError, match="SEARCH"):
        total(Shown(label="", expression="SEARCH('x')"), [lost], recorded((1, 1)))


def test_an_alarm_rings_on_its_newest_period_alone() -> None:
    how = {"metric": LOST, "statistic": "Sum", "period_s": 300, "threshold": 2.0}
    rings = "GreaterThanOrEqualToThreshold"
    assert is_in_alarm(comparison=rings, recorded=recorded((400, 1), (500, 1)), **how)
    assert not is_in_alarm(comparison=rings, recorded=recorded((100, 9), (500, 1)), **how)
    assert not is_in_alarm(comparison=rings, recorded=recorded(), **how)


def test_a_body_is_read_with_its_expressions_axes_and_defaults() -> None:
    [widget] = widgets_of(
        body(
            ["Spotkeep", "LostTime", "service", "spotkeep", {"id": "m", "visible": False, "stat": "Sum"}],
            [{"expression": "m / 3600", "label": "hours", "yAxis": "right"}],
            view="bar",
            title="Lost",
            setPeriodToTimeRange=True,
        )
    )
    metric, expression = widget.shown
    assert (widget.view, widget.title, widget.whole_range) == ("bar", "Lost", True)
    assert (metric.metric, metric.visible, metric.statistic, metric.label) == (LOST, False, "Sum", "LostTime")
    assert (expression.expression, expression.label, expression.right) == ("m / 3600", "hours", True)


def test_all_that_cannot_be_shown_is_named_at_once() -> None:
    documents = json.loads(body(["Spotkeep", "A"], view="pie"))["widgets"] + [{"type": "log", "properties": {}}]
    with pytest.raises(DashboardBodyError, match=r"pie.*; widget 1 is of type log"):
        widgets_of(json.dumps({"widgets": documents}))
    with pytest.raises(DashboardBodyError, match="no dashboard"):
        widgets_of("[]")
