"""Tags of volumes, snapshots, instances and fleets."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.ec2.errors import Ec2Error, invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotkeep_local.ec2.cloud import Cloud, Table

_OUR_ID = re.compile(r"(vol|snap|i|fleet)-.*")
_MOST_TAGS = 50
_METADATA_KEY: Final = re.compile(r"[0-9a-zA-Z\-_+=,.@:]{1,255}", re.ASCII)
_NO_METADATA_KEYS: Final = frozenset({".", "..", "_index"})


def is_ours(resource_id: str) -> bool:
    """Return whether an id is of a kind that this package keeps."""
    return _OUR_ID.fullmatch(resource_id) is not None


def check_tags(tags: Mapping[str, str], *, in_metadata: bool = False) -> None:
    """Refuse tags that no resource can have.

    Args:
        tags: All tags of the resource. Those of AWS itself, `aws:...`, do not count.
        in_metadata: True where an instance shows them in its metadata, with a path named after each key.

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
    """The operations on tags."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    def operations(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """Return the operations by the API's names."""
        return {"CreateTags": self.create, "DeleteTags": self.delete}

    def create(self, request: dict[str, Any]) -> dict[str, Any]:
        """CreateTags: adds tags, or changes their values."""
        added = {tag["Key"]: tag.get("Value", "") for tag in request["Tags"]}
        if reserved := [key for key in added if key.startswith("aws:")]:
            raise invalid(f"Tag keys starting with 'aws:' are reserved for internal use: {', '.join(reserved)}")
        for resource_id in request["Resources"]:
            self._change(resource_id, lambda tags: tags | added)
        return {}

    def delete(self, request: dict[str, Any]) -> dict[str, Any]:
        """DeleteTags: by key, or by key and value. All, when none are named."""
        tags = request.get("Tags", [])

        def kept(before: dict[str, str]) -> dict[str, str]:
            return {
                key: value
                for key, value in before.items()
                if key.startswith("aws:")
                or (tags and not any(tag["Key"] == key and tag.get("Value", value) == value for tag in tags))
            }

        for resource_id in request["Resources"]:
            self._change(resource_id, kept)
        return {}

    def _change(self, resource_id: str, change: Callable[[dict[str, str]], dict[str, str]]) -> None:
        cloud = self._cloud
        tables: dict[str, Table[Any]] = {
            "vol": cloud.volumes,
            "snap": cloud.snapshots,
            "i": cloud.instances,
            "fleet": cloud.fleets,
        }
        table = tables[resource_id.partition("-")[0]]
        resource = table[resource_id]
        tags = change(resource.tags)
        check_tags(tags, in_metadata=table is cloud.instances and resource.settings.tags)
        table.put(replace(resource, tags=tags))
