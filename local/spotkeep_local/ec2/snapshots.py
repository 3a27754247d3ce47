"""Snapshots: CreateSnapshot, DeleteSnapshot, DescribeSnapshots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2.cloud import new_id, requested_tags, tag_list
from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.records import Snapshot

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.ec2.cloud import Cloud


class Snapshots:
    """The operations on snapshots. Each takes a checked request and returns the answer as the model has it."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Return the operations by the API's names."""
        return {
            "CreateSnapshot": self.create,
            "DeleteSnapshot": self.delete,
            "DescribeSnapshots": self.describe,
        }

    def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateSnapshot: the volume as it is now, whatever is written to it while the snapshot is pending."""
        cloud = self._cloud
        volume = cloud.volumes[request["VolumeId"]]
        now = cloud.now()
        if volume.state(now) == "creating":
            raise Ec2Error("IncorrectState", f"Volume '{volume.volume_id}' is in the 'creating' state.")
        snapshot_id = new_id("snap")
        cloud.platform.images.create(snapshot_id, size_gib=volume.size_gib, source_id=volume.volume_id)
        used_bytes = cloud.platform.images.used_bytes(snapshot_id)
        snapshot = Snapshot(
            snapshot_id=snapshot_id,
            volume_id=volume.volume_id,
            volume_size_gib=volume.size_gib,
            used_bytes=used_bytes,
            started_at=now,
            ready_at=now + cloud.latencies.snapshot_seconds(used_bytes),
            description=request.get("Description", ""),
            encrypted=volume.encrypted,
            tags=requested_tags(request, "snapshot"),
        )
        return self._describe(cloud.snapshots.put(snapshot))

    def delete(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteSnapshot, pending or not."""
        snapshot = self._cloud.snapshots[request["SnapshotId"]]
        self._cloud.snapshots.remove(snapshot.snapshot_id)
        self._cloud.platform.images.delete(snapshot.snapshot_id)
        return {}

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeSnapshots: the account's own; the local AWS has no public ones."""
        found = self._cloud.snapshots.described(request, ids="SnapshotIds", values=self._filter_values)
        return {"Snapshots": [self._describe(snapshot) for snapshot in found]}

    def _filter_values(self, snapshot: Snapshot) -> dict[str, list[str]]:
        return {
            "snapshot-id": [snapshot.snapshot_id],
            "volume-id": [snapshot.volume_id],
            "status": [snapshot.state(self._cloud.now())],
        }

    def _describe(self, snapshot: Snapshot) -> dict[str, Any]:
        now = self._cloud.now()
        return {
            "SnapshotId": snapshot.snapshot_id,
            "VolumeId": snapshot.volume_id,
            "VolumeSize": snapshot.volume_size_gib,
            "FullSnapshotSizeInBytes": snapshot.used_bytes,
            "State": snapshot.state(now),
            "Progress": f"{snapshot.progress_percent(now)}%",
            "StartTime": snapshot.started_at,
            "Description": snapshot.description,
            "Encrypted": snapshot.encrypted,
            "OwnerId": self._cloud.account_id,
            "Tags": tag_list(snapshot.tags),
        }
