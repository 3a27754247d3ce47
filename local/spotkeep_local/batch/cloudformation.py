"""`AWS::Batch::ServiceEnvironment`, `SchedulingPolicy`, `JobQueue` and `QuotaShare` for CloudFormation.

`Ref` is the ARN of each. Before CloudFormation deletes one that must be disabled first, it disables it.

Source: these resources' pages in the CloudFormation template reference.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.batch.errors import ClientError
from spotkeep_local.service_base.resource_properties import as_request

if TYPE_CHECKING:
    from spotkeep_local.batch.service import BatchService
    from spotkeep_local.service_base.resource_properties import PhysicalIdAndAttributes


@dataclass(frozen=True, kw_only=True)
class ResourceType:
    """A type of resource, in the terms of Batch's operations.

    Attributes:
        kind: Its name in the names of the operations.
        name_property: The property with its name. A missing name is made up.
        arn_member: The member of the answer to its creation that holds its ARN.
        attribute: Its ARN for `Fn::GetAtt`.
        updated_by: The parameter that names it in the other operations.
        fixed: The properties whose change replaces it.
        disabled_first: It can be deleted only when its state is DISABLED.
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
        resource_type: The type.
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
