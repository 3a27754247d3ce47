"""The simulated sweeps: what is billed, what an interruption loses, and that ours is the search it says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from benchmarks.sweep import control_plane
from benchmarks.sweep.search import RecordedZone, SearchCurve, Spent, Stretch, Uninterrupted, WorkerCapacity, searched
from benchmarks.sweep.searches import CONFIGURATIONS, EPOCHS, Job, LossTable, Ours
from spotkeep_jobs.backends.sagemaker.api import SageMakerTrainingJobs
from spotkeep_local.access.call_rates import CALLS_A_SECOND
from tests.models.capacity_traces import trace_of
from tests.models.faults import Process
from tests.models.sagemaker import launch_marks
from tests.models.simulated_account import SimulatedAccount

TABLE = LossTable(losses=np.add.outer(np.linspace(0.1, 1.0, CONFIGURATIONS), np.linspace(1.0, 0.0, EPOCHS)))


def zone(*available: int) -> RecordedZone:
    return RecordedZone(trace_of(available, tick_s=100.0), begin=0)


def test_work_waits_for_capacity_and_only_work_is_billed() -> None:
    assert zone(0, 1, 1, 0).work(at_s=30, for_s=150) == Stretch(250, 150, was_done=True)


def test_what_does_not_end_in_time_is_interrupted() -> None:
    assert zone(0, 1, 1, 0).work(at_s=120, for_s=200) == Stretch(300, 180, was_done=False)


def test_after_its_end_the_trace_begins_again() -> None:
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


class _Interrupted:
    """Capacity that interrupts the fifth stretch of work, after half of it."""

    def __init__(self) -> None:
        self.stretches = 0

    def work(self, *, at_s: float, for_s: float) -> Stretch:
        self.stretches += 1
        if self.stretches == 5:
            return Stretch(at_s + for_s / 2, for_s / 2, was_done=False)
        return Stretch(at_s + for_s, for_s, was_done=True)


def spent_by(workers: Sequence[WorkerCapacity], *, keeps: bool) -> tuple[list[float], list[int]]:
    """Return the seconds that a whole training took, in epochs, starts and what was lost; and the reported epochs."""
    search = _OneTrial()
    curve = searched(search, TABLE, workers=workers, epoch_s=10, start_s=5, keeps=keeps)
    return [part * 10 * EPOCHS for part in curve.spent[-1]], search.reported


def test_without_interruptions_epochs_and_one_start_are_paid_for() -> None:
    assert spent_by([Uninterrupted()], keeps=True) == (
        pytest.approx([10 * EPOCHS, 5, 0]),
        list(range(1, EPOCHS + 1)),
    )


@pytest.mark.parametrize(("keeps", "lost_s"), [(True, 5 + 5), (False, 40 + 5 + 5)])
def test_an_interruption_costs_a_start_and_what_was_not_kept(keeps: bool, lost_s: float) -> None:
    """Without keeping, four epochs are done again; each is reported once either way."""
    assert spent_by([_Interrupted()], keeps=keeps) == (
        pytest.approx([10 * EPOCHS, 5, lost_s]),
        list(range(1, EPOCHS + 1)),
    )


class _TwoTrials:
    """A search of one trial for each of two workers, which writes down when they report."""

    def __init__(self) -> None:
        self.begun = 0
        self.reported: list[int] = []

    def next_job(self) -> Job | None:
        self.begun += 1
        return Job(trial=self.begun, configuration=0, begins_at=EPOCHS - 2) if self.begun < 3 else None

    def goes_on(self, job: Job, *, epoch: int, loss: float) -> bool:
        self.reported.append(job.trial)
        return True


def test_a_search_knows_of_an_epoch_when_it_is_over() -> None:
    """The first worker waits for capacity until the second one's trial is over."""
    search = _TwoTrials()
    searched(search, TABLE, workers=[zone(0, 1, 1, 1), Uninterrupted()], epoch_s=10, start_s=5, keeps=True)
    assert search.reported == [2, 2, 1, 1]


def test_a_curve_says_what_was_found_with_a_budget_and_when() -> None:
    curve = SearchCurve(spent=(Spent(epochs=1.0), Spent(epochs=1.0, starts=0.5, lost=0.5)), best=(0.5, 0.3))
    assert [curve.best_at(budget) for budget in (0.5, 1, 3)] == [float("inf"), 0.5, 0.3]
    assert curve.spent_until(0.4) == 2.0
    assert curve.until(0.1) is None
    assert curve.spent_until(0.1) == 60.0


def test_our_asha_finds_the_best_of_the_table_and_trains_few_to_the_end() -> None:
    curve = searched(Ours("asha", 3), TABLE, workers=[Uninterrupted()] * 4, epoch_s=1, start_s=0, keeps=True)
    assert curve.best[-1] == pytest.approx(TABLE.best)
    assert curve.spent[-1].total < 20


@pytest.mark.parametrize("case", control_plane.CASES, ids=lambda case: case.name)
def test_a_sweep_on_an_account_held_to_its_rates(case: control_plane.SubmissionCase) -> None:
    small = replace(case, parallel=case.parallel // 10, at_a_time=case.at_a_time // 10)
    figures = control_plane.measured(small, trials=12)
    assert figures["completed"] == figures["training_jobs"] == figures["trials_recorded"] == 12
    in_queue = "queue" in case.document
    assert figures["service_jobs"] == (12 if in_queue else 0)
    asked = "SubmitServiceJob" if in_queue else "CreateTrainingJob"
    assert figures["calls"][asked] == 12
    assert figures["most_calls_in_a_second"][asked] <= CALLS_A_SECOND[asked]
    assert figures["throttled"] == {}
    assert figures["failed_invocations"] == []
    assert figures["usd_a_thousand_trials"] > 0


def test_what_comes_too_fast_is_throttled_and_tried_again() -> None:
    account = SimulatedAccount()
    jobs = SageMakerTrainingJobs(account)  # type: ignore[arg-type]
    ended: list[Process] = []
    for number in range(3):
        request = _request(f"job-{number}")
        account.invoke("launcher", partial(jobs.create, request), timeout=60, ended=ended.append)
    while len(ended) < 3:
        account.happens()
    assert [process.error for process in ended] == [None] * 3
    counts = account.rates.counts()
    assert account.calls["CreateTrainingJob"] == 3 + counts.throttled["CreateTrainingJob"]
    created = sorted(job.created for job in account.jobs.values())
    assert min(later - earlier for earlier, later in pairwise(created)) >= 1.0
    assert counts.most_in_a_second["CreateTrainingJob"] >= 3


def _request(name: str) -> dict[str, Any]:
    return {
        "TrainingJobName": name,
        "RoleArn": "arn:aws:iam::123456789012:role/theirs",
        "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
        "Environment": launch_marks(name),
    }
