"""The permissions that the operations of EC2 need.

An operation needs a permission for each of its resources. A resource that it makes is asked for as `<type>/*`. The new
resource's tags need ec2:CreateTags with `ec2:CreateAction`. A fleet needs ec2:RunInstances for each resource. It needs
ec2:CreateFleet for each resource of a type that this action knows.

EC2 uses the key of a volume on the caller's behalf where the caller makes or attaches the volume. EC2's service-linked
roles make the volumes of a fleet's instances.

Sources: "Example policies to control access to the Amazon EC2 API" (launch templates, tags), "Grant permission to tag
Amazon EC2 resources during creation" in the EC2 user guide. "EC2 Fleet prerequisites" there. "How Amazon EBS encryption
works" and "Requirements for Amazon EBS encryption" in the EBS user guide.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.iam.authorizations.asking import (
    Asked,
    Asking,
    AuthorizationRule,
    Rules,
    UndecidableError,
    ask,
    tags_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from spotkeep_local.iam.authorization import Authorization, EncryptionKey, LaunchTemplate

_TYPES: Final = {
    "ami": "image",
    "eni": "network-interface",
    "fleet": "fleet",
    "i": "instance",
    "lt": "launch-template",
    "sg": "security-group",
    "sir": "spot-instances-request",
    "snap": "snapshot",
    "subnet": "subnet",
    "vol": "volume",
    "vpc": "vpc",
}
"""The types of resources by the prefixes of their ids."""
_WITHOUT_ACCOUNT: Final = frozenset({"image", "snapshot"})
_ASKED_AS_CREATE_FLEET: Final = frozenset(
    {"image", "instance", "launch-template", "placement-group", "subnet", "volume"}
)
_PREFIXES: Final = ("aws", "ec2")


def _arn(call: Asking, kind: str, name: str) -> str:
    if kind in _WITHOUT_ACCOUNT:
        return f"arn:aws:ec2:{call.account.region}::{kind}/{name}"
    return call.arn("ec2", f"{kind}/{name}")


def _existing(
    call: Asking,
    action: str,
    kind: str,
    name: str,
    *,
    keys: Mapping[str, object] | None = None,
    request_tags: Mapping[str, str] | None = None,
    tag_keys: Iterable[str] = (),
) -> Authorization:
    """Ask for an action on something that is there."""
    resource = _arn(call, kind, name)
    return ask(
        f"ec2:{action}",
        resource,
        keys={"ec2:region": call.account.region, **call.account.properties(resource), **(keys or {})},
        sets={"aws:tagkeys": tag_keys},
        request_tags=request_tags,
        resource_tags=call.tags(resource),
        tag_prefixes=_PREFIXES,
    )


def _new(
    call: Asking,
    action: str,
    kind: str,
    *,
    keys: Mapping[str, object] | None = None,
    request_tags: Mapping[str, str] | None = None,
) -> Authorization:
    """Ask for an action on a resource that the action makes."""
    asked = {"ec2:region": call.account.region, **(keys or {})}
    return ask(f"ec2:{action}", _arn(call, kind, "*"), keys=asked, request_tags=request_tags)


def _tags_for(specifications: Iterable[Mapping[str, Any]] | None) -> dict[str, dict[str, str]]:
    """Return the tags in a request by the type of the resource that they are for."""
    return {each["ResourceType"]: tags_of(each.get("Tags")) for each in specifications or ()}


def _tagging_of_new(call: Asking, kind: str, tags: Mapping[str, str], by: str) -> Asked:
    if tags:
        yield _new(call, "CreateTags", kind, keys={"ec2:createaction": by}, request_tags=tags)


def _describe(action: str) -> AuthorizationRule:
    return lambda call: (ask(f"ec2:{action}", keys={"ec2:region": call.account.region}),)


def _each(action: str, kind: str, parameter: str) -> AuthorizationRule:
    """Return the rule of an operation on things of one type that one parameter names."""

    def rule(call: Asking) -> Asked:
        named = call.needed(parameter)
        for name in [named] if isinstance(named, str) else named:
            yield _existing(call, action, kind, name)

    return rule


def _type_of(resource_id: str) -> str:
    kind = _TYPES.get(resource_id.rpartition("-")[0] if not resource_id.startswith("fleet-") else "fleet")
    if kind is None:
        raise UndecidableError(f"The type of {resource_id} is not known.")
    return kind


def _create_interface(call: Asking) -> Asked:
    yield _new(call, "CreateNetworkInterface", "network-interface")
    yield _existing(call, "CreateNetworkInterface", "subnet", call.needed("SubnetId"))
    for name in call.get("Groups") or ():
        yield _existing(call, "CreateNetworkInterface", "security-group", name)


def _create_group(call: Asking) -> Asked:
    yield _new(call, "CreateSecurityGroup", "security-group")
    if (vpc := call.get("VpcId")) is not None:
        yield _existing(call, "CreateSecurityGroup", "vpc", str(vpc))


def _create_tags(call: Asking) -> Asked:
    tags = tags_of(call.needed("Tags"))
    for name in call.needed("Resources"):
        yield _existing(call, "CreateTags", _type_of(name), name, request_tags=tags)


def _delete_tags(call: Asking) -> Asked:
    tags = call.get("Tags") or ()
    valued = {tag["Key"]: tag["Value"] for tag in tags if "Value" in tag}
    for name in call.needed("Resources"):
        asked = _existing(call, "DeleteTags", _type_of(name), name, tag_keys=[tag["Key"] for tag in tags])
        context = {**asked.context, **{f"aws:requesttag/{key}": (value,) for key, value in valued.items()}}
        yield replace(asked, context=context)


def _create_volume(call: Asking) -> Asked:
    tags = _tags_for(call.get("TagSpecifications")).get("volume", {})
    snapshot = call.get("SnapshotId")
    key_of_snapshot = None if snapshot is None else call.account.key_of(_arn(call, "snapshot", snapshot))
    key: EncryptionKey | None = key_of_snapshot
    if (named := call.get("KmsKeyId")) is not None:
        key = call.key_named(named)
    yield _new(
        call,
        "CreateVolume",
        "volume",
        keys={
            "ec2:availabilityzone": call.get("AvailabilityZone"),
            "ec2:encrypted": bool(call.get("Encrypted")) or key is not None,
            "ec2:kmskeyid": None if key is None else key.arn,
            "ec2:parentsnapshot": None if snapshot is None else _arn(call, "snapshot", snapshot),
            "ec2:volumeinitializationrate": call.get("VolumeInitializationRate"),
            "ec2:volumeiops": call.get("Iops"),
            "ec2:volumesize": call.get("Size"),
            "ec2:volumethroughput": call.get("Throughput"),
            "ec2:volumetype": call.get("VolumeType"),
        },
        request_tags=tags,
    )
    if snapshot is not None:
        yield _existing(call, "CreateVolume", "snapshot", snapshot)
    yield from _tagging_of_new(call, "volume", tags, "CreateVolume")
    yield from call.use_key(key_of_snapshot, ("ReEncryptFrom",), via="ec2")
    again = () if key_of_snapshot is None else ("ReEncryptTo",)
    key_use = ("DescribeKey", "CreateGrant", "GenerateDataKeyWithoutPlaintext", *again)
    yield from call.use_key(key, key_use, via="ec2", grant_for_service=True)


def _create_snapshot(call: Asking) -> Asked:
    tags = _tags_for(call.get("TagSpecifications")).get("snapshot", {})
    volume = str(call.needed("VolumeId"))
    yield _existing(call, "CreateSnapshot", "volume", volume)
    parent = {"ec2:parentvolume": _arn(call, "volume", volume)}
    yield _new(call, "CreateSnapshot", "snapshot", keys=parent, request_tags=tags)
    yield from _tagging_of_new(call, "snapshot", tags, "CreateSnapshot")


def _attach_volume(call: Asking) -> Asked:
    volume = str(call.needed("VolumeId"))
    yield _existing(call, "AttachVolume", "volume", volume)
    yield _existing(call, "AttachVolume", "instance", str(call.needed("InstanceId")))
    key = call.account.key_of(_arn(call, "volume", volume))
    yield from call.use_key(key, ("CreateGrant", "Decrypt"), via="ec2", grant_for_service=True)


def _detach_volume(call: Asking) -> Asked:
    yield _existing(call, "DetachVolume", "volume", str(call.needed("VolumeId")))
    if "InstanceId" in call.parameters:
        yield _existing(call, "DetachVolume", "instance", str(call.parameters["InstanceId"]))


def _template(call: Asking, given: Mapping[str, Any], *, version: str) -> LaunchTemplate:
    template_id, name = given.get("LaunchTemplateId"), given.get("LaunchTemplateName")
    found = call.account.launch_template(template_id=template_id, name=name, version=version)
    if found is None:
        raise UndecidableError(f"There is no version {version} of the launch template {template_id or name}.")
    return found


def _on_template(action: str) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        template_id = call.get("LaunchTemplateId")
        if template_id is None:
            template_id = _template(call, call.parameters, version="$Default").template_id
        yield _existing(call, action, "launch-template", str(template_id))

    return rule


def _create_template(call: Asking) -> Asked:
    tags = _tags_for(call.get("TagSpecifications")).get("launch-template", {})
    yield _new(call, "CreateLaunchTemplate", "launch-template", request_tags=tags)
    yield from _tagging_of_new(call, "launch-template", tags, "CreateLaunchTemplate")


def _create_fleet(call: Asking) -> Asked:
    tags = _tags_for(call.get("TagSpecifications"))
    yield _new(call, "CreateFleet", "fleet", request_tags=tags.get("fleet"))
    yield from _tagging_of_new(call, "fleet", tags.get("fleet", {}), "CreateFleet")
    asked: dict[tuple[object, ...], Authorization] = {}
    # What lacks this is refused by EC2.
    for config in call.get("LaunchTemplateConfigs") or ():
        specification = config["LaunchTemplateSpecification"]
        template = _template(call, specification, version=specification.get("Version", "$Default"))
        overrides: Iterable[Mapping[str, Any]] = config.get("Overrides") or [{}]
        for override in overrides:
            for each in _launch(call, template, override, tags):
                asked.setdefault((each.action, each.resource, *sorted(each.context.items())), each)
    yield from asked.values()


def _launch(
    call: Asking, template: LaunchTemplate, override: Mapping[str, Any], tags: Mapping[str, Mapping[str, str]]
) -> Asked:
    """Ask for the permissions that one kind of instance of a fleet needs.

    Args:
        call: The call that makes the fleet.
        template: The launch template.
        override: The values in the fleet's request that replace the template's.
        tags: The tags in the fleet's request, by the type of the resource that they are for.
    """
    data = template.data
    interfaces: Sequence[Mapping[str, Any]] = data.get("NetworkInterfaces") or [{}]
    given = {**tags, **_tags_for(data.get("TagSpecifications"))}
    from_template = {"ec2:launchtemplate": _arn(call, "launch-template", template.template_id)}
    subnet = override.get("SubnetId") or interfaces[0].get("SubnetId")
    placement = override.get("Placement") or data.get("Placement") or {}
    image = override.get("ImageId") or data.get("ImageId")
    if image is None:
        # EC2 refuses it.
        return
    if not str(image).startswith("ami-"):
        raise UndecidableError(f"The launch template {template.template_id} names no image by its id.")
    profile = data.get("IamInstanceProfile") or {}
    profile_named = profile.get("Arn") or profile.get("Name")

    def asked(kind: str, name: str, *, own: bool, **further: object) -> Asked:
        """Ask for a resource, with `*` for a new one. `own` when the template and not the override brings it."""
        keys = {f"ec2:{key}": value for key, value in further.items()}
        launched = {**keys, **from_template, "ec2:islaunchtemplateresource": own}
        for action, context in (("CreateFleet", keys), ("RunInstances", launched)):
            if action == "CreateFleet" and kind not in _ASKED_AS_CREATE_FLEET:
                continue
            if name == "*":
                yield _new(call, action, kind, keys=context, request_tags=given.get(kind))
            else:
                yield _existing(call, action, kind, name, keys=context)

    yield from asked("launch-template", template.template_id, own=True)
    yield from asked("image", str(image), own="ImageId" not in override)
    yield from asked(
        "instance",
        "*",
        own="InstanceType" not in override,
        instancetype=override.get("InstanceType") or data.get("InstanceType"),
        instanceprofile=profile.get("Arn"),
    )
    yield from asked("volume", "*", own=True)
    subnet_arn = None if subnet is None else _arn(call, "subnet", str(subnet))
    yield from asked("network-interface", "*", own="SubnetId" not in override, subnet=subnet_arn)
    if subnet is not None:
        yield from asked("subnet", str(subnet), own="SubnetId" not in override)
    of_interfaces = [group for interface in interfaces for group in interface.get("Groups") or ()]
    for group in dict.fromkeys(of_interfaces or data.get("SecurityGroupIds") or ()):
        yield from asked("security-group", str(group), own=True)
    if (name := placement.get("GroupName")) is not None:
        own = "GroupName" not in (override.get("Placement") or {})
        yield from asked("placement-group", str(name), own=own, placementgroupname=name)
    for kind, those in given.items():
        if kind != "fleet":
            yield from _tagging_of_new(call, kind, those, "RunInstances")
    # A profile that is not there passes no role, and EC2 refuses it.
    if profile_named is not None and (role := call.account.role_of_profile(str(profile_named))) is not None:
        yield call.pass_role(role, "ec2.amazonaws.com")


_RULES: Final[Rules] = {
    "AttachVolume": _attach_volume,
    "AuthorizeSecurityGroupEgress": _each("AuthorizeSecurityGroupEgress", "security-group", "GroupId"),
    "AuthorizeSecurityGroupIngress": _each("AuthorizeSecurityGroupIngress", "security-group", "GroupId"),
    "CreateFleet": _create_fleet,
    "CreateLaunchTemplate": _create_template,
    "CreateLaunchTemplateVersion": _on_template("CreateLaunchTemplateVersion"),
    "CreateNetworkInterface": _create_interface,
    "CreatePlacementGroup": lambda call: (_new(call, "CreatePlacementGroup", "placement-group"),),
    "CreateSecurityGroup": _create_group,
    "CreateSnapshot": _create_snapshot,
    "CreateTags": _create_tags,
    "CreateVolume": _create_volume,
    "DeleteFleets": _each("DeleteFleets", "fleet", "FleetIds"),
    "DeleteLaunchTemplate": _on_template("DeleteLaunchTemplate"),
    "DeleteLaunchTemplateVersions": _on_template("DeleteLaunchTemplateVersions"),
    "DeleteNetworkInterface": _each("DeleteNetworkInterface", "network-interface", "NetworkInterfaceId"),
    "DeleteSnapshot": _each("DeleteSnapshot", "snapshot", "SnapshotId"),
    "DeleteTags": _delete_tags,
    "DeleteVolume": _each("DeleteVolume", "volume", "VolumeId"),
    "DescribeFleetHistory": _each("DescribeFleetHistory", "fleet", "FleetId"),
    "DescribeFleetInstances": _each("DescribeFleetInstances", "fleet", "FleetId"),
    "DetachVolume": _detach_volume,
    "GetConsoleOutput": _each("GetConsoleOutput", "instance", "InstanceId"),
    "RevokeSecurityGroupIngress": _each("RevokeSecurityGroupIngress", "security-group", "GroupId"),
    "RebootInstances": _each("RebootInstances", "instance", "InstanceIds"),
    "StopInstances": _each("StopInstances", "instance", "InstanceIds"),
    "TerminateInstances": _each("TerminateInstances", "instance", "InstanceIds"),
    **{
        action: _describe(action)
        for action in (
            "DescribeAvailabilityZones",
            "DescribeFleets",
            "DescribeImages",
            "DescribeInstanceTypes",
            "DescribeInstances",
            "DescribeLaunchTemplateVersions",
            "DescribeLaunchTemplates",
            "DescribeNetworkInterfaces",
            "DescribePlacementGroups",
            "DescribeRouteTables",
            "DescribeSecurityGroups",
            "DescribeSnapshots",
            "DescribeSpotPriceHistory",
            "DescribeSubnets",
            "DescribeTags",
            "DescribeVolumes",
            "DescribeVpcEndpoints",
            "DescribeVpcs",
            "GetSpotPlacementScores",
        )
    },
}
OPERATIONS: Final = {"ec2": _RULES}
