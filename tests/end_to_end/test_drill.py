"""`spotkeep drill` on the deployed app: the experiment takes a training instance away, and the run comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spotkeep_fleet.record import decode, fleet_key
from spotkeep_jobs.record.states import RunState

if TYPE_CHECKING:
    from conftest import DeployedApp

pytestmark = pytest.mark.long

_EVERY_STEPS = 5


def drill(app: DeployedApp, run: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "spotkeep"), "--local", "drill", run, "--yes", "--json", "--within", "4"],
        env={**os.environ, "SPOTKEEP_LOCAL_STATE": str(app.state_dir), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def wait_for_a_step(app: DeployedApp, run: str) -> None:
    """What no agent has reported cannot be counted as lost, and the agent reports now and then."""
    partition, sort = fleet_key(run)
    for _ in range(120):
        item = app.client("dynamodb").get_item(
            TableName=app.connection["run_table"], Key={"pk": {"S": partition}, "sk": {"S": sort}}
        )["Item"]
        if decode(item["record"]["S"]).training.step is not None:
            return
        time.sleep(0.5)
    raise AssertionError("the instance reported no step in a minute")


def test_a_run_comes_back_from_a_drill_with_an_interval_lost_at_most(deployed_app: DeployedApp) -> None:
    app, volume = deployed_app, {"size_gb": 1, "when_done": "delete"}
    run = app.launch(**app.counting("1500", backend="ec2", instance_types=["m5.large"], volume=volume))["run"]
    app.wait_until(run, lambda run_item: run_item.state is RunState.TRAINING, passes=True)
    wait_for_a_step(app, run)
    ended = drill(app, run)
    app.invoke("launcher", {"action": "stop", "run": run})
    assert ended.returncode == 0, ended.stdout + ended.stderr
    document = json.loads(ended.stdout)
    assert document["recovered"] is True
    assert document["replacement"] != document["instance"]
    # EC2's two minutes are seconds here: the notice may pass unheard, and what is lost then is one interval.
    assert 0 <= document["steps_lost"] <= _EVERY_STEPS
    assert {"notice", "gone", "taken up", "training"} <= {entry["phase"] for entry in document["phases"]}
    app.wait_until_ended(run, passes=True)
