"""Filters, as the Describe operations of EC2 take them, in pure functions."""

from __future__ import annotations

import fnmatch
import math
from typing import TYPE_CHECKING, Any, TypeVar

from spotkeep_local.ec2.errors import invalid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_Resource = TypeVar("_Resource")


def matches(values: Mapping[str, Sequence[str]], tags: Mapping[str, str], filters: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a resource passes every filter. The values of one filter are alternatives, with `*` and `?`.

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


def in_one_page(found: list[_Resource], request: Mapping[str, Any]) -> list[_Resource]:
    """Return the found resources as an answer's only page, because no caller asks for several pages.

    Raises:
        Ec2Error: The request's MaxResults is less than their number, or it has a NextToken.
    """
    if request.get("NextToken") or len(found) > request.get("MaxResults", math.inf):
        raise invalid(f"The local AWS answers in one page: leave MaxResults out, or ask for {len(found)} and more")
    return found
