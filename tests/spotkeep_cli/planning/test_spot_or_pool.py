"""Spot or pool: judged by the runs there were, in money where the price is known, and nothing guessed."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.planning.spot_or_pool import Habits, advise, habits_of
from spotkeep_jobs.record.fields import with_changes


def history(make: Any, *, gap_minutes: float = 5, count: int = 4, **cost: Any) -> list[Any]:
    """Runs of one name, each 16 minutes long, so many minutes apart."""
    runs = []
    at = make.now - timedelta(days=1)
    for number in range(count):
        runs.append(
            make.completed(
                f"sweep-0000000{number}",
                name="sweep",
                created_at=at,
                ended_at=at + timedelta(minutes=16),
                cost=make.cost(**{"clean_on_demand_seconds": 720, "billed_seconds": 240} | cost),
            )
        )
        at += timedelta(minutes=16 + gap_minutes)
    return runs


class TestHabits:
    def test_are_medians_over_the_runs_of_the_name(self, make: Any) -> None:
        habits = habits_of([*history(make), make.completed("other-1a2b3c4d", name="other")], name="sweep")
        assert habits == Habits(runs=4, work_seconds=720, gap_seconds=300, spot_share=pytest.approx(1 / 3))

    def test_do_not_count_rehearsals(self, make: Any) -> None:
        rehearsed = [with_changes(run, token="rehearsal-0123") for run in history(make)]
        assert habits_of(rehearsed, name="sweep") is None

    def test_of_too_few_runs_are_none(self, make: Any) -> None:
        assert habits_of(history(make, count=1), name="sweep") is None
        assert habits_of([], name="sweep") is None

    def test_without_a_spot_run_the_share_is_not_known(self, make: Any) -> None:
        runs = [with_changes(run, place=with_changes(run.place, capacity="on-demand")) for run in history(make)]
        habits = habits_of(runs, name="sweep")
        assert habits is not None
        assert habits.spot_share is None

    def test_a_run_that_never_worked_says_nothing_of_work(self, make: Any) -> None:
        assert habits_of(history(make, clean_on_demand_seconds=0), name="sweep") is None

    def test_count_the_work_of_a_run_by_the_hosts_that_its_jobs_had(self, make: Any) -> None:
        """Half of it ran on three hosts, and the rest on one, after a resume."""
        cost = {"clean_on_demand_seconds": 1440, "training_seconds": 2000, "worked_seconds": 1000}
        habits = habits_of(history(make, **cost), name="sweep")
        assert habits is not None
        assert habits.work_seconds == 720


class TestAdvice:
    def advised(self, **changes: Any) -> Any:
        habits = {"runs": 4, "work_seconds": 720.0, "gap_seconds": 300.0, "spot_share": 1 / 3}
        facts: dict[str, Any] = {"keep_alive_seconds": 1800, "instance_count": 2, "usd_per_hour": 1.8}
        facts |= {name: changes.pop(name) for name in list(changes) if name in facts}
        return advise(Habits(**habits | changes), **facts)

    def test_spot_is_cheaper_and_a_pool_buys_time(self) -> None:
        advice = self.advised()
        assert (advice.cheaper, advice.spot_seconds, advice.pool_seconds) == ("spot", 480, 2040)
        assert str(advice) == (
            "spot is cheaper: $0.24 a job, with a pool $1.02 (12m of work, 5m until the next, by 4 runs). "
            "For $0.78 more, the next job starts about 1m 46s sooner"
        )

    def test_interruptions_that_eat_the_discount_make_the_pool_cheaper(self) -> None:
        assert self.advised(spot_share=1.5).cheaper == "pool"

    def test_a_gap_beyond_the_keep_alive_buys_nothing(self) -> None:
        advice = self.advised(gap_seconds=7200.0)
        assert (advice.sooner_seconds, advice.pool_seconds) == (0, 2 * (720 + 1800))
        assert "comes too late for a pool of 30m" in str(advice)

    def test_an_unknown_share_is_said_and_not_guessed(self) -> None:
        advice = self.advised(spot_share=None)
        assert (advice.cheaper, advice.spot_seconds) == (None, None)
        assert "no spot run says what spot costs" in str(advice)

    def test_an_unknown_price_is_reported_in_instance_time(self) -> None:
        advice = self.advised(usd_per_hour=None)
        assert "8m of instance time a job, with a pool 34m of instance time" in str(advice)  # Of its two instances.
        assert advice.as_document()["spot_usd"] is None

    @given(work=st.floats(1, 1e6), gap=st.floats(0, 1e6), share=st.floats(0.01, 3), keep=st.integers(0, 3600))
    def test_the_cheaper_one_costs_less(self, work: float, gap: float, share: float, keep: int) -> None:
        advice = self.advised(work_seconds=work, gap_seconds=gap, spot_share=share, keep_alive_seconds=keep)
        costs = {"spot": advice.spot_seconds, "pool": advice.pool_seconds}
        assert costs[advice.cheaper] == min(costs.values())
        assert advice.pool_seconds >= work
        assert json.dumps(advice.as_document())


class TestWhereItIsGiven:
    @pytest.fixture
    def advised(self, deployment: Any, make: Any, job_file: Path) -> Any:
        for run in history(make):
            deployment.dynamodb.add(run.model_copy(update={"name": "digits"}))
        request = {"name": "digits", "command": ["python", "train.py"], "capacity": "spot", "max_run": 14_400}
        deployment.answers["validate"] = {"ok": True, "warnings": [], "usd_per_hour": 0.23, "request": request}
        return deployment

    def test_doctor_gives_it(self, advised: Any, spotkeep: Any, job_file: Path) -> None:
        assert "Spot or pool: spot is cheaper" in " ".join(spotkeep("doctor", str(job_file)).output.split())
        document = json.loads(spotkeep("doctor", str(job_file), "--json").stdout)
        assert document["spot_or_pool"]["cheaper"] == "spot"

    def test_launch_gives_it_before_it_asks(self, advised: Any, spotkeep: Any, job_file: Path) -> None:
        assert "Spot or pool: spot is cheaper" in " ".join(spotkeep("launch", str(job_file)).output.split())
