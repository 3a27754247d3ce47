"""Makes a job file ready to be sent: its token, its run id, and its local source as an archive with an address."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from spotkeep_cli.source_archive import SourceArchive, pack_source
from spotkeep_jobs.training_job_request import run_id_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from spotkeep_cli.job_file import JobDocument


@dataclass(frozen=True, kw_only=True)
class PreparedJob:
    """What can be judged and launched.

    Attributes:
        document: The job file.
        payload: The document as the launcher takes it.
        archive: The local source; None where the source is elsewhere or there is none.
        source_key: Its key in the checkpoint bucket.
    """

    document: JobDocument
    payload: dict[str, Any]
    archive: SourceArchive | None = None
    source_key: str | None = None


def prepare(document: JobDocument, *, checkpoint_bucket: str, new_token: Callable[[], str]) -> PreparedJob:
    """Fills in what only this machine can know.

    The token is made once, here: however often the launch is repeated, it is the same launch.

    Args:
        document: The job file.
        checkpoint_bucket: Where a local source will be uploaded to.
        new_token: Makes an idempotency token, for a job file without one.

    Raises:
        UsageError: The local source cannot be packed.
    """
    payload = dict(document.fields)
    if payload.get("token") is None:
        payload["token"] = new_token()
    if payload.get("run") is None and isinstance(payload.get("name"), str):
        payload["run"] = run_id_for(name=payload["name"], token=str(payload["token"]))
    source = payload.get("source")
    if not is_local_source(source):
        return PreparedJob(document=document, payload=payload)
    archive = pack_source(local_source(document, source))
    # Without a name there is no run, and the launcher refuses; the source then needs no real address.
    key = archive.key(run=str(payload.get("run") or "unnamed"))
    payload["source"] = f"s3://{checkpoint_bucket}/{key}"
    return PreparedJob(document=document, payload=payload, archive=archive, source_key=key)


def is_local_source(source: Any) -> TypeGuard[str]:
    """Whether a source is a path on this machine, and neither S3 nor a git URL."""
    return isinstance(source, str) and bool(source) and not re.match(r"[a-z0-9+]+://|git@", source)


def local_source(document: JobDocument, source: str) -> Path:
    """The path of a local source: relative to the job file, unless `--set` gave it: then to the current directory."""
    path = Path(source).expanduser()
    if document.is_overridden("source"):
        return path
    return document.path.parent / path
