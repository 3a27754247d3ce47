"""The EC2 API's errors."""

from __future__ import annotations

from spotkeep_local.service_base.aws_service import ServiceError


class Ec2Error(ServiceError):
    """A refused request.

    Args:
        code: EC2's error code, for example `InvalidVolume.NotFound`.
        message: The fault, as a sentence.
        status: The HTTP status.

    Source: "Error codes for the Amazon EC2 API" in Amazon EC2's developer guide.
    """

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(message, code=code, status=status)


def invalid(message: str) -> Ec2Error:
    """Return the error for a value that EC2 does not take."""
    return Ec2Error("InvalidParameterValue", message)


def missing(parameter: str) -> Ec2Error:
    """Return the error for a required parameter that is not there."""
    return Ec2Error("MissingParameter", f"The request must contain the parameter {parameter}")
