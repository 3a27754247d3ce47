"""What SageMaker compares of a training job when it looks for a warm pool. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotkeep_jobs.record.record import PoolTraits


def traits_of(document: Mapping[str, Any]) -> PoolTraits | None:
    """Return what SageMaker compares, of a CreateTrainingJob request or of a DescribeTrainingJob answer.

    Returns:
        None for a job that can neither leave nor take a pool: heterogeneous clusters, serverless jobs.
    """
    resources: Mapping[str, Any] = document.get("ResourceConfig") or {}
    types = [preference["InstanceType"] for preference in resources.get("InstancePreferences") or ()]
    instance_type = resources.get("SelectedInstanceType") or resources.get("InstanceType") or " or ".join(types)
    role = document.get("RoleArn")
    if not instance_type or not role or resources.get("InstanceGroups"):
        return None
    network: Mapping[str, Any] = document.get("VpcConfig") or {}
    return PoolTraits(
        role_arn=role,
        instance_type=instance_type,
        instance_count=resources.get("SelectedInstanceCount") or resources.get("InstanceCount") or 1,
        volume_size_gb=resources.get("VolumeSizeInGB") or 0,
        volume_kms_key_id=resources.get("VolumeKmsKeyId"),
        subnets=tuple(sorted(network.get("Subnets") or ())),
        security_group_ids=tuple(sorted(network.get("SecurityGroupIds") or ())),
        inter_container_encryption=bool(document.get("EnableInterContainerTrafficEncryption")),
        network_isolation=bool(document.get("EnableNetworkIsolation")),
        session_tag_chaining=bool((document.get("SessionChainingConfig") or {}).get("EnableSessionTagChaining")),
    )
