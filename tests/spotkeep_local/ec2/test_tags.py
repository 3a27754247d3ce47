"""Tags of our resources and of ministack's, by one API."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from .conftest import Ec2


def tags(ec2: Ec2, *resources: str) -> set[tuple[str, str, str]]:
    found = ec2.client.describe_tags(Filters=[{"Name": "resource-id", "Values": list(resources)}])["Tags"]
    return {(tag["ResourceType"], tag["Key"], tag["Value"]) for tag in found}


def test_one_call_tags_a_volume_and_a_vpc(ec2: Ec2) -> None:
    volume, vpc = ec2.volume(), ec2.client.describe_vpcs()["Vpcs"][0]["VpcId"]
    ec2.client.create_tags(Resources=[volume, vpc], Tags=[{"Key": "run", "Value": "7"}, {"Key": "zone", "Value": "a"}])
    ec2.client.create_tags(Resources=[volume], Tags=[{"Key": "run", "Value": "8"}])
    assert {("volume", "run", "8"), ("vpc", "run", "7")} <= tags(ec2, volume, vpc)
    ec2.client.delete_tags(Resources=[volume, vpc], Tags=[{"Key": "run"}, {"Key": "zone", "Value": "other"}])
    assert tags(ec2, volume) == {("volume", "zone", "a")}
    assert ("vpc", "run", "7") not in tags(ec2, vpc)
    assert ec2.describe_volume(volume)["Tags"] == [{"Key": "zone", "Value": "a"}]


def test_a_tag_of_a_running_instance_shows_in_its_metadata(ec2: Ec2) -> None:
    template = ec2.template(
        f"#!/bin/sh\n{ec2.metadata}\nuntil metadata tags/instance/run; do sleep 0.1; done\nsleep 60"
    )
    instance = ec2.client.run_instances(LaunchTemplate={"LaunchTemplateId": template}, MinCount=1, MaxCount=1)
    instance_id = instance["Instances"][0]["InstanceId"]
    ec2.client.create_tags(Resources=[instance_id], Tags=[{"Key": "run", "Value": "digits-7"}])
    ec2.wait_for_line(instance_id, "digits-7")


def test_what_does_not_exist_is_not_tagged(ec2: Ec2) -> None:
    for resource, code in (("vol-0", "InvalidVolume.NotFound"), ("i-0", "InvalidInstanceID.NotFound")):
        with pytest.raises(ClientError) as refused:
            ec2.client.create_tags(Resources=[resource], Tags=[{"Key": "a", "Value": "b"}])
        assert refused.value.response["Error"]["Code"] == code


def test_keys_of_aws_are_reserved(ec2: Ec2) -> None:
    with pytest.raises(ClientError, match="reserved for internal use"):
        ec2.client.create_tags(Resources=[ec2.volume()], Tags=[{"Key": "aws:mine", "Value": "b"}])
