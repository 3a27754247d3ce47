"""The metrics of a run on a terminal: figures with their steps, and a curve of a few characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from spotkeep_cli.rendering.metric_list import metric_list, sparkline
from spotkeep_jobs.record.record import Metric, ScriptMetrics


def test_each_metric_is_a_row_with_last_best_and_curve() -> None:
    loss = Metric(
        goal="minimize", last_step=9_000, last=0.25, best_step=7_500, best=0.125, points=((7_500, 0.125), (9_000, 0.25))
    )
    metrics = ScriptMetrics(metrics={"validation_loss": loss, "lr": Metric(last=1e-5)})
    console = Console(width=100)
    with console.capture() as captured:
        console.print(metric_list(metrics, width=100))
    heading, _, first, second = captured.get().splitlines()
    assert heading.split() == ["METRIC", "LAST", "BEST", "GOAL", "CURVE"]
    assert first.split("  ")[1:][0] == "validation_loss"
    for shown in ("0.25 at step 9,000", "0.125 at step 7,500", "minimize", "▁█"):
        assert shown in first
    assert second.split() == ["lr", "1e-05"]


def test_a_curve_goes_from_the_least_to_the_greatest() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([3, 3, 3]) == "▁▁▁"
    assert sparkline([]) == ""


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), max_size=70))
def test_any_values_are_a_curve_of_one_line(values: list[float]) -> None:
    assert len(sparkline(values)) == min(len(values), 24)
