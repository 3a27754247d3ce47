"""What the training API answers when it refuses, and what ends a job early.

ApiError                 answered to the client as SageMaker answers it
├── ValidationError      ValidationException
├── ResourceInUseError   ResourceInUse
└── SerializationError   SerializationException
JobFailedError           a job that cannot go on; its text becomes the FailureReason
"""

from __future__ import annotations


class ApiError(Exception):
    """A refused request: `code` and the message go to the client with HTTP status 400."""

    code = "ValidationException"


class ValidationError(ApiError):
    """The request is not valid, or names something that does not exist."""

    @classmethod
    def of(cls, problems: list[str]) -> ValidationError:
        """All problems of one request at once, worded and counted as SageMaker does."""
        noun = "error" if len(problems) == 1 else "errors"
        return cls(f"{len(problems)} validation {noun} detected: {'; '.join(problems)}")

    @classmethod
    def not_found(cls) -> ValidationError:
        """A job that does not exist.

        The service model promises ResourceNotFound; the service answers this.
        Source: https://github.com/aws/aws-sdk/issues/165
        """
        return cls("Requested resource not found.")


class ResourceInUseError(ApiError):
    """The name is taken, or the job is in a state that does not allow the operation."""

    code = "ResourceInUse"


class SerializationError(ApiError):
    """The request body is not a JSON object, or a value has the wrong type."""

    code = "SerializationException"


class JobFailedError(Exception):
    """A job cannot go on. The text is the job's FailureReason, worded as SageMaker does."""
