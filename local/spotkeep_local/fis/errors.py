"""What FIS answers when it refuses."""

from __future__ import annotations


class FisError(Exception):
    """A refused request: `code` and the message go to the client."""

    code = "ValidationException"
    status = 400


class NotFoundError(FisError):
    """A template or an experiment that does not exist."""

    code = "ResourceNotFoundException"
    status = 404


class ConflictError(FisError):
    """A client token that comes again with another request, or an experiment that has ended."""

    code = "ConflictException"
    status = 409
