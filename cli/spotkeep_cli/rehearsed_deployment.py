"""The deployed app as a rehearsal uses it: the same connection, the same preparation, the same launcher as `launch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spotkeep_cli.launcher_answer import read_answer
from spotkeep_cli.preparation import prepare

if TYPE_CHECKING:
    from spotkeep_cli.deployment import Deployment, JobLog, RunReader
    from spotkeep_cli.job_file import JobDocument
    from spotkeep_jobs.facts.record import Backend

_OF_ONE_RUN: Final = frozenset({"token", "checkpoint_prefix", "runs", "on_demand_base"})


class _Rehearsed:
    """One job file in one deployment.

    Args:
        deployment: The deployment on the local AWS.
        document: The job file.
        new_token: Makes an idempotency token for each launch.
    """

    def __init__(self, deployment: Deployment, *, document: JobDocument, new_token: Callable[[], str]) -> None:
        self._deployment, self._document, self._new_token = deployment, document, new_token

    @property
    def runs(self) -> RunReader:
        """The run table."""
        return self._deployment.runs

    @property
    def notification_topic_arn(self) -> str:
        """Where notifications are published."""
        return self._deployment.notification_topic_arn

    def _launch(self, run: str, **fields: object) -> None:
        document = self._document.with_fields(fields) if fields else self._document
        _launch(self._deployment, document, run=run, new_token=self._new_token)

    def _ask(self, payload: Mapping[str, object], *, what: str) -> None:
        read_answer(self._deployment.invoke_launcher(payload), what=what)


class RehearsedDeployment(_Rehearsed):
    """Launches one job file under the run ids that a rehearsal gives."""

    def job_log(self, job_name: str, *, backend: Backend = "sagemaker") -> JobLog:
        """The log of a training job."""
        return self._deployment.job_log(job_name, backend=backend)

    def launch(self, *, run: str) -> None:
        """Launch the job as a run of this id; see `spotkeep_rehearsal.rehearsal.Deployment.launch`.

        Raises:
            RefusedError: The launcher refused the job file; carries every problem, with its line.
        """
        self._launch(run)

    def stop(self, *, run: str) -> None:
        """Ask a run to end.

        Raises:
            RefusedError: There is no such run.
        """
        self._ask({"action": "stop", "run": run}, what=f"{run} was not stopped")


class RehearsedPools(_Rehearsed):
    """Launches one job file, on demand, under the run ids that a rehearsal gives, and acts on their warm pools."""

    def launch(self, *, run: str, keep_alive_seconds: int) -> None:
        """Launch the job as a run of this id, with a warm pool.

        Raises:
            RefusedError: The launcher refused the job file; carries every problem, with its line.
        """
        self._launch(run, keep_alive=keep_alive_seconds)

    def extend_pool(self, *, run: str, seconds: int) -> None:
        """Keep a run's pool longer.

        Raises:
            RefusedError: There is no such pool, or a limit stands against it.
        """
        self._ask({"action": "extend-pool", "run": run, "for": seconds}, what=f"the pool of {run} was not extended")

    def stop_pool(self, *, run: str) -> None:
        """End a run's pool.

        Raises:
            RefusedError: There is no such pool.
        """
        self._ask({"action": "stop-pool", "run": run}, what=f"the pool of {run} was not ended")


def on_demand(document: JobDocument) -> JobDocument:
    """A job file's job as one that may leave a warm pool, and tells what becomes of it."""
    without_ladder = dict.fromkeys(("ladder", "longest_wait", "spot_only", "max_wait"))
    return document.with_fields({"capacity": "on-demand", "notify": None, **without_ladder})


def on_fleet(document: JobDocument) -> JobDocument:
    """A job file's job as one on a spot fleet, with room for each type that it names in every zone."""
    return document.with_fields({"backend": "ec2"})


def _launch(deployment: Deployment, document: JobDocument, *, run: str, new_token: Callable[[], str]) -> None:
    """Several runs of one file need a token and a lineage each, so those that the file names are left out."""
    fields = {name: value for name, value in document.fields.items() if name not in _OF_ONE_RUN}
    environment = {**(fields.get("environment") or {}), "SPOTKEEP_PROGRESS_SECONDS": "0"}
    document = replace(document, fields={**fields, "run": run, "environment": environment})
    prepared = prepare(
        document,
        checkpoint_bucket=deployment.checkpoint_bucket,
        new_token=new_token,
        isolated_teams=deployment.isolated_teams,
    )
    if prepared.archive is not None and prepared.source_key is not None:
        deployment.upload_source(key=prepared.source_key, content=prepared.archive.content)
    read_answer(deployment.invoke_launcher(prepared.payload), what="nothing was launched", document=document)
