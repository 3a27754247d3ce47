"""A run pauses at a step in the deployed app, and goes on from it to its end; `test_sweep_on_ec2` shows it on EC2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spotkeep_jobs.record.states import EndReason, RunState, TimelineKind

if TYPE_CHECKING:
    from conftest import DeployedApp

pytestmark = pytest.mark.long

SCRIPT = """\
from spotkeep import Checkpointer

state = {"done": {"count": 0}}
with Checkpointer(state, every_steps=100) as checkpointer:
    for step in checkpointer.steps(40):
        state["done"]["count"] += 1
        checkpointer.log(count=state["done"]["count"])
assert state["done"]["count"] == 40
"""


def test_a_run_pauses_and_is_resumed_to_its_end(deployed_app: DeployedApp) -> None:
    job = deployed_app.counting("", instance_type="ml.m5.large") | {"command": "python3 train.py", "pause_at_step": 13}
    run = job["run"]
    deployed_app.launch(**job | {"source": deployed_app.upload_source(run, {"train.py": SCRIPT})})

    paused = deployed_app.wait_until_ended(run)
    assert (paused.state, paused.end_reason) == (RunState.STOPPED, EndReason.PAUSED), paused.failure_reason
    assert (paused.paused_at_step, paused.output_uri) == (13, None)
    measured = deployed_app.table.runs.metrics(run)
    assert measured is not None
    assert (measured.metrics["count"].last, measured.metrics["count"].last_step) == (13, 13)
    resume = {"action": "resume", "run": run}
    refused = deployed_app.invoke("launcher", resume)
    assert [problem["field"] for problem in refused["problems"]] == ["pause_at_step"]
    assert "--set pause_at_step=26" in refused["problems"][0]["fix"]
    assert deployed_app.invoke("launcher", {**resume, "changes": {"pause_at_step": None}})["ok"]

    done = deployed_app.wait_until(run, lambda item: item.attempt == 2 and item.state.ended)
    assert (done.state, done.interruptions, done.paused_at_step) == (RunState.COMPLETED, 0, None)
    assert done.cost is not None
    assert done.cost.redone_steps == 0
    resumed = [entry.step for entry in deployed_app.table.runs.timeline(run) if entry.kind is TimelineKind.STEP_RESUMED]
    assert resumed == [0, 13]
    notified = [(notice.kind.value, notice.attempt) for notice in deployed_app.table.notifications.of_run(run)]
    assert notified == [("stopped", 1), ("completed", 2)]
