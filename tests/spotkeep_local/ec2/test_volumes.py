"""Volumes, by boto3: where they can be attached, what refuses what, and when each thing is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from .conftest import Ec2


def refusal(act: Callable[..., Any], **request: Any) -> str:
    with pytest.raises(ClientError) as refused:
        act(**request)
    return str(refused.value.response["Error"]["Code"])


def test_a_volume_is_creating_then_available(ec2: Ec2) -> None:
    made = ec2.client.create_volume(AvailabilityZone="us-east-1b", Size=3, VolumeType="gp3", Encrypted=True)
    assert made["State"] == "creating"
    ec2.wait_for_volume(made["VolumeId"], "available")
    ec2.client.get_waiter("volume_available").wait(VolumeIds=[made["VolumeId"]])
    volume = ec2.describe_volume(made["VolumeId"])
    assert (volume["Size"], volume["AvailabilityZone"], volume["AvailabilityZoneId"]) == (3, "us-east-1b", "use1-az2")
    assert volume["Encrypted"]


def test_the_same_client_token_is_the_same_volume(ec2: Ec2) -> None:
    request = {"AvailabilityZone": "us-east-1a", "Size": 1, "ClientToken": "run-7-1"}
    first = ec2.client.create_volume(**request)
    assert ec2.client.create_volume(**request)["VolumeId"] == first["VolumeId"]
    assert refusal(ec2.client.create_volume, **request | {"Size": 2}) == "IdempotentParameterMismatch"


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        ({"AvailabilityZone": "us-east-1z", "Size": 1}, "InvalidZone.NotFound"),
        ({"AvailabilityZone": "us-east-1a"}, "MissingParameter"),
        ({"Size": 1}, "MissingParameter"),
        ({"AvailabilityZone": "us-east-1a", "Size": 0}, "InvalidParameterValue"),
        ({"AvailabilityZone": "us-east-1a", "Size": 4, "VolumeType": "st1"}, "InvalidParameterValue"),
        ({"AvailabilityZone": "us-east-1a", "Size": 4, "VolumeType": "gp9"}, "InvalidParameterValue"),
        ({"AvailabilityZone": "us-east-1a", "SnapshotId": "snap-0"}, "InvalidSnapshot.NotFound"),
        ({"AvailabilityZone": "us-east-1a", "Size": 4, "MultiAttachEnabled": True}, "UnsupportedOperation"),
        ({"AvailabilityZone": "us-east-1a", "Size": 1, "DryRun": True}, "DryRunOperation"),
    ],
)
def test_a_volume_that_cannot_be(ec2: Ec2, request_: dict[str, Any], code: str) -> None:
    assert refusal(ec2.client.create_volume, **request_) == code


def test_a_volume_is_attached_in_its_own_zone_and_nowhere_else(ec2: Ec2) -> None:
    tags = [{"ResourceType": "volume", "Tags": [{"Key": "spotkeep:run", "Value": "digits-7"}]}]
    first, second = ec2.run(zone="us-east-1a"), ec2.run(zone="us-east-1a")
    elsewhere, volume, other = ec2.volume(zone="us-east-1b"), ec2.volume(TagSpecifications=tags), ec2.volume()
    attach = ec2.client.attach_volume
    assert refusal(attach, VolumeId=elsewhere, InstanceId=first, Device="/dev/sdf") == "InvalidVolume.ZoneMismatch"
    ec2.attach(volume, first)
    described = ec2.describe_volume(volume)
    assert (described["State"], described["Attachments"][0]["InstanceId"]) == ("in-use", first)
    assert ec2.instance(first)["BlockDeviceMappings"][0]["Ebs"]["VolumeId"] == volume
    assert refusal(attach, VolumeId=volume, InstanceId=second, Device="/dev/sdf") == "VolumeInUse"
    assert refusal(attach, VolumeId=other, InstanceId=first, Device="/dev/sdf") == "InvalidParameterValue"
    assert refusal(ec2.client.delete_volume, VolumeId=volume) == "VolumeInUse"
    assert refusal(ec2.client.detach_volume, VolumeId=volume, InstanceId=second) == "InvalidAttachment.NotFound"

    def found(**filters: str) -> list[str]:
        asked = [{"Name": name, "Values": [value]} for name, value in filters.items()]
        return [found["VolumeId"] for found in ec2.client.describe_volumes(Filters=asked)["Volumes"]]

    assert found(**{"tag:spotkeep:run": "digits-*"}) == [volume]
    assert found(**{"attachment.instance-id": first}) == [volume]
    available = found(status="available")
    assert (volume in available, other in available) == (False, True)
    colour = [{"Name": "colour", "Values": ["red"]}]
    assert refusal(ec2.client.describe_volumes, Filters=colour) == "InvalidParameterValue"


def test_a_volume_is_available_again_when_it_is_detached_or_its_instance_ends(ec2: Ec2) -> None:
    instance, volume, kept = ec2.run(), ec2.volume(), ec2.volume()
    ec2.attach(volume, instance)
    assert ec2.client.detach_volume(VolumeId=volume)["State"] == "detaching"
    ec2.wait_for_volume(volume, "available")
    assert refusal(ec2.client.detach_volume, VolumeId=volume) == "IncorrectState"
    ec2.client.delete_volume(VolumeId=volume)
    assert refusal(ec2.client.describe_volumes, VolumeIds=[volume]) == "InvalidVolume.NotFound"
    ec2.client.get_waiter("volume_deleted").wait(VolumeIds=[volume])

    ec2.attach(kept, instance)
    ec2.client.terminate_instances(InstanceIds=[instance])
    ec2.wait_for_volume(kept, "available")
    late = {"VolumeId": kept, "InstanceId": instance, "Device": "/dev/sdf"}
    assert refusal(ec2.client.attach_volume, **late) == "IncorrectState"
