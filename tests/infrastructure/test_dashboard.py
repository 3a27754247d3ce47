"""The dashboard shows what the functions write, and nothing that nobody writes."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from spotkeep_jobs.decisions.run_metrics import RunMetric
from spotkeep_local.dashboard.body import Shown, Widget, widgets_of

from .conftest import ROOT

if TYPE_CHECKING:
    from .conftest import Templates


def joined(value: Any) -> str:
    """The text that CloudFormation makes of an Fn::Join, with a mark for what it refers to."""
    if isinstance(value, str):
        return value
    [[function, argument]] = value.items()
    if function == "Fn::Join":
        return str(argument[0]).join(joined(part) for part in argument[1])
    return f"<{function}>"


def widgets(templates: Templates) -> tuple[Widget, ...]:
    [board] = templates.resources("AWS::CloudWatch::Dashboard").values()
    return widgets_of(joined(board["Properties"]["DashboardBody"]))


def shown(templates: Templates) -> list[Shown]:
    return [each for widget in widgets(templates) for each in widget.shown]


def written_by_handlers() -> set[str]:
    """The names of metrics that stand in the functions' entry points."""
    sources = [path.read_text() for path in (ROOT / "lambda").rglob("*.py")]
    return {name for text in sources for name in re.findall(r'"([A-Z][A-Za-z]+)"', text)}


def test_every_metric_is_one_that_is_written(templates: Templates) -> None:
    for each in shown(templates):
        if each.metric is None or each.metric.namespace != "Spotkeep":
            continue
        [(dimension, service)] = each.metric.dimensions
        known = set(RunMetric) if "<" not in service else written_by_handlers()
        assert each.metric.name in known, f"{each.metric.name} of {service}"
        assert dimension == "service"


def test_every_metric_of_the_deployment_is_shown(templates: Templates) -> None:
    assert {each.metric.name for each in shown(templates) if each.metric is not None} >= set(RunMetric)


def test_a_function_s_errors_dead_letters_and_every_alarm_are_on_it(templates: Templates) -> None:
    names = [each.metric.name for each in shown(templates) if each.metric is not None]
    functions = [name for name in templates.resources("AWS::Lambda::Function") if "LogRetention" not in name]
    assert names.count("Errors") == len(functions)
    queues = len(functions) + len(("notifications put aside", "notifications not delivered"))
    assert names.count("ApproximateNumberOfMessagesVisible") == queues
    [alarms] = [widget.alarm_arns for widget in widgets(templates) if widget.view == "alarm"]
    assert len(alarms) == len(templates.resources("AWS::CloudWatch::Alarm"))


def test_totals_are_over_the_time_shown(templates: Templates) -> None:
    """CloudWatch's bars show the newest period otherwise."""
    assert all(widget.whole_range for widget in widgets(templates) if widget.view == "bar")


def test_it_is_one_setting_with_the_metrics_that_it_shows(templates_with_everything: Templates) -> None:
    without = templates_with_everything
    assert without.resources("AWS::CloudWatch::Dashboard") == {}
    for name, function in without.resources("AWS::Lambda::Function").items():
        variables = function["Properties"]["Environment"]["Variables"]
        if "SPOTKEEP_NOTIFICATION_TOPIC_ARN" in variables:
            assert json.loads(variables["SPOTKEEP_DEPLOYMENT_METRICS"]) is False, name
