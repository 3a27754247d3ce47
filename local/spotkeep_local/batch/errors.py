"""Batch's answers to refused requests.

Source: "Common Error Types" and the operations' pages in the AWS Batch API reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_local.service_base.aws_service import ServiceError

if TYPE_CHECKING:
    from collections.abc import Iterable


class ClientError(ServiceError):
    """The request is not valid, or names something that does not exist."""

    code = "ClientException"


def refuse(problems: Iterable[str]) -> None:
    """Raise a `ClientError` that names every problem, if there is any."""
    if found := list(problems):
        raise ClientError("; ".join(found))
