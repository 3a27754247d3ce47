"""A resource's properties in CloudFormation as requests of its service: the same, but for the spelling of names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final, TypeAlias

PhysicalIdAndAttributes: TypeAlias = tuple[str, dict[str, str]]
"""What CloudFormation gets for a resource that was made or changed."""
Numbers: TypeAlias = Mapping[str, Callable[[Any], int | float]]
_NO_NUMBERS: Final[Numbers] = MappingProxyType({})


def lower_camel_case(name: str) -> str:
    """Return a property's name as requests have it."""
    return name[0].lower() + name[1:]


def as_request(value: Any, *, numbers: Numbers = _NO_NUMBERS) -> Any:
    """Return a property's value as requests have it: the names of all members in lower camel case.

    Args:
        value: The value.
        numbers: How members that are numbers are read, by the property's name: CloudFormation takes a number that is
            written as text, as parameters are.
    """
    if isinstance(value, dict):
        return {
            lower_camel_case(name): numbers[name](item) if name in numbers else as_request(item, numbers=numbers)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [as_request(item, numbers=numbers) for item in value]
    return value
