"""Instances, by boto3: what they are made from, how they end, what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from .conftest import Ec2, Events

pytestmark = pytest.mark.long


def test_an_instance_is_pending_then_runs_its_user_data(ec2: Ec2, events: Events) -> None:
    made = ec2.client.run_instances(
        ImageId="ami-1", InstanceType="m5.large", MinCount=1, MaxCount=1, UserData="#!/bin/sh\necho one; exit 3\n"
    )
    instance = made["Instances"][0]["InstanceId"]
    assert made["Instances"][0]["State"]["Name"] == "pending"
    ec2.wait_for_line(instance, "one")
    for state in ("pending", "running"):
        event = events.wait_for("EC2 Instance State-change Notification", instance_id=instance, state=state)
        assert event["source"] == "aws.ec2"
        assert event["resources"] == [f"arn:aws:ec2:us-east-1:000000000000:instance/{instance}"]
    # An instance whose user data has ended still runs, and bills.
    ec2.wait_until(lambda: ec2.control.instance_facts(instance).user_data_exit_code == 3)
    assert ec2.state(instance) == "running"


def test_a_terminated_instance_gets_sigterm_first(ec2: Ec2) -> None:
    instance = ec2.run("#!/bin/sh\ntrap 'echo going; exit 0' TERM\necho READY\nwhile :; do sleep 0.1; done\n")
    ec2.wait_for_line(instance, "READY")
    ended = ec2.client.terminate_instances(InstanceIds=[instance])["TerminatingInstances"][0]
    assert (ended["PreviousState"]["Name"], ended["CurrentState"]["Name"]) == ("running", "shutting-down")
    ec2.wait_for_state(instance, "terminated")
    assert "going" in ec2.console(instance).splitlines()
    assert ec2.instance(instance)["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    again = ec2.client.terminate_instances(InstanceIds=[instance])["TerminatingInstances"][0]
    assert again["CurrentState"]["Name"] == "terminated"


def test_one_that_ignores_sigterm_ends_all_the_same(ec2: Ec2) -> None:
    instance = ec2.run("#!/bin/sh\ntrap '' TERM\necho READY\nwhile :; do sleep 0.1; done\n")
    ec2.wait_for_line(instance, "READY")
    ec2.client.terminate_instances(InstanceIds=[instance])
    ec2.wait_for_state(instance, "terminated")


def test_a_launch_template_is_what_an_instance_is_made_from(ec2: Ec2) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "spotkeep:run", "Value": "digits-7"}]}]
    template = ec2.template("#!/bin/sh\necho from the template\n", InstanceType="g5.xlarge", TagSpecifications=tags)
    made = ec2.client.run_instances(LaunchTemplate={"LaunchTemplateId": template}, MinCount=1, MaxCount=1)
    instance = made["Instances"][0]
    assert instance["InstanceType"] == "g5.xlarge"
    assert {"Key": "spotkeep:run", "Value": "digits-7"} in instance["Tags"]
    ec2.wait_for_line(instance["InstanceId"], "from the template")


def test_the_same_client_token_is_the_same_instance(ec2: Ec2) -> None:
    request: dict[str, Any] = {
        "ImageId": "ami-1",
        "InstanceType": "m5.large",
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": "attempt-1",
    }
    first = ec2.client.run_instances(**request)["Instances"][0]["InstanceId"]
    assert ec2.client.run_instances(**request)["Instances"][0]["InstanceId"] == first
    with pytest.raises(ClientError, match="IdempotentParameterMismatch"):
        ec2.client.run_instances(**request | {"InstanceType": "m5.xlarge"})


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"ImageId": None}, "MissingParameter"),
        ({"SubnetId": "subnet-0"}, "InvalidSubnetID.NotFound"),
        ({"IamInstanceProfile": {"Name": "nobody"}}, "InvalidParameterValue"),
        ({"LaunchTemplate": {"LaunchTemplateId": "lt-0"}}, "InvalidLaunchTemplateId.NotFound"),
        ({"InstanceType": "m5.enormous"}, "InvalidParameterValue"),
    ],
)
def test_an_instance_that_cannot_be(ec2: Ec2, change: dict[str, Any], code: str) -> None:
    request = {"ImageId": "ami-1", "InstanceType": "m5.large", "MinCount": 1, "MaxCount": 1} | change
    with pytest.raises(ClientError) as refused:
        ec2.client.run_instances(**{name: value for name, value in request.items() if value is not None})
    assert refused.value.response["Error"]["Code"] == code


def test_instances_are_found_by_what_is_said_of_them(ec2: Ec2) -> None:
    spot, other = ec2.run(spot=True, zone="us-east-1b"), ec2.run()
    asked = [{"Name": "instance-lifecycle", "Values": ["spot"]}, {"Name": "instance-state-name", "Values": ["running"]}]
    reservations = ec2.client.describe_instances(Filters=asked)["Reservations"]
    assert [item["Instances"][0]["InstanceId"] for item in reservations] == [spot]
    assert ec2.instance(spot)["Placement"]["AvailabilityZone"] == "us-east-1b"
    assert "InstanceLifecycle" not in ec2.instance(other)
    status = ec2.client.describe_instance_status(InstanceIds=[other])["InstanceStatuses"][0]
    assert status["InstanceStatus"]["Status"] == "ok"
    ec2.client.get_waiter("instance_status_ok").wait(InstanceIds=[other])


def test_an_instance_that_nobody_knows(ec2: Ec2) -> None:
    for act in (ec2.client.describe_instances, ec2.client.terminate_instances):
        with pytest.raises(ClientError) as refused:
            act(InstanceIds=["i-00000000000000000"])
        assert refused.value.response["Error"]["Code"] == "InvalidInstanceID.NotFound"


def test_no_instance_is_stopped(ec2: Ec2) -> None:
    with pytest.raises(ClientError, match="UnsupportedOperation"):
        ec2.client.stop_instances(InstanceIds=[ec2.run()])
