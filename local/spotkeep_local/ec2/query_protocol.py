"""EC2's query protocol, with form parameters in and XML out, as botocore's model of the service describes both.

Source: botocore's `EC2Serializer` and `EC2QueryParser`, the counterparts of this module.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import escape

from spotkeep_local.ec2.errors import Ec2Error, invalid, missing
from spotkeep_local.service_base.error_answers import ErrorForm, error_answer
from spotkeep_local.service_base.model_check import WrongTypeError, check
from spotkeep_local.service_base.query_parameters import (
    UnreadableParameterError,
    form_parameters,
    read_query_parameters,
)
from spotkeep_local.service_base.service_models import service_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import OperationModel, Shape

    from spotkeep_local.service_base.aws_service import Answer, HttpRequest, ServiceError

_NAMESPACE = "http://ec2.amazonaws.com/doc/2016-11-15/"
_HEADERS = {"Content-Type": "text/xml;charset=UTF-8"}
_PROTOCOL_PARAMETERS = frozenset({"Action", "Version"})


class Ec2QueryProtocol:
    """The `WireProtocol` of EC2."""

    def operation(self, request: HttpRequest) -> str:
        """Return the parameter Action."""
        return form_parameters(request).get("Action", "")

    def parameters(self, operation: str, request: HttpRequest) -> dict[str, Any]:
        """Read and check the form's parameters. Timestamps become epoch seconds.

        Raises:
            Ec2Error: A parameter is unknown, missing, of the wrong type or breaks a constraint of the model.
        """
        form = {name: text for name, text in form_parameters(request).items() if name not in _PROTOCOL_PARAMETERS}
        shape = _model(operation).input_shape
        try:
            given, unread = read_query_parameters(shape, form, ec2=True) if shape else ({}, set(form))
        except UnreadableParameterError as error:
            raise invalid(str(error)) from error
        if unread:
            raise Ec2Error("UnknownParameter", f"The parameter {', '.join(sorted(unread))} is not recognized")
        if shape is None:
            return {}
        for name in shape.required_members:
            if given.get(name) is None:
                raise missing(name)
        try:
            checked, problems = check(given, shape)
        except WrongTypeError as error:
            raise invalid(str(error)) from error
        if problems:
            raise invalid("; ".join(problems))
        assert isinstance(checked, dict)  # noqa: S101 - an input shape is a structure
        return checked

    def answer(self, operation: str, answer: Mapping[str, Any]) -> Answer:
        """Write an answer as XML. A field that the model does not know is an error of ours, and raise KeyError."""
        shape = _model(operation).output_shape
        inner = "<return>true</return>" if shape is None else _members(answer, shape)
        document = (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<{operation}Response xmlns="{_NAMESPACE}">'
            f"<requestId>{uuid.uuid4()}</requestId>{inner}</{operation}Response>"
        )
        return 200, dict(_HEADERS), document.encode()

    def error(self, error: ServiceError) -> Answer:
        """Write an error as XML."""
        return error_answer(ErrorForm.EC2, code=error.code, message=error.message, status=error.status)

    def model(self, operation: str) -> OperationModel:
        """Return botocore's model of an operation."""
        return _model(operation)


def _model(operation: str) -> OperationModel:
    return service_model("ec2").operation_model(operation)


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
