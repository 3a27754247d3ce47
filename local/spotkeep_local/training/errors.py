"""What the training API answers when it refuses, and what ends a job early."""

from __future__ import annotations

from spotkeep_local.service_base.aws_service import ServiceError, ValidationError


def not_found() -> ValidationError:
    """Return a job that does not exist.

    The service model promises ResourceNotFound; the service answers this.
    Source: https://github.com/aws/aws-sdk/issues/165
    """
    return ValidationError("Requested resource not found.")


class ResourceInUseError(ServiceError):
    """The name is taken, or the job is in a state that does not allow the operation."""

    code = "ResourceInUse"


class JobFailedError(Exception):
    """A job cannot go on. The text is the job's FailureReason, worded as SageMaker does."""
