"""A curve in the terminal has the ends of both axes, fits, and is drawn for any values."""

from __future__ import annotations

import io
import sys

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, Group

from spotkeep_cli.rendering.curves import curve, metric_curves
from spotkeep_jobs.record.record import Metric, ScriptMetrics

NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def drawn(points: list[tuple[int, float]], *, width: int = 60) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(Group(*curve(points, width=width)))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_line_that_falls_leads_from_the_upper_left_to_the_lower_right() -> None:
    rows = drawn([(1, 10.0), (100, 2.0)])
    assert rows[0].startswith("  10 ┤⠉")
    assert rows[7].startswith("   2 ┤ ")
    assert len(rows[7]) == 60
    assert rows[8].split() == ["1", "step", "100"]


def test_losses_over_many_magnitudes_are_logarithmic_and_others_are_not() -> None:
    assert "step, logarithmic values" in drawn([(1, 30.0), (2, 1.0)])[-1]
    assert "logarithmic" not in drawn([(1, 29.0), (2, 1.0)])[-1]
    assert "logarithmic" not in drawn([(1, 100.0), (2, 0.0)])[-1]


def test_a_curve_without_a_slope_has_one_label() -> None:
    rows = drawn([(1, 0.25), (100, 0.25)])
    assert [row.strip() for row in rows[:8] if "┤" in row] == ["0.25 ┤" + "⠉" * 52]


def test_of_values_without_a_step_there_is_no_curve() -> None:
    assert drawn([]) == ["  no step is known of its values, so it has no curve"]


@given(
    values=st.dictionaries(st.integers(0, 2**53), NUMBERS | st.just(sys.float_info.max), min_size=1, max_size=60),
    width=st.integers(40, 300),
)
@settings(max_examples=40)
def test_any_curve_has_eight_rows_and_an_axis_and_fits(values: dict[int, float], width: int) -> None:
    rows = drawn(sorted(values.items()), width=width)
    assert len(rows) == 9
    assert all(len(row) <= width for row in rows)
    assert any(letter > "⠀" for row in rows[:8] for letter in row)


def test_each_metric_has_its_name_its_last_and_its_best_value() -> None:
    loss = Metric(goal="minimize", last=0.5, last_step=9, best=0.25, best_step=4, points=((1, 1.0), (9, 0.5)))
    console = Console(file=io.StringIO(), width=80, color_system=None)
    with console.capture() as captured:
        console.print(metric_curves(ScriptMetrics(metrics={"loss": loss, "\x1b[2Jname": loss}), width=80))
    shown = captured.get()
    assert "  loss  last 0.5 at step 9, best 0.25 at step 4\n" in shown
    assert "\\x1b[2Jname" in shown
    assert "\x1b" not in shown
