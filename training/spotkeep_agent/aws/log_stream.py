"""The instance's log in CloudWatch. A thread of its own sends gathered lines every few seconds.

The training never waits for the log. Lines without room are dropped, and the log says how many.
Source: PutLogEvents, CloudWatch Logs API reference.
"""

from __future__ import annotations

import logging
import threading
import time
from bisect import bisect_right
from collections import deque
from itertools import accumulate
from typing import Any

from spotkeep_agent.errors import AgentError, AwsCallRefusedError

from .calls import AwsCalls

_TARGET = "Logs_20140328"
_MAX_LINES = 50_000
_MAX_BYTES = 64 * 2**20
"""The limit of all waiting lines, 50,000 of 1.3 kB. The training has all other memory of the instance."""
_MAX_BATCH_EVENTS = 5_000
_MAX_BATCH_BYTES = 900_000
_EVENT_BYTES = 26
_MAX_LINE_BYTES = 200_000

_logger = logging.getLogger("spotkeep.agent")


class LogStream:
    """One log stream.

    Args:
        calls: To CloudWatch Logs.
        group: The log group, or None to send nothing.
        stream: The stream, made if missing.
        seconds: Seconds between two batches.
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
        self._lines: deque[tuple[int, bytes]] = deque()
        self._waiting_bytes = 0
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
        # As bytes: a text with one character beyond Latin-1 takes up to four times as much.
        raw = line[:_MAX_LINE_BYTES].encode("utf-8", "replace")[:_MAX_LINE_BYTES]
        with self._lock:
            if not self._has_room(raw):
                self._left_out += 1
                return
            self._put_last(raw)

    def close(self) -> None:
        """Send the remaining lines."""
        self._stopping.set()
        self.flush()

    def flush(self) -> None:
        """Send all waiting lines now."""
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

    def _take(self) -> list[tuple[int, bytes]]:
        batch: list[tuple[int, bytes]] = []
        size = 0
        with self._lock:
            note = f"spotkeep: {self._left_out} lines were left out here".encode()
            if self._left_out and self._has_room(note):
                self._put_last(note)
                self._left_out = 0
            while self._lines and len(batch) < _MAX_BATCH_EVENTS:
                size += len(self._lines[0][1]) + _EVENT_BYTES
                if batch and size > _MAX_BATCH_BYTES:
                    break
                batch.append(self._lines.popleft())
                self._waiting_bytes -= len(batch[-1][1])
        return batch

    def _has_room(self, raw: bytes) -> bool:
        return len(self._lines) < _MAX_LINES and self._waiting_bytes + len(raw) <= _MAX_BYTES

    def _put_back(self, batch: list[tuple[int, bytes]]) -> None:
        """Put lines back in front of the waiting ones. The last of them are dropped when there is no room."""
        ends = list(accumulate((len(raw) for _, raw in batch), initial=self._waiting_bytes))
        kept = min(bisect_right(ends, _MAX_BYTES) - 1, _MAX_LINES - len(self._lines))
        self._left_out += len(batch) - kept
        self._lines.extendleft(reversed(batch[:kept]))
        self._waiting_bytes = ends[kept]

    def _put_last(self, raw: bytes) -> None:
        self._lines.append((int(time.time() * 1000), raw))
        self._waiting_bytes += len(raw)

    def _send(self, batch: list[tuple[int, bytes]]) -> bool:
        request: dict[str, Any] = {
            "logGroupName": self._group,
            "logStreamName": self._stream,
            "logEvents": [{"timestamp": at, "message": raw.decode("utf-8", "ignore")} for at, raw in batch],
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
                self._put_back(batch)
            return False
        return True

    def _make_stream(self) -> None:
        names = {"logGroupName": self._group, "logStreamName": self._stream}
        try:
            self._calls.json("logs", f"{_TARGET}.CreateLogStream", names, version="1.1")
        except AwsCallRefusedError as error:
            if error.code != "ResourceAlreadyExistsException":
                raise
