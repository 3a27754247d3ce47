"""Sums of what is known (I8); what is not known is counted, never guessed."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.savings_report import NOBODY, GroupedBy, report_savings


def test_runs_without_a_bill_are_left_out(make: Any) -> None:
    report = report_savings([make.run(), make.completed("digits-2")])
    assert [line.run for line in report.lines] == ["digits-2"]


def test_the_total_is_over_seconds_not_over_percentages(make: Any) -> None:
    small = make.cost(billed_seconds=10, clean_on_demand_seconds=20, saved_seconds=10, training_seconds=20)
    large = make.cost(billed_seconds=900, clean_on_demand_seconds=1000, saved_seconds=100, training_seconds=1100)
    total = report_savings([make.completed("a", cost=small), make.completed("b", cost=large)]).total
    assert total.saved_percent == pytest.approx(100 * 110 / 1020)
    assert total.aws_saved_percent == pytest.approx(100 * (1 - 910 / 1120))


def test_a_run_that_cost_more_than_it_saved_counts_against_the_rest(make: Any) -> None:
    lost = make.cost(saved_seconds=-50, saved_usd=-0.01)
    won = make.cost(saved_seconds=400, saved_usd=0.02)
    total = report_savings([make.completed("a", cost=lost), make.completed("b", cost=won)]).total
    assert total.saved_seconds == 350
    assert total.saved_usd == pytest.approx(0.01)


def test_unknown_prices_and_unreported_steps_are_counted(make: Any) -> None:
    unknown = make.cost(usd_per_hour=None, billed_usd=None, clean_on_demand_usd=None, saved_usd=None)
    silent = make.cost(redone_steps=None, redone_seconds=None)
    total = report_savings([make.completed("a", cost=unknown), make.completed("b", cost=silent)]).total
    assert (total.runs_without_price, total.runs_without_redone_work) == (1, 1)
    assert total.billed_usd == pytest.approx(0.0153)
    nothing_known = report_savings([make.completed("a", cost=unknown)]).total
    assert nothing_known.billed_usd is None


def test_no_runs_have_no_percentage() -> None:
    total = report_savings([]).total
    assert total.saved_percent is None
    assert total.aws_saved_percent is None
    assert total.billed_usd is None


seconds = st.floats(min_value=0, max_value=1e7)


@given(st.lists(st.tuples(seconds, seconds), min_size=1, max_size=8))
def test_saved_is_always_clean_minus_billed(figures: list[tuple[float, float]]) -> None:
    from spotkeep_cli.savings_report import _total
    from spotkeep_jobs.record import Cost

    costs = [
        Cost(
            billed_seconds=billed, training_seconds=clean, waited_seconds=0, redone_steps=0, redone_seconds=0,
            restart_overhead_seconds=0, clean_on_demand_seconds=clean, saved_seconds=clean - billed,
            saved_percent=None, aws_saved_percent=None,
        )
        for billed, clean in figures
    ]  # fmt: skip
    total = _total(costs)
    assert total.saved_seconds == pytest.approx(total.clean_on_demand_seconds - total.billed_seconds, abs=1e-3)


def test_owners_and_weeks_are_added_up_and_add_up_to_the_total(make: Any) -> None:
    runs = [
        make.completed("a", owner="ada", created_at=make.now),
        make.completed("b", owner="ada", created_at=make.now - timedelta(days=7)),
        make.completed("c", owner=None, created_at=make.now - timedelta(days=7)),
        make.run("no-bill-yet", owner="ada"),
    ]
    by_owner = report_savings(runs, by=GroupedBy.OWNER)
    assert [(group.name, group.runs) for group in by_owner.groups] == [(NOBODY, 1), ("ada", 2)]
    by_week = report_savings(runs, by=GroupedBy.WEEK)
    assert [group.runs for group in by_week.groups] == [2, 1]
    assert all("-W" in group.name for group in by_week.groups)
    for report in (by_owner, by_week):
        assert sum(group.total.saved_seconds for group in report.groups) == pytest.approx(report.total.saved_seconds)
        assert [group[report.grouped_by.value] for group in report.as_document()["groups"]]
    assert "groups" not in report_savings(runs).as_document()
