"""What the training needs on the volume before it starts: source archive, hyperparameters, the channels' data."""

from __future__ import annotations

import contextlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from spotkeep.disk.storage import LocalStorage
from spotkeep.errors import RemoteError
from spotkeep.remote.transfer import TransferCancelledError
from spotkeep.runner.source import require_sha256
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.object_files import PART_BYTES, WantedFile, fetch_files, send_file
from spotkeep_agent.aws.object_store import objects_of
from spotkeep_agent.errors import SourceUnavailableError
from spotkeep_fleet.instance_job import InstanceJob, JobSource
from spotkeep_fleet.record import LONGEST_FAILURE

_LARGEST_SOURCE_BYTES = 5 * 2**30


class Supplies:
    """Brings things from S3 to the volume, and the model back.

    Args:
        calls: To S3.
        base: Where the volume is mounted.
        cancelled: Set it to break off before the next part.
    """

    def __init__(self, calls: AwsCalls, *, base: Path, cancelled: threading.Event) -> None:
        self._calls = calls
        self._base = base
        self._cancelled = cancelled

    def bring(self, job: InstanceJob) -> None:
        """Bring all that the job names, as far as it gets before it is cancelled. Everybody may read it.

        Raises:
            SourceUnavailableError: If something cannot be had.
            SourceError: If the source is not the one that was launched.
            OSError: If the volume cannot be written.
        """
        configuration = self._base / "input/config"
        configuration.mkdir(parents=True, exist_ok=True)
        path = configuration / "hyperparameters.json"
        path.write_text(json.dumps(dict(job.hyperparameters)), encoding="utf-8")
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
        return self._send_archive(self._base / "model", uri, "model.tar.gz")

    def send_output(self, uri: str) -> str | None:
        """Pack what the script wrote to SM_OUTPUT_DATA_DIR and send it beside the model, as SageMaker does.

        Gives the archive's address, None when there is nothing.

        Raises:
            RemoteError: If S3 refuses.
            OSError: If the volume cannot be read or written.
        """
        return self._send_archive(self._base / "output/data", uri, "output.tar.gz")

    def _send_archive(self, folder: Path, uri: str, name: str) -> str | None:
        if not folder.is_dir() or not any(folder.iterdir()):
            return None
        archive = self._base / name
        with tarfile.open(archive, "w:gz") as packed:
            packed.add(folder, arcname=".")
        bucket, prefix = _place(uri)
        key = f"{prefix.rstrip('/')}/{name}".lstrip("/")
        with archive.open("rb") as file:
            send_file(objects_of(self._calls, bucket), key, file.fileno(), labels={}, cancelled=self._cancelled)
        archive.unlink()
        return f"s3://{bucket}/{key}"

    def _bring_source(self, source: JobSource) -> None:
        assert source.uri is not None  # noqa: S101 - asked before
        bucket, key = _place(source.uri)
        target = self._base / "input/data/source"
        target.mkdir(parents=True, exist_ok=True)
        for old in target.iterdir():
            old.unlink()
        path = target / key.rpartition("/")[2]
        objects = objects_of(self._calls, bucket)
        try:
            # Most sources are small, and one request shows that there is no more of them.
            raw = objects.read(key, start=0, size=PART_BYTES)
            if len(raw) < PART_BYTES:
                require_sha256(io.BytesIO(raw), source.sha256, name=path.name)
                path.write_bytes(raw)
                return
            found = objects.labels(key)
            size = 0 if found is None else found[0]
            if size > _LARGEST_SOURCE_BYTES:
                raise SourceUnavailableError(
                    f"the source {source.uri} has {size:,} bytes, more than {_LARGEST_SOURCE_BYTES:,}: bring what is "
                    "large in a channel"
                )
            fetch_files([WantedFile(objects, key, size, path)], cancelled=self._cancelled)
            with path.open("rb") as archive:
                require_sha256(archive, source.sha256, name=path.name)
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
        root = self._base / "input/data" / name
        root.mkdir(parents=True, exist_ok=True)
        objects = objects_of(self._calls, bucket)
        for found in objects.listing(prefix):
            relative = found.key[len(prefix) :].lstrip("/") or found.key.rpartition("/")[2]
            if found.key.endswith("/"):
                continue
            if any(part in ("", ".", "..") for part in relative.split("/")):
                raise SourceUnavailableError(f"channel {name}: {found.key!r} is no name for a file")
            path = root / relative
            if not path.is_file() or path.stat().st_size != found.size:
                yield WantedFile(objects, found.key, found.size, path)


def _place(uri: str) -> tuple[str, str]:
    bucket, _, key = uri[len("s3://") :].partition("/")
    return bucket, key


def read_failure(base: Path, *, max_characters: int = LONGEST_FAILURE) -> str | None:
    """Give what the runner left as the reason of a failure, if anything."""
    start = bytearray(4 * max_characters)  # UTF-8 takes at most four bytes for one
    try:
        # The script may have put anything there; what is no plain file is not opened.
        with contextlib.closing(LocalStorage().open(base / "output/failure")) as file:
            size = file.read_into(memoryview(start), 0)
    except OSError:
        return None
    return start[:size].decode("utf-8", "replace")[:max_characters] or None


def clear_failure(base: Path) -> None:
    """Forget the reason of an earlier failure."""
    (base / "output/failure").unlink(missing_ok=True)
