"""Runs on EC2 fleets in the deployed app: launcher, controller, events, real instances from the deployed template."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_fleet.tags import RUN_TAG
from spotkeep_jobs.backends.ec2.history import MAX_FUTILE_INSTANCES
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState, TimelineKind
from spotkeep_local.fleet_control import FleetControl

if TYPE_CHECKING:
    from conftest import DeployedApp

# Slow until it is interrupted, so that there is time to do it.
_COUNT = """\
import os, pathlib, sys, time
from spotkeep import Checkpointer
done = {"count": 0}
with Checkpointer({"done": done}, every_steps=5) as checkpointer:
    pause = 0.0 if done["count"] else 0.05
    for step in checkpointer.steps(int(sys.argv[1])):
        done["count"] += 1
        time.sleep(pause)
if "fail" in sys.argv[2:]:
    sys.exit("asked to fail")
pathlib.Path(os.environ["SM_MODEL_DIR"], "count.txt").write_text(str(done["count"]))
"""


class OnEc2:
    """Runs on EC2, as their user and as EC2 see them."""

    def __init__(self, app: DeployedApp) -> None:
        self.app = app
        self.ec2 = app.client("ec2")
        self.control = FleetControl(app.local)

    def launch(self, command: str, **fields: Any) -> str:
        run = f"fleet-{uuid.uuid4().hex[:8]}"
        self.app.launch(
            name="fleet",
            run=run,
            backend="ec2",
            instance_types=["m5.large", "m6i.large"],
            command=f"python3 count.py {command}",
            source=self.app.upload_source(run, {"count.py": _COUNT}),
            environment={"SPOTKEEP_PROGRESS_SECONDS": "0"},
            notify=["completed", "failed", "stopped", "interrupted", "resumed"],
            volume={"size_gb": 1, "when_done": "delete"},
            **fields,
        )
        return run

    def instances(self, run: str) -> list[dict[str, Any]]:
        found = self.ec2.describe_instances(Filters=[{"Name": f"tag:{RUN_TAG}", "Values": [run]}])
        return [each for reservation in found["Reservations"] for each in reservation["Instances"]]

    def said(self, run: str) -> str:
        return "\n".join(
            self.ec2.get_console_output(InstanceId=each["InstanceId"]).get("Output", "") for each in self.instances(run)
        )

    def wait_for(self, run: str, text: str) -> None:
        self.until(lambda: text in self.said(run), lambda: f"{text} in\n{self.said(run)}")

    def until(self, happened: Callable[[], Any], what: Callable[[], str]) -> None:
        for _ in range(6000):
            if happened():
                return
            time.sleep(0.1)
        raise AssertionError(f"waited in vain for {what()}")

    def volumes(self, run: str) -> list[str]:
        found = self.ec2.describe_volumes(Filters=[{"Name": f"tag:{RUN_TAG}", "Values": [run]}])
        return [volume["VolumeId"] for volume in found["Volumes"]]

    def live_fleets(self) -> list[str]:
        found = self.ec2.describe_fleets(Filters=[{"Name": "fleet-state", "Values": ["active"]}])
        return [fleet["FleetId"] for fleet in found["Fleets"]]


@pytest.fixture
def on_ec2(deployed_app: DeployedApp) -> Iterator[OnEc2]:
    on_ec2 = OnEc2(deployed_app)
    yield on_ec2
    if left := on_ec2.live_fleets():
        on_ec2.ec2.delete_fleets(FleetIds=left, TerminateInstances=True)


def test_a_run_goes_through_an_interruption_by_events_alone_and_leaves_nothing(on_ec2: OnEc2) -> None:
    app, run = on_ec2.app, on_ec2.launch("300")
    on_ec2.wait_for(run, '"event":"saved"')
    (first,) = on_ec2.instances(run)
    on_ec2.control.warn_of("i-0123456789abcdef0")  # Another account's: nothing may come of it (trap 13).
    on_ec2.control.interrupt(first["InstanceId"], notice=False)
    ended = app.wait_until_ended(run)
    assert (ended.state, ended.end_reason, ended.interruptions) == (RunState.COMPLETED, EndReason.COMPLETED, 1)
    kinds = [entry.kind for entry in app.runs.timeline(run)]
    assert kinds.index(TimelineKind.INTERRUPTED) < kinds.index(TimelineKind.RESUMED) < kinds.index(TimelineKind.ENDED)
    notified = [notification.kind for notification in app.runs.notifications(run)]
    assert notified == [NotificationKind.INTERRUPTED, NotificationKind.RESUMED, NotificationKind.COMPLETED]
    assert on_ec2.live_fleets() == []
    assert {each["State"]["Name"] for each in on_ec2.instances(run)} <= {"shutting-down", "terminated"}
    on_ec2.until(lambda: app.invoke("controller", {}) and not on_ec2.volumes(run), lambda: "the volume's end")


@pytest.mark.long
def test_a_script_that_fails_fails_its_run_and_a_resume_goes_on_on_the_same_volume(on_ec2: OnEc2) -> None:
    app, run = on_ec2.app, on_ec2.launch("10 fail", script_retries=1)
    ended = app.wait_until_ended(run)
    assert (ended.state, ended.end_reason) == (RunState.FAILED, EndReason.SCRIPT_FAILED)
    assert "exit code" in (ended.failure_reason or "")
    (volume,) = on_ec2.volumes(run)
    assert ended.volume_id == volume
    answer = app.invoke("launcher", {"action": "resume", "run": run})
    assert (answer["ok"], answer["attempt"]) == (True, 2)
    ended = app.wait_until(run, lambda run_item: run_item.attempt == 2 and run_item.state.ended)
    assert ended.end_reason is EndReason.SCRIPT_FAILED
    assert on_ec2.volumes(run) == [volume]
    steps = [entry.step for entry in app.runs.timeline(run) if entry.kind is TimelineKind.STEP_RESUMED]
    assert steps[0] == 0
    assert set(steps[1:]) == {10}


@pytest.mark.long
def test_a_stop_saves_first(on_ec2: OnEc2) -> None:
    app, run = on_ec2.app, on_ec2.launch("2000")
    on_ec2.wait_for(run, '"event":"saved"')
    assert app.invoke("launcher", {"action": "stop", "run": run})["ok"]
    ended = app.wait_until_ended(run, sweep=True)
    assert (ended.state, ended.end_reason) == (RunState.STOPPED, EndReason.STOPPED_BY_USER)
    assert "left: the run is asked to stop" in on_ec2.said(run)
    assert on_ec2.live_fleets() == []


@pytest.mark.long
def test_an_agent_that_is_not_the_deployed_one_ends_the_run_and_not_the_account(own_app: DeployedApp) -> None:
    on_ec2 = OnEc2(own_app)
    function = own_app.client("lambda").get_function_configuration(FunctionName=own_app.connection["launcher_function"])
    (uri,) = [
        value for name, value in function["Environment"]["Variables"].items() if name.endswith("TRAINING_BUNDLE_URI")
    ]
    bucket, key = uri.removeprefix("s3://").split("/", 1)
    own_app.client("s3").put_object(Bucket=bucket, Key=key, Body=b"another one")
    run = on_ec2.launch("10")
    ended = own_app.wait_until_ended(run, sweep=True)
    assert (ended.state, ended.end_reason) == (RunState.FAILED, EndReason.INPUT_ERROR)
    assert "spotkeep.pyz is not what was deployed: its SHA-256 is" in (ended.failure_reason or "")
    assert on_ec2.live_fleets() == []
    instances = on_ec2.instances(run)
    assert len(instances) >= MAX_FUTILE_INSTANCES
    assert {each["State"]["Name"] for each in instances} <= {"shutting-down", "terminated"}
    assert [each.kind for each in own_app.runs.notifications(run)] == [NotificationKind.FAILED]
    assert on_ec2.volumes(run) == []
