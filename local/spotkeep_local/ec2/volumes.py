"""Volumes: CreateVolume, AttachVolume, DetachVolume, DeleteVolume, ModifyVolume and what describes them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2.cloud import new_id, refuse_other_request, tag_list, tags_of, zone_id
from spotkeep_local.ec2.errors import Ec2Error, invalid, missing, wrong_combination
from spotkeep_local.ec2.filters import matches, page
from spotkeep_local.ec2.records import Attachment, AttachmentState, InstanceState, Volume, VolumeModification

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
_GP3_IOPS, _GP3_THROUGHPUT = 3000, 125
_INITIALIZATION_RATES = (100, 300)


class Volumes:
    """The operations on volumes. Each takes a checked request and returns the answer that fits the model."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """By the API's names."""
        return {
            "CreateVolume": self.create,
            "AttachVolume": self.attach,
            "DetachVolume": self.detach,
            "DeleteVolume": self.delete,
            "ModifyVolume": self.modify,
            "DescribeVolumes": self.describe,
            "DescribeVolumeStatus": self.describe_status,
            "DescribeVolumesModifications": self.describe_modifications,
        }

    def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateVolume."""
        cloud = self._cloud
        if token := request.get("ClientToken"):
            for volume in cloud.volumes:
                if volume.request.get("ClientToken") == token:
                    refuse_other_request(token, before=volume.request, request=request)
                    return self._describe(volume)
        zone = self._zone(request)
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
        self._refuse_rate(request)
        volume_type = request.get("VolumeType", "gp2")
        _refuse_size(size_gib, volume_type)
        gp3 = volume_type == "gp3"
        volume = Volume(
            volume_id=new_id("vol"),
            zone=zone,
            size_gib=size_gib,
            volume_type=volume_type,
            request=request,
            created_at=now,
            ready_at=now + cloud.latencies.volume_seconds,
            iops=request.get("Iops", _GP3_IOPS if gp3 else None),
            throughput=request.get("Throughput", _GP3_THROUGHPUT if gp3 else None),
            encrypted=request.get("Encrypted", False) or bool(snapshot and snapshot.encrypted),
            kms_key_id=request.get("KmsKeyId"),
            snapshot_id=request.get("SnapshotId"),
            initialization_rate=request.get("VolumeInitializationRate"),
            tags=tags_of(request, "volume"),
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
        attachment = Attachment(
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
        """DetachVolume. A volume that is mounted stays `busy` until it is unmounted, unless force is asked for."""
        cloud = self._cloud
        volume = cloud.volumes[request["VolumeId"]]
        attachment = volume.attachment
        if attachment is None:
            raise Ec2Error(
                "IncorrectState", f"Volume '{volume.volume_id}' is in the '{volume.state(cloud.now())}' state."
            )
        for name, expected in (("InstanceId", attachment.instance_id), ("Device", attachment.device)):
            if request.get(name, expected) != expected:
                raise Ec2Error(
                    "InvalidAttachment.NotFound",
                    f"The volume '{volume.volume_id}' is not attached to instance "
                    f"'{request.get('InstanceId', attachment.instance_id)}' as device "
                    f"'{request.get('Device', attachment.device)}'",
                )
        going = attachment.state in (AttachmentState.DETACHING, AttachmentState.BUSY)
        force = attachment.force or request.get("Force", False)
        now = cloud.now()
        due_at = attachment.due_at if going else now + cloud.latencies.volume_seconds
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

    def modify(self, request: dict[str, Any]) -> dict[str, Any]:
        """ModifyVolume. The device has its new size at once; the modification is `completed` a little later."""
        cloud = self._cloud
        volume = cloud.volumes[request["VolumeId"]]
        now = cloud.now()
        if volume.modification is not None and now < volume.modification.ready_at:
            raise Ec2Error("IncorrectModificationState", f"Volume {volume.volume_id} is already being modified")
        size_gib = request.get("Size", volume.size_gib)
        if size_gib < volume.size_gib:
            raise invalid("New size cannot be smaller than existing size")
        original = _measures(volume)
        volume_type = request.get("VolumeType", volume.volume_type)
        _refuse_size(size_gib, volume_type)
        changed = replace(
            volume,
            size_gib=size_gib,
            volume_type=volume_type,
            iops=request.get("Iops", volume.iops),
            throughput=request.get("Throughput", volume.throughput),
        )
        modification = VolumeModification(
            original=original,
            target=_measures(changed),
            started_at=now,
            ready_at=now + cloud.latencies.volume_seconds,
        )
        if size_gib > volume.size_gib:
            cloud.platform.images.grow(volume.volume_id, size_gib=size_gib)
            if volume.attachment and (host := cloud.hosts.get(volume.attachment.instance_id)):
                host.grow(volume.volume_id)
        changed = cloud.volumes.put(replace(changed, modification=modification))
        return {"VolumeModification": _describe_modification(changed.volume_id, modification, now)}

    def describe(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeVolumes."""
        filters = request.get("Filters", [])
        found = [
            volume
            for volume in self._cloud.volumes.some(request.get("VolumeIds"))
            if matches(self._filter_values(volume), volume.tags, filters)
        ]
        chosen, token = page(found, request, key=lambda volume: volume.volume_id)
        return {"Volumes": [self._describe(volume) for volume in chosen], "NextToken": token}

    def describe_status(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeVolumeStatus: every volume is well."""
        chosen, token = page(
            self._cloud.volumes.some(request.get("VolumeIds")), request, key=lambda volume: volume.volume_id
        )
        statuses = [
            {
                "VolumeId": volume.volume_id,
                "AvailabilityZone": volume.zone,
                "VolumeStatus": {"Status": "ok", "Details": [{"Name": "io-enabled", "Status": "passed"}]},
            }
            for volume in chosen
        ]
        return {"VolumeStatuses": statuses, "NextToken": token}

    def describe_modifications(self, request: dict[str, Any]) -> dict[str, Any]:
        """DescribeVolumesModifications."""
        now = self._cloud.now()
        modified = [v for v in self._cloud.volumes.some(request.get("VolumeIds")) if v.modification is not None]
        found = [
            described
            for volume in modified
            if volume.modification is not None
            and matches(
                {
                    "volume-id": [volume.volume_id],
                    "modification-state": [
                        (described := _describe_modification(volume.volume_id, volume.modification, now))[
                            "ModificationState"
                        ]
                    ],
                },
                {},
                request.get("Filters", []),
            )
        ]
        chosen, token = page(found, request, key=lambda described: str(described["VolumeId"]))
        return {"VolumesModifications": chosen, "NextToken": token}

    def _zone(self, request: dict[str, Any]) -> str:
        zones = self._cloud.zones()
        if "AvailabilityZone" in request:
            zone = str(request["AvailabilityZone"])
        elif "AvailabilityZoneId" in request:
            zone = next((zone for zone in zones if zone_id(zone) == request["AvailabilityZoneId"]), "")
        else:
            raise missing("availabilityZone")
        if zone not in zones:
            named = request.get("AvailabilityZone", request.get("AvailabilityZoneId"))
            raise Ec2Error("InvalidZone.NotFound", f"The zone '{named}' does not exist.")
        return zone

    def _refuse_rate(self, request: dict[str, Any]) -> None:
        rate = request.get("VolumeInitializationRate")
        if rate is None:
            return
        low, high = _INITIALIZATION_RATES
        if "SnapshotId" not in request:
            raise wrong_combination("The parameter VolumeInitializationRate needs the parameter SnapshotId")
        if not low <= rate <= high:
            raise invalid(f"VolumeInitializationRate must be from {low} to {high} MiB/s, found {rate}")

    def _filter_values(self, volume: Volume) -> dict[str, list[str]]:
        attachment = volume.attachment
        return {
            "volume-id": [volume.volume_id],
            "availability-zone": [volume.zone],
            "status": [volume.state(self._cloud.now())],
            "size": [str(volume.size_gib)],
            "snapshot-id": [volume.snapshot_id] if volume.snapshot_id else [],
            "volume-type": [volume.volume_type],
            "encrypted": [str(volume.encrypted).lower()],
            "attachment.instance-id": [attachment.instance_id] if attachment else [],
            "attachment.device": [attachment.device] if attachment else [],
            "attachment.status": [attachment.state.value] if attachment else [],
        }

    def _describe(self, volume: Volume) -> dict[str, Any]:
        return {
            "VolumeId": volume.volume_id,
            "AvailabilityZone": volume.zone,
            "AvailabilityZoneId": zone_id(volume.zone),
            "Size": volume.size_gib,
            "VolumeType": volume.volume_type,
            "Iops": volume.iops,
            "Throughput": volume.throughput,
            "Encrypted": volume.encrypted,
            "KmsKeyId": volume.kms_key_id,
            "SnapshotId": volume.snapshot_id or "",
            "VolumeInitializationRate": volume.initialization_rate,
            "State": volume.state(self._cloud.now()),
            "CreateTime": volume.created_at,
            "MultiAttachEnabled": False,
            "Attachments": [_attachment(volume)] if volume.attachment else [],
            "Tags": tag_list(volume.tags),
        }


def _refuse_size(size_gib: int, volume_type: str) -> None:
    low, high = _SIZES_GIB[volume_type]
    if not low <= size_gib <= high:
        raise invalid(f"Volume of {size_gib}GiB is not from {low} to {high} GiB, which type {volume_type} allows")


def _attachment(volume: Volume) -> dict[str, Any]:
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


def _measures(volume: Volume) -> dict[str, Any]:
    return {
        "Size": volume.size_gib,
        "Iops": volume.iops,
        "VolumeType": volume.volume_type,
        "Throughput": volume.throughput,
    }


def _describe_modification(volume_id: str, modification: VolumeModification, now: float) -> dict[str, Any]:
    done = now >= modification.ready_at
    return {
        "VolumeId": volume_id,
        "ModificationState": "completed" if done else "optimizing",
        "Progress": 100 if done else 0,
        "StartTime": modification.started_at,
        "EndTime": modification.ready_at if done else None,
        **{f"Original{name}": value for name, value in modification.original.items()},
        **{f"Target{name}": value for name, value in modification.target.items()},
    }
