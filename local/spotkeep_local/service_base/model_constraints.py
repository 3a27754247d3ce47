"""What a botocore service model says of a value: its types, and the constraints that a client does not check.

botocore checks types and minimum lengths before a request leaves the client. The service also checks
patterns, enumerations and maxima, which the same model states.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any

from botocore.utils import parse_timestamp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import Shape

_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "timestamp": (int, float, str),
    "structure": (dict,),
    "map": (dict,),
    "list": (list,),
}


class WrongTypeError(Exception):
    """A value has another type than the model says."""


def check(value: Any, shape: Shape) -> tuple[Any, list[str]]:
    """Compare a value with its shape.

    Returns:
        The value without what is None and with timestamps as epoch seconds; and every constraint it breaks.

    Raises:
        WrongTypeError: A value has another type than the model says.
    """
    problems: list[str] = []
    return _checked(value, shape, "", problems), problems


def _checked(value: Any, shape: Shape, path: str, problems: list[str]) -> Any:
    if not _has_type(value, shape):
        raise WrongTypeError(f"{path or 'The request'} must be a {shape.type_name}, found {value!r}")
    _check_constraints(value, shape, path, problems)
    if shape.type_name == "structure":
        members = shape.members  # type: ignore[attr-defined]
        problems.extend(
            f"Value null at '{_member(path, name)}' failed to satisfy constraint: Member must not be null"
            for name in shape.required_members
            if value.get(name) is None
        )
        problems.extend(
            f"'{_member(path, name)}' is not a parameter of this version of the API"
            for name in value
            if name not in members
        )
        return {
            name: _checked(item, members[name], _member(path, name), problems)
            for name, item in value.items()
            if item is not None and name in members
        }
    if shape.type_name == "map":
        key_shape, value_shape = shape.key, shape.value  # type: ignore[attr-defined]
        return {
            _checked(key, key_shape, f"{path} key", problems): _checked(item, value_shape, f"{path}.{key}", problems)
            for key, item in value.items()
        }
    if shape.type_name == "list":
        member_shape = shape.member  # type: ignore[attr-defined]
        return [
            _checked(item, member_shape, f"{path}.{number}.member", problems)
            for number, item in enumerate(value, start=1)
        ]
    if shape.type_name == "timestamp":
        return parse_timestamp(value).timestamp()
    return value


def _has_type(value: object, shape: Shape) -> bool:
    if isinstance(value, bool):
        return shape.type_name == "boolean"
    return isinstance(value, _TYPES[shape.type_name])


def _check_constraints(value: Any, shape: Shape, path: str, problems: list[str]) -> None:
    metadata = shape.metadata

    def refuse(constraint: str) -> None:
        problems.append(f"Value '{value}' at '{path}' failed to satisfy constraint: Member must {constraint}")

    sized = shape.type_name in ("string", "list", "map")
    measure = len(value) if sized else value
    noun = "have length" if sized else "have value"
    if shape.type_name in ("string", "list", "map", "integer", "long", "float", "double"):
        if "min" in metadata and measure < metadata["min"]:
            refuse(f"{noun} greater than or equal to {metadata['min']}")
        if "max" in metadata and measure > metadata["max"]:
            refuse(f"{noun} less than or equal to {metadata['max']}")
    if shape.type_name == "string":
        if allowed := metadata.get("enum"):
            if value not in allowed:
                refuse(f"satisfy enum value set: [{', '.join(allowed)}]")
        elif (pattern := metadata.get("pattern")) and not _pattern(pattern).fullmatch(value):
            refuse(f"satisfy regular expression pattern: {pattern}")


@functools.cache
def _pattern(pattern: str) -> re.Pattern[str]:
    # The models use Java's Unicode classes; Python's \w and \s stand for the same letters, digits and spaces.
    for java, python in ((r"\p{L}", r"\w"), (r"\p{N}", r"\w"), (r"\p{Z}", r"\s")):
        pattern = pattern.replace(java, python)
    return re.compile(pattern, re.DOTALL)


def _member(path: str, name: str) -> str:
    lowered = name[0].lower() + name[1:]
    return f"{path}.{lowered}" if path else lowered
