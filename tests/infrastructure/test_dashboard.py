"""The dashboard shows the metrics that the functions write, and no others; docs/dashboard.md lists its widgets."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from spotkeep_jobs.record.run_metrics import RunMetric

from .conftest import ROOT
from .test_permissions import text_of

if TYPE_CHECKING:
    from .conftest import Templates


def widgets(templates: Templates) -> list[dict[str, Any]]:
    [board] = templates.resources("AWS::CloudWatch::Dashboard").values()
    found: list[dict[str, Any]] = json.loads(text_of(board["Properties"]["DashboardBody"]))["widgets"]
    return found


def metrics_of(widget: dict[str, Any]) -> list[list[str]]:
    """Namespace, name and dimensions of each metric in a widget, those of its expressions included.

    Source: https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/CloudWatch-Dashboard-Body-Structure.html
    """
    rows = [[part for part in row if isinstance(part, str)] for row in widget["properties"].get("metrics", [])]
    return [row for row in rows if row]


def all_metrics(templates: Templates) -> list[list[str]]:
    return [metric for widget in widgets(templates) for metric in metrics_of(widget)]


def written_by_handlers() -> set[str]:
    """The names of metrics that stand in the functions' entry points."""
    sources = [path.read_text() for path in (ROOT / "lambda").rglob("*.py")]
    return {name for text in sources for name in re.findall(r'"([A-Z][A-Za-z]+)"', text)}


def test_every_metric_is_one_that_is_written(templates: Templates) -> None:
    ours = [metric for metric in all_metrics(templates) if metric[0] == "Spotkeep"]
    for _, name, dimension, service in ours:
        known = set(RunMetric) if "<" not in service else written_by_handlers()
        assert name in known, f"{name} of {service}"
        assert dimension == "service"


def test_every_metric_of_the_deployment_is_shown(templates: Templates) -> None:
    assert {metric[1] for metric in all_metrics(templates)} >= set(RunMetric)


def test_a_function_s_errors_dead_letters_and_every_alarm_are_on_it(templates: Templates) -> None:
    names = [metric[1] for metric in all_metrics(templates)]
    functions = [name for name in templates.resources("AWS::Lambda::Function") if "LogRetention" not in name]
    assert names.count("Errors") == len(functions)
    queues = len(functions) + len(("notifications put aside", "notifications not delivered"))
    assert names.count("ApproximateNumberOfMessagesVisible") == queues
    [alarms] = [widget["properties"]["alarms"] for widget in widgets(templates) if widget["type"] == "alarm"]
    assert len(alarms) == len(templates.resources("AWS::CloudWatch::Alarm"))


def test_totals_are_over_the_time_shown(templates: Templates) -> None:
    """CloudWatch's bars show the newest period otherwise."""
    bars = [widget["properties"] for widget in widgets(templates) if widget["properties"].get("view") == "bar"]
    assert bars
    assert all(properties["setPeriodToTimeRange"] for properties in bars)


def test_the_docs_list_every_widget_with_its_metrics(templates: Templates) -> None:
    expected = []
    for widget in widgets(templates):
        if widget["type"] == "text":
            continue
        names = dict.fromkeys(f"`{metric[1]}`" for metric in metrics_of(widget))
        expected.append((widget["properties"]["title"], ", ".join(names)))
    section = (ROOT / "docs" / "dashboard.md").read_text().partition("## What it shows")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.split("|")] for line in section.splitlines() if line.startswith("| ")]
    assert [(title, metrics) for _, title, metrics, *_ in rows[1:]] == expected


def test_it_is_one_setting_with_the_metrics_that_it_shows(templates_with_everything: Templates) -> None:
    without = templates_with_everything
    assert without.resources("AWS::CloudWatch::Dashboard") == {}
    for name, function in without.resources("AWS::Lambda::Function").items():
        variables = function["Properties"]["Environment"]["Variables"]
        if "SPOTKEEP_NOTIFICATION_TOPIC_ARN" in variables:
            assert json.loads(variables["SPOTKEEP_DEPLOYMENT_METRICS"]) is False, name
