"""The permissions that the operations of SageMaker need.

Source: "SageMaker API permissions: actions, permissions, and resources reference" in the SageMaker developer guide. For
a volume's key, "Use AWS KMS permissions for SageMaker resources" there, and `VolumeKmsKeyId` of ResourceConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.iam.authorizations.asking import Asked, Asking, AuthorizationRule, Rules, always, ask, existing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from spotkeep_local.iam.authorization import EncryptionKey

_WITH_OWN_PREFIX: Final = ("aws", "sagemaker")


def _job(call: Asking) -> str:
    # ARNs of SageMaker are in lower case, names are not.
    return call.arn("sagemaker", f"training-job/{call.needed('TrainingJobName').lower()}")


def _instance_types(resources: Mapping[str, Any]) -> list[str]:
    groups = resources.get("InstanceGroups") or ()
    return [str(each["InstanceType"]) for each in (resources, *groups) if "InstanceType" in each]


def _file_systems(call: Asking) -> dict[str, list[object]]:
    sources: list[Mapping[str, Any]] = [
        channel["DataSource"]["FileSystemDataSource"]
        for channel in call.get("InputDataConfig") or ()
        if "FileSystemDataSource" in channel.get("DataSource", {})
    ]
    members = ("FileSystemAccessMode", "DirectoryPath", "FileSystemId", "FileSystemType")
    keys = ("filesystemaccessmode", "filesystemdirectorypath", "filesystemid", "filesystemtype")
    return {
        f"sagemaker:{key}": [source[member] for source in sources if member in source]
        for key, member in zip(keys, members, strict=True)
    }


def _create_training_job(call: Asking) -> Asked:
    job = _job(call)
    resources = call.get("ResourceConfig") or {}
    network = call.get("VpcConfig") or {}
    output_key = _key(call, (call.get("OutputDataConfig") or {}).get("KmsKeyId"))
    volume_key = _key(call, resources.get("VolumeKmsKeyId"))
    tags = call.new_tags
    yield ask(
        "sagemaker:CreateTrainingJob",
        job,
        keys={
            "sagemaker:enableremotedebug": (call.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug"),
            "sagemaker:intercontainertrafficencryption": call.get("EnableInterContainerTrafficEncryption"),
            "sagemaker:keepaliveperiod": resources.get("KeepAlivePeriodInSeconds"),
            "sagemaker:maxruntimeinseconds": (call.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds"),
            "sagemaker:networkisolation": call.get("EnableNetworkIsolation"),
            "sagemaker:outputkmskeyarn": output_key and output_key.arn,
            "sagemaker:volumekmskeyarn": volume_key and volume_key.arn,
        },
        sets={
            "sagemaker:instancetypes": _instance_types(resources),
            "sagemaker:vpcsecuritygroupids": network.get("SecurityGroupIds") or (),
            "sagemaker:vpcsubnets": network.get("Subnets") or (),
            **_file_systems(call),
        },
        request_tags=tags,
    )
    if tags:
        keys = {"sagemaker:taggingaction": "CreateTrainingJob"}
        yield ask("sagemaker:AddTags", job, keys=keys, request_tags=tags)
    yield call.pass_role(call.needed("RoleArn"), "sagemaker.amazonaws.com")
    key_use = ("DescribeKey", "CreateGrant")
    yield from call.use_key(volume_key, key_use, via="sagemaker", grant_for_service=True)


def _key(call: Asking, named: str | None) -> EncryptionKey | None:
    """Return the key that a request names. None where it names none."""
    return call.key_named(named) if named else None


def _update_training_job(call: Asking) -> Asked:
    job = _job(call)
    resources = call.get("ResourceConfig") or {}
    yield ask(
        "sagemaker:UpdateTrainingJob",
        job,
        keys={
            "sagemaker:enableremotedebug": (call.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug"),
            "sagemaker:keepaliveperiod": resources.get("KeepAlivePeriodInSeconds"),
        },
        resource_tags=call.tags(job),
        tag_prefixes=_WITH_OWN_PREFIX,
    )


def _tagging(action: str) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        resource = str(call.needed("ResourceArn"))
        yield ask(
            f"sagemaker:{action}",
            resource,
            sets={"aws:tagkeys": call.get("TagKeys") or ()},
            request_tags=call.new_tags,
            resource_tags=call.tags(resource),
            tag_prefixes=_WITH_OWN_PREFIX,
        )

    return rule


_RULES: Final[Rules] = {
    "AddTags": _tagging("AddTags"),
    "CreateTrainingJob": _create_training_job,
    "DeleteTags": _tagging("DeleteTags"),
    "DescribeTrainingJob": existing("sagemaker:DescribeTrainingJob", _job, tag_prefixes=_WITH_OWN_PREFIX),
    "ListTags": _tagging("ListTags"),
    "ListTrainingJobs": always("sagemaker:ListTrainingJobs"),
    "Search": always("sagemaker:Search"),
    "StopTrainingJob": existing("sagemaker:StopTrainingJob", _job, tag_prefixes=_WITH_OWN_PREFIX),
    "UpdateTrainingJob": _update_training_job,
}
OPERATIONS: Final = {"sagemaker": _RULES}
