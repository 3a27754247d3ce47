"""How Batch answers lists: page by page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from spotkeep_local.batch.errors import ClientError

LONGEST_PAGE: Final = 100


def page(items: Sequence[Any], request: Mapping[str, Any], *, member: str) -> dict[str, Any]:
    """Return one page of an answer.

    Args:
        items: All of them, described, in their order.
        request: With maxResults, from 1 to 100, and nextToken.
        member: Of the answer, that holds them.

    Raises:
        ClientError: One of the two is not valid.
    """
    token, size = request.get("nextToken", "0"), request.get("maxResults", LONGEST_PAGE)
    if not token.isdecimal():
        raise ClientError(f"nextToken is not one of this list: {token!r}")
    if not 1 <= size <= LONGEST_PAGE:
        raise ClientError(f"maxResults must be from 1 to {LONGEST_PAGE}, found {size}")
    start = int(token)
    end = start + size
    return {member: list(items[start:end]), "nextToken": str(end) if end < len(items) else None}
