"""What Batch answers when it refuses.

Source: "Common Error Types" and the operations' pages in the AWS Batch API reference.
"""

from __future__ import annotations

from spotkeep_local.service_base.aws_service import ServiceError


class ClientError(ServiceError):
    """The request is not valid, or names something that does not exist."""

    code = "ClientException"


class TooManyRequestsError(ServiceError):
    """An operation was called more often than the account may."""

    code = "TooManyRequestsException"
    status = 429
