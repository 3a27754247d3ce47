"""A forecast is seeded, holds where the model holds, and follows what is known now."""

from __future__ import annotations

from datetime import UTC, datetime

import numpy as np
import pytest

from spotkeep_planner.forecast import Forecast, forecast
from spotkeep_planner.job import PlannedJob
from spotkeep_planner.policies import OnDemand, greedy, known_prior, survival
from spotkeep_planner.replay import Past, Policy, Windows, replay
from spotkeep_planner.traces import CapacityTrace
from tests.models.capacity_traces import capacity_with_known_law, trace_of

HOUR_S = 3600.0
JOB = PlannedJob(work_s=12 * HOUR_S, deadline_s=18 * HOUR_S, restart_s=720.0)


def expect(policy: Policy, past: Past, **changes: float) -> Forecast:
    options = {"futures": 200, "seed": 3, **changes}
    return forecast(JOB, policy, past=past, prior=known_prior(), on_demand_price=3.0, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def trace() -> CapacityTrace:
    return capacity_with_known_law(ticks=6000, tick_s=600.0, run_h=4, drought_h=3, seed=2, price=1.0)


def past_at(trace: CapacityTrace, start: int) -> Past:
    return Windows([trace], starts=[start], on_demand_price=3.0).pasts()[0]


def test_on_demand_has_no_spread(trace: CapacityTrace) -> None:
    cost = expect(OnDemand(), past_at(trace, 3000)).cost_usd
    assert cost.p10 == cost.p90 == pytest.approx(12.2 * 3.0)


@pytest.mark.long
def test_the_interval_of_capacity_with_a_law_holds_eight_in_ten_times(trace: CapacityTrace) -> None:
    starts = range(2500, 5700, 120)
    windows = Windows([trace], starts=starts, on_demand_price=3.0)
    happened = replay(JOB, windows, survival())
    within = 0
    for number, past in enumerate(windows.pasts()):
        cost = expect(survival(), past, frailty=0.0).cost_usd
        within += cost.p10 - 1e-6 <= happened.cost_usd[number] <= cost.p90 + 1e-6
    assert 0.65 <= within / len(starts) <= 0.93


def test_a_guarded_policy_is_in_time_in_every_future(trace: CapacityTrace) -> None:
    for policy in (survival(), greedy()):
        assert expect(policy, past_at(trace, 3000)).chance_in_time == 1.0


def test_capacity_that_has_just_gone_costs_more_than_capacity_that_has_long_been_there() -> None:
    often = [1] * 60 + [0] * 30
    just_gone = trace_of(often * 20 + [1] * 60 + [0] * 3)
    long_there = trace_of(often * 20 + [1] * 30)
    costs = [expect(survival(), past_at_end(trace)).cost_usd.mean for trace in (long_there, just_gone)]
    assert costs[0] < costs[1]


def past_at_end(trace: CapacityTrace) -> Past:
    return Past(
        available=trace.available[None, :],
        spot_price=trace.spot_price[None, :],
        tick_s=trace.tick_s,
        start_tick=len(trace),
        first_tick_at=trace.start,
    )


def test_frailty_widens_the_interval(trace: CapacityTrace) -> None:
    past = past_at(trace, 5000)
    narrow, wide = (expect(survival(), past, frailty=frailty, futures=600).cost_usd for frailty in (0.0, 1.0))
    assert wide.p90 - wide.p10 > narrow.p90 - narrow.p10


def test_with_prices_and_scores_alone_it_starts_from_those() -> None:
    def view(chance: float) -> Past:
        return Past.without_capacity(
            tick_s=300.0,
            now=datetime(2026, 1, 1, tzinfo=UTC),
            price_now=np.array([0.9]),
            chance_now=np.array([chance]),
        )

    likely, unlikely = (expect(survival(), view(chance)) for chance in (1.0, 0.0))
    assert likely.cost_usd.p10 == pytest.approx(12.2 * 0.9)
    assert likely.waiting_s.mean < unlikely.waiting_s.mean


def test_without_any_knowledge_there_is_a_forecast_all_the_same() -> None:
    nothing = Past.without_capacity(tick_s=300.0, now=datetime(2026, 1, 1, tzinfo=UTC), zones=2)
    known = expect(survival(), nothing)
    assert known.chance_in_time == 1.0
    assert known.cost_usd.p10 < known.cost_usd.p90
