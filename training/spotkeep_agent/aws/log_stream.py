"""The instance's log in CloudWatch: lines are gathered and sent every few seconds, in a thread of its own.

A log that cannot be sent never holds the training up: what does not fit is left out, and the log says how much.
Source: PutLogEvents, CloudWatch Logs API reference.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from typing import Any

from spotkeep_agent.errors import AgentError, AwsCallRefusedError

from .calls import AwsCalls

_TARGET = "Logs_20140328"
_MAX_LINES = 50_000
_MAX_BATCH_EVENTS = 5_000
_MAX_BATCH_BYTES = 900_000
_EVENT_BYTES = 26
_MAX_LINE_BYTES = 200_000

_logger = logging.getLogger("spotkeep.agent")


class LogStream:
    """One log stream.

    Args:
        calls: To CloudWatch Logs.
        group: The log group; None to send nothing.
        stream: The stream; it is made when it does not exist.
        seconds: Between two batches.
    """

    def __init__(
        self,
        calls: AwsCalls,
        *,
        group: str | None,
        stream: str,
        seconds: float = 5.0,
    ) -> None:
        self._calls = calls
        self._group = group
        self._stream = stream
        self._seconds = seconds
        self._lines: deque[tuple[int, str]] = deque()
        self._left_out = 0
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._work, name="log-stream", daemon=True)
        if group is not None:
            self._thread.start()

    def add(self, line: str) -> None:
        """Take one line."""
        if self._group is None or not line:
            return
        with self._lock:
            if len(self._lines) >= _MAX_LINES:
                self._left_out += 1
                return
            cut = line.encode()[:_MAX_LINE_BYTES].decode("utf-8", "ignore")
            self._lines.append((int(time.time() * 1000), cut))

    def close(self) -> None:
        """Send what is left."""
        self._stopping.set()
        self.flush()

    def flush(self) -> None:
        """Send what there is, now."""
        if self._group is None:
            return
        with self._sending:
            while True:
                batch = self._take()
                if not batch or not self._send(batch):
                    return

    def _work(self) -> None:
        while not self._stopping.wait(self._seconds):
            self.flush()

    def _take(self) -> list[tuple[int, str]]:
        batch: list[tuple[int, str]] = []
        size = 0
        with self._lock:
            if self._left_out and len(self._lines) < _MAX_LINES:
                self._lines.append((int(time.time() * 1000), f"spotkeep: {self._left_out} lines were left out here"))
                self._left_out = 0
            while self._lines and len(batch) < _MAX_BATCH_EVENTS:
                size += len(self._lines[0][1].encode()) + _EVENT_BYTES
                if batch and size > _MAX_BATCH_BYTES:
                    break
                batch.append(self._lines.popleft())
        return batch

    def _send(self, batch: list[tuple[int, str]]) -> bool:
        request: dict[str, Any] = {
            "logGroupName": self._group,
            "logStreamName": self._stream,
            "logEvents": [{"timestamp": at, "message": line} for at, line in batch],
        }
        try:
            try:
                self._calls.json("logs", f"{_TARGET}.PutLogEvents", request, version="1.1")
            except AwsCallRefusedError as error:
                if error.code != "ResourceNotFoundException":
                    raise
                self._make_stream()
                self._calls.json("logs", f"{_TARGET}.PutLogEvents", request, version="1.1")
        except AgentError as error:
            _logger.debug("lines were not sent: %s", error)
            with self._lock:
                kept = batch[: max(_MAX_LINES - len(self._lines), 0)]
                self._left_out += len(batch) - len(kept)
                self._lines.extendleft(reversed(kept))
            return False
        return True

    def _make_stream(self) -> None:
        names = {"logGroupName": self._group, "logStreamName": self._stream}
        try:
            self._calls.json("logs", f"{_TARGET}.CreateLogStream", names, version="1.1")
        except AwsCallRefusedError as error:
            if error.code != "ResourceAlreadyExistsException":
                raise
