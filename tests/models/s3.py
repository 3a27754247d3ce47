"""S3 in memory: the objects of the checkpoint bucket, spelled as boto3's client."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final

from tests.models.faults import Called

BUCKET: Final = "checkpoints"
_KEYS_A_PAGE: Final = 1_000


class Objects:
    """The checkpoint bucket.

    Attributes:
        written: When each object was written, by key.
    """

    def __init__(self, called: Called) -> None:
        self._called = called
        self.written: dict[str, datetime] = {}

    def get_paginator(self, operation: str) -> Objects:
        assert operation == "list_objects_v2"
        return self

    def paginate(self, *, Bucket: str, Prefix: str, Delimiter: str | None = None) -> Iterator[Any]:  # noqa: N803
        for first in itertools.count(0, _KEYS_A_PAGE):
            page = self._called("ListObjectsV2", functools.partial(self._page, Prefix, Delimiter, first))
            yield page
            if not page["IsTruncated"]:
                return

    def _page(self, prefix: str, delimiter: str | None, first: int) -> dict[str, Any]:
        keys = sorted(key for key in self.written if key.startswith(prefix))
        if delimiter is not None:
            folders = sorted({key[: key.index(delimiter, len(prefix)) + 1] for key in keys})
            found: list[dict[str, Any]] = [{"Prefix": folder} for folder in folders]
            return {
                "CommonPrefixes": found[first : first + _KEYS_A_PAGE],
                "IsTruncated": first + _KEYS_A_PAGE < len(found),
            }
        contents = [{"Key": key, "Size": 1_000_000, "LastModified": self.written[key]} for key in keys]
        return {
            "Contents": contents[first : first + _KEYS_A_PAGE],
            "IsTruncated": first + _KEYS_A_PAGE < len(contents),
        }
