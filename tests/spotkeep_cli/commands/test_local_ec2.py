"""`spotkeep local ec2`: instances are listed, interrupted, and left without capacity."""

from __future__ import annotations

import base64
import json
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_cli.aws.connection import LOCAL_STATE_VARIABLE
from spotkeep_cli.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from spotkeep_local.lifecycle import LocalAws

READS = 500


@pytest.fixture(autouse=True)
def here(local_aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line finds the local AWS of the tests."""
    monkeypatch.setenv(LOCAL_STATE_VARIABLE, str(local_aws.state_dir))


@pytest.fixture
def instance(local_aws: LocalAws) -> Iterator[str]:
    """A spot instance in us-east-1c that says hello."""
    ec2 = local_aws.session().client("ec2")
    user_data = base64.b64encode(b"#!/bin/sh\necho hello; sleep 600\n").decode()
    template = ec2.create_launch_template(
        LaunchTemplateName=f"template-{uuid.uuid4().hex[:8]}",
        LaunchTemplateData={
            "ImageId": "ami-1",
            "InstanceType": "m5.large",
            "UserData": user_data,
        },
    )["LaunchTemplate"]["LaunchTemplateId"]
    place = {"InstanceType": "m5.large", "AvailabilityZone": "us-east-1c"}
    fleet = ec2.create_fleet(
        LaunchTemplateConfigs=[
            {
                "LaunchTemplateSpecification": {"LaunchTemplateId": template, "Version": "1"},
                "Overrides": [place],
            }
        ],
        TargetCapacitySpecification={"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "spot"},
    )["FleetId"]
    wait_until(lambda: bool(ec2.describe_fleet_instances(FleetId=fleet)["ActiveInstances"]))
    made = ec2.describe_fleet_instances(FleetId=fleet)["ActiveInstances"][0]["InstanceId"]
    # Without its fleet: nothing replaces it.
    ec2.delete_fleets(FleetIds=[fleet], TerminateInstances=False)
    yield str(made)
    ec2.terminate_instances(InstanceIds=[made])


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(READS):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("waited in vain")


def listed(spotkeep: Any, instance: str) -> dict[str, Any]:
    found = json.loads(spotkeep("local", "ec2", "instances", "--json").stdout)["instances"]
    (document,) = [item for item in found if item["instance"] == instance]
    assert isinstance(document, dict)
    return document


@pytest.mark.long
def test_an_instance_is_listed_heard_and_interrupted(spotkeep: Any, instance: str) -> None:
    wait_until(lambda: "hello" in spotkeep("local", "ec2", "console", instance).stdout)
    document = listed(spotkeep, instance)
    assert (document["state"], document["zone"], document["market"]) == ("running", "us-east-1c", "spot")
    table = spotkeep("local", "ec2", "instances")
    assert instance in table.stdout
    assert f"spotkeep local ec2 interrupt {instance}" in table.stdout

    interrupted = spotkeep("local", "ec2", "interrupt", instance, "--notice-seconds", "0.2")
    assert interrupted.exit_code == ExitCode.DONE, interrupted.output
    assert f"{instance} has its notice, and is gone in" in interrupted.stdout
    wait_until(lambda: listed(spotkeep, instance)["state"] == "terminated")
    assert listed(spotkeep, instance)["reason"] == "Server.SpotInstanceTermination"

    again = spotkeep("local", "ec2", "interrupt", instance, "--without-notice")
    assert again.exit_code == ExitCode.LOCAL_AWS_FAILED
    assert "is terminated" in again.stderr


@pytest.mark.long
def test_an_interruption_is_answered_in_json(spotkeep: Any, instance: str) -> None:
    answer = spotkeep("local", "ec2", "interrupt", instance, "--without-notice", "--json")
    document = json.loads(answer.stdout)
    assert (document["instance"], document["notice"]) == (instance, False)
    wait_until(lambda: listed(spotkeep, instance)["state"] == "terminated")
    assert document["interrupted_at"] > 0


def test_a_zones_capacity_is_taken_and_given_back(spotkeep: Any) -> None:
    try:
        taken = spotkeep("local", "ec2", "capacity", "us-east-1c", "0", "--type", "r5.large", "--without-notice")
        assert "us-east-1c has room for 0 spot instances." in taken.stdout
    finally:
        back = spotkeep("local", "ec2", "capacity", "us-east-1c", "any", "--type", "r5.large", "--json")
    assert json.loads(back.stdout)["capacity"] == -1


def test_prices_and_recorded_markets(spotkeep: Any, local_aws: LocalAws, tmp_path: Path) -> None:
    def price() -> str:
        found = (
            local_aws.session()
            .client("ec2")
            .describe_spot_price_history(InstanceTypes=["p3.2xlarge"], AvailabilityZone="us-east-1b")
        )
        return str(found["SpotPriceHistory"][0]["SpotPrice"])

    set_to = spotkeep("local", "ec2", "price", "us-east-1b", "0.75", "--type", "p3.2xlarge", "--json")
    assert json.loads(set_to.stdout)["price_usd"] == 0.75
    assert price() == "0.750000"
    trace = tmp_path / "zone.csv"
    trace.write_text("time,available,spot_price\na,1,0.9\nb,1,0.8\n")
    played = spotkeep("local", "ec2", "replay", f"us-east-1b={trace}", "--ticks", "1", "--json")
    assert json.loads(played.stdout) == {"zones": ["us-east-1b"], "changes": 1}
    assert price() == "0.900000"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("capacity", "us-east-1a", "many"), "'many' is no number of instances"),
        (("replay", "trace.csv"), "'trace.csv' is no zone and file"),
        (("interrupt", "i-0", "--without-notice", "--notice-seconds", "3"), "exclude each other"),
    ],
)
def test_what_cannot_be_understood(spotkeep: Any, arguments: tuple[str, ...], complaint: str) -> None:
    result = spotkeep("local", "ec2", *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert complaint in result.stderr


def test_a_recording_that_is_not_there(spotkeep: Any, tmp_path: Path) -> None:
    result = spotkeep("local", "ec2", "replay", f"us-east-1a={tmp_path / 'none.csv'}")
    assert result.exit_code == ExitCode.LOCAL_AWS_FAILED
    assert "cannot be read" in result.stderr
