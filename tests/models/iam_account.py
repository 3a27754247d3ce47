"""An account of which a test decides what is in it, for what calls ask of IAM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from spotkeep_local.iam.authorization import EncryptionKey, FunctionUrl, LaunchTemplate

ACCOUNT_ID = "111122223333"
REGION = "eu-west-1"
KEY = EncryptionKey(arn=f"arn:aws:kms:{REGION}:{ACCOUNT_ID}:key/k")
ROLE = f"arn:aws:iam::{ACCOUNT_ID}:role/worker"


@dataclass(frozen=True, kw_only=True)
class IamAccount:
    """Stands for a `LocalAccount`: what is not given is not there, but everything in it has one template, role and URL.

    Attributes:
        tags_by_arn: The tags of resources.
        encrypted: What a customer's key encrypts: beginnings of ARNs.
        partition_keys: Of tables and indexes.
        template: The data of every launch template.
        values: Values of condition keys by ARN.
        missing_objects: ARNs of objects that are not there; all others are.
    """

    region: str = REGION
    account_id: str = ACCOUNT_ID
    tags_by_arn: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    encrypted: tuple[str, ...] = ()
    key: EncryptionKey = KEY
    partition_keys: Mapping[str, str] = field(default_factory=dict)
    template: Mapping[str, object] = field(default_factory=dict)
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    missing_objects: frozenset[str] = frozenset()

    def tags(self, arn: str) -> Mapping[str, str]:
        """Return the given tags."""
        return self.tags_by_arn.get(arn, {})

    def has_object(self, arn: str) -> bool:
        """Return whether it is not given as missing."""
        return arn not in self.missing_objects

    def key_of(self, arn: str) -> EncryptionKey | None:
        """Return the one key, of what is encrypted."""
        return self.key if arn.startswith(self.encrypted) and self.encrypted else None

    def key_arn(self, key_id: str) -> str | None:
        """Return the ARN of any key but `missing`."""
        if key_id == "missing":
            return None
        return key_id if key_id.startswith("arn:") else f"arn:aws:kms:{REGION}:{ACCOUNT_ID}:key/{key_id}"

    def file_system_of(self, mount_target: str) -> str | None:
        """Return the one file system, for any mount target but `missing`."""
        return None if mount_target == "missing" else "fs-0123abcd"

    def partition_key(self, arn: str) -> str | None:
        """Return the given name."""
        return self.partition_keys.get(arn)

    def launch_template(self, *, template_id: str | None, name: str | None, version: str) -> LaunchTemplate | None:
        """Return the one template's data; none of a version `404`."""
        if version == "404":
            return None
        return LaunchTemplate(template_id=template_id or f"lt-of-{name}", data=self.template)

    def role_arn(self, name: str) -> str | None:
        """Return the ARN of a role with a path of its own, but not for the role `missing`."""
        return None if name == "missing" else f"arn:aws:iam::{ACCOUNT_ID}:role/path/{name}"

    def role_of_profile(self, profile: str) -> str | None:
        """Return the one role, but not for the profile `missing`."""
        return None if profile == "missing" else ROLE

    def function_url(self, url_id: str) -> FunctionUrl | None:
        """Return a URL of the function `f`, for any id but `missing`."""
        if url_id == "missing":
            return None
        return FunctionUrl(function_arn=f"arn:aws:lambda:{REGION}:{ACCOUNT_ID}:function:f", auth_type="AWS_IAM")

    def properties(self, arn: str) -> Mapping[str, str]:
        """Return the given values."""
        return self.values.get(arn, {})
