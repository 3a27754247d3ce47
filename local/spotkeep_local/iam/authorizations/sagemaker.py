"""What the operations of SageMaker ask for.

Source: "SageMaker API permissions: actions, permissions, and resources reference" in the SageMaker developer guide;
for a volume's key, "Use AWS KMS permissions for SageMaker resources" there, and `VolumeKmsKeyId` of ResourceConfig.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.iam.authorizations.asking import (
    AccountView,
    Asked,
    AuthorizationRule,
    EncryptionKey,
    Parameters,
    Rules,
    always,
    arn,
    ask,
    existing,
    key_named,
    needed,
    pass_role,
    tags_of,
    use_key,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

_WITH_OWN_PREFIX: Final = ("aws", "sagemaker")


def _job(parameters: Parameters, account: AccountView) -> str:
    # ARNs of SageMaker are in lower case, names are not.
    return arn("sagemaker", f"training-job/{needed(parameters, 'TrainingJobName').lower()}", account)


def _instance_types(resources: Parameters) -> list[str]:
    groups = resources.get("InstanceGroups") or ()
    return [str(each["InstanceType"]) for each in (resources, *groups) if "InstanceType" in each]


def _file_systems(parameters: Parameters) -> dict[str, list[object]]:
    sources: list[Mapping[str, Any]] = [
        channel["DataSource"]["FileSystemDataSource"]
        for channel in parameters.get("InputDataConfig") or ()
        if "FileSystemDataSource" in channel.get("DataSource", {})
    ]
    members = ("FileSystemAccessMode", "DirectoryPath", "FileSystemId", "FileSystemType")
    keys = ("filesystemaccessmode", "filesystemdirectorypath", "filesystemid", "filesystemtype")
    return {
        f"sagemaker:{key}": [source[member] for source in sources if member in source]
        for key, member in zip(keys, members, strict=True)
    }


def _create_training_job(parameters: Parameters, account: AccountView) -> Asked:
    job = _job(parameters, account)
    resources = parameters.get("ResourceConfig") or {}
    network = parameters.get("VpcConfig") or {}
    output_key = _key((parameters.get("OutputDataConfig") or {}).get("KmsKeyId"), account)
    volume_key = _key(resources.get("VolumeKmsKeyId"), account)
    tags = tags_of(parameters.get("Tags"))
    yield ask(
        "sagemaker:CreateTrainingJob",
        job,
        keys={
            "sagemaker:enableremotedebug": (parameters.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug"),
            "sagemaker:intercontainertrafficencryption": parameters.get("EnableInterContainerTrafficEncryption"),
            "sagemaker:keepaliveperiod": resources.get("KeepAlivePeriodInSeconds"),
            "sagemaker:maxruntimeinseconds": (parameters.get("StoppingCondition") or {}).get("MaxRuntimeInSeconds"),
            "sagemaker:networkisolation": parameters.get("EnableNetworkIsolation"),
            "sagemaker:outputkmskeyarn": output_key and output_key.arn,
            "sagemaker:volumekmskeyarn": volume_key and volume_key.arn,
        },
        sets={
            "sagemaker:instancetypes": _instance_types(resources),
            "sagemaker:vpcsecuritygroupids": network.get("SecurityGroupIds") or (),
            "sagemaker:vpcsubnets": network.get("Subnets") or (),
            **_file_systems(parameters),
        },
        request_tags=tags,
    )
    if tags:
        keys = {"sagemaker:taggingaction": "CreateTrainingJob"}
        yield ask("sagemaker:AddTags", job, keys=keys, request_tags=tags)
    yield pass_role(needed(parameters, "RoleArn"), "sagemaker.amazonaws.com", account)
    key_use = ("DescribeKey", "CreateGrant")
    yield from use_key(volume_key, key_use, via="sagemaker", account=account, grant_for_service=True)


def _key(named: str | None, account: AccountView) -> EncryptionKey | None:
    """Return the key that a request names; None where it names none."""
    return key_named(named, account) if named else None


def _update_training_job(parameters: Parameters, account: AccountView) -> Asked:
    job = _job(parameters, account)
    resources = parameters.get("ResourceConfig") or {}
    yield ask(
        "sagemaker:UpdateTrainingJob",
        job,
        keys={
            "sagemaker:enableremotedebug": (parameters.get("RemoteDebugConfig") or {}).get("EnableRemoteDebug"),
            "sagemaker:keepaliveperiod": resources.get("KeepAlivePeriodInSeconds"),
        },
        resource_tags=account.tags(job),
        tag_prefixes=_WITH_OWN_PREFIX,
    )


def _tagging(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Asked:
        resource = str(needed(parameters, "ResourceArn"))
        yield ask(
            f"sagemaker:{action}",
            resource,
            sets={"aws:tagkeys": parameters.get("TagKeys") or ()},
            request_tags=tags_of(parameters.get("Tags")),
            resource_tags=account.tags(resource),
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
