"""SageMaker's own description of its API, as botocore ships it: what a request may hold, what an answer does.

botocore checks types and minimum lengths before a request leaves the client. The service also checks
patterns, enumerations and maxima, which the same model states: so does this module, and it names every
problem at once.
"""

from __future__ import annotations

import functools
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import botocore.session

from spotkeep_local.model_constraints import WrongTypeError, check
from spotkeep_local.training.errors import SerializationError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import ServiceModel, Shape


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
    try:
        request, problems = check(document, shape)
    except WrongTypeError as error:
        raise SerializationError(str(error)) from error
    if problems:
        raise ValidationError.of(problems)
    assert isinstance(request, dict)  # noqa: S101 - check refused everything else
    return request


def shape_answer(operation: str, answer: Mapping[str, Any]) -> dict[str, Any]:
    """Keeps what the model's output knows, without what is None, timestamps as epoch seconds."""
    shape = service_model().operation_model(operation).output_shape
    if shape is None:
        return {}
    shaped = _shaped(answer, shape)
    assert isinstance(shaped, dict)  # noqa: S101 - an output shape is a structure
    return shaped


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
