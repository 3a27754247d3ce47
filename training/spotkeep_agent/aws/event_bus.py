"""Events from an instance to EventBridge. The controller reacts at once, instead of at its next pass."""

from __future__ import annotations

import json
import logging
from typing import Any

from spotkeep_agent.errors import AgentError

from .calls import AwsCalls

SOURCE = "spotkeep.agent"
DETAIL_TYPE = "Spotkeep Instance Change"

_logger = logging.getLogger("spotkeep.agent")


class EventBus:
    """One bus, and the common fields of all events.

    Args:
        calls: To EventBridge.
        bus: Its name, or None to send nothing.
        about: Fields of every event: run, attempt, instance_id, zone, instance_type.
    """

    def __init__(self, calls: AwsCalls, *, bus: str | None, about: dict[str, Any]) -> None:
        self._calls = calls
        self._bus = bus
        self._about = about

    def put(self, event: str, **fields: Any) -> None:
        """Send one event. The log names a failure, and the next pass of the controller reads the record anyway."""
        if self._bus is None:
            return
        entry = {
            "Source": SOURCE,
            "DetailType": DETAIL_TYPE,
            "Detail": json.dumps({**self._about, "event": event, **fields}),
            "EventBusName": self._bus,
        }
        try:
            self._calls.json("events", "AWSEvents.PutEvents", {"Entries": [entry]}, version="1.1")
        except AgentError as error:
            _logger.warning("EventBridge did not get %s: %s", event, error)
