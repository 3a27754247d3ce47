"""What no instance of a run can work with ends it: an agent that is not the deployed one, a channel without data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spotkeep_jobs.backends.ec2.history import MAX_FUTILE_INSTANCES
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState

from .conftest import OnEc2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .conftest import DeployedApp

pytestmark = pytest.mark.long


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
    assert [each.kind for each in app.table.notifications.of_run(run)] == [NotificationKind.FAILED]
    assert on_ec2.volumes(run) == []


def test_a_channel_without_data_ends_the_run_on_its_first_instance(on_ec2: OnEc2) -> None:
    app = on_ec2.app
    nothing = f"s3://{app.connection['checkpoint_bucket']}/runs/no-such-data/"
    run = on_ec2.launch("10", channels={"train": nothing})
    ended = app.wait_until_ended(run)
    assert (ended.state, ended.end_reason) == (RunState.FAILED, EndReason.INPUT_ERROR)
    assert f"ClientError: channel train: {nothing} holds no data" in (ended.failure_reason or "")
    assert len(on_ec2.instances(run)) == 1
    assert on_ec2.live_fleets() == []
