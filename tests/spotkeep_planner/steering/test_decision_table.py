"""A decision gives its reason, keeps to the guard, and a damaged table is refused."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest

from spotkeep_planner.errors import DecisionTableError
from spotkeep_planner.steering import Choice, DeadlineClock, Decision, DecisionTable, ZoneView

HOUR_S = 3600.0


@pytest.fixture
def table() -> DecisionTable:
    """One age edge at an hour; without anything in use, on-demand below 3 h of slack, on demand below 5."""
    rows = ((3 * HOUR_S,) * 11, (4 * HOUR_S,) * 11, (0.5 * HOUR_S,) * 11, (0.5 * HOUR_S,) * 11)
    later = tuple(tuple(value + 2 * HOUR_S for value in row) for row in rows)
    return DecisionTable(
        age_edges_s=(HOUR_S,),
        work_step_s=HOUR_S,
        from_nothing_s=rows,
        from_on_demand_s=later,
        zones=("a", "b"),
        horizons_s=(HOUR_S, 10 * HOUR_S),
        lasting_s=(((HOUR_S, 4 * HOUR_S), (HOUR_S, 8 * HOUR_S)), ((HOUR_S, 4 * HOUR_S), (HOUR_S, 8 * HOUR_S))),
        slack_step_s=HOUR_S,
        restart_usd=((0.0,), (0.0,)),
    )


def clock(*, slack_h: float) -> DeadlineClock:
    return DeadlineClock(
        time_left_s=(10 + slack_h) * HOUR_S,
        work_left_s=10 * HOUR_S,
        work_left_if_lost_s=10 * HOUR_S,
        restart_s=720.0,
        restart_left_s=0.0,
        decision_interval_s=300.0,
    )


def zones(*available: bool, prices: tuple[float, float] = (1.0, 2.0), age_s: float = 600.0) -> list[ZoneView]:
    return [
        ZoneView(available=there, age_s=age_s, spot_price=price) for there, price in zip(available, prices, strict=True)
    ]


def decide(
    table: DecisionTable,
    *,
    slack_h: float,
    there: tuple[bool, ...] = (False, False),
    using: Choice = Choice.WAIT,
    using_zone: int | None = None,
    prices: tuple[float, float] = (1.0, 2.0),
    any_age_s: float = 600,
) -> Decision:
    """Decide for a run that uses nothing, where no zone has capacity."""
    views = zones(*there, prices=prices)
    return table.decide(clock(slack_h=slack_h), using=using, using_zone=using_zone, zones=views, any_age_s=any_age_s)


def test_without_capacity_it_waits_while_there_is_time_and_says_how_long(table: DecisionTable) -> None:
    decision = decide(table, slack_h=8)
    assert decision.choice is Choice.WAIT
    assert decision.reason == "no spot capacity for 10 min; 8.0 h to spare, on-demand below 3.0 h"


def test_below_the_threshold_it_goes_on_demand(table: DecisionTable) -> None:
    decision = decide(table, slack_h=3.5, any_age_s=2 * HOUR_S)
    assert decision.choice is Choice.ON_DEMAND
    assert decision.reason == "3.5 h to spare, and on-demand pays below 4.0 h"


def test_a_threshold_that_is_none_is_said_so(table: DecisionTable) -> None:
    def reason(threshold_s: float) -> str:
        rows = tuple((threshold_s,) * 11 for _ in table.from_nothing_s)
        return decide(replace(table, from_nothing_s=rows), slack_h=8).reason

    assert reason(math.inf) == "8.0 h to spare, and on-demand pays whatever is to spare"
    assert reason(-math.inf) == "no spot capacity for 10 min; 8.0 h to spare, on-demand at the last safe moment"


def test_where_the_cloud_chooses_the_zone_the_table_is_one_source(table: DecisionTable) -> None:
    one = table.as_one_source()
    assert DecisionTable.from_document(json.loads(json.dumps(one.as_document()))) == one
    decision = one.decide(clock(slack_h=8), using=Choice.SPOT, using_zone=0, zones=zones(True, True)[:1], any_age_s=600)
    assert (decision.choice, decision.zone, decision.reason) == (Choice.SPOT, 0, "spot is there, 8.0 h to spare")


def test_spot_that_is_there_is_taken_where_it_is_cheapest(table: DecisionTable) -> None:
    decision = decide(table, slack_h=8, there=(True, True))
    assert (decision.choice, decision.zone) == (Choice.SPOT, 0)
    assert decision.reason == "spot in a, 8.0 h to spare"


def test_on_demand_is_left_for_spot_only_with_slack_to_spare(table: DecisionTable) -> None:
    assert decide(table, slack_h=2.4, using=Choice.ON_DEMAND, there=(True, False)).choice is Choice.ON_DEMAND
    assert decide(table, slack_h=2.6, using=Choice.ON_DEMAND, there=(True, False)).choice is Choice.SPOT


def test_a_zone_in_use_is_left_for_a_much_cheaper_one_only(table: DecisionTable) -> None:
    def zone(price: float) -> int | None:
        return decide(table, slack_h=8, using=Choice.SPOT, using_zone=1, there=(True, True), prices=(1.0, price)).zone

    assert zone(3.0) == 0
    assert zone(1.02) == 1


def test_the_guard_has_the_last_word(table: DecisionTable) -> None:
    """Spot at work, no policy would leave it; but what it has not saved could not be done again in time."""
    tight = DeadlineClock(
        time_left_s=10.3 * HOUR_S,
        work_left_s=9 * HOUR_S,
        work_left_if_lost_s=10.1 * HOUR_S,
        restart_s=720.0,
        restart_left_s=0.0,
        decision_interval_s=300.0,
    )
    decision = table.decide(tight, using=Choice.SPOT, using_zone=0, zones=zones(True, False), any_age_s=600)
    assert decision.choice is Choice.ON_DEMAND
    assert decision.reason.startswith("the last safe moment for on-demand")


def test_it_reads_what_it_wrote(table: DecisionTable) -> None:
    assert DecisionTable.from_document(json.loads(json.dumps(table.as_document()))) == table


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "has version 2"),
        ({"from_nothing_s": [[1.0]]}, "rows are missing"),
        ({"work_step_s": 0}, "rows are missing"),
        ({"zones": None}, "is damaged"),
        ({"lasting_s": "x"}, "is damaged"),
    ],
)
def test_a_damaged_table_is_refused(table: DecisionTable, change: dict[str, Any], reason: str) -> None:
    with pytest.raises(DecisionTableError, match=reason):
        DecisionTable.from_document({**table.as_document(), **change})
