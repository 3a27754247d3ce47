"""The inputs of the training, which are source archive and channels on the volume, and the values of secrets."""

from __future__ import annotations

import errno
import io
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from spotkeep.errors import RemoteError
from spotkeep.remote.s3_objects import S3Object
from spotkeep.remote.transfer import TransferCancelledError, require_not_cancelled
from spotkeep.runner.source import require_sha256
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.as_user.operations import FILE
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.object_files import PART_BYTES, WantedFile, fetch_files, send_file
from spotkeep_agent.aws.object_store import objects_of
from spotkeep_agent.errors import (
    AwsCallRefusedError,
    AwsUnavailableError,
    DataRefusedError,
    SecretRefusedError,
    SecretUnavailableError,
    SourceUnavailableError,
)
from spotkeep_fleet.channel_files import channel_files
from spotkeep_fleet.errors import ChannelDataError, SecretError
from spotkeep_fleet.instance_job import InstanceJob
from spotkeep_fleet.record import LONGEST_FAILURE
from spotkeep_fleet.secret_references import GET_VALUE, refusal, secret_values
from spotkeep_fleet.training_spec import JobSource, TrainingSpec, encode_spec

from .process import spec_path

_LARGEST_SOURCE_BYTES = 5 * 2**30
_ASKED_AT_ONCE = 1_000
_DATA = "input/data"
_BROUGHT = "channels.json"
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
"""The numbers of the errors that a full volume gives."""
_IN_THE_WAY = frozenset({errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOTDIR})
"""Error numbers for a name that is too long, or for a path of another kind than the needed file or folder."""
_LARGER_VOLUME = "Launch the run with a larger volume (`volume: {size_gb: ...}` in the job file)"
_PASSES = frozenset(
    {
        *(
            "InvalidAccessKeyId",
            "InvalidToken",
            "RequestTimeTooSkewed",
            "SignatureDoesNotMatch",
            "TokenRefreshRequired",
        ),
        *("InvalidPart", "NoSuchUpload", "OperationAborted"),
    }
)
"""Refusals for this instance's clock or credentials, or for an upload that begins anew the next time."""
_MAY_NOT_READ = "The run's role may not read it, or not with its KMS key, or its bucket is Requester Pays"
_CHANGES = "The data changed while they were read: let them be as they are until the training has begun"
_ELSEWHERE = "Data must be in the region of the deployment: copy them there"
_HINTS = {
    "301": _ELSEWHERE,
    "403": _MAY_NOT_READ,
    "AccessDenied": _MAY_NOT_READ,
    "AuthorizationHeaderMalformed": _ELSEWHERE,
    "IllegalLocationConstraintException": _ELSEWHERE,
    "InvalidObjectState": "It is archived (S3 Glacier): restore it, or leave it out of the channel",
    "NoSuchKey": "It is not there, or not any more",
    "PermanentRedirect": _ELSEWHERE,
    "PreconditionFailed": _CHANGES,
}
"""The next step after a refusal, by S3's error code."""


class Supplies:
    """The transfers of inputs from S3 to the volume, and of the model back.

    Args:
        calls: The calls to S3.
        files: The files on the volume, with the rights of the user that trains.
        kept: The agent's own folder on the volume, which holds packed archives until they are sent.
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
            DataRefusedError: If something cannot be had by any instance.
            SourceUnavailableError: If something cannot be had now.
            SourceError: If the source is not the one that was launched.
            OSError: If the volume cannot be written.
        """
        self._files.make_folder("input/config")
        self._files.write("input/config/hyperparameters.json", json.dumps(dict(job.training.hyperparameters)).encode())
        try:
            if job.training.source is not None and job.training.source.uri is not None:
                self._bring_source(job.training.source)
            self._bring_channels(job.channels)
        except TransferCancelledError:
            return

    def send_model(self, uri: str) -> str | None:
        """Pack the model directory and send it. Return the archive's address, or None without a model.

        Raises:
            RemoteError: If S3 refuses.
            OSError: If the volume cannot be read or written.
        """
        return self._send_archive("model", uri, "model.tar.gz")

    def send_output(self, uri: str) -> str | None:
        """Pack the script's files in SM_OUTPUT_DATA_DIR and send them beside the model, as SageMaker does.

        Return the archive's address, or None without files.

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
            found = objects.head(key)
            size = 0 if found is None else found.size
            if size > _LARGEST_SOURCE_BYTES:
                raise DataRefusedError(
                    f"the source {source.uri} has {size:,} bytes, more than {_LARGEST_SOURCE_BYTES:,}: bring what is "
                    "large in a channel"
                )
            fetch_files([WantedFile(objects, key, size, self._files, path)], cancelled=self._cancelled)
            with os.fdopen(self._files.open(path), "rb") as archive:
                require_sha256(archive, source.sha256, name=name)
        except (RemoteError, OSError) as error:
            raise _problem(error, f"the source {source.uri} cannot be brought here") from error

    def _bring_channels(self, channels: Mapping[str, str]) -> None:
        """Make the channels' folders hold the objects that S3 has now. A file is there whole or not at all.

        The agent lists all objects first, so that a fault is known before an hour of copying. The volume may have data
        of an earlier attempt. An unchanged file is not fetched again. A file that an agent brought is removed when S3
        no longer has its object.
        """
        what = "the data of the channels cannot be brought here"
        try:
            listed = {name: self._listed(name, uri) for name, uri in channels.items()}
            wanted = {f"{name}/{path}": found.etag or "" for name, files in listed.items() for found, path in files}
            brought = self._brought()
            self._remove_brought([path for path in brought if path not in wanted])
            missing = [(name, channels[name], self._missing(name, files, brought)) for name, files in listed.items()]
            self._require_room(sum(found.size for _, _, some in missing for found, _ in some))
            # Before the first file comes: from here on a file that has the size of its object is that object.
            self._note_brought(wanted, before=brought)
            fetch_files(
                (each for _, uri, some in missing for each in self._wanted(uri, some)), cancelled=self._cancelled
            )
        except (RemoteError, OSError) as error:
            raise _problem(error, what) from error

    def _listed(self, name: str, uri: str) -> list[tuple[S3Object, str]]:
        """Return the objects of a channel, with the paths of their files in its folder."""
        bucket, prefix = _place(uri)

        def listed() -> Iterator[S3Object]:
            for found in objects_of(self._calls, bucket).listing(prefix):
                require_not_cancelled(self._cancelled)
                yield found

        try:
            return channel_files(listed(), bucket=bucket, prefix=prefix)
        except ChannelDataError as error:
            raise DataRefusedError(f"channel {name}: {error}") from error

    def _missing(
        self, name: str, files: Sequence[tuple[S3Object, str]], brought: Mapping[str, str]
    ) -> list[tuple[S3Object, str]]:
        """Return the objects of a channel that the volume lacks, with file paths. Remove files with other content."""
        root = f"{_DATA}/{name}"
        self._files.make_folder(root)
        missing = []
        for start in range(0, len(files), _ASKED_AT_ONCE):
            some = files[start : start + _ASKED_AT_ONCE]
            there = self._files.find([f"{root}/{path}" for _, path in some])
            for (found, path), here in zip(some, there):
                if here is not None and here.kind == FILE and here.size == found.size:
                    if brought.get(f"{name}/{path}") == (found.etag or ""):
                        continue
                    self._files.remove(f"{root}/{path}")
                missing.append((found, f"{root}/{path}"))
        return missing

    def _brought(self) -> dict[str, str]:
        """Return the tag of each object of the last transfer to this volume, by its file's path."""
        try:
            return dict(json.loads((self._kept / _BROUGHT).read_text(encoding="utf-8")))
        except (FileNotFoundError, ValueError, TypeError):
            return {}

    def _note_brought(self, wanted: Mapping[str, str], *, before: Mapping[str, str]) -> None:
        if wanted != before:
            draft = self._kept / f"{_BROUGHT}.new"
            draft.write_text(json.dumps(wanted), encoding="utf-8")
            draft.replace(self._kept / _BROUGHT)

    def _remove_brought(self, paths: Sequence[str]) -> None:
        for start in range(0, len(paths), _ASKED_AT_ONCE):
            some = [f"{_DATA}/{path}" for path in paths[start : start + _ASKED_AT_ONCE]]
            for path, here in zip(some, self._files.find(some)):
                if here is not None and here.kind == FILE:
                    self._files.remove(path)

    def _wanted(self, uri: str, missing: Sequence[tuple[S3Object, str]]) -> Iterator[WantedFile]:
        objects = objects_of(self._calls, _place(uri)[0])
        for found, path in missing:
            yield WantedFile(objects, found.key, found.size, self._files, path, etag=found.etag)

    def _require_room(self, needed_bytes: int) -> None:
        """Require that the volume has room for these files.

        Raises:
            DataRefusedError: If it has not.
        """
        volume = os.statvfs(self._files.base)
        free_bytes = volume.f_bavail * volume.f_frsize
        if needed_bytes > free_bytes:
            raise DataRefusedError(
                f"the data of the channels need {_gib(needed_bytes)}, and the volume has {_gib(free_bytes)} free of "
                f"{_gib(volume.f_blocks * volume.f_frsize)}. {_LARGER_VOLUME}"
            )


def is_for_good(error: Exception) -> bool:
    """Return True when a problem with S3 or the disk is lasting, for any instance of the run.

    Args:
        error: The error of reading or writing.
    """
    if isinstance(error, RemoteError):
        return error.code != "" and error.code not in _PASSES
    return isinstance(error, OSError) and error.errno in (*_FULL, *_IN_THE_WAY)


def with_hint(error: Exception) -> str:
    """Name the problem, and the next step where that is known."""
    hint = ""
    if isinstance(error, RemoteError):
        hint = _HINTS.get(error.code, "")
    elif isinstance(error, OSError) and error.errno in _FULL:
        hint = _LARGER_VOLUME
    return f"{str(error).rstrip('.')}. {hint}" if hint else str(error)


def _problem(error: Exception, what: str) -> DataRefusedError | SourceUnavailableError:
    kind = DataRefusedError if is_for_good(error) else SourceUnavailableError
    return kind(f"{what}: {with_hint(error)}")


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:,.2f} GiB"


def _place(uri: str) -> tuple[str, str]:
    bucket, _, key = uri[len("s3://") :].partition("/")
    return bucket, key


def put_spec(files: UserFiles, spec: TrainingSpec) -> None:
    """Put the spec into the file that the runner reads, in the place of all earlier ones.

    Args:
        files: The files on the volume. A script may replace the spec's file, but the runner refuses other bytes.
        spec: The spec of the run's job.

    Raises:
        OSError: If the volume cannot be written.
    """
    content = encode_spec(spec)
    path = spec_path(content)
    with suppress(OSError):
        if files.read(path, most_bytes=len(content) + 1) == content:
            return  # A script that starts again on a full volume may free it.
    folder = path.rpartition("/")[0]
    files.remove(folder)
    files.make_folder(folder)
    files.write(path, content)


def read_secret_values(calls: AwsCalls, spec: TrainingSpec) -> dict[str, str]:
    """Return the variables with the values of secrets for the runner (`TrainingSpec.value_variables`).

    The agent reads them anew before each start of the script, which has no credentials of its own.

    Args:
        calls: With the credentials of the run.
        spec: The spec of the run's job.

    Raises:
        SecretRefusedError: AWS refuses a value, or a secret holds none that fits. Another instance would find the same.
        SecretUnavailableError: AWS gives no answer now.
    """

    def ask(secret: str) -> dict[str, Any]:
        try:
            return calls.json("secretsmanager", GET_VALUE, {"SecretId": secret}, version="1.1")
        except AwsCallRefusedError as error:
            raise refusal(secret, code=error.code, message=error.message) from None
        except AwsUnavailableError as error:
            raise SecretUnavailableError(f"the secret {secret} cannot be read now: {error}") from None

    variables = spec.value_variables
    try:
        values = secret_values(variables, ask)
    except SecretError as error:
        raise SecretRefusedError(str(error)) from None
    return {variables[reference]: value for reference, value in values.items()}


def read_failure(files: UserFiles) -> str | None:
    """Return the reason of a failure from the runner's file, if there is one.

    Args:
        files: The files on the volume. The script may have put anything there, so only a plain file is opened.
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
