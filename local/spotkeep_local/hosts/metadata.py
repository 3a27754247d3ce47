"""The metadata of an instance as a pure tree of paths and texts.

Source: "Instance metadata categories" in Amazon EC2's user guide.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_ROOT = "latest"


@dataclass(frozen=True, kw_only=True)
class MetadataSettings:
    """The metadata options of a launch template.

    Attributes:
        token_required: `HttpTokens` is `required`: version 1 is refused.
        enabled: `HttpEndpoint` is `enabled`.
        tags: `InstanceMetadataTags` is `enabled`.
    """

    token_required: bool = True
    enabled: bool = True
    tags: bool = False


@dataclass(frozen=True, kw_only=True)
class RoleCredentials:
    """The role's credentials.

    Attributes:
        expires_at: Epoch seconds.
    """

    access_key_id: str
    secret_access_key: str
    token: str
    expires_at: float


@dataclass(frozen=True, kw_only=True)
class InstanceMetadata:
    """All facts of the metadata service of one instance at one moment.

    Attributes:
        interruption_at: The time of a spot instance's interruption, epoch seconds. None while nothing is announced.
        rebalance_at: The time of a rebalance recommendation, epoch seconds. None without one.
        role: The name of the role in the instance profile. None without a profile.
        credentials: The credentials of the role. None without one.
        launched_at: The time of its launch, epoch seconds.
    """

    instance_id: str
    instance_type: str
    image_id: str
    account_id: str
    region: str
    zone: str
    zone_id: str
    private_ip: str
    hostname: str
    spot: bool
    reservation_id: str
    launched_at: float
    user_data: str = ""
    profile_arn: str | None = None
    profile_id: str = ""
    role: str | None = None
    credentials: RoleCredentials | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    settings: MetadataSettings = field(default_factory=MetadataSettings)
    interruption_at: float | None = None
    rebalance_at: float | None = None


def answer(metadata: InstanceMetadata, path: str, *, now: float) -> str | None:
    """Return the service's answer for a path.

    Args:
        metadata: The metadata of the instance.
        path: The path, for example `/latest/meta-data/instance-id`. A directory's listing with or without the last
            slash.
        now: The time in epoch seconds.

    Returns:
        The text. None where the real service answers 404.
    """
    leaves = _leaves(metadata, now=now)
    asked = path.strip("/")
    if asked in leaves:
        return leaves[asked]
    children = sorted({_child(leaf, asked) for leaf in leaves if leaf.startswith(f"{asked}/")})
    return "\n".join(children) if children else None


def _child(leaf: str, directory: str) -> str:
    name, slash, _ = leaf[len(directory) + 1 :].partition("/")
    return name + slash


def _leaves(metadata: InstanceMetadata, *, now: float) -> dict[str, str]:
    meta = {
        "ami-id": metadata.image_id,
        "ami-launch-index": "0",
        "hostname": metadata.hostname,
        "instance-action": "none",
        "instance-id": metadata.instance_id,
        "instance-life-cycle": "spot" if metadata.spot else "on-demand",
        "instance-type": metadata.instance_type,
        "local-hostname": metadata.hostname,
        "local-ipv4": metadata.private_ip,
        "placement/availability-zone": metadata.zone,
        "placement/availability-zone-id": metadata.zone_id,
        "placement/region": metadata.region,
        "profile": "default-hvm",
        "reservation-id": metadata.reservation_id,
        "services/domain": "amazonaws.com",
        "services/partition": "aws",
    }
    if metadata.settings.tags:
        meta |= {f"tags/instance/{key}": value for key, value in metadata.tags.items()}
    if metadata.profile_arn is not None:
        meta["iam/info"] = _json(
            {
                "Code": "Success",
                "LastUpdated": timestamp(now),
                "InstanceProfileArn": metadata.profile_arn,
                "InstanceProfileId": metadata.profile_id,
            }
        )
    if metadata.role is not None and (credentials := metadata.credentials) is not None:
        meta[f"iam/security-credentials/{metadata.role}"] = _json(
            {
                "Code": "Success",
                "LastUpdated": timestamp(now),
                "Type": "AWS-HMAC",
                "AccessKeyId": credentials.access_key_id,
                "SecretAccessKey": credentials.secret_access_key,
                "Token": credentials.token,
                "Expiration": timestamp(credentials.expires_at),
            }
        )
    if metadata.interruption_at is not None:
        meta["spot/instance-action"] = json.dumps({"action": "terminate", "time": timestamp(metadata.interruption_at)})
        meta["spot/termination-time"] = timestamp(metadata.interruption_at)
    if metadata.rebalance_at is not None:
        meta["events/recommendations/rebalance"] = json.dumps({"noticeTime": timestamp(metadata.rebalance_at)})
    leaves = {f"{_ROOT}/meta-data/{path}": text for path, text in meta.items()}
    leaves[f"{_ROOT}/dynamic/instance-identity/document"] = _identity_document(metadata)
    if metadata.user_data:
        leaves[f"{_ROOT}/user-data"] = metadata.user_data
    return leaves


def _identity_document(metadata: InstanceMetadata) -> str:
    return _json(
        {
            "accountId": metadata.account_id,
            "architecture": "x86_64",
            "availabilityZone": metadata.zone,
            "billingProducts": None,
            "devpayProductCodes": None,
            "imageId": metadata.image_id,
            "instanceId": metadata.instance_id,
            "instanceType": metadata.instance_type,
            "kernelId": None,
            "marketplaceProductCodes": None,
            "pendingTime": timestamp(metadata.launched_at),
            "privateIp": metadata.private_ip,
            "ramdiskId": None,
            "region": metadata.region,
            "version": "2017-09-30",
        }
    )


def timestamp(epoch_seconds: float) -> str:
    """Return a time as the metadata service writes it, for example `2026-11-20T08:22:00Z`."""
    return datetime.fromtimestamp(epoch_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _json(document: Mapping[str, object]) -> str:
    return json.dumps(document, indent=2)
