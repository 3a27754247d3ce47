"""A job's own reports on its standard output, which are lines `spotkeep-event: {json}` among all others.

Only the reports that the service acts on are read here. The step decides when capacity is taken away. The restored step
goes into the facts. Any other line, garbage included, passes.

For a script with several trainings, the steps of all of them are added up.
"""

from __future__ import annotations

import json
import logging
import queue
import tarfile
import tempfile
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_local.training.object_store import ObjectStore, S3Location

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from spotkeep_local.training.job import ProcessLifetime
    from spotkeep_local.training.opt_ml import OptMl

PREFIX = "spotkeep-event:"
_RESUME = "resume"
_REPORT_COMPLETED_STEPS = ("progress", "saved", "finish")


_LOG = logging.getLogger(__name__)

LOG_GROUP = "/aws/sagemaker/TrainingJobs"
_BATCH_LINES = 1000
_BATCH_SECONDS = 0.1
_LINE_BYTES = 200_000
_GONE = "ResourceNotFoundException"
_EXISTS = "ResourceAlreadyExistsException"


def observe(lifetime: ProcessLifetime, line: str) -> ProcessLifetime:
    """Return the lifetime after its process printed this line."""
    event = _event(line)
    if event is None:
        return lifetime
    step, total, kind = _count(event.get("step")), _count(event.get("total_steps")), event.get("event")
    if step is None or kind not in (_RESUME, *_REPORT_COMPLETED_STEPS):
        return lifetime
    training = event.get("training")
    if isinstance(training, str):
        done = dict(lifetime.steps_of_trainings)
        done[training] = step if kind == _RESUME else max(step, done.get(training, 0))
        lifetime, step = replace(lifetime, steps_of_trainings=done), sum(done.values())
    if kind == _RESUME:
        trained = (lifetime.last_step_seen or 0) > (lifetime.resumed_step or 0)
        # A training that begins after another one has trained took up nothing.
        return lifetime if isinstance(training, str) and trained else replace(lifetime, resumed_step=step)
    return replace(
        lifetime,
        last_step_seen=max(step, lifetime.last_step_seen or 0),
        total_steps=lifetime.total_steps if total is None else total,
    )


def _event(line: str) -> dict[str, Any] | None:
    _, found, text = line.partition(PREFIX)
    if not found:
        return None
    try:
        event = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def upload_model(store: ObjectStore, request: dict[str, Any], hosts: Sequence[OptMl]) -> S3Location:
    """Copy the model, which may be empty, to S3. The files of all hosts go into one archive.

    Source: https://docs.aws.amazon.com/sagemaker/latest/dg/your-algorithms-training-algo-output.html

    Returns:
        Where it went: ModelArtifacts.S3ModelArtifacts.
    """
    location = _output_folder(request).child("model.tar.gz")
    _upload(store, [opt_ml.model for opt_ml in hosts], location)
    return location


def upload_output_data(store: ObjectStore, request: dict[str, Any], hosts: Sequence[OptMl]) -> None:
    """Copy other output to S3, if there is any, in one archive as well."""
    folders = [opt_ml.output_data for opt_ml in hosts]
    if any(any(folder.iterdir()) for folder in folders):
        _upload(store, folders, _output_folder(request).child("output.tar.gz"))


def _output_folder(request: dict[str, Any]) -> S3Location:
    base = S3Location.parse(request["OutputDataConfig"]["S3OutputPath"])
    return base.child(f"{request['TrainingJobName']}/output")


def _upload(store: ObjectStore, folders: Sequence[Path], location: S3Location) -> None:
    """Pack folders into one archive. Of a file of several hosts it takes the first host's, where AWS promises none."""
    packed: set[str] = set()

    def only_once(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if entry.name in packed and not entry.isdir():
            return None
        packed.add(entry.name)
        return entry

    with tempfile.TemporaryFile(dir=folders[0].parent) as archive:
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=1) as tar:
            for folder in folders:
                for path in sorted(folder.iterdir()):
                    tar.add(path, arcname=path.name, filter=only_once)
        archive.seek(0)
        store.upload(archive, location)


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
        """Take one line. Return at once."""
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
