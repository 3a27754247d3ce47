"""A run on an instance, and what its user does to it: opens a shell there, and has a drill take the instance away."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_fleet.record import decode, fleet_key
from spotkeep_jobs.record.states import RunState

from .conftest import ENVIRONMENTS_ARE_KEPT, OnEc2, until
from .test_shell import make_plugin, opened, shell

if TYPE_CHECKING:
    from click.testing import Result

    from .conftest import DeployedApp

pytestmark = pytest.mark.long

_EVERY_STEPS = 5
_FINDS = ["python3", "-c", "import importlib.util as u; print('finds', u.find_spec('needed') is not None)"]


@dataclass(frozen=True)
class Drilled:
    """What was said of a run that was drilled, and stopped after it."""

    first_instance: str
    shell: dict[str, Any]
    drill: Result
    console: str


def has_reported_a_step(app: DeployedApp, run: str) -> bool:
    """What no agent has reported cannot be counted as lost, and the agent reports now and then."""
    partition, sort = fleet_key(run)
    item = app.client("dynamodb").get_item(
        TableName=app.connection["run_table"], Key={"pk": {"S": partition}, "sk": {"S": sort}}
    )["Item"]
    return decode(item["record"]["S"]).training.step is not None


@pytest.fixture(scope="module")
def drilled(deployed_app: DeployedApp, tmp_path_factory: pytest.TempPathFactory) -> Drilled:
    app, on_ec2 = deployed_app, OnEc2(deployed_app)
    document = app.counting(
        "1500", needs_a_package=True, setup=_FINDS, backend="ec2", instance_types=["m5.large"],
        environment={"SPOTKEEP_PROGRESS_SECONDS": "10"}, volume={"size_gb": 1, "when_done": "delete"},
    )  # fmt: skip
    run = app.launch(**document)["run"]
    app.wait_until(run, lambda run_item: run_item.state is RunState.TRAINING, passes=True)
    until(lambda: has_reported_a_step(app, run), lambda: "a step of the instance")
    (instance,) = on_ec2.instances(run)
    found = opened(shell(app, make_plugin(tmp_path_factory.mktemp("plugin")), run))["parameters"]
    ended = app.spotkeep("drill", run, "--yes", "--json", "--within", "4")
    app.invoke("launcher", {"action": "stop", "run": run})
    app.wait_until_ended(run, passes=True)
    return Drilled(first_instance=instance["InstanceId"], shell=found, drill=ended, console=on_ec2.said(run))


def test_a_shell_on_an_instance_is_that_of_the_user_who_trains(drilled: Drilled) -> None:
    assert drilled.shell["Target"] == drilled.first_instance
    assert drilled.shell["DocumentName"] == "AWS-StartInteractiveCommand"
    (command,) = drilled.shell["Parameters"]["command"]
    assert "--user=spotkeep" in command


def test_a_run_comes_back_from_a_drill_with_an_interval_lost_at_most(drilled: Drilled) -> None:
    assert drilled.drill.exit_code == 0, drilled.drill.output
    document = json.loads(drilled.drill.stdout)
    assert document["recovered"] is True
    assert document["instance"] == drilled.first_instance != document["replacement"]
    # EC2's two minutes are seconds here: the notice may pass unheard, and what is lost then is one interval.
    assert 0 <= document["steps_lost"] <= _EVERY_STEPS
    assert {"notice", "gone", "taken up", "training"} <= {entry["phase"] for entry in document["phases"]}


@pytest.mark.skipif(not ENVIRONMENTS_ARE_KEPT, reason="each host installs anew on this machine")
def test_an_instance_that_takes_a_run_over_has_what_it_needs_on_the_volume_and_is_set_up_itself(
    drilled: Drilled,
) -> None:
    lines = drilled.console.splitlines()
    reasons = [json.loads(line[line.index("{") :])["reason"] for line in lines if '"event":"installed"' in line]
    assert sorted(reasons) == ["by pip", "kept on this machine"]
    assert sum("finds True" in line for line in lines) == 2
