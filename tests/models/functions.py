"""Lambda: what it hands a function; the launcher, whose asynchronous invocations wait until a test lets them come."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.models.faults import Called, Model

MOST_ANSWER_BYTES = 6 * 1024 * 1024
MOST_EVENT_BYTES = 1024 * 1024
"""Of an asynchronous invocation.

Source: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
"""


def answered(answer: object) -> Any:
    """What a caller gets of what a function returned, through a synchronous invocation."""
    payload = json.dumps(answer)
    assert len(payload) <= MOST_ANSWER_BYTES, "Function.ResponseSizeTooLarge"
    return json.loads(payload)


@dataclass
class Context:
    """What Lambda hands a function beside its event."""

    function_name: str = "spotkeep"
    aws_request_id: str = "5e1f8a52-2f0c-4a3e-9f65-0f3f6f0f1b7e"
    memory_limit_in_mb: int = 512
    remaining_milliseconds: int = 240_000

    @property
    def invoked_function_arn(self) -> str:
        return f"arn:aws:lambda:us-east-1:123456789012:function:{self.function_name}"

    def get_remaining_time_in_millis(self) -> int:
        return self.remaining_milliseconds


class Functions(Model):
    """The client of Lambda, and the invocations that wait.

    Attributes:
        waiting: What the launcher is to be invoked with, in the order of the calls.
    """

    def __init__(self, called: Called | None = None) -> None:
        super().__init__(called)
        self.waiting: list[dict[str, Any]] = []

    def invoke(self, *, FunctionName: str, InvocationType: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803
        assert (FunctionName, InvocationType) == ("spotkeep-launcher", "Event")
        assert len(Payload) <= MOST_EVENT_BYTES, "RequestEntityTooLargeException"
        self._call("Invoke", lambda: self.waiting.append(json.loads(Payload)))
        return {"StatusCode": 202}

    def deliver(self, handle: Callable[[dict[str, Any]], object]) -> None:
        """Let what waits come, each once, in its order; what it brings waits for the next time."""
        waiting, self.waiting = self.waiting, []
        for payload in waiting:
            handle(payload)
