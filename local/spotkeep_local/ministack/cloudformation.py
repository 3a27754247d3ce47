"""ministack's CloudFormation, with further types of resources, custom resources, taken names and function URLs."""

from __future__ import annotations

import inspect
import time
from typing import TYPE_CHECKING, Any, Final

from ministack.core import responses as _responses  # type: ignore[import-untyped]
from ministack.services import iam as _iam  # type: ignore[import-untyped]

from spotkeep_local.ministack.functions import FUNCTION_URL_PATH

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_HAD_BY_INSTANCES: Final = ("AWS::EC2::PlacementGroup", "AWS::EC2::SecurityGroup", "AWS::EC2::Subnet")
_DELETED_WITHIN_SECONDS: Final = 60.0


def add_resource_type(
    resource_type: str,
    *,
    create: Callable[[str, dict[str, Any], str], tuple[str, dict[str, str]]],
    update: Callable[[str, dict[str, Any], dict[str, Any], str], tuple[str, dict[str, str]]],
    delete: Callable[[str, dict[str, Any]], None],
) -> None:
    """Let CloudFormation make a type of resource that ministack lacks.

    The functions are called from a thread of their own, so they may block, and call this server.

    Args:
        resource_type: The type, for example `AWS::FIS::ExperimentTemplate`.
        create: Takes logical id, properties and stack name. Returns physical id and attributes.
        update: Takes physical id, old properties, new properties and stack name. Returns physical id and attributes.
            Another physical id replaces the resource.
        delete: Takes a physical id and its properties. Does nothing when the resource does not exist.
    """
    # Late: this module of ministack's imports every service, which takes longer than all of the start.
    from ministack.services.cloudformation import provisioners  # type: ignore[import-untyped]

    _let_block(resource_type)
    provisioners._RESOURCE_HANDLERS[resource_type] = {"create": create, "update": update, "delete": delete}


def _let_block(resource_type: str) -> None:
    from ministack.services.cloudformation import stacks

    blocks, ours = stacks._runs_on_worker_thread, resource_type
    stacks._runs_on_worker_thread = lambda resource_type: resource_type == ours or blocks(resource_type)


def delete_networks_after_instances(has_instances: Callable[[str], bool]) -> None:
    """Make CloudFormation delete no subnet, security group or placement group that an instance has.

    EC2 refuses it until the instance is terminated. CloudFormation tries again, for a while that AWS does not document.
    Here it is a minute.

    Args:
        has_instances: Decides, from the physical id.
    """
    from ministack.services.cloudformation import provisioners

    for resource_type in _HAD_BY_INSTANCES:
        _let_block(resource_type)
        handlers = provisioners._RESOURCE_HANDLERS[resource_type]
        handlers["delete"] = _once_free(handlers["delete"], has_instances=has_instances)


def _once_free(delete: Callable[..., Any], *, has_instances: Callable[[str], bool]) -> Callable[..., Any]:
    def delete_once_free(physical_id: str, *further: Any) -> Any:
        until = time.monotonic() + _DELETED_WITHIN_SECONDS
        while has_instances(physical_id):
            if time.monotonic() > until:
                raise ValueError(f"DependencyViolation: {physical_id} has an instance, and cannot be deleted")
            time.sleep(0.2)
        return delete(physical_id, *further)

    return delete_once_free


def judge_custom_resources(may_invoke: Callable[[str, str], bool]) -> None:
    """Make CloudFormation ask before it invokes the function of a custom resource. A denial fails the resource.

    Args:
        may_invoke: Decides, from the function's ARN and the stack's id.
    """
    from ministack.services.cloudformation import custom_resource

    invoke = custom_resource.invoke_custom_resource

    def invoke_allowed(*arguments: Any, **further: Any) -> Any:
        given = inspect.signature(invoke).bind(*arguments, **further).arguments
        function = str(given["props"].get("ServiceToken", ""))
        if not may_invoke(function, str(given["stack_id"])):
            raise PermissionError(
                f"The role of the stack is not authorized to perform: lambda:InvokeFunction on {function}"
            )
        return invoke(*arguments, **further)

    custom_resource.invoke_custom_resource = invoke_allowed


def refuse_taken_names() -> None:
    """Make CloudFormation refuse a managed policy or a dashboard with a name that any region of the account has.

    AWS refuses it too. ministack alone overwrites the older resource.
    """
    from ministack.services import cloudwatch
    from ministack.services.cloudformation import provisioners

    def policies() -> set[str]:
        return {policy["PolicyName"] for policy in _iam._policies.values()}

    def dashboards() -> set[str]:
        account = _responses.get_account_id()
        return {name for owner, _, name in cloudwatch._dashboards._data if owner == account}

    for resource_type, field, taken in (
        ("AWS::IAM::ManagedPolicy", "ManagedPolicyName", policies),
        ("AWS::CloudWatch::Dashboard", "DashboardName", dashboards),
    ):
        handlers = provisioners._RESOURCE_HANDLERS[resource_type]
        handlers["create"] = _unless_taken(handlers["create"], field=field, taken=taken)


def _unless_taken(create: Callable[..., Any], *, field: str, taken: Callable[[], set[str]]) -> Callable[..., Any]:
    def create_under_a_free_name(logical_id: str, properties: dict[str, Any], *further: Any) -> Any:
        if (name := properties.get(field)) in taken():
            raise ValueError(f"{name} already exists in this account. {field} has to be another in each of its regions")
        return create(logical_id, properties, *further)

    return create_under_a_free_name


def resolve_function_urls_to(endpoint_url: str) -> None:
    """Make `Fn::GetAtt` of a function URL return an address on this server, as AWS's own address is of no use here.

    Args:
        endpoint_url: The address of this server.
    """
    from ministack.services.cloudformation import provisioners

    attributes = provisioners._lambda_url_attributes

    def reachable(config: Mapping[str, str]) -> dict[str, str]:
        given = attributes(config)
        url_id = given["FunctionUrl"].removeprefix("https://").partition(".")[0]
        return {**given, "FunctionUrl": f"{endpoint_url}{FUNCTION_URL_PATH}{url_id}/"}

    provisioners._lambda_url_attributes = reachable
