"""`AWS::EC2::Volume` for CloudFormation.

Source: `AWS::EC2::Volume` in the CloudFormation template reference; a change of zone, snapshot, encryption or key
replaces the volume, size and performance are modified in place.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from spotkeep_local.ec2.errors import Ec2Error

if TYPE_CHECKING:
    from spotkeep_local.ec2.service import Ec2Service

_INTEGERS = ("Iops", "Size", "Throughput", "VolumeInitializationRate")
_BOOLEANS = ("Encrypted", "MultiAttachEnabled")
_REPLACING = ("AvailabilityZone", "AvailabilityZoneId", "Encrypted", "KmsKeyId", "SnapshotId")
_MODIFIED = ("Iops", "Size", "Throughput", "VolumeType")
_UNKNOWN_TO_THE_API = ("AutoEnableIO", "Tags", "SourceVolumeId")
_CREATING_SECONDS = 60.0
_LOOK_SECONDS = 0.05

Made = tuple[str, dict[str, str]]


class VolumeResource:
    """What CloudFormation calls.

    Args:
        ec2: Where volumes are.
    """

    def __init__(self, ec2: Ec2Service) -> None:
        self._ec2 = ec2

    def create(self, logical_id: str, properties: dict[str, Any], stack_name: str) -> Made:
        """Creates a volume, and waits until it is available."""
        tags = [
            *(properties.get("Tags") or []),
            {"Key": "cloudformation:stack-name", "Value": stack_name},
            {"Key": "cloudformation:logical-id", "Value": logical_id},
        ]
        request = {
            **_request(properties),
            "TagSpecifications": [{"ResourceType": "volume", "Tags": [_tag(tag) for tag in tags]}],
        }
        volume_id: str = self._ec2.call("CreateVolume", request)["VolumeId"]
        self._wait_until_available(volume_id)
        return volume_id, {"VolumeId": volume_id}

    def update(
        self, physical_id: str, old: dict[str, Any], new: dict[str, Any], stack_name: str, logical_id: str | None = None
    ) -> Made:
        """Modifies a volume, or makes another in its place."""
        before, after = _request(old), _request(new)
        if any(before.get(name) != after.get(name) for name in _REPLACING):
            return self.create(logical_id or physical_id, new, stack_name)
        changes = {name: after[name] for name in _MODIFIED if name in after and before.get(name) != after[name]}
        if changes:
            self._ec2.call("ModifyVolume", {"VolumeId": physical_id, **changes})
        with self._ec2.cloud.lock:
            self._ec2.tags.create([physical_id], [_tag(tag) for tag in new.get("Tags") or []])
        return physical_id, {"VolumeId": physical_id}

    def delete(self, physical_id: str, properties: dict[str, Any]) -> None:  # noqa: ARG002 - CloudFormation's signature
        """Deletes a volume; one that is gone is fine."""
        try:
            self._ec2.call("DeleteVolume", {"VolumeId": physical_id})
        except Ec2Error as error:
            if error.code != "InvalidVolume.NotFound":
                raise

    def snapshot(self, physical_id: str, properties: dict[str, Any]) -> None:
        """Makes the snapshot that the deletion policy Snapshot asks for."""
        tags = [_tag(tag) for tag in properties.get("Tags") or []]
        specifications = [{"ResourceType": "snapshot", "Tags": tags}] if tags else []
        self._ec2.call(
            "CreateSnapshot",
            {"VolumeId": physical_id, "Description": "Final snapshot", "TagSpecifications": specifications},
        )

    def _wait_until_available(self, volume_id: str) -> None:
        cloud = self._ec2.cloud
        give_up_at = time.monotonic() + _CREATING_SECONDS
        while cloud.volumes[volume_id].state(cloud.now()) == "creating":
            if time.monotonic() > give_up_at:
                raise Ec2Error("InternalError", f"{volume_id} did not become available")
            time.sleep(_LOOK_SECONDS)


def _tag(tag: dict[str, Any]) -> dict[str, str]:
    return {"Key": str(tag["Key"]), "Value": str(tag.get("Value", ""))}


def _request(properties: dict[str, Any]) -> dict[str, Any]:
    """Properties as the API takes them: CloudFormation passes numbers and truths on as texts."""
    request = {name: value for name, value in properties.items() if name not in _UNKNOWN_TO_THE_API}
    for name in _INTEGERS:
        if name in request:
            request[name] = int(request[name])
    for name in _BOOLEANS:
        if name in request:
            request[name] = str(request[name]).lower() == "true"
    return request
