"""The deployed app as a rehearsal uses it: the same connection, the same preparation, the same launcher as `launch`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from spotkeep_cli.launcher_answer import read_answer
from spotkeep_cli.preparation import prepare

if TYPE_CHECKING:
    from spotkeep_cli.deployment import Deployment, JobLog, RunReader
    from spotkeep_cli.job_file import JobDocument

_OF_ONE_RUN: Final = frozenset({"token", "checkpoint_prefix"})


class RehearsedDeployment:
    """Launches one job file under the run ids that a rehearsal gives.

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
    def notice_topic_arn(self) -> str:
        """Where notices are published."""
        return self._deployment.notice_topic_arn

    def job_log(self, job_name: str) -> JobLog:
        """The log of a training job."""
        return self._deployment.job_log(job_name)

    def launch(self, *, run: str) -> None:
        """Launch the job as a run of this id; see `spotkeep_rehearsal.rehearsal.Deployment.launch`.

        Two runs of one file need a token and a lineage each, so those that the file names are left out.

        Raises:
            RefusedError: The launcher refused the job file; carries every problem, with its line.
        """
        fields = {name: value for name, value in self._document.fields.items() if name not in _OF_ONE_RUN}
        environment = {**(fields.get("environment") or {}), "SPOTKEEP_PROGRESS_SECONDS": "0"}
        document = replace(self._document, fields={**fields, "run": run, "environment": environment})
        prepared = prepare(document, checkpoint_bucket=self._deployment.checkpoint_bucket, new_token=self._new_token)
        if prepared.archive is not None and prepared.source_key is not None:
            self._deployment.upload_source(key=prepared.source_key, content=prepared.archive.content)
        read_answer(
            self._deployment.invoke_launcher(prepared.payload), what="nothing was launched", document=self._document
        )

    def stop(self, *, run: str) -> None:
        """Ask a run to end.

        Raises:
            RefusedError: There is no such run.
        """
        read_answer(self._deployment.invoke_launcher({"action": "stop", "run": run}), what=f"{run} was not stopped")
