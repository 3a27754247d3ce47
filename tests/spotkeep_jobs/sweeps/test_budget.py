"""What a sweep has spent, what it keeps for the time until its trials have stopped, and what may begin beside that."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.record.record import Cost, Ending, InstanceTime, Run
from spotkeep_jobs.record.states import EndReason, RunState, TrialState
from spotkeep_jobs.record.sweep import Spending, Sweep, Trial
from spotkeep_jobs.sweeps.budget import (
    live_spending,
    money_is_spent,
    money_left_usd,
    most_is_spent,
    parallel_problems,
    reserved_usd,
    seconds_until_stopped,
    spent_usd,
    unbilled_usd,
    with_reserve,
    within_budget,
)
from tests.models.clock import NOON
from tests.models.control_plane import PRICES

HOUR = timedelta(hours=1)


def sweep(**fields: Any) -> Sweep:
    facts: dict[str, Any] = {
        "sweep": "s",
        "name": "s",
        "created_at": NOON,
        "updated_at": NOON,
        "token": "t",
        "document": {"max_cost": 10},
    }
    return Sweep(**facts | fields)


def trial(number: int = 1, **fields: Any) -> Trial:
    facts: dict[str, Any] = {"sweep": "s", "number": number, "run": f"s-{number}", "parameters": {"lr": 0.01}}
    return Trial(**facts | fields)


def request(**fields: Any) -> JobRequest:
    facts = {"name": "s", "command": "x", "capacity": "on-demand", "instance_types": ["ml.m5.xlarge"]}
    return JobRequest.model_validate(facts | fields)


def cost(usd: float | None) -> Cost:
    return Cost(
        training_seconds=60.0,
        billed_seconds=60.0,
        waited_seconds=0.0,
        billed_usd=usd,
        redone_steps=0,
        redone_seconds=0.0,
        restart_overhead_seconds=0.0,
        clean_on_demand_seconds=60.0,
        saved_seconds=0.0,
        saved_percent=None,
        aws_saved_percent=None,
    )


def test_each_trial_costs_its_bill_and_what_is_not_billed_yet_by_the_second() -> None:
    trains = Spending(usd=1.0, usd_per_second=0.001, since=NOON)
    waits = Spending(usd=0.5)
    trials = [trial(cost=cost(2.0)), trial(2, cost=cost(None)), trial(3), trial(4, cost=cost(1.0), spending=trains)]
    assert spent_usd(trials, now=NOON + HOUR) == pytest.approx(2.0 + 1.0 + 1.0 + 3.6)
    assert spent_usd([trial(spending=waits)], now=NOON + HOUR) == 0.5
    assert spent_usd([trial(pool_usd=0.3, pools=(1, 2)), trial(2, pool_usd=0.3)], now=NOON) == 0.6


def test_a_live_run_counts_at_the_on_demand_price_while_it_has_instances(make: Any) -> None:
    run = make.run("s-1", instance_type="ml.m5.xlarge", instance_count=2)
    time = InstanceTime(seconds=3600.0, since=NOON)
    found = live_spending(run.model_copy(update={"instance_time": time}), prices=PRICES, before=None)
    assert spent_usd([trial(spending=found)], now=NOON + HOUR) == pytest.approx(4 * 0.23, abs=1e-4)
    assert live_spending(run, prices=PRICES, before=found) is None, "it has none yet"
    assert live_spending(run, prices={}, before=found) is found, "its price could not be read"


def test_a_bill_that_never_comes_counts_as_the_time_that_may_have_been(make: Any) -> None:
    ended = make.run("s-1", state=RunState.FAILED, instance_type="ml.m5.xlarge", ended_at=NOON + HOUR)
    unbilled = ended.model_copy(update={"instance_time": InstanceTime(since=NOON)})

    def usd(run: Run, **of_trial: Any) -> float:
        return unbilled_usd(trial(**of_trial), run, prices=PRICES, now=NOON + 2 * HOUR)

    assert usd(unbilled, cost=cost(2.0)) == pytest.approx(2.23)
    assert usd(unbilled, cost=cost(None), unbilled_usd=3.0) == pytest.approx(3.23), "an earlier bill never came, either"
    assert usd(ended.model_copy(update={"cost": cost(0.1)}), unbilled_usd=3.0) == 0.0
    quota, vanished = (Ending(at=NOON + HOUR, reason=reason) for reason in (EndReason.QUOTA, EndReason.JOB_VANISHED))
    waited = ended.model_copy(update={"instance_time": InstanceTime(), "ending": quota})
    assert usd(waited) == 0.0
    gone = waited.model_copy(update={"ending": vanished})
    assert usd(gone) == pytest.approx(360 * 0.23 / 3600, abs=1e-6), "it may have begun after the last pass"


def test_a_sweep_stops_when_what_is_spent_and_what_is_kept_reach_its_max_cost() -> None:
    def because(usd: float, **of_sweep: Any) -> str | None:
        trials = [trial(state=TrialState.COMPLETED, cost=cost(usd), reserved_usd=5.0), trial(2, reserved_usd=1.5)]
        return money_is_spent(sweep(**of_sweep), trials, now=NOON)

    assert because(8.49) is None
    assert because(8.5) == (
        "its max_cost (10.00 USD) is spent: its trials have cost 8.50 USD, and 1.50 USD are kept for the time until a "
        "stop takes effect"
    )
    assert because(100.0, document={}) is None


def test_most_of_it_is_spent_at_80_percent() -> None:
    def near(usd: float, **of_sweep: Any) -> bool:
        return most_is_spent(sweep(**of_sweep), [trial(spending=Spending(usd=usd))], now=NOON)

    assert near(8.0)
    assert not near(7.99)
    assert not near(8.0, max_cost_is_near=True)
    assert not near(8.0, document={})


def test_what_is_left_is_of_all_trials_and_never_nothing() -> None:
    assert money_left_usd(sweep(), [trial(cost=cost(2.345))], now=NOON) == pytest.approx(7.66, abs=0.01)
    assert money_left_usd(sweep(), [trial(cost=cost(20.0))], now=NOON) == 0.01
    assert money_left_usd(sweep(document={}), [], now=NOON) is None


@given(
    usd=st.lists(st.floats(0.01, 5.0), min_size=1, max_size=8),
    running=st.integers(0, 3),
    spent=st.floats(0.0, 12.0),
)
def test_what_begins_is_paid_for_beside_what_trains_and_one_more_would_not_be(
    usd: list[float], running: int, spent: float
) -> None:
    trains = [trial(number, reserved_usd=1.0) for number in range(1, running + 1)]
    before = [*trains, trial(running + 1, state=TrialState.COMPLETED, cost=cost(spent))]
    new = [trial(running + 2 + place, reserved_usd=each) for place, each in enumerate(usd)]
    kept, lacking = within_budget(sweep(), before=before, after=[*before, *new], now=NOON)
    begun = kept[len(before) :]
    assert list(begun) == new[: len(begun)]
    committed = spent_usd(kept, now=NOON) + reserved_usd(kept)
    assert not begun or committed < 10.0
    assert bool(lacking) == (len(begun) < len(new))
    assert not lacking or committed + lacking >= 10.0


def test_a_trial_that_was_to_go_on_and_may_not_stays_as_it_was() -> None:
    was = trial(state=TrialState.FAILED, cost=cost(9.5))
    kept, lacking = within_budget(sweep(), before=[was], after=[trial(cost=cost(9.5), reserved_usd=1.0)], now=NOON)
    assert (kept, lacking) == ((was,), 1.0)


def test_until_a_stop_takes_effect_a_pass_comes_and_each_trial_is_stopped_after_the_other() -> None:
    assert [seconds_until_stopped(parallel) for parallel in (1, 20, 500)] == [480, 490, 730]


def test_what_is_kept_is_for_the_dearest_type_and_a_warm_pool() -> None:
    several = request(instance_types=["ml.m5.xlarge", "ml.g5.xlarge"], instance_count=3, keep_alive="1h")
    found = with_reserve(trial(), several, prices=PRICES, parallel=1)
    assert found.reserved_usd == pytest.approx(3 * 1.4 * 480 / 3600)
    assert found.pool_usd == pytest.approx(3 * 1.4)
    assert with_reserve(trial(), None, prices=PRICES, parallel=1).reserved_usd == 0.0


@given(limit=st.floats(0.01, 3.0), spent=st.floats(0.0, 1.0), parallel=st.integers(1, 60))
def test_a_refusal_names_the_largest_number_of_trials_that_can_be_stopped_in_time(
    limit: float, spent: float, parallel: int
) -> None:
    def refused(trials: int, limit: float) -> bool:
        how: dict[str, Any] = {"spent": spent, "requests": [request()], "prices": PRICES}
        return bool(parallel_problems(limit=limit, parallel=trials, **how))

    found = parallel_problems(limit=limit, spent=spent, parallel=parallel, requests=[request()], prices=PRICES)
    if not found:
        return
    words = found[0].fix.split()
    if "sweep.parallel" in words:
        fits = int(words[words.index("to") + 1])
        assert 1 <= fits < parallel
        assert not refused(fits, limit)
        assert refused(fits + 1, limit)
    else:
        assert refused(1, limit)
    enough = float(words[words.index("max_cost") + 2])
    assert not refused(parallel, enough)
