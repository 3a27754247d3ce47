"""SageMaker's own description of its API, as botocore ships it: what a request may hold, what an answer does.

botocore checks types and minimum lengths before a request leaves the client. The service also checks
patterns, enumerations and maxima, which the same model states: so does this module, and it names every
problem at once.
"""

from __future__ import annotations

import functools
import json
import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import botocore.session
from botocore.utils import parse_timestamp

from spotkeep_local.training.errors import SerializationError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import ServiceModel, Shape

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


@functools.cache
def service_model() -> ServiceModel:
    """The service model of SageMaker in the installed botocore."""
    return botocore.session.get_session().get_service_model("sagemaker")


def parse_request(operation: str, body: bytes) -> dict[str, Any]:
    """Reads and checks a request; timestamps come back as epoch seconds.

    Args:
        operation: A name from the service model, for example `CreateTrainingJob`.
        body: The JSON document as it came.

    Raises:
        SerializationError: The body is no JSON object, or a value has the wrong type.
        ValidationError: Values break the model's constraints; names every one.
    """
    try:
        document = json.loads(body or b"{}")
    except ValueError as error:
        raise SerializationError(f"The request body is not JSON: {error}") from error
    shape = service_model().operation_model(operation).input_shape
    if shape is None:  # pragma: no cover - every training operation has an input
        return {}
    problems: list[str] = []
    request = _checked(document, shape, "", problems)
    if problems:
        raise ValidationError.of(problems)
    assert isinstance(request, dict)  # noqa: S101 - _checked refused everything else
    return request


def shape_answer(operation: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Keeps what the model's output knows, without what is None, timestamps as epoch seconds."""
    shape = service_model().operation_model(operation).output_shape
    if shape is None:
        return {}
    shaped = _shaped(answer, shape)
    assert isinstance(shaped, dict)  # noqa: S101 - an output shape is a structure
    return shaped


def _checked(value: Any, shape: Shape, path: str, problems: list[str]) -> Any:
    if not _has_type(value, shape):
        raise SerializationError(f"{path or 'The request'} must be a {shape.type_name}, found {value!r}")
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


def _shaped(value: Any, shape: Shape) -> Any:
    if shape.type_name == "structure":
        members = shape.members  # type: ignore[attr-defined]
        return {
            name: _shaped(item, members[name]) for name, item in value.items() if name in members and item is not None
        }
    if shape.type_name == "list":
        return [_shaped(item, shape.member) for item in value]  # type: ignore[attr-defined]
    if shape.type_name == "timestamp" and isinstance(value, datetime):
        return value.astimezone(UTC).timestamp()
    return value
