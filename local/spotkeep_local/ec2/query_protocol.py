"""EC2's query protocol: form parameters in, XML out, both as botocore's model of the service describes them.

Source: botocore's `EC2Serializer` and `EC2QueryParser`, whose other ends these are.
"""

from __future__ import annotations

import functools
import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode
from xml.sax.saxutils import escape

import botocore.session
from botocore.parsers import create_parser
from botocore.serialize import create_serializer

from spotkeep_local.ec2.errors import Ec2Error, invalid, missing
from spotkeep_local.model_constraints import WrongTypeError, check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import OperationModel, ServiceModel, Shape

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_HEADERS = {"Content-Type": "text/xml;charset=UTF-8"}
_PROTOCOL_PARAMETERS = frozenset({"Action", "Version"})

Answer = tuple[int, dict[str, str], bytes]


@functools.cache
def service_model() -> ServiceModel:
    """The service model of EC2 in the installed botocore."""
    return botocore.session.get_session().get_service_model("ec2")


def form_parameters(body: bytes, query: Mapping[str, list[str]]) -> dict[str, str]:
    """The parameters of a request, from its body and its address."""
    given = {name: values[0] for name, values in query.items() if values}
    given.update(parse_qsl(body.decode("utf-8", errors="replace"), keep_blank_values=True))
    return given


def parse_request(operation: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """Reads and checks a request; timestamps come back as epoch seconds.

    Raises:
        Ec2Error: A parameter is unknown, missing, of the wrong type or breaks a constraint of the model.
    """
    shape = _operation(operation).input_shape
    unread = set(parameters) - _PROTOCOL_PARAMETERS
    request = _parse(shape, "", parameters, unread) if shape else {}
    if unread:
        raise Ec2Error("UnknownParameter", f"The parameter {', '.join(sorted(unread))} is not recognized")
    if shape is None:
        return {}
    for name in shape.required_members:
        if request.get(name) is None:
            raise missing(name)
    try:
        checked, problems = check(request, shape)
    except WrongTypeError as error:
        raise invalid(str(error)) from error
    if problems:
        raise invalid("; ".join(problems))
    assert isinstance(checked, dict)  # noqa: S101 - an input shape is a structure
    return checked


def write_answer(operation: str, answer: Mapping[str, Any]) -> Answer:
    """An answer as XML. What the model does not know is an error of ours, and raises KeyError."""
    shape = _operation(operation).output_shape
    inner = "<return>true</return>" if shape is None else _members(answer, shape)
    document = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<{operation}Response xmlns="{_NAMESPACE}">'
        f"<requestId>{uuid.uuid4()}</requestId>{inner}</{operation}Response>"
    )
    return 200, dict(_HEADERS), document.encode()


def write_error(error: Ec2Error) -> Answer:
    """A refusal as XML."""
    document = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<Response><Errors><Error><Code>{escape(error.code)}</Code>'
        f"<Message>{escape(error.message)}</Message></Error></Errors><RequestID>{uuid.uuid4()}</RequestID></Response>"
    )
    return error.status, dict(_HEADERS), document.encode()


def read_answer(operation: str, body: bytes) -> dict[str, Any]:
    """Reads an answer of another service's making, as a client would."""
    shape = _operation(operation).output_shape
    if shape is None:
        return {}
    parsed: dict[str, Any] = create_parser("ec2").parse({"status_code": 200, "headers": {}, "body": body}, shape)
    parsed.pop("ResponseMetadata", None)
    return parsed


def write_parameters(operation: str, request: Mapping[str, Any]) -> bytes:
    """A request as a client would send it; for handing a part of one to another service."""
    serialized = create_serializer("ec2").serialize_to_request(dict(request), _operation(operation))

    return urlencode(serialized["body"]).encode()


def _operation(name: str) -> OperationModel:
    return service_model().operation_model(name)


def _parse(shape: Shape, prefix: str, parameters: Mapping[str, str], unread: set[str]) -> Any:
    if shape.type_name == "structure":
        members = {}
        for name, member in shape.members.items():  # type: ignore[attr-defined]
            path = _join(prefix, _query_name(member, name))
            if (value := _parse(member, path, parameters, unread)) is not None:
                members[name] = value
        return members if members or not prefix else None
    if shape.type_name == "list":
        items: list[Any] = []
        while (item := _parse(shape.member, f"{prefix}.{len(items) + 1}", parameters, unread)) is not None:  # type: ignore[attr-defined]
            items.append(item)
        return items or None
    if prefix not in parameters:
        return None
    unread.discard(prefix)
    return _scalar(parameters[prefix], shape, prefix)


def _scalar(text: str, shape: Shape, path: str) -> Any:
    try:
        if shape.type_name == "boolean":
            return {"true": True, "false": False}[text.lower()]
        if shape.type_name in ("integer", "long"):
            return int(text)
        if shape.type_name in ("float", "double"):
            return float(text)
    except (KeyError, ValueError) as error:
        raise invalid(f"Value ({text}) for parameter {path} is invalid. It must be a {shape.type_name}.") from error
    return text


def _query_name(shape: Shape, default: str) -> str:
    serialization = shape.serialization
    if "queryName" in serialization:
        return str(serialization["queryName"])
    if "name" in serialization:
        name = str(serialization["name"])
        return name[0].upper() + name[1:]
    return default


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _members(value: Mapping[str, Any], shape: Shape) -> str:
    written = []
    for name, item in value.items():
        if item is not None:
            member = shape.members[name]  # type: ignore[attr-defined]
            tag = member.serialization.get("name", name)
            written.append(f"<{tag}>{_write(item, member)}</{tag}>")
    return "".join(written)


def _write(value: Any, shape: Shape) -> str:
    if shape.type_name == "structure":
        return _members(value, shape)
    if shape.type_name == "list":
        member = shape.member  # type: ignore[attr-defined]
        return "".join(f"<item>{_write(item, member)}</item>" for item in value)
    if shape.type_name == "boolean":
        return "true" if value else "false"
    if shape.type_name == "timestamp":
        moment = value if isinstance(value, datetime) else datetime.fromtimestamp(value, UTC)
        return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"
    return escape(str(value))
