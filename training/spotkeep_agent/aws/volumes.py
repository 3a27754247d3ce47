"""Volumes, snapshots and instances in EC2, as the volume protocol needs them.

Source: the EC2 API reference, version 2016-11-15.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence

from spotkeep_agent.ebs import EbsAttachment, EbsSnapshot, EbsVolume
from spotkeep_agent.errors import AwsCallRefusedError
from spotkeep_fleet.instance_job import VolumeSpec
from spotkeep_fleet.tags import RUN_TAG, operation_of, volume_tags

from .calls import AwsCalls

_VERSION = "2016-11-15"
_DEVICE_LETTERS = "fghijklmnop"
_NOT_FOUND = ("InvalidVolume.NotFound", "InvalidSnapshot.NotFound")


class RunVolumes:
    """The volumes of one run.

    Args:
        calls: To EC2.
        deployment: The deployment's name.
        run: The run's id.
        instance: This instance's id.
    """

    def __init__(self, calls: AwsCalls, *, deployment: str, run: str, instance: str) -> None:
        self._calls = calls
        self._deployment = deployment
        self._run = run
        self._instance = instance

    def volumes(self, ids: Sequence[str]) -> tuple[EbsVolume, ...]:
        """Describe all volumes of the run and those named."""
        found = {volume.id: volume for volume in self._volumes(_filters({f"tag:{RUN_TAG}": [self._run]}))}
        missing = [id_ for id_ in ids if id_ not in found]
        if missing:
            found.update({volume.id: volume for volume in self._volumes(_filters({"volume-id": missing}))})
        return tuple(found.values())

    def snapshots(self, *, id_: str | None, operation: int | None) -> tuple[EbsSnapshot, ...]:
        """Describe one snapshot, or those of an operation of the run."""
        if id_ is not None:
            parameters = _filters({"snapshot-id": [id_]})
        else:
            tags = volume_tags(deployment=self._deployment, run=self._run, operation=operation or 0)
            parameters = _filters({f"tag:{name}": [value] for name, value in tags.items() if name != "Name"})
        return tuple(
            EbsSnapshot(
                id=_text(item, "snapshotId"),
                state=_text(item, "status"),
                volume=_text(item, "volumeId"),
                size_gb=int(_text(item, "volumeSize") or 0),
                operation=operation_of(_tags(item)),
                progress=_text(item, "progress"),
                full_bytes=int(_text(item, "fullSnapshotSizeInBytes") or 0) or None,
            )
            for item in self._pages("DescribeSnapshots", parameters, "snapshotSet")
        )

    def instances(self, ids: Sequence[str]) -> tuple[tuple[str, str], ...]:
        """Describe the states of instances. One that EC2 no longer knows is missing."""
        parameters = _filters({"instance-id": list(ids)})
        return tuple(
            (_text(item, "instanceId"), _text(item, "instanceState/name"))
            for reservation in self._pages("DescribeInstances", parameters, "reservationSet")
            for item in reservation.findall("instancesSet/item")
        )

    def create_snapshot(self, volume: str, *, operation: int, tags: Mapping[str, str] | None = None) -> str:
        """Make a snapshot. Without an answer it is not sent again, because EBS would make it twice."""
        parameters = {
            "VolumeId": volume,
            "Description": f"Spotkeep: {self._run} moves to another zone",
            **self._tag_specification("snapshot", operation, tags),
        }
        return _text(
            self._calls.query("ec2", "CreateSnapshot", parameters, version=_VERSION, retry=False), "snapshotId"
        )

    def create_volume(self, spec: VolumeSpec, *, zone: str, operation: int, size_gb: int, snapshot: str | None) -> str:
        """Make a volume. The same operation gives the same volume."""
        parameters = {
            "AvailabilityZone": zone,
            "VolumeType": spec.type,
            "Size": str(size_gb),
            "Encrypted": "true",
            "ClientToken": f"{self._run}-{operation}",
            **self._tag_specification("volume", operation, spec.tags),
        }
        optional = {
            "SnapshotId": snapshot,
            "Iops": spec.iops,
            "Throughput": spec.throughput_mib_s,
            "KmsKeyId": spec.kms_key_id,
            "VolumeInitializationRate": spec.initialization_rate_mib_s if snapshot else None,
        }
        parameters.update({name: str(value) for name, value in optional.items() if value is not None})
        return _text(self._calls.query("ec2", "CreateVolume", parameters, version=_VERSION), "volumeId")

    def attach(self, volume: str) -> None:
        """Attach a volume to this instance under any device name. The volume's id finds the device."""
        for letter in _DEVICE_LETTERS:
            parameters = {"VolumeId": volume, "InstanceId": self._instance, "Device": f"/dev/sd{letter}"}
            try:
                self._calls.query("ec2", "AttachVolume", parameters, version=_VERSION)
            except AwsCallRefusedError as error:
                taken = error.code == "InvalidParameterValue" and "already in use" in str(error)
                if not taken or letter == _DEVICE_LETTERS[-1]:
                    raise
            else:
                return

    def detach(self, volume: str, *, instance: str, force: bool) -> None:
        """Detach a volume. One that is not attached there any more is no error."""
        parameters = {"VolumeId": volume, "InstanceId": instance, **({"Force": "true"} if force else {})}
        try:
            self._calls.query("ec2", "DetachVolume", parameters, version=_VERSION)
        except AwsCallRefusedError as error:
            if error.code not in ("IncorrectState", *_NOT_FOUND):
                raise

    def delete_volume(self, volume: str) -> None:
        """Delete a volume. A missing one is no error."""
        self._delete("DeleteVolume", {"VolumeId": volume})

    def delete_snapshot(self, snapshot: str) -> None:
        """Delete a snapshot. A missing one is no error."""
        self._delete("DeleteSnapshot", {"SnapshotId": snapshot})

    def _delete(self, action: str, parameters: Mapping[str, str]) -> None:
        try:
            self._calls.query("ec2", action, parameters, version=_VERSION)
        except AwsCallRefusedError as error:
            if error.code not in _NOT_FOUND:
                raise

    def _volumes(self, parameters: Mapping[str, str]) -> Iterator[EbsVolume]:
        for item in self._pages("DescribeVolumes", parameters, "volumeSet"):
            attachments = tuple(
                EbsAttachment(instance=_text(found, "instanceId"), state=_text(found, "status"))
                for found in item.findall("attachmentSet/item")
                if _text(found, "status") != "detached"
            )
            yield EbsVolume(
                id=_text(item, "volumeId"),
                zone=_text(item, "availabilityZone"),
                state=_text(item, "status"),
                size_gb=int(_text(item, "size") or 0),
                attachments=attachments,
                snapshot=_text(item, "snapshotId") or None,
                operation=operation_of(_tags(item)),
                multi_attach=_text(item, "multiAttachEnabled") == "true",
            )

    def _pages(self, action: str, parameters: Mapping[str, str], items: str) -> Iterator[ET.Element]:
        token = ""
        while True:
            page = {**parameters, **({"NextToken": token} if token else {})}
            root = self._calls.query("ec2", action, page, version=_VERSION)
            yield from root.findall(f"{items}/item")
            token = _text(root, "nextToken")
            if not token:
                return

    def _tag_specification(self, kind: str, operation: int, users: Mapping[str, str] | None) -> dict[str, str]:
        tags = volume_tags(deployment=self._deployment, run=self._run, operation=operation, users=users)
        parameters = {"TagSpecification.1.ResourceType": kind}
        for index, (name, value) in enumerate(sorted(tags.items()), start=1):
            parameters[f"TagSpecification.1.Tag.{index}.Key"] = name
            parameters[f"TagSpecification.1.Tag.{index}.Value"] = value
        return parameters


def _filters(filters: Mapping[str, Sequence[str]]) -> dict[str, str]:
    parameters = {}
    for index, (name, values) in enumerate(filters.items(), start=1):
        parameters[f"Filter.{index}.Name"] = name
        for number, value in enumerate(values, start=1):
            parameters[f"Filter.{index}.Value.{number}"] = value
    return parameters


def _text(element: ET.Element, path: str) -> str:
    return element.findtext(path) or ""


def _tags(item: ET.Element) -> dict[str, str]:
    return {_text(tag, "key"): _text(tag, "value") for tag in item.findall("tagSet/item")}
