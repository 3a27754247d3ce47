"""What the EC2 API answers when it refuses."""

from __future__ import annotations


class Ec2Error(Exception):
    """A refused request.

    Args:
        code: EC2's error code, for example `InvalidVolume.NotFound`.
        message: What is wrong.
        status: The HTTP status.

    Source: "Error codes for the Amazon EC2 API" in Amazon EC2's developer guide.
    """

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def invalid(message: str) -> Ec2Error:
    """A value that EC2 does not take."""
    return Ec2Error("InvalidParameterValue", message)


def wrong_combination(message: str) -> Ec2Error:
    """Parameters that do not go together."""
    return Ec2Error("InvalidParameterCombination", message)


def missing(parameter: str) -> Ec2Error:
    """A parameter that has to be there."""
    return Ec2Error("MissingParameter", f"The request must contain the parameter {parameter}")
