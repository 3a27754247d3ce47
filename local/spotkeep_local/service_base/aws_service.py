"""The foundation of every service of the local AWS, a table of operations behind one of AWS's protocols.

`AwsService` takes a request from the router, finds its operation, and reads and checks its parameters. It then calls
the operation, and writes the answer or the error as AWS does. A `WireProtocol` covers the differences between AWS's
protocols. The two JSON protocols are here, EC2's own is `Ec2QueryProtocol` in `ec2.service`.

Reading and checking follow botocore's model of the service. A client checks types and minimum lengths before a request
leaves it. The service also checks patterns, enumerations and maxima, and names every problem at once.
"""

from __future__ import annotations

import asyncio
import functools
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol, Self
from urllib.parse import unquote

from spotkeep_local.errors import LocalAwsError
from spotkeep_local.service_base.clients import service_model
from spotkeep_local.service_base.error_answers import ErrorForm, error_answer
from spotkeep_local.service_base.model_check import WrongTypeError, check, problems_of_answer

if TYPE_CHECKING:
    from botocore.model import OperationModel, Shape

Answer = tuple[int, dict[str, str], bytes]
Operation = Callable[[dict[str, Any]], Mapping[str, Any]]


class ServiceError(Exception):
    """A refused request, as the service answers it.

    Args:
        message: The fault, as a sentence.
        code: AWS's error code. The class's own where none is given.
        status: The HTTP status. The class's own where none is given.
    """

    code = "ValidationException"
    status = 400

    def __init__(self, message: str, *, code: str | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.code = code or self.code
        self.status = status or self.status


class ValidationError(ServiceError):
    """The request is not valid, or names something that does not exist."""

    @classmethod
    def of(cls, problems: list[str]) -> Self:
        """Return all problems of one request at once, worded and counted as AWS does."""
        noun = "error" if len(problems) == 1 else "errors"
        return cls(f"{len(problems)} validation {noun} detected: {'; '.join(problems)}")


class SerializationError(ServiceError):
    """The request body is not a JSON object, or a value has the wrong type."""

    code = "SerializationException"


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """A request as the router hands it on.

    Attributes:
        headers: With lower-case names.
        query: The address's parameters, each with all of its values.
    """

    method: str = "POST"
    path: str = "/"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    query: Mapping[str, list[str]] = field(default_factory=dict)


class WireProtocol(Protocol):
    """The form of a service's requests and answers."""

    def operation(self, request: HttpRequest) -> str:
        """Return the name of the operation that is asked for, whether the local AWS has it or not.

        Raises:
            ServiceError: The request names none.
        """
        ...

    def parameters(self, operation: str, request: HttpRequest) -> dict[str, Any]:
        """Read and check the parameters. Timestamps become epoch seconds.

        Raises:
            ServiceError: They cannot be read, or break the model's constraints.
        """
        ...

    def answer(self, operation: str, answer: Mapping[str, Any]) -> Answer:
        """Write an answer."""
        ...

    def error(self, error: ServiceError) -> Answer:
        """Write an error."""
        ...

    def model(self, operation: str) -> OperationModel | None:
        """Return botocore's model of an operation. None for an operation that no model describes."""
        ...


class AwsService:
    """One service, which answers the operations in its table and refuses all others.

    Args:
        protocol: The form of the service's requests and answers.
        operations: The operations by name. Each takes the checked parameters and returns the answer, and may raise
            `ServiceError`.
        admit: Called with the operation's name before its parameters are read. Raises `ServiceError` to refuse it.
    """

    def __init__(
        self,
        protocol: WireProtocol,
        operations: Mapping[str, Operation],
        *,
        admit: Callable[[str], None] = lambda _operation: None,
    ) -> None:
        self.protocol = protocol
        self.operations = operations
        self._admit = admit

    async def handle_request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes, query_params: Mapping[str, list[str]]
    ) -> Answer:
        """Answer one request of the router.

        It works off the event loop, because an operation may ask S3, which is this server.
        """
        request = HttpRequest(method=method, path=path, headers=headers, body=body, query=query_params)
        return await asyncio.to_thread(self.answer, request)

    def answer(self, request: HttpRequest) -> Answer:
        """Answer one request."""
        try:
            operation = self.protocol.operation(request)
            self._check_table(operation)
            self._admit(operation)
            parameters = self.protocol.parameters(operation, request)
            answer = self.protocol.answer(operation, self.operations[operation](parameters))
            self._check_answer(operation, answer)
        except ServiceError as error:
            return self.protocol.error(error)
        return answer

    def _check_answer(self, operation: str, answer: Answer) -> None:
        """Refuse to give an answer that AWS cannot give. A test that passes on such an answer would fail on AWS."""
        model = self.protocol.model(operation)
        problems = [] if model is None else problems_of_answer(model, answer[2])
        if problems:
            raise ServiceError(
                f"the local AWS's answer to {operation} is none of AWS's: {'; '.join(problems)}",
                code="InternalFailure",
                status=500,
            )

    def _check_table(self, operation: str) -> None:
        if operation not in self.operations:
            raise ServiceError(f"the local AWS has no {operation}", code="UnknownOperationException")


class JsonProtocol:
    """AWS's JSON protocol, with the operation in a header, and parameters and answer in JSON bodies.

    Args:
        service: botocore's name of the service.
        target: The text before the operation's name in the header X-Amz-Target.
    """

    _CONTENT_TYPE = "application/x-amz-json-1.1"

    def __init__(self, service: str, *, target: str) -> None:
        self._service = service
        self.target = target

    def operation(self, request: HttpRequest) -> str:
        """Return the operation that the header X-Amz-Target names."""
        named = request.headers.get("x-amz-target", "")
        prefix, _, operation = named.rpartition(".")
        if prefix != self.target or not operation:
            raise ServiceError(
                f"the local AWS has no {named or 'operation without X-Amz-Target'}", code="UnknownOperationException"
            )
        return operation

    def parameters(self, operation: str, request: HttpRequest) -> dict[str, Any]:
        """Read and check the body."""
        return self.check(operation, _json_object(request.body))

    def check(self, operation: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Check parameters against the model, wherever they came from.

        Raises:
            SerializationError: A value has the wrong type.
            ValidationError: Values break the model's constraints. Names every one.
        """
        shape = self._model(operation).input_shape
        if shape is None:
            return {}
        try:
            checked, problems = check(parameters, shape)
        except WrongTypeError as error:
            raise SerializationError(str(error)) from error
        if problems:
            raise ValidationError.of(problems)
        assert isinstance(checked, dict)  # noqa: S101 - an input shape is a structure
        return checked

    def answer(self, operation: str, answer: Mapping[str, Any]) -> Answer:
        """Write the answer's members that the model knows. None is left out, and timestamps become epoch seconds."""
        shape = self._model(operation).output_shape
        return _json_answer(200, {} if shape is None else _shaped(answer, shape), self._CONTENT_TYPE)

    def error(self, error: ServiceError) -> Answer:
        """Write an error."""
        return error_answer(
            ErrorForm.JSON,
            code=error.code,
            message=error.message,
            status=error.status,
            content_type=self._CONTENT_TYPE,
        )

    def model(self, operation: str) -> OperationModel | None:
        """Return botocore's model of an operation."""
        return self._model(operation)

    def _model(self, operation: str) -> OperationModel:
        return service_model(self._service).operation_model(operation)


class RestJsonProtocol(JsonProtocol):
    """AWS's REST protocol, with method and path as the operation. Parameters stand in path, query and JSON body.

    Args:
        service: botocore's name of the service.
    """

    _CONTENT_TYPE = "application/json"

    def __init__(self, service: str) -> None:
        super().__init__(service, target="")

    def operation(self, request: HttpRequest) -> str:
        """Find the operation with this address."""
        for address in (_address, _open_address):
            for name in service_model(self._service).operation_names:
                http = self._model(name).http
                if http["method"] == request.method and address(http["requestUri"]).fullmatch(request.path):
                    return name
        raise ServiceError(f"the local AWS has no {request.method} {request.path} of {self._service}")

    def parameters(self, operation: str, request: HttpRequest) -> dict[str, Any]:
        """Read and check path, query and body."""
        given = _json_object(request.body)
        model = self._model(operation)
        match = _open_address(model.http["requestUri"]).fullmatch(request.path)
        for name, text in ({} if match is None else match.groupdict()).items():
            given[name] = unquote(text)
        for name, member in {} if model.input_shape is None else model.input_shape.members.items():
            if member.serialization.get("location") == "querystring":
                texts = request.query.get(member.serialization.get("name", name))
                if texts:
                    given[name] = texts if member.type_name == "list" else texts[0]
        return self.check(operation, given)


class ControlProtocol(JsonProtocol):
    """The protocol for the control of the local AWS, which no client of AWS has. It is JSON without a model.

    Args:
        target: The text before the operation's name in the header X-Amz-Target.
    """

    def __init__(self, target: str) -> None:
        super().__init__("", target=target)

    def parameters(self, operation: str, request: HttpRequest) -> dict[str, Any]:  # noqa: ARG002 - the protocol's
        """Read the body."""
        return _json_object(request.body)

    def answer(self, operation: str, answer: Mapping[str, Any]) -> Answer:  # noqa: ARG002 - the protocol's
        """Write an answer."""
        return _json_answer(200, answer, self._CONTENT_TYPE)

    def model(self, operation: str) -> None:
        """Return None, because no model describes operations that AWS does not have."""


def control_service(
    target: str, operations: Mapping[str, Operation], *, admit: Callable[[str], None] = lambda _operation: None
) -> AwsService:
    """Make the control plane of one part of the local AWS. Errors of its operations are answered as refusals.

    Args:
        target: The text before the operation's name in the header X-Amz-Target.
        operations: The operations by name. Each may raise `LocalAwsError`, `ServiceError` or ValueError.
        admit: Refuses operations, as for `AwsService`.
    """

    def refusing(operation: Operation) -> Operation:
        def answer(request: dict[str, Any]) -> Mapping[str, Any]:
            try:
                return operation(request)
            except (LocalAwsError, ValueError) as error:
                raise ServiceError(str(error)) from error

        return answer

    return AwsService(
        ControlProtocol(target), {name: refusing(operation) for name, operation in operations.items()}, admit=admit
    )


def page_of(found: Sequence[Any], request: Mapping[str, Any], *, member: str, longest: int) -> dict[str, Any]:
    """Return the answer of a list operation, with the requested page and the token of the next one.

    Args:
        found: The whole list.
        request: Has `NextToken` and `MaxResults`, where it asks for them.
        member: The member of the answer that holds the page.
        longest: The greatest number of items on a page.
    """
    first, size = int(request.get("NextToken", 0)), min(int(request.get("MaxResults", longest)), longest)
    more = {"NextToken": str(first + size)} if first + size < len(found) else {}
    return {member: found[first : first + size], **more}


def _json_object(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body or b"{}")
    except ValueError as error:
        raise SerializationError(f"The request body is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise SerializationError("The request body must be a JSON object")
    return document


def _json_answer(status: int, document: Any, content_type: str) -> Answer:
    return status, {"Content-Type": content_type}, json.dumps(document).encode()


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


@functools.cache
def _address(uri: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>[^/]+)", re.escape(uri)))


@functools.cache
def _open_address(uri: str) -> re.Pattern[str]:
    """Return the same pattern with slashes allowed in the last label.

    ARNs have slashes, and the router has decoded the path.
    """
    return re.compile(_address(uri).pattern.removesuffix("[^/]+)") + (".+)" if uri.endswith("}") else ""))
