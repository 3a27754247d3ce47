"""What the training needs on the volume before it starts: source archive, hyperparameters, the channels' data."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Callable

from spotkeep.errors import RemoteError
from spotkeep.remote.s3_objects import Part, S3Objects
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.object_store import objects_of
from spotkeep_agent.errors import SourceUnavailableError
from spotkeep_fleet.instance_job import InstanceJob, JobSource
from spotkeep_fleet.record import LONGEST_FAILURE

_PART_BYTES = 32 * 2**20
_LARGEST_SOURCE_BYTES = 5 * 2**30


class Supplies:
    """Brings things from S3 to the volume, and the model back.

    Args:
        calls: To S3.
        base: Where the volume is mounted.
        breaking_off: Asked between two parts: whether to stop.
    """

    def __init__(self, calls: AwsCalls, *, base: Path, breaking_off: Callable[[], bool]) -> None:
        self._calls = calls
        self._base = base
        self._breaking_off = breaking_off

    def bring(self, job: InstanceJob) -> None:
        """Bring all that the job names. Everybody may read it.

        Raises:
            SourceUnavailableError: If something cannot be had.
            OSError: If the volume cannot be written.
        """
        configuration = self._base / "input/config"
        configuration.mkdir(parents=True, exist_ok=True)
        path = configuration / "hyperparameters.json"
        path.write_text(json.dumps(dict(job.hyperparameters)), encoding="utf-8")
        if job.source is not None and job.source.uri is not None:
            self._bring_source(job.source)
        for name, uri in job.channels.items():
            if not self._breaking_off():
                self._bring_channel(name, uri)

    def send_model(self, uri: str) -> str | None:
        """Pack the model directory and send it. Gives the archive's address, None when there is no model.

        Raises:
            RemoteError: If S3 refuses.
        """
        model = self._base / "model"
        if not model.is_dir() or not any(model.iterdir()):
            return None
        archive = self._base / "model.tar.gz"
        with tarfile.open(archive, "w:gz") as opened:
            opened.add(model, arcname=".")
        bucket, prefix = _place(uri)
        key = f"{prefix.rstrip('/')}/model.tar.gz".lstrip("/")
        self._send(objects_of(self._calls, bucket), key, archive)
        archive.unlink()
        return f"s3://{bucket}/{key}"

    def _send(self, objects: S3Objects, key: str, path: Path) -> None:
        with path.open("rb") as file:
            first = file.read(_PART_BYTES)
            if len(first) < _PART_BYTES:
                objects.write(key, first, labels={})
                return
            upload = objects.begin_upload(key, labels={})
            parts: list[Part] = []
            piece = first
            while piece:
                parts.append(objects.write_part(key, upload, number=len(parts) + 1, raw=piece))
                piece = file.read(_PART_BYTES)
            objects.finish_upload(key, upload, parts)

    def _bring_source(self, source: JobSource) -> None:
        assert source.uri is not None  # noqa: S101 - asked before
        bucket, key = _place(source.uri)
        target = self._base / "input/data/source"
        target.mkdir(parents=True, exist_ok=True)
        for old in target.iterdir():
            old.unlink()
        try:
            raw = objects_of(self._calls, bucket).read(key, start=0, size=_LARGEST_SOURCE_BYTES)
            (target / key.rpartition("/")[2]).write_bytes(raw)
        except (RemoteError, OSError) as error:
            raise SourceUnavailableError(f"the source {source.uri} cannot be brought here: {error}") from error

    def _bring_channel(self, name: str, uri: str) -> None:
        """Copy a prefix. A file is there whole or not at all, so what a crash cut off is fetched, and nothing twice."""
        bucket, prefix = _place(uri)
        root = self._base / "input/data" / name
        root.mkdir(parents=True, exist_ok=True)
        objects = objects_of(self._calls, bucket)
        try:
            for found in objects.listing(prefix):
                relative = found.key[len(prefix) :].lstrip("/") or found.key.rpartition("/")[2]
                if found.key.endswith("/"):
                    continue
                if any(part in ("", ".", "..") for part in relative.split("/")):
                    raise SourceUnavailableError(f"channel {name}: {found.key!r} is no name for a file")
                path = root / relative
                if path.is_file() and path.stat().st_size == found.size:
                    continue
                if self._breaking_off():
                    return
                self._fetch(objects, found.key, found.size, path)
        except (RemoteError, OSError) as error:
            raise SourceUnavailableError(f"channel {name}: {uri} cannot be brought here: {error}") from error

    def _fetch(self, objects: S3Objects, key: str, size: int, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(path.name + ".spotkeep-draft")
        with draft.open("wb") as file:
            for start in range(0, size, _PART_BYTES):
                file.write(objects.read(key, start=start, size=min(_PART_BYTES, size - start)))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)


def _place(uri: str) -> tuple[str, str]:
    bucket, _, key = uri[len("s3://") :].partition("/")
    return bucket, key


def read_failure(base: Path, *, max_characters: int = LONGEST_FAILURE) -> str | None:
    """Give what the runner left as the reason of a failure, if anything."""
    try:
        return (base / "output/failure").read_text(encoding="utf-8", errors="replace")[:max_characters] or None
    except OSError:
        return None


def clear_failure(base: Path) -> None:
    """Forget the reason of an earlier failure."""
    (base / "output/failure").unlink(missing_ok=True)
