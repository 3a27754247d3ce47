"""A deployment, as a notebook or a pipeline uses it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotkeep_cli.aws.connection import connect, spot_market
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.errors import UsageError
from spotkeep_cli.launching.job_file import JobDocument, read_job_file
from spotkeep_cli.launching.json_values import plain
from spotkeep_cli.launching.judgement import judge_or_refuse
from spotkeep_cli.launching.preparation import send
from spotkeep_cli.run_names import find_run, find_sweep
from spotkeep_cli.seams import Invocation, Seams
from spotkeep_client.run import Run, warn_of
from spotkeep_client.sweep import Sweep
from spotkeep_jobs.document.request import kind_of


class Spotkeep:
    """One deployed Spotkeep, in AWS or in the local AWS.

    Args:
        deployment: The `deployment` setting it was deployed with.
        region: The AWS region. None for the AWS configuration's own.
        profile: The AWS profile. None for the AWS configuration's own.
        local: True for the one in the local AWS (`spotkeep local up`).
        seams: The connection to AWS, the clock and the source of tokens. Tests hand in their own.

    Raises:
        NoConnectionError: There is no such deployment, or it cannot be reached.
    """

    def __init__(
        self,
        *,
        deployment: str = "spotkeep",
        region: str | None = None,
        profile: str | None = None,
        local: bool = False,
        seams: Seams | None = None,
    ) -> None:
        options = ConnectionOptions(deployment=deployment, region=region, profile=profile, local=local)
        self._invocation = Invocation(options=options, seams=seams or Seams(connect=connect, spot_market=spot_market))
        self._deployment = self._invocation.deployment()

    def launch(self, job: str | Path | Mapping[str, Any], *, source: str | Path | None = None, **fields: Any) -> Run:
        """Launch a run, and return it at once.

        Args:
            job: A job file, or its fields.
            source: The code as a directory or an archive, relative to the current directory. Default: as the job says.
            **fields: Other values of fields, such as `hyperparameters={"lr": 0.1}`.

        Raises:
            RefusedError: Nothing was launched. It carries every problem.
            UsageError: The job launches several runs, is a sweep or has a schedule, or its source cannot be packed.
            NoConnectionError: The deployment cannot be reached.
        """
        document = _document(job, source=source, fields=fields)
        if (document.fields.get("runs") or 1) != 1:
            raise UsageError(
                f"the job launches {document.fields['runs']} runs, and this returns one",
                hint="leave runs out and launch it as often, or use the command line: spotkeep launch",
            )
        if kind_of(document.fields) == "sweep":
            raise UsageError("the job is a sweep, and this returns one run", hint="call launch_sweep")
        return Run(self._sent(document)["run"], deployment=self._deployment, invocation=self._invocation)

    def launch_sweep(
        self, job: str | Path | Mapping[str, Any], *, source: str | Path | None = None, **fields: Any
    ) -> Sweep:
        """Launch a sweep, and return it at once. Arguments and errors are those of `launch`."""
        document = _document(job, source=source, fields=fields)
        if kind_of(document.fields) == "job":
            raise UsageError("the job is no sweep: it has no field sweep", hint="call launch")
        return Sweep(self._sent(document)["sweep"], deployment=self._deployment, invocation=self._invocation)

    def run(self, run: str) -> Run:
        """Return a run by its id, or the beginning of it that no other has.

        Raises:
            RunNotFoundError: None has it, or several have.
        """
        found = find_run(self._deployment.table, run, command=self._invocation.options.command)
        return Run(found.run, deployment=self._deployment, invocation=self._invocation)

    def sweep(self, sweep: str) -> Sweep:
        """Return a sweep by its id, or the beginning of it that no other has.

        Raises:
            RunNotFoundError: None has it, or several have.
        """
        found = find_sweep(self._deployment.table, sweep, command=self._invocation.options.command)
        return Sweep(found.sweep, deployment=self._deployment, invocation=self._invocation)

    def _sent(self, document: JobDocument) -> dict[str, Any]:
        """Judge and launch a job, and return the launcher's answer."""
        if kind_of(document.fields) == "schedule":
            raise UsageError(
                "the job has a schedule, and this launches now",
                hint="leave schedule out to launch it now, or use the command line: spotkeep launch",
            )
        prepared, _ = judge_or_refuse(
            document,
            deployment=self._deployment,
            new_token=self._invocation.seams.new_token,
            what="nothing was launched",
        )
        warn_of(prepared.warnings, inside=2)
        return send(prepared, deployment=self._deployment)


def _document(
    job: str | Path | Mapping[str, Any], *, source: str | Path | None, fields: Mapping[str, Any]
) -> JobDocument:
    """Return a job with other values for some of its fields."""
    if source is not None:
        fields = {**fields, "source": str(source)}
    if isinstance(job, Mapping):
        # What it names is relative to the current directory, as it is in a job file there.
        document = JobDocument(path=Path.cwd() / "job.yaml", fields=_as_written(job))
    else:
        document = read_job_file(Path(job))
    return document.with_fields(_as_written(fields))


def _as_written(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as a job file would have them. Other fields stay, and are refused where all is judged."""
    written = {name: plain(value) for name, value in fields.items()}
    return {name: fields[name] if problems else value for name, (value, problems) in written.items()}
