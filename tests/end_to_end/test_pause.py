"""A run pauses at a step in the deployed app, and goes on to the next pause and to the end, on both backends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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


@pytest.mark.parametrize(
    "where",
    [{"instance_type": "ml.m5.large"}, {"backend": "ec2", "instance_types": ["m5.large"]}],
    ids=["sagemaker", "ec2"],
)
def test_a_run_pauses_is_resumed_to_a_later_pause_and_then_to_its_end(
    deployed_app: DeployedApp, where: dict[str, Any]
) -> None:
    job = deployed_app.counting("", **where) | {"command": "python3 train.py", "pause_at_step": 13}
    run = job["run"]
    deployed_app.launch(**job | {"source": deployed_app.upload_source(run, {"train.py": SCRIPT})})

    def resume(**changes: Any) -> dict[str, Any]:
        return deployed_app.invoke("launcher", {"action": "resume", "run": run, "changes": changes})

    for attempt, paused_at, later in ((1, 13, 26), (2, 26, None)):
        paused = deployed_app.wait_until(run, lambda item: item.attempt == attempt and item.state.ended)  # noqa: B023
        assert (paused.state, paused.end_reason) == (RunState.STOPPED, EndReason.PAUSED), paused.failure_reason
        assert (paused.paused_at_step, paused.output_uri) == (paused_at, None)
        measured = deployed_app.runs.metrics(run)
        assert measured is not None
        assert (measured.metrics["count"].last, measured.metrics["count"].last_step) == (paused_at, paused_at)
        refused = resume()
        assert [problem["field"] for problem in refused["problems"]] == ["pause_at_step"]
        assert f"--set pause_at_step={2 * paused_at}" in refused["problems"][0]["fix"]
        assert resume(pause_at_step=later)["ok"]

    done = deployed_app.wait_until(run, lambda item: item.attempt == 3 and item.state.ended)
    assert (done.state, done.interruptions, done.paused_at_step) == (RunState.COMPLETED, 0, None)
    assert done.cost is not None
    assert done.cost.redone_steps == 0
    resumed = [entry.step for entry in deployed_app.runs.timeline(run) if entry.kind is TimelineKind.STEP_RESUMED]
    assert resumed == [0, 13, 26]
    notified = [(notice.kind.value, notice.attempt) for notice in deployed_app.runs.notifications(run)]
    assert notified == [("stopped", 1), ("stopped", 2), ("completed", 3)]
