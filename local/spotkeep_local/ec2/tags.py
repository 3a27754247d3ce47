"""Tags of our resources, beside those of ministack's."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spotkeep_local.ec2.errors import Ec2Error, invalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from spotkeep_local.ec2.cloud import Cloud

_TYPES = {"vol": "volume", "snap": "snapshot", "i": "instance", "fleet": "fleet"}
_MOST_TAGS = 50
_METADATA_KEY: Final = re.compile(r"[0-9a-zA-Z\-_+=,.@:]{1,255}", re.ASCII)
_NO_METADATA_KEYS: Final = frozenset({".", "..", "_index"})


def is_ours(resource_id: str) -> bool:
    """Whether an id is of a kind that this package keeps."""
    return resource_id.partition("-")[0] in _TYPES


def check_tags(tags: Mapping[str, str], *, in_metadata: bool = False) -> None:
    """Refuses tags that no resource can have.

    Args:
        tags: All of them. Those of AWS itself, `aws:...`, do not count.
        in_metadata: Whether an instance shows them in its metadata, where a path is named after each key.

    Raises:
        Ec2Error: There are too many, or a key cannot be in the metadata.

    Source: "Tag restrictions" and "View tags for your EC2 instances using instance metadata", Amazon EC2 user guide.
    """
    if sum(not key.startswith("aws:") for key in tags) > _MOST_TAGS:
        raise Ec2Error("TagLimitExceeded", f"A resource has at most {_MOST_TAGS} tags, and these are {len(tags)}")
    for key in tags if in_metadata else ():
        if _METADATA_KEY.fullmatch(key) is None or key in _NO_METADATA_KEYS:
            raise invalid(
                f"'{key}' is not a valid tag key. Tag keys must match pattern ([0-9a-zA-Z\\-_+=,.@:]{{1,255}}), "
                "and must not be a reserved name ('.', '..', '_index')"
            )


class Tags:
    """Creates, deletes and describes tags of volumes, snapshots, instances and fleets."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def create(self, resource_ids: Sequence[str], tags: Sequence[dict[str, str]]) -> None:
        """Adds tags, or changes their values.

        Raises:
            Ec2Error: A resource does not exist, a key is AWS's own or cannot be in the metadata, or there are too many.
        """
        added = {tag["Key"]: tag.get("Value", "") for tag in tags}
        if reserved := [key for key in added if key.startswith("aws:")]:
            raise invalid(f"Tag keys starting with 'aws:' are reserved for internal use: {', '.join(reserved)}")
        for resource_id in resource_ids:
            self._change(resource_id, self._tags(resource_id) | added)

    def delete(self, resource_ids: Sequence[str], tags: Sequence[dict[str, str]]) -> None:
        """Removes tags: by key, or by key and value; all, when none are named."""
        for resource_id in resource_ids:
            kept = {
                key: value
                for key, value in self._tags(resource_id).items()
                if key.startswith("aws:")
                or (tags and not any(tag["Key"] == key and tag.get("Value", value) == value for tag in tags))
            }
            self._change(resource_id, kept)

    def describe(self) -> list[dict[str, str]]:
        """Every tag of every resource, as DescribeTags lists them."""
        cloud = self._cloud
        tagged = [
            *((volume.volume_id, volume.tags) for volume in cloud.volumes),
            *((snapshot.snapshot_id, snapshot.tags) for snapshot in cloud.snapshots),
            *((instance.instance_id, instance.tags) for instance in cloud.instances),
            *((fleet.fleet_id, fleet.tags) for fleet in cloud.fleets),
        ]
        return [
            {
                "ResourceId": resource_id,
                "ResourceType": _TYPES[resource_id.partition("-")[0]],
                "Key": key,
                "Value": value,
            }
            for resource_id, tags in tagged
            for key, value in tags.items()
        ]

    def _tags(self, resource_id: str) -> dict[str, str]:
        cloud = self._cloud
        match resource_id.partition("-")[0]:
            case "vol":
                return cloud.volumes[resource_id].tags
            case "snap":
                return cloud.snapshots[resource_id].tags
            case "i":
                return cloud.instances[resource_id].tags
            case _:
                return cloud.fleets[resource_id].tags

    def _change(self, resource_id: str, tags: dict[str, str]) -> None:
        cloud = self._cloud
        in_metadata = resource_id in cloud.instances and cloud.instances[resource_id].settings.tags
        check_tags(tags, in_metadata=in_metadata)
        match resource_id.partition("-")[0]:
            case "vol":
                cloud.volumes.put(replace(cloud.volumes[resource_id], tags=tags))
            case "snap":
                cloud.snapshots.put(replace(cloud.snapshots[resource_id], tags=tags))
            case "i":
                cloud.instances.put(replace(cloud.instances[resource_id], tags=tags))
            case _:
                cloud.fleets.put(replace(cloud.fleets[resource_id], tags=tags))
