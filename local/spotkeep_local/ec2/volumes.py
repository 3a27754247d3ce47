"""Volumes: CreateVolume, AttachVolume, DetachVolume, DeleteVolume and DescribeVolumes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2.cloud import new_id, refuse_other_request, requested_tags, tag_list, zone_id
from spotkeep_local.ec2.errors import Ec2Error, invalid, missing
from spotkeep_local.ec2.records import AttachmentState, InstanceState, LocalAttachment, LocalSnapshot, LocalVolume

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_local.ec2.cloud import Cloud

_SIZES_GIB = {
    "gp2": (1, 16384),
    "gp3": (1, 65536),
    "io1": (4, 16384),
    "io2": (4, 65536),
    "st1": (125, 16384),
    "sc1": (125, 16384),
    "standard": (1, 1024),
}


class VolumeOperations:
    """The operations on volumes. Each takes a checked request and returns the answer as the model has it."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Return the operations by the API's names."""
        return {
            "CreateVolume": self.create,
            "AttachVolume": self.attach,
            "DetachVolume": self.detach,
            "DeleteVolume": self.delete,
            "DescribeVolumes": self.describe,
        }

    def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateVolume. IOPS, throughput, key and initialization rate are recorded only."""
        cloud = self._cloud
        if token := request.get("ClientToken"):
            for volume in cloud.volumes:
                if volume.request.get("ClientToken") == token:
                    refuse_other_request(token, before=volume.request, request=request)
                    return self._describe(volume)
        zone = request.get("AvailabilityZone")
        if zone is None:
            raise missing("availabilityZone")
        if zone not in cloud.zones():
            raise Ec2Error("InvalidZone.NotFound", f"The zone '{zone}' does not exist.")
        if request.get("MultiAttachEnabled"):
            raise Ec2Error("UnsupportedOperation", "The local AWS attaches a volume to one instance at a time")
        now = cloud.now()
        snapshot = None
        if "SnapshotId" in request:
            snapshot = cloud.snapshots[request["SnapshotId"]]
            if snapshot.state(now) != "completed":
                raise Ec2Error(
                    "IncorrectState", f"Snapshot is in invalid state - {snapshot.state(now)}: {snapshot.snapshot_id}"
                )
        size_gib = request.get("Size", snapshot.volume_size_gib if snapshot else None)
        if size_gib is None:
            raise missing("size or snapshotId")
        if snapshot and size_gib < snapshot.volume_size_gib:
            raise invalid("The size of a volume cannot be smaller than its snapshot size")
        volume_type = request.get("VolumeType", "gp2")
        low, high = _SIZES_GIB[volume_type]
        if not low <= size_gib <= high:
            raise invalid(f"Volume of {size_gib}GiB is not from {low} to {high} GiB, which type {volume_type} allows")
        volume = LocalVolume(
            volume_id=new_id("vol"),
            zone=zone,
            size_gib=size_gib,
            volume_type=volume_type,
            request=request,
            created_at=now,
            ready_at=now + cloud.latencies.volume_seconds,
            encrypted=request.get("Encrypted", False) or bool(snapshot and snapshot.encrypted),
            snapshot_id=request.get("SnapshotId"),
            tags=requested_tags(request, "volume"),
        )
        cloud.platform.images.create(
            volume.volume_id, size_gib=size_gib, source_id=snapshot.snapshot_id if snapshot else None
        )
        # As it was made: making its image may take longer than its creation is scripted to.
        return {**self._describe(cloud.volumes.put(volume)), "State": "creating"}

    def attach(self, request: dict[str, Any]) -> dict[str, Any]:
        """AttachVolume. The device appears once the attachment is `attached`."""
        cloud = self._cloud
        volume = cloud.volumes[request["VolumeId"]]
        instance = cloud.instances[request["InstanceId"]]
        now = cloud.now()
        if volume.attachment is not None:
            code = "VolumeInUse"
            raise Ec2Error(code, f"{volume.volume_id} is already attached to an instance")
        if volume.state(now) != "available":
            raise Ec2Error("IncorrectState", f"Volume '{volume.volume_id}' is in the '{volume.state(now)}' state.")
        if instance.state is not InstanceState.RUNNING:
            raise Ec2Error("IncorrectState", f"Instance '{instance.instance_id}' is not 'running'.")
        if volume.zone != instance.zone:
            raise Ec2Error(
                "InvalidVolume.ZoneMismatch",
                f"The volume '{volume.volume_id}' is not in the same availability zone as instance "
                f"'{instance.instance_id}'",
            )
        device = request["Device"]
        if any(
            other.attachment
            and (other.attachment.instance_id, other.attachment.device) == (instance.instance_id, device)
            for other in cloud.volumes
        ):
            raise invalid(f"Invalid value '{device}' for unixDevice. Attachment point {device} is already in use")
        attachment = LocalAttachment(
            instance_id=instance.instance_id,
            device=device,
            state=AttachmentState.ATTACHING,
            requested_at=now,
            due_at=now + cloud.latencies.volume_seconds,
        )
        volume = cloud.volumes.put(replace(volume, attachment=attachment))
        cloud.wake()
        return _attachment(volume)

    def detach(self, request: dict[str, Any]) -> dict[str, Any]:
        """DetachVolume. A volume that is mounted stays `busy` until it is unmounted, unless the detach is forced."""
        cloud = self._cloud
        volume = cloud.volumes[request["VolumeId"]]
        attachment = volume.attachment
        if attachment is None:
            raise Ec2Error(
                "IncorrectState", f"Volume '{volume.volume_id}' is in the '{volume.state(cloud.now())}' state."
            )
        if request.get("InstanceId", attachment.instance_id) != attachment.instance_id:
            raise Ec2Error(
                "InvalidAttachment.NotFound",
                f"The volume '{volume.volume_id}' is not attached to instance '{request['InstanceId']}'",
            )
        going = attachment.state in (AttachmentState.DETACHING, AttachmentState.BUSY)
        force = attachment.force or request.get("Force", False)
        due_at = attachment.due_at if going else cloud.now() + cloud.latencies.volume_seconds
        attachment = replace(attachment, state=AttachmentState.DETACHING, due_at=due_at, force=force)
        volume = cloud.volumes.put(replace(volume, attachment=attachment))
        cloud.wake()
        return _attachment(volume)

    def delete(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteVolume."""
        cloud = self._cloud
        volume = cloud.volumes[request["VolumeId"]]
        if volume.attachment is not None:
            raise Ec2Error(
                "VolumeInUse", f"Volume {volume.volume_id} is currently attached to {volume.attachment.instance_id}"
            )
        if volume.state(cloud.now()) == "creating":
            raise Ec2Error("IncorrectState", f"Volume '{volume.volume_id}' is in the 'creating' state.")
        cloud.volumes.remove(volume.volume_id)
        cloud.platform.images.delete(volume.volume_id)
        return {}

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeVolumes."""
        found = self._cloud.volumes.described(request, ids="VolumeIds", values=self._filter_values)
        return {"Volumes": [self._describe(volume) for volume in found]}

    def _filter_values(self, volume: LocalVolume) -> dict[str, list[str]]:
        attachment = volume.attachment
        return {
            "volume-id": [volume.volume_id],
            "availability-zone": [volume.zone],
            "status": [volume.state(self._cloud.now())],
            "attachment.instance-id": [attachment.instance_id] if attachment else [],
        }

    def _describe(self, volume: LocalVolume) -> dict[str, Any]:
        return {
            "VolumeId": volume.volume_id,
            "AvailabilityZone": volume.zone,
            "AvailabilityZoneId": zone_id(volume.zone),
            "Size": volume.size_gib,
            "VolumeType": volume.volume_type,
            "Iops": volume.request.get("Iops"),
            "Throughput": volume.request.get("Throughput"),
            "Encrypted": volume.encrypted,
            "KmsKeyId": volume.request.get("KmsKeyId"),
            "SnapshotId": volume.snapshot_id or "",
            "State": volume.state(self._cloud.now()),
            "CreateTime": volume.created_at,
            "MultiAttachEnabled": False,
            "Attachments": [_attachment(volume)] if volume.attachment else [],
            "Tags": tag_list(volume.tags),
        }


def _attachment(volume: LocalVolume) -> dict[str, Any]:
    attachment = volume.attachment
    assert attachment is not None  # noqa: S101 - asked for attached volumes only
    return {
        "VolumeId": volume.volume_id,
        "InstanceId": attachment.instance_id,
        "Device": attachment.device,
        "State": attachment.state.value,
        "AttachTime": attachment.requested_at,
        "DeleteOnTermination": False,
    }


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
        snapshot = LocalSnapshot(
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
        """DescribeSnapshots: the account's own. The local AWS has no public ones."""
        found = self._cloud.snapshots.described(request, ids="SnapshotIds", values=self._filter_values)
        return {"Snapshots": [self._describe(snapshot) for snapshot in found]}

    def _filter_values(self, snapshot: LocalSnapshot) -> dict[str, list[str]]:
        return {
            "snapshot-id": [snapshot.snapshot_id],
            "volume-id": [snapshot.volume_id],
            "status": [snapshot.state(self._cloud.now())],
        }

    def _describe(self, snapshot: LocalSnapshot) -> dict[str, Any]:
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
