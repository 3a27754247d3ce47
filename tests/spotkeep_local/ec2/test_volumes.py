"""Volumes, by boto3: where they can be attached, what refuses what, and when each thing is done."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_local.ec2.cloud import Cloud, Latencies
from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.records import LocalSnapshot
from spotkeep_local.ec2.volumes import VolumeOperations

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

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


def completed(ec2: Ec2, volume: str) -> str:
    snapshot = str(ec2.client.create_snapshot(VolumeId=volume)["SnapshotId"])
    ec2.wait_until(lambda: state(ec2, snapshot) == "completed")
    return snapshot


def state(ec2: Ec2, snapshot: str) -> str:
    return str(ec2.client.describe_snapshots(SnapshotIds=[snapshot])["Snapshots"][0]["State"])


def test_a_snapshot_is_pending_then_completed_found_by_its_tag_and_outlives_its_volume(ec2: Ec2) -> None:
    tags = [{"ResourceType": "snapshot", "Tags": [{"Key": "run", "Value": "of-this-test"}]}]
    volume = ec2.volume(Size=7, Encrypted=True)
    made = ec2.client.create_snapshot(VolumeId=volume, Description="before the move", TagSpecifications=tags)
    assert made["State"] == "pending"
    snapshot_id = made["SnapshotId"]
    ec2.wait_until(lambda: state(ec2, snapshot_id) == "completed")
    ec2.client.get_waiter("snapshot_completed").wait(SnapshotIds=[snapshot_id])
    completed(ec2, volume)
    tagged = [{"Name": "tag:run", "Values": ["of-this-test"]}]
    (snapshot,) = ec2.client.describe_snapshots(OwnerIds=["self"], Filters=tagged)["Snapshots"]
    assert snapshot["SnapshotId"] == snapshot_id
    assert (snapshot["VolumeSize"], snapshot["Progress"], snapshot["VolumeId"]) == (7, "100%", volume)
    assert (snapshot["Encrypted"], snapshot["Description"]) == (True, "before the move")

    ec2.client.delete_volume(VolumeId=volume)
    assert state(ec2, snapshot_id) == "completed"
    ec2.client.delete_snapshot(SnapshotId=snapshot_id)
    with pytest.raises(ClientError) as refused:
        ec2.client.describe_snapshots(SnapshotIds=[snapshot_id])
    assert refused.value.response["Error"]["Code"] == "InvalidSnapshot.NotFound"


def test_a_volume_from_a_snapshot_has_its_size_unless_it_is_larger(ec2: Ec2) -> None:
    snapshot = completed(ec2, ec2.volume(Size=3, Encrypted=True))
    in_another_zone = ec2.client.create_volume(AvailabilityZone="us-east-1c", SnapshotId=snapshot)
    assert (in_another_zone["Size"], in_another_zone["Encrypted"]) == (3, True)
    larger = ec2.client.create_volume(AvailabilityZone="us-east-1a", SnapshotId=snapshot, Size=9)
    assert larger["Size"] == 9
    with pytest.raises(ClientError, match="cannot be smaller than its snapshot"):
        ec2.client.create_volume(AvailabilityZone="us-east-1a", SnapshotId=snapshot, Size=2)


def test_a_snapshot_that_is_not_done_makes_no_volume(tmp_path: Path) -> None:
    surroundings: Any = SimpleNamespace(zones=lambda: ["us-east-1a"])
    nothing: Any = None
    cloud = Cloud(
        folder=tmp_path,
        file_systems=tmp_path,
        region="us-east-1",
        account_id="000000000000",
        find_platform=nothing,
        endpoint_port=1,
        agent_time_scale=1.0,
        latencies=Latencies(1.0),
        surroundings=surroundings,
        send_event=nothing,
        clock=lambda: 100.0,
    )
    pending = LocalSnapshot(
        snapshot_id="snap-1", volume_id="vol-1", volume_size_gib=1, used_bytes=0, started_at=99.0, ready_at=101.0
    )
    cloud.snapshots.put(pending)
    with pytest.raises(Ec2Error) as refused:
        VolumeOperations(cloud).create({"AvailabilityZone": "us-east-1a", "SnapshotId": "snap-1"})
    assert refused.value.code == "IncorrectState"
