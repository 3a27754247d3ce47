"""A script with a bug, in the deployed app: the run goes on with the fixed one from its last checkpoint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_jobs.record.states import EndReason, RunState, TimelineKind

if TYPE_CHECKING:
    from conftest import OnEc2

pytestmark = pytest.mark.long

STEPS, BUG_AT = 40, 22
SCRIPT = """\
from spotkeep import Checkpointer

state = {{"done": {{"count": 0}}}}
with Checkpointer(state, every_steps=5) as checkpointer:
    for step in checkpointer.steps({steps}):
        {bug}
        state["done"]["count"] += 1
        checkpointer.log(count=state["done"]["count"])
        print(f"step {{step + 1}}: loss={{100 - step}}", flush=True)
"""
BUG = f"if step == {BUG_AT}: raise ValueError('no such column')"


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ({"instance_type": "ml.m5.large"}, "no such column"),
        ({"backend": "ec2", "instance_types": ["m5.large"]}, "exit code 1"),
    ],
    ids=["sagemaker", "ec2"],
)
def test_a_run_that_failed_by_a_bug_completes_from_its_last_checkpoint_with_the_fix(
    on_ec2: OnEc2, where: dict[str, Any], reason: str
) -> None:
    app = on_ec2.app
    job = app.counting("", **where) | {
        "command": "python3 train.py",
        "metrics": {"loss": {"pattern": "loss=([0-9.]+)", "step": "step ([0-9]+)", "goal": "minimize"}},
    }
    run = job["run"]
    broken = app.upload_source(run, {"train.py": SCRIPT.format(steps=STEPS, bug=BUG)})
    app.launch(**job | {"source": broken})
    failed = app.wait_until_ended(run)
    assert (failed.state, failed.end_reason) == (RunState.FAILED, EndReason.SCRIPT_FAILED)
    assert reason in (failed.failure_reason or "")
    volumes = on_ec2.volumes(run)

    fixed = app.upload_source(run, {"train.py": SCRIPT.format(steps=STEPS, bug="pass")})
    answer = app.invoke("launcher", {"action": "resume", "run": run, "changes": {"source": fixed}})
    assert answer["ok"], answer
    ended = app.wait_until_ended(run)
    assert (ended.state, ended.attempt, ended.checkpoint_uri) == (RunState.COMPLETED, 2, failed.checkpoint_uri)
    assert on_ec2.volumes(run) == volumes == ([failed.volume.id] if "backend" in where else [])
    timeline = app.table.runs.timeline(run)
    resumed = [entry.step for entry in timeline if entry.kind is TimelineKind.STEP_RESUMED]
    assert resumed[0] == 0
    assert 0 < (resumed[-1] or 0) <= BUG_AT
    [changed] = [entry for entry in timeline if entry.kind is TimelineKind.REQUEST_CHANGED]
    assert changed.text.startswith("Goes on with changes in source (")

    measured = app.table.runs.metrics(run)
    assert measured is not None
    loss, count = measured.metrics["loss"], measured.metrics["count"]
    assert (count.last, count.last_step) == (STEPS, STEPS)
    assert (loss.last, loss.last_step, loss.best) == (100 - STEPS + 1, STEPS, 100 - STEPS + 1)
    assert [step for step, _ in count.points] == list(range(1, STEPS + 1))
    assert f"count        {STEPS} at step {STEPS}" in app.table.notifications.of_run(run)[-1].body
