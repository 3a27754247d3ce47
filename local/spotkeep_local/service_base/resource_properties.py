"""A resource's properties in CloudFormation as requests of its service: the same, but for the spelling of names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from spotkeep_local.service_base.service_models import service_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import Shape

PhysicalIdAndAttributes: TypeAlias = tuple[str, dict[str, str]]
"""What CloudFormation gets for a resource that was made or changed."""


def as_request(properties: Mapping[str, Any], *, service: str, operation: str) -> dict[str, Any]:
    """Return a resource's properties as an operation takes them: the names of its members in lower camel case.

    The keys of maps stay as they are. CloudFormation takes a number that is written as text, as parameters are.

    Args:
        properties: The properties.
        service: botocore's name of the service.
        operation: botocore's name of the operation.

    Raises:
        ValueError: What the operation takes as a number is none.
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
