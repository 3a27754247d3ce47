"""What the training needs on the volume before it starts: source archive, hyperparameters, the channels' data."""

from __future__ import annotations

import io
import json
import os
import threading
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path

from spotkeep.errors import RemoteError
from spotkeep.remote.transfer import TransferCancelledError
from spotkeep.runner.source import require_sha256
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.as_user.operations import FILE
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.object_files import PART_BYTES, WantedFile, fetch_files, send_file
from spotkeep_agent.aws.object_store import objects_of
from spotkeep_agent.errors import SourceUnavailableError
from spotkeep_fleet.instance_job import InstanceJob, JobSource
from spotkeep_fleet.record import LONGEST_FAILURE

_LARGEST_SOURCE_BYTES = 5 * 2**30
_ASKED_AT_ONCE = 1_000


class Supplies:
    """Brings things from S3 to the volume, and the model back.

    Args:
        calls: To S3.
        files: On the volume, with the rights of the user that trains.
        kept: A folder on the volume that is the agent's own: what is packed lies there until it is sent.
        cancelled: Set it to break off before the next part.
    """

    def __init__(self, calls: AwsCalls, *, files: UserFiles, kept: Path, cancelled: threading.Event) -> None:
        self._calls = calls
        self._files = files
        self._kept = kept
        self._cancelled = cancelled

    def bring(self, job: InstanceJob) -> None:
        """Bring all that the job names, as far as it gets before it is cancelled. Everybody may read it.

        Raises:
            SourceUnavailableError: If something cannot be had.
            SourceError: If the source is not the one that was launched.
            OSError: If the volume cannot be written.
        """
        self._files.make_folder("input/config")
        self._files.write("input/config/hyperparameters.json", json.dumps(dict(job.hyperparameters)).encode())
        try:
            if job.source is not None and job.source.uri is not None:
                self._bring_source(job.source)
            self._bring_channels(job.channels)
        except TransferCancelledError:
            return

    def send_model(self, uri: str) -> str | None:
        """Pack the model directory and send it. Gives the archive's address, None when there is no model.

        Raises:
            RemoteError: If S3 refuses.
            OSError: If the volume cannot be read or written.
        """
        return self._send_archive("model", uri, "model.tar.gz")

    def send_output(self, uri: str) -> str | None:
        """Pack what the script wrote to SM_OUTPUT_DATA_DIR and send it beside the model, as SageMaker does.

        Gives the archive's address, None when there is nothing.

        Raises:
            RemoteError: If S3 refuses.
            OSError: If the volume cannot be read or written.
        """
        return self._send_archive("output/data", uri, "output.tar.gz")

    def _send_archive(self, folder: str, uri: str, name: str) -> str | None:
        archive = self._kept / name
        archive.unlink(missing_ok=True)
        descriptor = os.open(archive, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            if not self._files.pack(folder, descriptor):
                return None
            bucket, prefix = _place(uri)
            key = f"{prefix.rstrip('/')}/{name}".lstrip("/")
            send_file(objects_of(self._calls, bucket), key, descriptor, labels={}, cancelled=self._cancelled)
        finally:
            os.close(descriptor)
            archive.unlink()
        return f"s3://{bucket}/{key}"

    def _bring_source(self, source: JobSource) -> None:
        assert source.uri is not None  # noqa: S101 - asked before
        bucket, key = _place(source.uri)
        target = "input/data/source"
        self._files.make_folder(target)
        for old in self._files.names(target):
            self._files.remove(f"{target}/{old}")
        name = key.rpartition("/")[2]
        path = f"{target}/{name}"
        objects = objects_of(self._calls, bucket)
        try:
            # Most sources are small, and one request shows that there is no more of them.
            raw = objects.read(key, start=0, size=PART_BYTES)
            if len(raw) < PART_BYTES:
                require_sha256(io.BytesIO(raw), source.sha256, name=name)
                self._files.write(path, raw)
                return
            found = objects.labels(key)
            size = 0 if found is None else found[0]
            if size > _LARGEST_SOURCE_BYTES:
                raise SourceUnavailableError(
                    f"the source {source.uri} has {size:,} bytes, more than {_LARGEST_SOURCE_BYTES:,}: bring what is "
                    "large in a channel"
                )
            fetch_files([WantedFile(objects, key, size, self._files, path)], cancelled=self._cancelled)
            with os.fdopen(self._files.open(path), "rb") as archive:
                require_sha256(archive, source.sha256, name=name)
        except (RemoteError, OSError) as error:
            raise SourceUnavailableError(f"the source {source.uri} cannot be brought here: {error}") from error

    def _bring_channels(self, channels: Mapping[str, str]) -> None:
        """Copy the prefixes. A file is there whole or not at all: what a crash cut off is fetched, nothing twice."""
        try:
            fetch_files(
                (wanted for name, uri in channels.items() for wanted in self._missing(name, uri)),
                cancelled=self._cancelled,
            )
        except (RemoteError, OSError) as error:
            raise SourceUnavailableError(f"the data of the channels cannot be brought here: {error}") from error

    def _missing(self, name: str, uri: str) -> Iterator[WantedFile]:
        bucket, prefix = _place(uri)
        root = f"input/data/{name}"
        self._files.make_folder(root)
        objects = objects_of(self._calls, bucket)
        listed = (found for found in objects.listing(prefix) if not found.key.endswith("/"))
        while some := list(islice(listed, _ASKED_AT_ONCE)):
            paths = []
            for found in some:
                relative = found.key[len(prefix) :].lstrip("/") or found.key.rpartition("/")[2]
                if any(part in ("", ".", "..") for part in relative.split("/")):
                    raise SourceUnavailableError(f"channel {name}: {found.key!r} is no name for a file")
                paths.append(f"{root}/{relative}")
            for found, path, here in zip(some, paths, self._files.find(paths)):
                if here is None or here.kind != FILE or here.size != found.size:
                    yield WantedFile(objects, found.key, found.size, self._files, path)


def _place(uri: str) -> tuple[str, str]:
    bucket, _, key = uri[len("s3://") :].partition("/")
    return bucket, key


def read_failure(files: UserFiles) -> str | None:
    """Give what the runner left as the reason of a failure, if anything.

    Args:
        files: On the volume. The script may have put anything there; what is no plain file is not opened.
    """
    try:
        # UTF-8 takes at most four bytes for one.
        start = files.read("output/failure", most_bytes=4 * LONGEST_FAILURE)
    except OSError:
        return None
    return start.decode("utf-8", "replace")[:LONGEST_FAILURE] or None


def clear_failure(files: UserFiles) -> None:
    """Forget the reason of an earlier failure."""
    files.remove("output/failure")
