"""Snapshots, by boto3: what is in them, when they are done, what is made from them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from .conftest import Ec2


def completed(ec2: Ec2, volume: str, **more: object) -> str:
    snapshot = str(ec2.client.create_snapshot(VolumeId=volume, **more)["SnapshotId"])
    ec2.wait_until(lambda: state(ec2, snapshot) == "completed")
    return snapshot


def state(ec2: Ec2, snapshot: str) -> str:
    return str(ec2.client.describe_snapshots(SnapshotIds=[snapshot])["Snapshots"][0]["State"])


def test_a_snapshot_is_pending_then_completed(ec2: Ec2) -> None:
    volume = ec2.volume(Size=7, Encrypted=True)
    made = ec2.client.create_snapshot(VolumeId=volume, Description="before the move")
    assert made["State"] == "pending"
    ec2.wait_until(lambda: state(ec2, made["SnapshotId"]) == "completed")
    ec2.client.get_waiter("snapshot_completed").wait(SnapshotIds=[made["SnapshotId"]])
    (snapshot,) = ec2.client.describe_snapshots(SnapshotIds=[made["SnapshotId"]])["Snapshots"]
    assert (snapshot["VolumeSize"], snapshot["Progress"], snapshot["VolumeId"]) == (7, "100%", volume)
    assert (snapshot["Encrypted"], snapshot["Description"]) == (True, "before the move")


def test_a_volume_from_a_snapshot_has_its_size_unless_it_is_larger(ec2: Ec2) -> None:
    snapshot = completed(ec2, ec2.volume(Size=3, Encrypted=True))
    in_another_zone = ec2.client.create_volume(
        AvailabilityZone="us-east-1c", SnapshotId=snapshot, VolumeInitializationRate=200
    )
    assert (in_another_zone["Size"], in_another_zone["Encrypted"]) == (3, True)
    assert in_another_zone["VolumeInitializationRate"] == 200
    larger = ec2.client.create_volume(AvailabilityZone="us-east-1a", SnapshotId=snapshot, Size=9)
    assert larger["Size"] == 9
    with pytest.raises(ClientError, match="cannot be smaller than its snapshot"):
        ec2.client.create_volume(AvailabilityZone="us-east-1a", SnapshotId=snapshot, Size=2)


def test_a_snapshot_that_is_not_done_makes_no_volume(ec2: Ec2) -> None:
    ec2.control.volume_faults(failing_snapshots=1)
    snapshot = ec2.client.create_snapshot(VolumeId=ec2.volume())["SnapshotId"]
    ec2.wait_until(lambda: state(ec2, snapshot) == "error")
    with pytest.raises(ClientError) as refused:
        ec2.client.create_volume(AvailabilityZone="us-east-1a", SnapshotId=snapshot)
    assert refused.value.response["Error"]["Code"] == "IncorrectState"
    assert state(ec2, completed(ec2, ec2.volume())) == "completed"


def test_a_snapshot_outlives_its_volume(ec2: Ec2) -> None:
    volume = ec2.volume()
    snapshot = completed(ec2, volume)
    ec2.client.delete_volume(VolumeId=volume)
    assert state(ec2, snapshot) == "completed"
    ec2.client.delete_snapshot(SnapshotId=snapshot)
    with pytest.raises(ClientError) as refused:
        ec2.client.describe_snapshots(SnapshotIds=[snapshot])
    assert refused.value.response["Error"]["Code"] == "InvalidSnapshot.NotFound"


def test_snapshots_are_found_by_tag_and_owner(ec2: Ec2) -> None:
    tags = [{"ResourceType": "snapshot", "Tags": [{"Key": "run", "Value": "of-this-test"}]}]
    snapshot = completed(ec2, ec2.volume(), TagSpecifications=tags)
    completed(ec2, ec2.volume())
    found = ec2.client.describe_snapshots(OwnerIds=["self"], Filters=[{"Name": "tag:run", "Values": ["of-this-test"]}])
    assert [item["SnapshotId"] for item in found["Snapshots"]] == [snapshot]
    assert ec2.client.describe_snapshots(OwnerIds=["amazon"])["Snapshots"] == []
