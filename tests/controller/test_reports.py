"""The metrics of a deployment's dashboard, as the controller writes them into its log."""

from __future__ import annotations

import json
from typing import Any

import pytest

from controller.reconciliation import write_metrics
from spotkeep_jobs.record.run_metrics import RunMetric
from spotkeep_jobs.record.run_table import RunTable
from tests.models.deployment import controller_on
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.sagemaker import SageMaker


def deployment(*, enabled: bool = True) -> Any:
    table = RunTable.of(client=InMemoryDynamoDb(), table_name="runs")  # type: ignore[arg-type]
    return controller_on(table, SageMaker(), settings={"deployment_metrics": enabled})


def test_a_line_has_one_dimension_whatever_function_writes_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "spotkeep-controller")
    write_metrics({RunMetric.INTERRUPTIONS: 2.0, RunMetric.LOST_TIME: 61.5}, deployment=deployment())
    line = json.loads(capsys.readouterr().out)
    [directive] = line["_aws"]["CloudWatchMetrics"]
    assert (directive["Namespace"], directive["Dimensions"], line["service"]) == ("Spotkeep", [["service"]], "spotkeep")
    assert directive["Metrics"] == [{"Name": "Interruptions", "Unit": "Count"}, {"Name": "LostTime", "Unit": "Seconds"}]
    assert (line["Interruptions"], line["LostTime"]) == ([2.0], [61.5])


@pytest.mark.parametrize(("enabled", "metrics"), [(False, {RunMetric.INTERRUPTIONS: 1.0}), (True, {})])
def test_nothing_is_written_where_there_is_nothing_to_write(
    enabled: bool, metrics: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    write_metrics(metrics, deployment=deployment(enabled=enabled))
    assert capsys.readouterr().out == ""
