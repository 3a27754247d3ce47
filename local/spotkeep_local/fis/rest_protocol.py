"""FIS's REST protocol: method, path, query and JSON body in, JSON out, both as botocore's model describes them."""

from __future__ import annotations

import functools
import json
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import botocore.session

from spotkeep_local.fis.errors import FisError
from spotkeep_local.model_constraints import WrongTypeError, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import OperationModel, ServiceModel

Answer = tuple[int, dict[str, str], bytes]
_HEADERS = {"Content-Type": "application/json"}


@functools.cache
def service_model() -> ServiceModel:
    """The service model of FIS in the installed botocore."""
    return botocore.session.get_session().get_service_model("fis")


def parse_request(method: str, path: str, query: Mapping[str, list[str]], body: bytes) -> tuple[str, dict[str, Any]]:
    """Finds the operation of a request, reads and checks it.

    Returns:
        The operation's name and the request.

    Raises:
        FisError: No operation has this address, or the request breaks the model; names every problem.
    """
    for name in service_model().operation_names:
        operation = service_model().operation_model(name)
        match = _address(operation).fullmatch(path)
        if operation.http["method"] == method and match is not None:
            in_path = {key: unquote(value) for key, value in match.groupdict().items()}
            return name, _read(operation, in_path, query, body)
    raise FisError(f"FIS has no operation {method} {path}")


def check_request(operation: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Checks a request that came another way, from CloudFormation for example.

    Raises:
        FisError: It breaks the model; names every problem.
    """
    shape = service_model().operation_model(operation).input_shape
    if shape is None:
        return {}
    try:
        checked, problems = check(dict(request), shape)
    except WrongTypeError as error:
        raise FisError(str(error)) from error
    if problems:
        raise FisError("; ".join(problems))
    assert isinstance(checked, dict)  # noqa: S101 - an input shape is a structure
    return checked


def write_answer(answer: Mapping[str, Any]) -> Answer:
    """An answer as JSON."""
    return 200, dict(_HEADERS), json.dumps(answer).encode()


def write_error(error: FisError) -> Answer:
    """A refusal as JSON."""
    return error.status, _HEADERS | {"x-amzn-errortype": error.code}, json.dumps({"message": str(error)}).encode()


def _read(
    operation: OperationModel, in_path: Mapping[str, str], query: Mapping[str, list[str]], body: bytes
) -> dict[str, Any]:
    try:
        request: Any = json.loads(body or b"{}")
    except ValueError as error:
        raise FisError(f"The request body is not JSON: {error}") from error
    if not isinstance(request, dict):
        raise FisError("The request body must be a JSON object")
    shape = operation.input_shape
    for name, member in ({} if shape is None else shape.members).items():
        location, key = member.serialization.get("location"), member.serialization.get("name", name)
        if location == "uri":
            request[name] = in_path[key]
        elif location == "querystring" and key in query:
            values = query[key]
            request[name] = values if member.type_name == "list" else _scalar(values[0], member.type_name)
    return check_request(operation.name, request)


def _scalar(text: str, type_name: str) -> str | int:
    return int(text) if type_name in ("integer", "long") and text.isdecimal() else text


@functools.cache
def _pattern(uri: str) -> re.Pattern[str]:
    def placeholder(match: re.Match[str]) -> str:
        # The router has decoded the path already: an ARN in it has its slash back.
        return f"(?P<{match[1]}>{'.+' if match[1].endswith('Arn') else '[^/]+'})"

    return re.compile(re.sub(r"\\\{(\w+)\\\}", placeholder, re.escape(uri)))


def _address(operation: OperationModel) -> re.Pattern[str]:
    return _pattern(operation.http["requestUri"])
