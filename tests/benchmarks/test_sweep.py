"""The simulated sweeps: what is billed, what an interruption loses, and that ours is the search it says."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np
import pytest

from benchmarks.sweep import control_plane
from benchmarks.sweep.capacity import Capacity, RecordedZone, Stretch, Uninterrupted
from benchmarks.sweep.search import Curve, searched
from benchmarks.sweep.searches import Job, Ours
from benchmarks.sweep.table import CONFIGURATIONS, EPOCHS, LossTable
from spotkeep_planner.traces.capacity_trace import CapacityTrace

TABLE = LossTable(losses=np.add.outer(np.linspace(0.1, 1.0, CONFIGURATIONS), np.linspace(1.0, 0.0, EPOCHS)))


def zone(*available: int) -> RecordedZone:
    trace = CapacityTrace(
        zone="z",
        start=datetime(2026, 1, 1, tzinfo=UTC),
        tick_s=100.0,
        available=np.array(available, bool),
        spot_price=np.ones(len(available)),
    )
    return RecordedZone(trace, begin=0)


class TestCapacity:
    def test_work_waits_for_capacity_and_only_work_is_billed(self) -> None:
        assert zone(0, 1, 1, 0).work(at_s=30, for_s=150) == Stretch(250, 150, was_done=True)

    def test_what_does_not_end_in_time_is_interrupted(self) -> None:
        assert zone(0, 1, 1, 0).work(at_s=120, for_s=200) == Stretch(300, 180, was_done=False)

    def test_after_its_end_the_trace_begins_again(self) -> None:
        assert zone(0, 1, 1, 0).work(at_s=310, for_s=100) == Stretch(600, 100, was_done=True)


class _OneTrial:
    """A search of one trial that trains to its end."""

    def __init__(self) -> None:
        self.reported: list[int] = []

    def next_job(self) -> Job | None:
        return None if self.reported else Job(trial=1, configuration=0)

    def goes_on(self, job: Job, *, epoch: int, loss: float) -> bool:
        self.reported.append(epoch)
        return True


class _Twice:
    """Capacity that interrupts the fifth stretch of work, after half of it."""

    def __init__(self) -> None:
        self.stretches = 0

    def work(self, *, at_s: float, for_s: float) -> Stretch:
        self.stretches += 1
        if self.stretches == 5:
            return Stretch(at_s + for_s / 2, for_s / 2, was_done=False)
        return Stretch(at_s + for_s, for_s, was_done=True)


def spent_by(workers: Sequence[Capacity], *, keeps: bool) -> tuple[Curve, list[int]]:
    search = _OneTrial()
    curve = searched(search, TABLE, workers=workers, epoch_s=10, start_s=5, keeps=keeps)
    return curve, search.reported


@pytest.mark.parametrize(("keeps", "lost_s"), [(True, 5 + 5), (False, 40 + 5 + 5)])
def test_an_interruption_costs_a_start_and_what_was_not_kept(keeps: bool, lost_s: float) -> None:
    """Without keeping, four epochs are done again; each is reported once either way."""
    whole, reported = spent_by([Uninterrupted()], keeps=keeps)
    cut, reported_cut = spent_by([_Twice()], keeps=keeps)
    assert (cut.spent[-1] - whole.spent[-1]) * 10 * EPOCHS == pytest.approx(lost_s)
    assert reported == reported_cut == list(range(1, EPOCHS + 1))


def test_a_curve_says_what_was_found_with_a_budget_and_when() -> None:
    curve = Curve(spent=(1.0, 2.0), best=(0.5, 0.3))
    assert [curve.best_at(budget) for budget in (0.5, 1, 3)] == [float("inf"), 0.5, 0.3]
    assert curve.spent_until(0.4) == 2.0
    assert curve.spent_until(0.1) == 60.0


def test_our_asha_finds_the_best_of_the_table_and_trains_few_to_the_end() -> None:
    curve = searched(Ours("asha", 3), TABLE, workers=[Uninterrupted()] * 4, epoch_s=1, start_s=0, keeps=True)
    assert curve.best[-1] == pytest.approx(TABLE.best)
    assert curve.spent[-1] < 20


def test_a_sweeps_calls_are_counted_and_jobs_are_created_at_the_rate_of_an_account() -> None:
    figures = control_plane.measured(trials=6)
    assert figures["jobs"] == figures["completed"] == figures["trials_recorded"] == 6
    assert figures["calls"]["CreateTrainingJob"] == 6
    assert figures["creates_that_waited"] == 5, "the first launch asks for all six at once"
    assert figures["usd_a_thousand_trials"] > 0
