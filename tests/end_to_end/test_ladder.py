"""A run on its ladder, for real: jobs follow each other on the same checkpoints, in the deployed app."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from spotkeep_jobs.record.states import EndReason, RunState, TimelineKind
from spotkeep_local.capacity import CapacityScript

if TYPE_CHECKING:
    from conftest import DeployedApp

pytestmark = pytest.mark.long

SAVED_EVERY = 5
"""Steps, in the script that counts."""


def resumed_from(app: DeployedApp, run: str) -> list[int | None]:
    return [entry.step for entry in app.table.runs.timeline(run) if entry.kind is TimelineKind.STEP_RESUMED]


def test_no_capacity_on_spot_and_the_run_completes_on_demand(deployed_app: DeployedApp) -> None:
    job = deployed_app.counting(
        "10", capacity="auto", instance_types=["ml.m5.large", "ml.m5.xlarge"],
        notify=["next-fallback", "completed"],
    )  # fmt: skip
    scarce = CapacityScript(initial_wait_seconds=600, gives_up_after_seconds=0.5)
    deployed_app.control.script_capacity(run=job["run"], script=scarce)
    deployed_app.launch(**job)
    deployed_app.wait_until(job["run"], lambda run_item: run_item.attempt == 2)
    ended = deployed_app.wait_until_ended(job["run"])
    assert (ended.state, ended.attempt) == (RunState.COMPLETED, 2)
    attempts = deployed_app.table.runs.attempts(job["run"])
    assert [attempt.end_reason for attempt in attempts] == [EndReason.CAPACITY, EndReason.COMPLETED]
    assert [attempt.place.instance_type for attempt in attempts] == ["ml.m5.large", "ml.m5.xlarge"]
    assert [notification.kind.value for notification in deployed_app.table.notifications.of_run(job["run"])] == [
        "next-fallback",
        "completed",
    ]


def test_a_run_longer_than_a_job_goes_on_where_the_last_job_ended(deployed_app: DeployedApp) -> None:
    # A job that has not begun when its time is over ends the run: Python may start late beside other tests.
    job = deployed_app.counting("300 --pause 0.1", max_run="20s", max_total_run="5m", max_wait="1h")
    deployed_app.launch(**job)
    ended = deployed_app.wait_until_ended(job["run"])
    attempts = deployed_app.table.runs.attempts(job["run"])
    assert (ended.state, len(attempts) > 1) == (RunState.COMPLETED, True)
    assert {attempt.end_reason for attempt in attempts[:-1]} == {EndReason.MAX_RUNTIME_EXCEEDED}
    assert resumed_from(deployed_app, job["run"])[0] == 0
    processes = [deployed_app.control.job_facts(attempt.job_name).lifetimes[0] for attempt in attempts]
    for before, following in itertools.pairwise(processes):
        # A job that began just before its end has nothing to save. One that had time for it loses two saves at most.
        least = max(before.resumed_step or 0, (before.last_step_seen or 0) - 2 * SAVED_EVERY)
        assert (following.resumed_step or 0) >= least, processes
    assert (processes[-1].resumed_step or 0) > 0
    jobs = deployed_app.client("sagemaker")
    times = [jobs.describe_training_job(TrainingJobName=attempt.job_name) for attempt in attempts]
    for before, following in itertools.pairwise(times):
        assert before["TrainingEndTime"] <= following["CreationTime"], json.dumps(times, default=str)
