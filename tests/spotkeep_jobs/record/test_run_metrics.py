"""What a change adds to the sums: each writer counts what it changed, and the total is what the runs' bills say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.record.run_metrics import IN_FLIGHT, RunMetric, happened_between, in_flight_now, total
from spotkeep_jobs.record.states import RunState

RUN = "digits-1a2b3c4d"


def test_a_whole_run_adds_up_to_its_bill(world: Any, make: Any) -> None:
    run = world.launch(make.run(), make.attempt())
    parts = []
    for story in (
        [("Starting", 0.0)],
        [("Starting", 0.0), ("Training", 1.0), ("Interrupted", 5.0)],
        [("Starting", 0.0), ("Training", 1.0), ("Interrupted", 5.0), ("Downloading", 9.0), ("Training", 10.0)],
    ):
        world.sagemaker.has_job(run.job_name, *story)
        parts.append(world.runs.reconcile(RUN).happened)
    world.sagemaker.has_job(
        run.job_name, *story, ("Completed", 20.0), TrainingTimeInSeconds=900, BillableTimeInSeconds=270
    )
    parts += [world.runs.reconcile(RUN).happened, world.runs.reconcile(RUN).happened]
    cost = world.table.runs.get(RUN).cost
    assert total(parts) == pytest.approx(
        {
            RunMetric.INTERRUPTIONS: 1,
            RunMetric.RUNS_COMPLETED: 1,
            RunMetric.LOST_TIME: cost.restart_overhead_seconds + (cost.redone_seconds or 0),
            RunMetric.WAITED_TIME: cost.waited_seconds,
            RunMetric.BILLED_USD: cost.billed_usd,
            RunMetric.SAVED_USD: cost.saved_usd,
        }
    )


@given(states=st.lists(st.sampled_from(RunState)))
def test_a_sweep_counts_every_state_in_flight_and_no_ending(states: list[RunState]) -> None:
    seen = in_flight_now(states, [])
    assert set(IN_FLIGHT.values()) <= set(seen)
    assert sum(seen.values()) == sum(not state.ended for state in states)


def test_every_state_is_an_ending_or_in_flight() -> None:
    assert {state for state in RunState if not state.ended} == set(IN_FLIGHT)


def test_nothing_that_happened_adds_nothing(make: Any) -> None:
    assert happened_between(make.run(), make.run(state=RunState.WAITING)) == {}
