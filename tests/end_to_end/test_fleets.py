"""Runs on EC2 fleets in the deployed app: launcher, controller, events, real instances from the deployed template."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spotkeep_jobs.backends.ec2.history import MAX_FUTILE_INSTANCES
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState, TimelineKind

from .conftest import OnEc2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import DeployedApp

pytestmark = pytest.mark.long


def test_a_script_that_fails_fails_its_run_and_a_resume_goes_on_on_the_same_volume(on_ec2: OnEc2) -> None:
    app, run = on_ec2.app, on_ec2.launch("10 --fail", script_retries=1)
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


@pytest.fixture
def replaced_bundle(deployed_app: DeployedApp) -> Iterator[None]:
    """The runner and agent in the checkpoint bucket are others than the deployed ones."""
    function = deployed_app.connection["launcher_function"]
    configuration = deployed_app.client("lambda").get_function_configuration(FunctionName=function)
    variables = configuration["Environment"]["Variables"]
    deployed, used = (
        next(value for name, value in variables.items() if name.endswith(f"_{end}")).removeprefix("s3://").split("/", 1)
        for end in ("BUNDLE_ASSET_URI", "BUNDLE_URI")
    )
    s3 = deployed_app.client("s3")
    s3.put_object(Bucket=used[0], Key=used[1], Body=b"another one")
    yield
    s3.copy_object(Bucket=used[0], Key=used[1], CopySource={"Bucket": deployed[0], "Key": deployed[1]})


@pytest.mark.usefixtures("replaced_bundle")
def test_an_agent_that_is_not_the_deployed_one_ends_the_run_and_not_the_account(on_ec2: OnEc2) -> None:
    app, run = on_ec2.app, on_ec2.launch("10")
    ended = app.wait_until_ended(run, passes=True)
    assert (ended.state, ended.end_reason) == (RunState.FAILED, EndReason.INPUT_ERROR)
    assert "spotkeep.pyz is not what was deployed: its SHA-256 is" in (ended.failure_reason or "")
    assert on_ec2.live_fleets() == []
    instances = on_ec2.instances(run)
    assert len(instances) >= MAX_FUTILE_INSTANCES
    assert {each["State"]["Name"] for each in instances} <= {"shutting-down", "terminated"}
    assert [each.kind for each in app.runs.notifications(run)] == [NotificationKind.FAILED]
    assert on_ec2.volumes(run) == []
