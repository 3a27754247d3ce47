"""Reads an invocation: the payload itself, or the event of the function's URL, whose body is the same payload.

An event that AWS made for the URL says who signed the request. Who may invoke the function directly can write the same
event by hand, so it proves the caller only where no user may (the setting `verify_callers`).

Source: https://docs.aws.amazon.com/lambda/latest/dg/urls-invocation.html#urls-payloads
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.errors import Problem, RequestRefusedError
from spotkeep_jobs.record.caller import Caller
from spotkeep_jobs.runs.callers import unknown_caller

MOST_BODY_BYTES: Final = 1_048_576
"""More than any document that a run's record could hold: DynamoDB takes 400 kB an item."""


@dataclass(frozen=True, kw_only=True)
class LauncherInvocation:
    """What is asked for, and by whom.

    Attributes:
        payload: A job document or an action, of any JSON type.
        caller: Who calls; None where the event does not say.
    """

    payload: object
    caller: Caller | None


def came_by_url(event: object) -> bool:
    """Return whether an event has the shape of those that AWS makes for a function URL."""
    return isinstance(event, Mapping) and isinstance(_inside(event, "requestContext", "http"), Mapping)


def read_invocation(event: object, *, verify_callers: bool) -> LauncherInvocation:
    """Read an event.

    Args:
        event: What the function was invoked with, of any JSON type.
        verify_callers: Whether users reach the function by its URL alone.

    Raises:
        RequestRefusedError: It holds no payload, or names no caller where one is needed.
    """
    caller = None
    if came_by_url(event):
        arn = _inside(event, "requestContext", "authorizer", "iam", "userArn")
        caller = Caller.of(arn, verified=verify_callers)
    if verify_callers and caller is None:
        raise RequestRefusedError([unknown_caller()])
    payload = _read_body(event) if came_by_url(event) else event
    return LauncherInvocation(payload=payload, caller=caller)


def http_answer(answer: Mapping[str, Any], *, status: int) -> dict[str, Any]:
    """Return what a function URL makes an HTTP answer of."""
    return {
        "statusCode": status,
        "headers": {"content-type": "application/json", "cache-control": "no-store"},
        "body": json.dumps(answer),
    }


def _read_body(event: Any) -> object:
    method = _inside(event, "requestContext", "http", "method")
    if method != "POST":
        raise _refused("(method)", shown(method), "is not POST", "Send the document as the body of a POST.")
    body = event.get("body")
    if not isinstance(body, str) or not body:
        raise _refused("(body)", "nothing", "is required", "Send the document, as JSON.")
    if len(body) > MOST_BODY_BYTES:
        raise _refused("(body)", f"{len(body):,} characters", "is larger than any document", "Send less than 1 MiB.")
    try:
        return json.loads(base64.b64decode(body, validate=True) if event.get("isBase64Encoded") is True else body)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        problem = f"is not JSON that can be read: {reason}"
        raise _refused("(body)", f"{len(body):,} characters", problem, "Send the document, as JSON.") from None


def _refused(field: str, found: str, problem: str, fix: str) -> RequestRefusedError:
    return RequestRefusedError([Problem(field=field, found=found, problem=problem, fix=fix)])


def _inside(value: object, *path: str) -> object:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value
