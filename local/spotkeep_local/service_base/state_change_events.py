"""State-change events on their way to EventBridge, with the faults that AWS does not rule out.

AWS may send an event twice, late or never, and promises no order. Faults make each of these happen on demand.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import random
import threading
import time
from typing import TYPE_CHECKING, Any, TypeAlias

from spotkeep_local.capacity import SHUFFLE_SECONDS, EventFaults

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_LOG = logging.getLogger(__name__)


PublishEvent: TypeAlias = "Callable[[dict[str, Any], str, list[str]], None]"
"""Puts one event, by detail, detail type and resources, on the default bus. Returns once the bus has it."""


def delays(faults: EventFaults, chance: random.Random) -> Iterator[float]:
    """Yield how late each copy of one event is, in seconds. Nothing when the event is lost."""
    if faults.drop and chance.random() < faults.drop:
        return
    for _ in range(2 if faults.duplicate else 1):
        yield faults.delay_seconds + (chance.uniform(0, SHUFFLE_SECONDS) if faults.shuffle else 0.0)


class StateChangeEvents:
    """A queue of events and the thread that publishes each when it is due.

    Args:
        publish: Puts one event on the bus. Called from the queue's own thread.
    """

    def __init__(self, publish: PublishEvent) -> None:
        self._publish = publish
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, tuple[dict[str, Any], str, list[str]]]] = []
        self._numbers = itertools.count()
        self._stopped = False
        self.set_faults(EventFaults())
        self._thread = threading.Thread(target=self._run, name="state-change-events", daemon=True)

    def set_faults(self, faults: EventFaults) -> None:
        """Set the faults of events that are sent from now on."""
        with self._changed:
            self._faults = faults
            self._chance = random.Random(faults.seed)  # noqa: S311 - a repeatable choice, no secret

    def start(self) -> None:
        """Begin to publish."""
        self._thread.start()

    def stop(self) -> None:
        """Drop all events that are not due yet, and end."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread.is_alive():
            self._thread.join()

    def send(self, detail: dict[str, Any], detail_type: str, resources: list[str]) -> None:
        """Take one event. Return at once."""
        with self._changed:
            for delay_seconds in delays(self._faults, self._chance):
                due_at = time.monotonic() + delay_seconds
                event = (detail, detail_type, resources)
                heapq.heappush(self._due, (due_at, next(self._numbers), event))
            self._changed.notify()

    def _run(self) -> None:
        while (event := self._next()) is not None:
            try:
                self._publish(*event)
            except Exception:  # noqa: BLE001 - one undeliverable event must not silence all that follow
                _LOG.exception("a state-change event was not published")

    def _next(self) -> tuple[dict[str, Any], str, list[str]] | None:
        with self._changed:
            while not self._stopped:
                if not self._due:
                    self._changed.wait()
                elif (seconds := self._due[0][0] - time.monotonic()) > 0:
                    self._changed.wait(seconds)
                else:
                    return heapq.heappop(self._due)[2]
            return None
