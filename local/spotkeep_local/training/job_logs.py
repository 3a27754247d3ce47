"""What a job prints, in CloudWatch Logs: `/aws/sagemaker/TrainingJobs`, one stream a job and host."""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

_LOG = logging.getLogger(__name__)

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_BATCH_LINES = 1000
_BATCH_SECONDS = 0.1
_LINE_BYTES = 200_000
_GONE = "ResourceNotFoundException"
_EXISTS = "ResourceAlreadyExistsException"


class JobLogWriter:
    """Ships lines to one log stream in the background, in order, within fractions of a second.

    Args:
        client: A boto3 CloudWatch Logs client.
        stream: The stream's name.
    """

    def __init__(self, *, client: Any, stream: str) -> None:
        self._client = client
        self._stream = stream
        self._lines: queue.SimpleQueue[tuple[int, str] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._ship, name=f"logs-{stream}", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Take one line; return at once."""
        # CloudWatch Logs refuses empty messages.
        message = line.encode()[:_LINE_BYTES].decode(errors="ignore") or " "
        self._lines.put((int(time.time() * 1000), message))

    def close(self) -> None:
        """Wait until every line is in CloudWatch Logs."""
        self._lines.put(None)
        self._thread.join()

    def _ship(self) -> None:
        self._make_stream()
        while True:
            batch, over = self._next_batch()
            if batch:
                self._put(batch)
            if over:
                return

    def _next_batch(self) -> tuple[list[tuple[int, str]], bool]:
        entry = self._lines.get()
        batch: list[tuple[int, str]] = []
        until = time.monotonic() + _BATCH_SECONDS
        while entry is not None:
            batch.append(entry)
            if len(batch) == _BATCH_LINES:
                return batch, False
            try:
                entry = self._lines.get(timeout=max(0.0, until - time.monotonic()))
            except queue.Empty:
                return batch, False
        return batch, True

    def _put(self, batch: list[tuple[int, str]]) -> None:
        events = [{"timestamp": timestamp, "message": message} for timestamp, message in batch]
        try:
            try:
                self._client.put_log_events(logGroupName=LOG_GROUP, logStreamName=self._stream, logEvents=events)
            except ClientError as error:
                if error.response["Error"]["Code"] != _GONE:
                    raise
                self._make_stream()
                self._client.put_log_events(logGroupName=LOG_GROUP, logStreamName=self._stream, logEvents=events)
        except (ClientError, BotoCoreError) as error:
            _LOG.warning("%d lines of %s are lost: %s", len(batch), self._stream, error)

    def _make_stream(self) -> None:
        for call, names in (
            (self._client.create_log_group, {"logGroupName": LOG_GROUP}),
            (self._client.create_log_stream, {"logGroupName": LOG_GROUP, "logStreamName": self._stream}),
        ):
            try:
                call(**names)
            except ClientError as error:
                if error.response["Error"]["Code"] != _EXISTS:
                    _LOG.warning("cannot make %s: %s", names, error)
            except BotoCoreError as error:
                _LOG.warning("cannot make %s: %s", names, error)
