"""Instances, by boto3: what they are made from, how they end, what is said of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from .conftest import Ec2, Events

pytestmark = pytest.mark.long


def test_an_instance_is_pending_then_runs_its_user_data(ec2: Ec2, events: Events) -> None:
    instance = ec2.run("#!/bin/sh\necho one; exit 3\n")
    ec2.wait_for_line(instance, "one")
    for state in ("pending", "running"):
        event = events.wait_for("EC2 Instance State-change Notification", instance_id=instance, state=state)
        assert event["source"] == "aws.ec2"
        assert event["resources"] == [f"arn:aws:ec2:us-east-1:000000000000:instance/{instance}"]
    # An instance whose user data has ended still runs, and bills.
    ec2.wait_until(lambda: ec2.control.instance_facts(instance).user_data_exit_code == 3)
    assert ec2.state(instance) == "running"
    # What ministack would answer from resources of its own is refused.
    for operation in (ec2.client.reboot_instances, ec2.client.stop_instances):
        with pytest.raises(ClientError, match="the local AWS has no"):
            operation(InstanceIds=[instance])


def test_instances_that_boot_from_now_on_are_given_a_wait_for_all_nodes_of_their_run(ec2: Ec2) -> None:
    say = "#!/bin/sh\necho wait: ${SPOTKEEP_LOCAL_FIRST_WORLD_SECONDS-as on AWS}; exec sleep 600\n"
    ec2.control.first_worlds_wait(900.0)
    try:
        instance = ec2.run(say)
        ec2.wait_for_line(instance, "wait: 900")
    finally:
        ec2.control.first_worlds_wait(None)
    later = ec2.run(say)
    ec2.wait_for_line(later, "wait: as on AWS")
    ec2.client.terminate_instances(InstanceIds=[instance, later])


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


def test_an_instance_that_does_not_exist(ec2: Ec2) -> None:
    for act in (ec2.client.describe_instances, ec2.client.terminate_instances):
        with pytest.raises(ClientError) as refused:
            act(InstanceIds=["i-00000000000000000"])
        assert refused.value.response["Error"]["Code"] == "InvalidInstanceID.NotFound"


def test_a_launch_template_is_what_an_instance_is_made_from_and_found_by(ec2: Ec2) -> None:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "spotkeep:run", "Value": "digits-7"}]}]
    fleet = ec2.fleet(ec2.template("#!/bin/sh\necho from the template\n", TagSpecifications=tags), types=["g5.xlarge"])
    instance = ec2.instance(ec2.running(fleet))
    assert (instance["InstanceType"], instance["InstanceLifecycle"]) == ("g5.xlarge", "spot")
    assert {"Key": "spotkeep:run", "Value": "digits-7"} in instance["Tags"]
    assert {"Key": "aws:ec2:fleet-id", "Value": fleet} in instance["Tags"]
    ec2.wait_for_line(instance["InstanceId"], "from the template")
    ec2.run()
    asked = [
        {"Name": "tag:spotkeep:run", "Values": ["digits-7"]},
        {"Name": "instance-state-name", "Values": ["running"]},
    ]
    reservations = ec2.client.describe_instances(Filters=asked)["Reservations"]
    assert [item["Instances"][0]["InstanceId"] for item in reservations] == [instance["InstanceId"]]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"IamInstanceProfile": {"Name": "no-such-profile"}}, "parameter iamInstanceProfile is invalid"),
        ({"ImageId": ""}, "must contain the parameter ImageId"),
        ({"UserData": "no base64"}, "Invalid BASE64 encoding"),
    ],
)
def test_an_instance_that_cannot_be_is_in_its_fleets_history(ec2: Ec2, data: dict[str, Any], problem: str) -> None:
    fleet = ec2.fleet(ec2.template(**data))

    def described() -> str:
        records = ec2.client.describe_fleet_history(FleetId=fleet, StartTime=0)["HistoryRecords"]
        return " ".join(record["EventInformation"].get("EventDescription", "") for record in records)

    ec2.wait_until(lambda: problem in described())
