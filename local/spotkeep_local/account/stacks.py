"""Stacks of CloudFormation act in their roles, and make resources that ministack lacks.

These are queues, experiment templates, placement groups, and rules of security groups on their own.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from spotkeep_local.batch.request_rules import ClientError
from spotkeep_local.ministack import ec2
from spotkeep_local.principals import ServiceCall
from spotkeep_local.service_base.aws_service import HttpRequest
from spotkeep_local.service_base.clients import service_model
from spotkeep_local.service_base.query_parameters import form_parameters

if TYPE_CHECKING:
    from collections.abc import Callable

    from botocore.model import Shape

    from spotkeep_local.batch.service import BatchService
    from spotkeep_local.fis.service import FisService
    from spotkeep_local.ministack.application import RequestHandler

PhysicalIdAndAttributes: TypeAlias = tuple[str, dict[str, str]]
"""The physical id and attributes that CloudFormation gets for a resource that was made or changed."""


class StackRoles:
    """Stands before CloudFormation, and remembers the roles that requests pass to it.

    Args:
        cloudformation: Answers the requests.
        is_allowed: Decides about CloudFormation's calls.
    """

    def __init__(self, cloudformation: RequestHandler, *, is_allowed: Callable[[ServiceCall], bool]) -> None:
        self._cloudformation = cloudformation
        self._is_allowed = is_allowed
        self._roles: dict[str, str] = {}

    async def handle_request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query_params: Mapping[str, list[str]]
    ) -> tuple[int, dict[str, str], bytes]:
        """Answer one request that the judge has let through, so that its sender may pass the role."""
        form = form_parameters(HttpRequest(method=method, path=path, headers=headers, body=body, query=query_params))
        if "RoleARN" in form and "StackName" in form:
            self._roles[_name_of(form["StackName"])] = form["RoleARN"]
        return await self._cloudformation(method, path, headers, body, query_params)

    def may_invoke(self, function_arn: str, *, stack_id: str) -> bool:
        """Return whether CloudFormation may invoke a custom resource's function for a stack.

        Args:
            function_arn: The resource's `ServiceToken`.
            stack_id: The stack's id. A stack without a role acts with its caller's permissions, which are not judged
                here.
        """
        role = self._roles.get(_name_of(stack_id))
        return role is None or self._is_allowed(
            ServiceCall(
                service="cloudformation.amazonaws.com",
                actions=("lambda:InvokeFunction",),
                resource=function_arn,
                source_arn=stack_id,
                role_arn=role,
            )
        )


def _name_of(stack: str) -> str:
    # An ARN ends in stack/<name>/<id>.
    return stack.split("/")[1] if stack.startswith("arn:") else stack


def as_request(properties: Mapping[str, Any], *, service: str, operation: str) -> dict[str, Any]:
    """Return a resource's properties as an operation takes them, with the names of members in lower camel case.

    The keys of maps stay as they are. CloudFormation accepts a number that is written as text, as parameters are.

    Args:
        properties: The properties.
        service: botocore's name of the service.
        operation: botocore's name of the operation.

    Raises:
        ValueError: A value is no number, and the operation takes a number.
    """
    request: dict[str, Any] = _as_member(properties, service_model(service).operation_model(operation).input_shape)
    return request


def _as_member(value: Any, shape: Shape | None) -> Any:
    kind = None if shape is None else shape.type_name
    if kind == "structure" and isinstance(value, dict):
        members = shape.members  # type: ignore[union-attr]
        named = ((name[0].lower() + name[1:], item) for name, item in value.items())
        return {name: _as_member(item, members.get(name)) for name, item in named}
    if kind == "map" and isinstance(value, dict):
        return {str(key): _as_member(item, shape.value) for key, item in value.items()}  # type: ignore[union-attr]
    if kind == "list" and isinstance(value, list):
        return [_as_member(item, shape.member) for item in value]  # type: ignore[union-attr]
    if kind in ("integer", "long"):
        return int(value)
    if kind in ("float", "double"):
        return float(value)
    return str(value) if kind == "string" else value


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """A type of resource, in the terms of Batch's operations.

    Attributes:
        kind: Its name in the names of the operations.
        name_property: The property with its name, which is made up where it is missing.
        arn_member: The member of the answer to its creation that holds its ARN.
        attribute: The name of its ARN for `Fn::GetAtt`.
        updated_by: The parameter that names it in the other operations.
        fixed: The properties that cannot change without replacing it.
        disabled_first: True where it can be deleted only when its state is DISABLED.
    """

    kind: str
    name_property: str
    arn_member: str
    attribute: str
    updated_by: str
    fixed: tuple[str, ...]
    disabled_first: bool = True


RESOURCE_TYPES: Final[Mapping[str, ResourceType]] = {
    "AWS::Batch::ServiceEnvironment": ResourceType(
        kind="ServiceEnvironment",
        name_property="ServiceEnvironmentName",
        arn_member="serviceEnvironmentArn",
        attribute="ServiceEnvironmentArn",
        updated_by="serviceEnvironment",
        fixed=("ServiceEnvironmentName", "ServiceEnvironmentType"),
    ),
    "AWS::Batch::SchedulingPolicy": ResourceType(
        kind="SchedulingPolicy",
        name_property="Name",
        arn_member="arn",
        attribute="Arn",
        updated_by="arn",
        fixed=("Name",),
        disabled_first=False,
    ),
    "AWS::Batch::JobQueue": ResourceType(
        kind="JobQueue",
        name_property="JobQueueName",
        arn_member="jobQueueArn",
        attribute="JobQueueArn",
        updated_by="jobQueue",
        fixed=("JobQueueName", "JobQueueType"),
    ),
    "AWS::Batch::QuotaShare": ResourceType(
        kind="QuotaShare",
        name_property="QuotaShareName",
        arn_member="quotaShareArn",
        attribute="QuotaShareArn",
        updated_by="quotaShareArn",
        fixed=("QuotaShareName", "JobQueue"),
    ),
}


class BatchResource:
    """The functions that CloudFormation calls for one type of resource.

    Args:
        batch: Keeps the resources.
        resource_type: The type of resource to make.
    """

    def __init__(self, batch: BatchService, resource_type: ResourceType) -> None:
        self._batch = batch
        self._type = resource_type

    def create(self, logical_id: str, properties: dict[str, Any], stack_name: str) -> PhysicalIdAndAttributes:
        """Create one."""
        named = {self._type.name_property: f"{stack_name}-{logical_id}-{secrets.token_hex(6)}"[-128:].lstrip("-_")}
        given = {name: value for name, value in (named | properties).items() if value != {}}
        operation = f"Create{self._type.kind}"
        answer = self._batch.call(operation, as_request(given, service="batch", operation=operation))
        arn = str(answer[self._type.arn_member])
        return arn, {self._type.attribute: arn}

    def update(
        self, physical_id: str, old: dict[str, Any], new: dict[str, Any], stack_name: str
    ) -> PhysicalIdAndAttributes:
        """Change one in place, or make another one where that is not possible."""
        if any(old.get(name) != new.get(name) for name in self._type.fixed):
            return self.create(self._type.kind, new, stack_name)
        changed = {name: value for name, value in new.items() if name not in self._type.fixed and name != "Tags"}
        operation = f"Update{self._type.kind}"
        request = as_request(changed, service="batch", operation=operation)
        self._batch.call(operation, request | {self._type.updated_by: physical_id})
        self._change_tags(physical_id, old.get("Tags") or {}, new.get("Tags") or {})
        return physical_id, {self._type.attribute: physical_id}

    def delete(self, physical_id: str, properties: dict[str, Any]) -> None:  # noqa: ARG002 - CloudFormation's
        """Delete one, if it exists."""
        named = {self._type.updated_by: physical_id}
        if not self._exists(physical_id):
            return
        if self._type.disabled_first:
            self._batch.call(f"Update{self._type.kind}", {**named, "state": "DISABLED"})
        self._batch.call(f"Delete{self._type.kind}", named)

    def _exists(self, arn: str) -> bool:
        try:
            self._batch.call("ListTagsForResource", {"resourceArn": arn})
        except ClientError:
            return False
        return True

    def _change_tags(self, arn: str, old: Mapping[str, str], new: Mapping[str, str]) -> None:
        if gone := sorted(old.keys() - new.keys()):
            self._batch.call("UntagResource", {"resourceArn": arn, "tagKeys": gone})
        if new:
            self._batch.call("TagResource", {"resourceArn": arn, "tags": dict(new)})


class ExperimentTemplateResource:
    """The functions that CloudFormation calls.

    Args:
        fis: Keeps the templates.
    """

    def __init__(self, fis: FisService) -> None:
        self._fis = fis

    def create(self, logical_id: str, properties: dict[str, Any], stack_name: str) -> PhysicalIdAndAttributes:  # noqa: ARG002
        """Create a template."""
        template_id = self._fis.put_template(_template_request(properties))
        return template_id, {"Id": template_id}

    def update(
        self,
        physical_id: str,
        old: dict[str, Any],  # noqa: ARG002
        new: dict[str, Any],
        stack_name: str,  # noqa: ARG002
    ) -> PhysicalIdAndAttributes:
        """Change a template in place."""
        self._fis.put_template(_template_request(new), template_id=physical_id)
        return physical_id, {"Id": physical_id}

    def delete(self, physical_id: str, properties: dict[str, Any]) -> None:  # noqa: ARG002
        """Delete a template, if it exists."""
        self._fis.delete_template(physical_id)


def _template_request(properties: dict[str, Any]) -> dict[str, Any]:
    """Return a resource's properties as CreateExperimentTemplate takes them."""
    request = as_request(properties, service="fis", operation="CreateExperimentTemplate")
    return {"clientToken": str(uuid.uuid4()), **request}


@dataclass(frozen=True, kw_only=True)
class GroupRuleResource:
    """The functions that CloudFormation calls for a rule of a security group.

    Attributes:
        outbound: True for AWS::EC2::SecurityGroupEgress, False for AWS::EC2::SecurityGroupIngress.
    """

    outbound: bool

    def create(self, _logical_id: str, properties: dict[str, Any], _stack_name: str) -> PhysicalIdAndAttributes:
        """Add one."""
        rule_id = ec2.add_group_rule(properties, outbound=self.outbound)
        return rule_id, {"Id": rule_id}

    def update(
        self, physical_id: str, old: dict[str, Any], new: dict[str, Any], stack_name: str
    ) -> PhysicalIdAndAttributes:
        """Put another one in its place, where it changed. CloudFormation here asks about unchanged resources, too."""
        if new == old:
            return physical_id, {"Id": physical_id}
        self.delete(physical_id, old)
        return self.create("", new, stack_name)

    def delete(self, physical_id: str, properties: dict[str, Any]) -> None:
        """Remove one, if it exists."""
        ec2.remove_group_rule(physical_id, group_id=properties["GroupId"], outbound=self.outbound)


class PlacementGroupResource:
    """The functions that CloudFormation calls for AWS::EC2::PlacementGroup. Each change replaces a group."""

    def create(self, logical_id: str, properties: dict[str, Any], stack_name: str) -> PhysicalIdAndAttributes:
        """Create one. Its name, which the template cannot give, is its physical id."""
        name = f"{stack_name}-{logical_id}-{secrets.token_hex(6)}"
        tags = {tag["Key"]: tag["Value"] for tag in properties.get("Tags") or ()}
        ec2.add_placement_group(name, strategy=properties.get("Strategy", "cluster"), tags=tags)
        return name, self._attributes(name)

    def update(
        self, physical_id: str, old: dict[str, Any], new: dict[str, Any], stack_name: str
    ) -> PhysicalIdAndAttributes:
        """Create another one where it changed, and leave the old one for CloudFormation to delete."""
        if new == old:
            return physical_id, self._attributes(physical_id)
        return self.create("PlacementGroup", new, stack_name)

    def delete(self, physical_id: str, _properties: dict[str, Any]) -> None:
        """Delete one, if it exists."""
        ec2.remove_placement_group(physical_id)

    @staticmethod
    def _attributes(name: str) -> dict[str, str]:
        return {"GroupName": name, "GroupId": str(ec2.placement_group(name)["GroupId"])}
