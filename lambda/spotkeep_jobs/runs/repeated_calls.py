"""Recognizes a call that its client repeats by its document, so that all its tries are one launch.

The AWS CLI and the SDKs repeat a call by themselves when a connection breaks. AWS Lambda repeats an asynchronous
invocation that failed. Each try of a client has a request id of its own. Those of AWS Lambda share one.
So a document says by its `token`, or by its `run`, that two calls are one launch. Pure.

Source: https://docs.aws.amazon.com/lambda/latest/dg/invocation-retries.html
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from spotkeep_jobs.record.caller import Caller

REPEATED_WITHIN: Final = timedelta(hours=1)
"""How long a document with a `run` and without a token is taken for the same call again. Afterwards its `run` is taken.

Longer than a client tries: the AWS CLI waits a minute for each of its five tries, unless an option has it wait longer.
"""
MAY_LAUNCH_AGAIN: Final = (
    "has neither `run` nor `token`: a client that repeats this call launches another one, and the AWS CLI and SDKs "
    "repeat by themselves when a connection breaks. Give a `token`, a new one for each launch; `spotkeep ps` shows "
    "what was launched"
)
"""The warning about a launch that a repeated call would make again."""
MAY_EXTEND_AGAIN: Final = (
    "a client that repeats this call extends the pool once more. Give `kept_until`, the time at which you saw it end: "
    "`for` is then added to that"
)
"""The warning about a pool that a repeated call would extend again."""


def launches_again(document: Mapping[str, Any]) -> bool:
    """Return whether a second call with the same document launches a second time."""
    return document.get("token") is None and document.get("run") is None


def named_without_token(document: Mapping[str, Any]) -> bool:
    """Return whether `run` alone says that two calls are one launch."""
    return document.get("token") is None and document.get("run") is not None


def token_of_call(document: object, *, request_id: str, caller: Caller | None) -> str:
    """Return the token of a document that has none.

    Args:
        document: Of any type.
        request_id: AWS Lambda's id of the invocation.
        caller: The caller, where it is known.

    Returns:
        Of a document with `run` the same for each call with the same document of the same caller; of any other the
        request id, which the tries of one asynchronous invocation share.
    """
    if not isinstance(document, Mapping) or not named_without_token(document):
        return request_id
    call = [None if caller is None else caller.arn, document]
    return hashlib.sha256(json.dumps(call, sort_keys=True, default=str).encode()).hexdigest()


def is_repeated(*, launched_at: datetime, now: datetime) -> bool:
    """Return whether a document with `run` and without a token comes soon enough to be the same call."""
    return now - launched_at <= REPEATED_WITHIN
