"""Snapshots, by boto3: their states, and the volumes made from them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_local.ec2.cloud import Cloud
from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.latencies import Latencies
from spotkeep_local.ec2.records import Snapshot
from spotkeep_local.ec2.volumes import Volumes

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Ec2


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
    pending = Snapshot(
        snapshot_id="snap-1", volume_id="vol-1", volume_size_gib=1, used_bytes=0, started_at=99.0, ready_at=101.0
    )
    cloud.snapshots.put(pending)
    with pytest.raises(Ec2Error) as refused:
        Volumes(cloud).create({"AvailabilityZone": "us-east-1a", "SnapshotId": "snap-1"})
    assert refused.value.code == "IncorrectState"
