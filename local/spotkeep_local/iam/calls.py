"""The way from an HTTP request to its operation and parameters, by botocore's models of the services.

The signature names the service. The operation stands in a header, in the parameter Action, or in method and address, as
the service's protocol has it. Nothing is guessed. A request with an uncertain service or operation is unreadable, and
its reason is given. A request that a router could send to another service than the signature's is unreadable too. The
judged operation must be the answered one.

Sources: botocore's serializers, the counterparts of these readers. "Create a signed AWS API request" in the IAM user
guide. "REST API" of the services for addresses.
"""

from __future__ import annotations

import functools
import json
import re
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from spotkeep_local.iam.authorization import Call, UnknownCall
from spotkeep_local.service_base.clients import service_model
from spotkeep_local.service_base.query_parameters import (
    UnreadableParameterError,
    form_parameters,
    read_query_parameters,
    read_scalar,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from botocore.model import OperationModel, Shape

    from spotkeep_local.service_base.aws_service import HttpRequest

FUNCTION_URL_PATH = "/_aws/lambda-url/"
"""The path below which the local AWS answers function URLs, by their id. AWS does so by host name."""
INVOKE_BY_URL = "InvokeFunctionUrl"
"""The invocation of a function by its URL, with the parameter `UrlId`.

botocore has no such operation. Its clients only sign the request.
"""

_SERVICES: Final[Mapping[str, str]] = {
    "elasticfilesystem": "efs",
    "monitoring": "cloudwatch",
    "servicequotas": "service-quotas",
    **{
        name: name
        for name in (
            *("batch", "cloudformation", "dynamodb", "ec2", "ecr", "events", "fis", "fsx", "iam", "kms", "lambda"),
            "logs",
            *("pricing", "s3", "sagemaker", "scheduler", "secretsmanager", "sns", "sqs", "ssm", "sts"),
        )
    },
}
"""botocore's names of services by those in signatures."""
_HEADER: Final = re.compile(r"AWS4-HMAC-SHA256\s+Credential=([^,\s]+)")
_SCOPE_PARTS: Final = 5
# `s3express` signs another service's requests to this address.
_NOT_BY_ADDRESS: Final = frozenset({("s3", "ListDirectoryBuckets")})


class _UnreadableError(Exception):
    """A request cannot be read. The error has the reason, and the operation where it is known."""

    def __init__(self, reason: str, *, operation: str = "") -> None:
        super().__init__(reason)
        self.operation = operation


def read_call(request: HttpRequest) -> Call | UnknownCall:
    """Read a request.

    Args:
        request: With its path as sent, percent-encoded, and its body. The body of an object of S3 may be left out
            (`needs_body`). Parameters of the query have their blank values.

    Returns:
        The call. Timestamps and binary values are as they were sent, and the content of an object is not there.
    """
    signing_name = _signing_name(request)
    if signing_name is None:
        return UnknownCall(service="", operation="", reason="The request names no credentials with their scope.")
    service = _SERVICES.get(signing_name)
    if service is None:
        return UnknownCall(service=signing_name, operation="", reason=f"The service {signing_name} is not known.")
    try:
        if service == "lambda" and request.path.startswith(FUNCTION_URL_PATH):
            url_id = request.path.removeprefix(FUNCTION_URL_PATH).partition("/")[0]
            return Call(service=service, operation=INVOKE_BY_URL, parameters={"UrlId": url_id})
        _refuse_second_address(service, request)
        operation, parameters = _READERS[service_model(service).resolved_protocol](service, request)
    except _UnreadableError as error:
        return UnknownCall(service=service, operation=error.operation, reason=str(error))
    return Call(service=service, operation=operation, parameters=parameters)


def region_of(request: HttpRequest) -> str | None:
    """Return the region that a request is signed for. None where its signature names none."""
    scope = _scope(request)
    return None if scope is None else scope[2]


def needs_body(request: HttpRequest) -> bool:
    """Return whether a request cannot be read without its body.

    All can but those of S3 that carry an object or configuration. The keys that are to be deleted stand in a body.
    """
    return _signing_name(request) != "s3" or (request.method == "POST" and "delete" in request.query)


def service_of(request: HttpRequest) -> str | None:
    """Return botocore's name of the service in a request's signature. None where there is none that is known."""
    return _SERVICES.get(_signing_name(request) or "")


def _signing_name(request: HttpRequest) -> str | None:
    scope = _scope(request)
    if scope is None and {"AWSAccessKeyId", "Signature", "Expires"} <= request.query.keys():
        # Presigned with version 2, as boto3 does where no version is chosen: S3 alone takes it.
        return "s3"
    return None if scope is None else scope[3]


def _scope(request: HttpRequest) -> list[str] | None:
    # <access key id>/<date>/<region>/<service>/aws4_request
    authorization = request.headers.get("authorization")
    if authorization:
        match = _HEADER.match(authorization)
        credential = match[1] if match else ""
    else:
        credential = request.query.get("X-Amz-Credential", [""])[0]
    parts = credential.split("/")
    return parts if len(parts) == _SCOPE_PARTS else None


def _refuse_second_address(service: str, request: HttpRequest) -> None:
    # A router goes by the target first, and by the action where it knows nothing else.
    metadata = service_model(service).metadata
    target = request.headers.get("x-amz-target")
    if target is not None and target.rpartition(".")[0] != metadata.get("targetPrefix"):
        raise _UnreadableError(f"X-Amz-Target names {target}, which is no operation of the service in the signature.")
    if "Action" in request.query and service_model(service).resolved_protocol not in ("query", "ec2"):
        raise _UnreadableError("The address names an Action, which this service does not know.")


def _model(service: str, operation: str) -> OperationModel:
    model = service_model(service)
    if operation not in model.operation_names:
        raise _UnreadableError(f"{service} has no operation {operation!r}.", operation=operation)
    return model.operation_model(operation)


def _read_json(service: str, request: HttpRequest) -> tuple[str, dict[str, Any]]:
    operation = request.headers.get("x-amz-target", "").rpartition(".")[2]
    return _model(service, operation).name, _json_object(request.body, operation)


def _json_object(body: bytes, operation: str) -> dict[str, Any]:
    try:
        document = json.loads(body or b"{}")
    except ValueError as error:
        raise _UnreadableError(f"The body is not JSON: {error}.", operation=operation) from error
    if not isinstance(document, dict):
        raise _UnreadableError("The body is no JSON object.", operation=operation)
    return document


def _read_query(service: str, request: HttpRequest) -> tuple[str, dict[str, Any]]:
    form = form_parameters(request)
    operation = form.pop("Action", "")
    form.pop("Version", None)
    shape = _model(service, operation).input_shape
    if shape is None:
        return operation, {}
    try:
        parameters, _ignored = read_query_parameters(shape, form, ec2=service == "ec2")
    except UnreadableParameterError as error:
        raise _UnreadableError(str(error), operation=operation) from error
    return operation, parameters


@dataclass(frozen=True, kw_only=True)
class _Address:
    """The method and address of an operation, and its difference from others with the same ones.

    Attributes:
        literals: Parameters of the query with their required values. A parameter with an empty value may have any.
        query: Names of required parameters of the query.
        headers: Names of required headers, in lower case.
    """

    operation: str
    literals: Mapping[str, str]
    query: frozenset[str]
    headers: frozenset[str]

    def fits(self, request: HttpRequest) -> bool:
        return (
            all(
                name in request.query and (not text or text in request.query[name])
                for name, text in self.literals.items()
            )
            and all(name in request.query for name in self.query)
            and all(name in request.headers for name in self.headers)
        )

    @property
    def weight(self) -> int:
        return len(self.literals) + len(self.query) + len(self.headers)


@dataclass(frozen=True, kw_only=True)
class _ParameterLocation:
    """The place of an input's member in a request.

    Attributes:
        name: The name of the member.
        location: `uri`, `querystring`, `header`, or `headers` for all with one prefix.
        key: The name in that place, in lower case for headers.
    """

    name: str
    location: str
    key: str
    shape: Shape


@functools.cache
def _addresses(service: str) -> Mapping[str, list[tuple[re.Pattern[str], list[_Address]]]]:
    """Return the operations of a REST service by method and path.

    An operation with more requirements and fewer gaps comes first.
    """
    found: dict[str, dict[str, list[_Address]]] = {}
    model = service_model(service)
    for name in model.operation_names:
        operation = model.operation_model(name)
        if operation.deprecated or (service, name) in _NOT_BY_ADDRESS:
            continue
        path, _, query = operation.http["requestUri"].partition("?")
        # A client of S3 in this process takes the bucket out of the path in the shared model, and keeps it here, where
        # the sub-resource is missing instead.
        path = operation.http.get("authPath", path)
        required = _required(operation.input_shape)
        address = _Address(
            operation=name,
            literals={part.partition("=")[0]: part.partition("=")[2] for part in query.split("&") if part},
            query=frozenset(place.key for place in required if place.location == "querystring"),
            headers=frozenset(place.key for place in required if place.location == "header"),
        )
        found.setdefault(operation.http["method"], {}).setdefault(path.rstrip("/"), []).append(address)
    return {
        method: [
            (_pattern(path), sorted(paths[path], key=lambda address: -address.weight))
            for path in sorted(paths, key=lambda path: (path.count("{"), -len(path)))
        ]
        for method, paths in found.items()
    }


def _required(shape: Shape | None) -> list[_ParameterLocation]:
    if shape is None:
        return []
    return [place for place in _places(shape) if place.name in shape.required_members]


@functools.cache
def _places(shape: Shape) -> list[_ParameterLocation]:
    """Return the members of an input that do not stand in the body."""
    places = []
    for name, member in shape.members.items():  # type: ignore[attr-defined]
        location = member.serialization.get("location")
        if location in ("uri", "querystring", "header", "headers"):
            key = member.serialization.get("name", name)
            places.append(
                _ParameterLocation(
                    name=name,
                    location=location,
                    key=key.lower() if location.startswith("header") else key,
                    shape=member,
                )
            )
    return places


def _pattern(path: str) -> re.Pattern[str]:
    labels = re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(path))
    return re.compile(re.sub(r"\\\{(\w+)\\\+\\\}", r"(?P<\1>.+)", labels) + "/?", re.DOTALL)


def _read_rest(service: str, request: HttpRequest) -> tuple[str, dict[str, Any]]:
    operation, labels = _addressed(service, request)
    model = _model(service, operation)
    shape = model.input_shape
    if shape is None:
        return operation, {}
    parameters: dict[str, Any] = {}
    try:
        for place in _places(shape):
            if (value := _value_at(place, request, labels)) is not None:
                parameters[place.name] = value
    except UnreadableParameterError as error:
        raise _UnreadableError(str(error), operation=operation) from error
    parameters.update(_in_body(model, request.body))
    return operation, parameters


def _addressed(service: str, request: HttpRequest) -> tuple[str, Mapping[str, str]]:
    """Return the operation at an address and the labels in its path."""
    for pattern, addresses in _addresses(service).get(request.method, []):
        if (match := pattern.fullmatch(request.path)) is None:
            continue
        fitting = [address for address in addresses if address.fits(request)]
        if len(fitting) > 1 and fitting[0].weight == fitting[1].weight:
            both = f"{fitting[0].operation} and {fitting[1].operation}"
            raise _UnreadableError(f"{request.method} {request.path} may ask {service} for {both}.")
        if fitting:
            return fitting[0].operation, {name: unquote(text) for name, text in match.groupdict().items()}
    raise _UnreadableError(f"{service} has no operation for {request.method} {request.path}.")


def _value_at(place: _ParameterLocation, request: HttpRequest, labels: Mapping[str, str]) -> Any:
    if place.location == "uri":
        return read_scalar(labels[place.key], place.shape, place.name)
    if place.location == "header":
        text = request.headers.get(place.key)
        if text is not None and place.shape.type_name == "list":
            return [item.strip() for item in text.split(",")]
        return None if text is None else read_scalar(text, place.shape, place.name)
    if place.location == "headers":
        prefixed = {name: text for name, text in request.headers.items() if name.startswith(place.key)}
        return {name.removeprefix(place.key): text for name, text in prefixed.items()} or None
    texts = request.query.get(place.key)
    if not texts:
        return None
    if place.shape.type_name == "list":
        return [read_scalar(text, place.shape.member, place.name) for text in texts]  # type: ignore[attr-defined]
    return read_scalar(texts[0], place.shape, place.name)


def _in_body(model: OperationModel, body: bytes) -> dict[str, Any]:
    shape = model.input_shape
    if not body or shape is None:
        return {}
    payload = shape.serialization.get("payload")
    within = shape if payload is None else shape.members[payload]
    if within.type_name in ("blob", "string"):
        return {}
    if model.service_model.resolved_protocol == "rest-json":
        document = _json_object(body, model.name)
    else:
        try:
            document = _xml_value(ET.fromstring(body), within)  # noqa: S314 - a request of this machine's own clients
        except (ET.ParseError, UnreadableParameterError) as error:
            raise _UnreadableError(f"The body cannot be read: {error}.", operation=model.name) from error
    return document if payload is None else {payload: document}


def _xml_value(element: ET.Element, shape: Shape) -> Any:
    if shape.type_name == "structure":
        read = {}
        for name, member in shape.members.items():  # type: ignore[attr-defined]
            flattened = member.type_name == "list" and member.serialization.get("flattened")
            wire = (member.member.serialization.get("name") if flattened else None) or name
            found = element.findall(f"{{*}}{member.serialization.get('name', wire)}")
            if found and flattened:
                read[name] = [_xml_value(item, member.member) for item in found]
            elif found:
                read[name] = _xml_value(found[0], member)
        return read
    if shape.type_name == "list":
        return [_xml_value(item, shape.member) for item in element]  # type: ignore[attr-defined]
    return read_scalar(element.text or "", shape, shape.name)


_READERS: Final[Mapping[str, Callable[[str, HttpRequest], tuple[str, dict[str, Any]]]]] = {
    "ec2": _read_query,
    "json": _read_json,
    "query": _read_query,
    "rest-json": _read_rest,
    "rest-xml": _read_rest,
}
