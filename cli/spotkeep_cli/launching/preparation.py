"""Prepares a job file for sending.

It adds the token, the run id, and the local source as an archive with an address.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

from spotkeep_cli.launching.answers import ask_launcher
from spotkeep_cli.launching.git import checkout_around, pinned
from spotkeep_cli.launching.source_archive import SourceArchive, pack_source
from spotkeep_cli.launching.source_files import LocalSourceError
from spotkeep_fleet.run_prefixes import source_prefix
from spotkeep_jobs.backends.sagemaker.training_job import run_id_for
from spotkeep_jobs.document.reading import shown
from spotkeep_jobs.document.request import kind_of
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.schedules.document import schedule_id_for
from spotkeep_jobs.sweeps.document import read_sweep
from spotkeep_jobs.sweeps.trial_documents import sweep_id_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.launching.job_file import JobDocument

_ANY_BUCKET = "spotkeep-checkpoints"
"""Stands for the deployment's bucket where there is no deployment."""


@dataclass(frozen=True, kw_only=True)
class PreparedJob:
    """A job that can be judged and launched.

    Attributes:
        document: The job file.
        payload: The document as the launcher takes it.
        archive: The local source, or None where the source is elsewhere or there is none.
        problems: Faults that only this machine can find, such as a source that cannot be packed or a deleted branch.
        warnings: Probable mistakes that only this machine can see, such as a moving branch and files that stay behind.
    """

    document: JobDocument
    payload: dict[str, Any]
    archive: SourceArchive | None = None
    problems: tuple[Problem, ...] = ()
    warnings: tuple[Problem, ...] = ()


def prepare(document: JobDocument, *, deployment: DeploymentClient | None, new_token: Callable[[], str]) -> PreparedJob:
    """Fill in the fields that only this machine can know.

    The token is made once, here. A repeated launch with it is the same launch. A source that cannot be packed is one
    problem among others, so that all are shown at once (I7).

    Args:
        document: The job file.
        deployment: The deployment to launch in. None where the job is only judged, on this machine.
        new_token: Makes an idempotency token, for a job file without one.
    """
    # `schedule: null` takes it away: what is launched has no such field.
    payload = {name: value for name, value in document.fields.items() if name != "schedule" or value is not None}
    if payload.get("token") is None:
        payload["token"] = new_token()
    if payload.get("run") is None and isinstance(payload.get("name"), str):
        payload["run"] = _id_for(payload, token=str(payload["token"]))
    source = payload.get("source")
    if not is_local_source(source):
        pinned_source, problems, warnings = pinned(source)
        payload |= {"source": pinned_source} if source is not None else {}
        return PreparedJob(document=document, payload=payload, problems=problems, warnings=warnings)
    # Without a name there is no run, and the launcher refuses; the source then needs no real address.
    run = str(payload.get("run") or "unnamed")
    if isinstance(payload.get("runs"), int) and payload["runs"] > 1:
        run += "-1"  # One source for all of them, kept where the first one's things are: their common id is no run's.
    bucket, team = _ANY_BUCKET, None
    if deployment is not None:
        bucket, team = deployment.checkpoint_bucket, deployment.isolated(payload.get("team"))
    try:
        archive = pack_source(local_source(document, source))
    except LocalSourceError as error:
        payload["source"] = f"s3://{bucket}/{source_prefix(run, team=team)}{'0' * 64}.tar.gz"
        problem = Problem(field="source", found=shown(source), problem=error.problem, fix=error.hint)
        return PreparedJob(document=document, payload=payload, problems=(problem,))
    payload["source"] = f"s3://{bucket}/{archive.key(run=run, team=team)}"
    return PreparedJob(document=document, payload=payload, archive=archive, warnings=archive.warnings)


def _id_for(payload: Mapping[str, Any], *, token: str) -> str:
    """Return the id of the run, the sweep or the schedule, as the launcher makes it."""
    kind = kind_of(payload)
    if kind == "schedule":
        return schedule_id_for(payload, token=token)
    sweep = read_sweep(payload, tpe=True)[0] if kind == "sweep" else None
    return run_id_for(name=payload["name"], token=token) if sweep is None else sweep_id_for(payload, sweep, token=token)


def send(
    prepared: PreparedJob, *, deployment: DeploymentClient, plan: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Upload the local source, if there is one, launch the job, and return the launcher's answer.

    Args:
        prepared: The job.
        deployment: The deployment to launch in.
        plan: The plan that steers the run, or None.

    Raises:
        RefusedError: The launcher refused the job. The error carries every problem, with its line.
    """
    if prepared.archive is not None:
        deployment.upload_source(prepared.payload["source"], content=prepared.archive.content)
    payload = prepared.payload if plan is None else {**prepared.payload, "plan": plan}
    return ask_launcher(deployment, payload, what="nothing was launched", document=prepared.document)


def is_local_source(source: Any) -> TypeGuard[str]:
    """Return True if a source is a path on this machine, and neither S3 nor a git URL."""
    return isinstance(source, str) and bool(source) and not re.match(r"[a-z0-9+]+://|git@", source)


def local_source(document: JobDocument, source: str) -> Path:
    """Return the path of a local source.

    It is relative to the job file. A path from `--set` is relative to the current directory. A job file may be a
    stranger's. It may name only files in its own directory, or in the git repository around it. The person at the
    command line may name any path.

    Raises:
        LocalSourceError: The job file names another place.
    """
    path = Path(source).expanduser()
    if document.is_overridden("source"):
        return path
    path = document.path.parent / path
    home = document.path.parent.resolve()
    project = checkout_around(home) or home
    if not path.resolve().is_relative_to(project):
        raise LocalSourceError(
            f"{source} is outside {project}, where the job file belongs, and a job file may be a stranger's",
            hint=f"if you do want to send it, say so yourself: --set source={path}",
        )
    return path
