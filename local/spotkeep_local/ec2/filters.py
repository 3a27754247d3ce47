"""Filters and pages, as the Describe operations of EC2 take them: pure functions."""

from __future__ import annotations

import base64
import fnmatch
from typing import TYPE_CHECKING, Any, TypeVar

from spotkeep_local.ec2.errors import invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_Resource = TypeVar("_Resource")


def matches(values: Mapping[str, Sequence[str]], tags: Mapping[str, str], filters: Sequence[Mapping[str, Any]]) -> bool:
    """Returns whether a resource passes every filter; the values of one filter are alternatives, with `*` and `?`.

    Args:
        values: The resource's values by filter.
        tags: Its tags, for `tag:<key>` and `tag-key`.
        filters: `{"Name": ..., "Values": [...]}`.

    Raises:
        Ec2Error: The local AWS has no such filter for this kind of resource.
    """
    return all(
        any(fnmatch.fnmatchcase(found, wanted) for found in _values(item["Name"], values, tags) for wanted in wanted_of)
        for item in filters
        for wanted_of in [[_pattern(value) for value in item.get("Values", [])]]
    )


def _values(name: str, values: Mapping[str, Sequence[str]], tags: Mapping[str, str]) -> Sequence[str]:
    if name.startswith("tag:"):
        key = name.removeprefix("tag:")
        return [tags[key]] if key in tags else []
    if name == "tag-key":
        return list(tags)
    if name not in values:
        raise invalid(f"The filter '{name}' is invalid")
    return values[name]


def _pattern(value: str) -> str:
    # EC2 knows * and ? alone; brackets stand for themselves.
    return value.replace("[", "[[]")


def page(
    resources: Sequence[_Resource], request: Mapping[str, Any], *, key: Callable[[_Resource], str]
) -> tuple[list[_Resource], str | None]:
    """Returns one page of resources, and the token for the next.

    A token names the last resource of the page, so that resources which come or go between two pages shift nothing.
    """
    ordered = sorted(resources, key=key)
    if token := request.get("NextToken"):
        last = _read_token(token)
        ordered = [resource for resource in ordered if key(resource) > last]
    limit = request.get("MaxResults") or len(ordered)
    chosen = ordered[:limit]
    more = len(ordered) > len(chosen)
    return chosen, base64.urlsafe_b64encode(key(chosen[-1]).encode()).decode() if more and chosen else None


def _read_token(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except ValueError as error:
        raise invalid("The NextToken is not valid") from error
