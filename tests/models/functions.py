"""Lambda with the launcher in it: asynchronous invocations wait until a test lets them come."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.models.faults import Called, Model


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
        self._call("Invoke", lambda: self.waiting.append(json.loads(Payload)))
        return {"StatusCode": 202}

    def deliver(self, handle: Callable[[dict[str, Any]], object]) -> None:
        """Let what waits come, each once, in its order; what it brings waits for the next time."""
        waiting, self.waiting = self.waiting, []
        for payload in waiting:
            handle(payload)
