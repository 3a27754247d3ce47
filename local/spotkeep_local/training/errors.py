"""The training API's refusals, and the errors that end a job early."""

from __future__ import annotations

from spotkeep_local.service_base.aws_service import ServiceError, ValidationError


def not_found() -> ValidationError:
    """Return a job that does not exist.

    The service model promises ResourceNotFound. The service answers this.
    Source: https://github.com/aws/aws-sdk/issues/165
    """
    return ValidationError("Requested resource not found.")


class ResourceInUseError(ServiceError):
    """The name is taken, or the job is in a state that does not allow the operation."""

    code = "ResourceInUse"


class ResourceLimitExceededError(ServiceError):
    """The account's quota has no room for a job's instances.

    Args:
        quota: Its name in Service Quotas.
        limit: The number of instances that it allows.
        used: The number of instances that jobs use now.
        asked: The number of instances that the job needs.
    """

    code = "ResourceLimitExceeded"

    def __init__(self, quota: str, *, limit: int, used: int, asked: int) -> None:
        super().__init__(
            f"The account-level service limit '{quota}' is {limit} Instances, with current utilization of {used} "
            f"Instances and a request delta of {asked} Instances. Please use AWS Service Quotas to request an increase "
            "for this quota."
        )


class JobFailedError(Exception):
    """A job cannot go on. The text is the job's FailureReason, worded as SageMaker does."""
