"""A deployment, as a notebook or a pipeline uses it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotkeep_cli.aws.connection import connect, spot_market
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.aws.job_log import LogLine
from spotkeep_cli.errors import RunFailedError, RunNotFoundError, RunStoppedError, UsageError
from spotkeep_cli.following import Reported, Unreachable, Update, follow, polls, raise_unless_done, read_lines
from spotkeep_cli.launching.answers import ask_launcher
from spotkeep_cli.launching.job_checks import source_warnings
from spotkeep_cli.launching.job_file import JobDocument, read_job_file
from spotkeep_cli.launching.json_values import plain
from spotkeep_cli.launching.judgement import judge_or_refuse
from spotkeep_cli.launching.preparation import send
from spotkeep_cli.launching.resume_changes import resume_changes
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.job_event import event_text
from spotkeep_cli.rendering.lists import reason_text, where
from spotkeep_cli.rendering.metric_list import at_step, sparkline
from spotkeep_cli.rendering.printable import printable_line
from spotkeep_cli.rendering.run_description import RunStory
from spotkeep_cli.run_names import find_run, find_sweep
from spotkeep_cli.seams import Invocation, Seams
from spotkeep_cli.sweeps.sweep_view import states_in_words
from spotkeep_jobs.document.request import kind_of
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.record.states import SweepState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pandas as pd

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record import record
    from spotkeep_jobs.record import sweep as sweep_record
    from spotkeep_jobs.record.record import ScriptMetrics


class SweepHandle:
    """One sweep. Each property and method reads the record anew.

    Args:
        sweep: Its id.
        deployment: The deployment that it runs in.
        invocation: The options that chose the deployment, and the clock.
    """

    def __init__(self, sweep: str, *, deployment: DeploymentClient, invocation: Invocation) -> None:
        self.id = sweep
        self._deployment = deployment
        self._invocation = invocation

    @property
    def state(self) -> str:
        """Its state, one of RUNNING, STOPPING, PAUSED, COMPLETED, FAILED or STOPPED."""
        return self._record().state.value

    def wait(self, *, show: Callable[[str], object] | None = None) -> SweepHandle:
        """Wait until its search is over. Leaving off (an interrupt of the kernel) leaves it running.

        Args:
            show: Called with a line whenever trials have changed their states, or one is the best now: `print`.

        Raises:
            RunFailedError: Its trials failed, one after the other.
            RunStoppedError: It was stopped or paused, or its `max_cost` is spent.
            NoConnectionError: The deployment stayed out of reach.
        """
        ended = next(found for found in self._followed(show) if found.state.ended)
        if ended.state is SweepState.COMPLETED:
            return self
        because = f", {ended.ended_because}" if ended.ended_because else ""
        said, hint = f"{self.id} is {ended.state.value.lower()}{because}", "trials() says what became of each"
        error = RunFailedError if ended.state is SweepState.FAILED else RunStoppedError
        raise error(said, hint=hint)

    def _followed(self, show: Callable[[str], object] | None) -> Iterator[sweep_record.Sweep]:
        shown = ""
        for found in polls(self._record, pause=self._invocation.pause):
            if not isinstance(found, Unreachable):
                if show is not None and (line := _sweep_line(found)) != shown:
                    show(shown := line)
                yield found

    def trials(self) -> pd.DataFrame:
        """Return a row a trial, by its number, with its run, state, steps, best value, and `parameters.<name>`.

        Raises:
            UsageError: pandas is not installed.
        """
        pandas = pandas_for("trials()", without="spotkeep describe --json")
        trials = self._deployment.table.sweeps.with_trials(self.id)[1]
        rows = {
            each.number: {
                "run": each.run,
                "state": each.state.value,
                "step": each.step,
                "best": each.best,
                "best_step": each.best_step,
                **{f"parameters.{name}": value for name, value in each.parameters.items()},
            }
            for each in trials
        }
        return pandas.DataFrame.from_dict(rows, orient="index").sort_index().rename_axis("trial")

    def best(self) -> sweep_record.BestTrial:
        """Return the trial with the best objective, as its `number`, `run`, `value`, `step` and `parameters`.

        Raises:
            UsageError: None has reported its objective yet, or the sweep has none.
        """
        found = self._record().best
        if found is None:
            raise UsageError(
                f"{self.id} has no best trial yet: none has reported its objective, or it has none",
                hint="trials() says where each is",
            )
        return found

    def stop(self) -> SweepHandle:
        """Ask its trials to end. They save first, and the sweep can be resumed.

        Raises:
            RefusedError: The caller may not stop it.
        """
        ask_launcher(self._deployment, {"action": "stop", "sweep": self.id}, what=f"{self.id} was not stopped")
        return self

    def resume(self, *, source: str | Path | None = None, **changes: Any) -> SweepHandle:
        """Let a sweep that has ended go on, with the trials that stopped with it or failed and then its search.

        Args:
            source: Code that each trial goes on with, as a directory or an archive, relative to the current directory.
            **changes: New values of fields of its job, such as `max_cost=60`. None takes a field away.

        Raises:
            RefusedError: It has not ended, has nothing left to try, or the changed job would not be launched.
        """
        fields = changes if source is None else {**changes, "source": str(source)}
        resumed = resume_changes(self._record(), fields=fields, deployment=self._deployment)
        warn_of(resumed.warnings)
        resumed.send(self._deployment)
        return self

    def __repr__(self) -> str:
        """Return its id and the state of its trials."""
        return f"<Sweep {_sweep_line(self._record())}>"

    def _record(self) -> sweep_record.Sweep:
        found = self._deployment.table.sweeps.get(self.id)
        if found is None:
            raise RunNotFoundError(f"the record of {self.id} is gone", hint="ended sweeps are forgotten after a while")
        return found


def _sweep_line(sweep: sweep_record.Sweep) -> str:
    """Return the state of a sweep in one line."""
    states = states_in_words(sweep.counts)
    best = sweep.best
    parts = [sweep.state.value.lower(), *([states] if states else [])]
    if best is not None:
        parts.append(f"best trial {best.number}: {at_step(best.value, best.step)}")
    return f"{sweep.sweep}: {'; '.join(parts)}"


def warn_of(problems: Iterable[Problem], *, inside: int = 1) -> None:
    """Warn the caller of `launch` or `resume`, for example of a branch, which moves, or of files that stay behind.

    Args:
        problems: A warning each.
        inside: The number of functions of ours between this one and the caller's line. It is 1 in the one that they
            call.
    """
    for problem in problems:
        warnings.warn(str(problem), UserWarning, stacklevel=inside + 2)


def run_page(run: record.Run, *, metrics: ScriptMetrics | None) -> str:
    """Return HTML without scripts and without styles of its own.

    Args:
        run: The run item.
        metrics: The measurements of its script.
    """
    reason = reason_text(run.end_reason)
    rows = [
        ("state", f"{run.state.value.lower()}{f', {reason}' if reason else ''}"),
        ("runs on", where(run)),
        ("attempt", str(run.attempt)),
        ("interruptions", str(run.interruptions)),
        ("created", f"{quantities.moment(run.created_at)} UTC"),
    ]
    if run.cost is not None:
        rows.append(
            ("cost", f"{quantities.dollars(run.cost.billed_usd)}, {quantities.percent(run.cost.saved_percent)} saved")
        )
    if run.failure_reason:
        rows.append(("said", run.failure_reason))
    if run.output_uri:
        rows.append(("model", run.output_uri))
    rows.append(("checkpoints", run.checkpoint_uri))
    for name, metric in () if metrics is None else metrics.metrics.items():
        best = "" if metric.best is None else f", best {at_step(metric.best, metric.best_step)}"
        curve = sparkline([value for _, value in metric.points])
        rows.append((name, f"{at_step(metric.last, metric.last_step)}{best} {curve}"))
    cells = "".join(f"<tr><th>{_shown(name)}</th><td>{_shown(text)}</td></tr>" for name, text in rows)
    return f"<table><caption>{_shown(run.run)}</caption>{cells}</table>"


def _shown(text: str) -> str:
    return escape(printable_line(text, longest=1_000))


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A value of a metric.

    Attributes:
        metric: The metric's name.
        step: The completed steps it was measured after. None where that is not known.
        value: The value itself.
    """

    metric: str
    step: int | None
    value: float


class RunHandle:
    """One run. Each property and method reads the record anew.

    Args:
        run: Its id.
        deployment: The deployment that it runs in.
        invocation: The options that chose the deployment, and the clock.
    """

    def __init__(self, run: str, *, deployment: DeploymentClient, invocation: Invocation) -> None:
        self.id = run
        self._deployment = deployment
        self._invocation = invocation

    @property
    def state(self) -> str:
        """Its state, one of LAUNCHING, WAITING, TRAINING, INTERRUPTED, STOPPING, COMPLETED, FAILED or STOPPED."""
        return self._record().state.value

    @property
    def model_uri(self) -> str | None:
        """The S3 URI of its model, once it is known."""
        return self._record().output_uri

    @property
    def paused_at_step(self) -> int | None:
        """The completed steps of a run that is paused. None for any other run."""
        return self._record().paused_at_step

    @property
    def checkpoint_uri(self) -> str:
        """The S3 URI of its checkpoints."""
        return self._record().checkpoint_uri

    @property
    def job_name(self) -> str | None:
        """The name of its newest training job. None before there is one, and for a run on EC2."""
        attempts = self._deployment.table.runs.attempts(self.id)
        of_sagemaker = attempts and attempts[-1].place.backend == "sagemaker"
        return next(iter(attempts[-1].log_names[-1:]), None) if of_sagemaker else None

    def wait(self, *, show: Callable[[str], object] | None = None) -> RunHandle:
        """Wait until it has completed, or paused at its `pause_at_step`.

        Leaving off (an interrupt of the kernel) leaves it running.

        Args:
            show: Called with each line that is new, for example `print`.

        Raises:
            RunFailedError: It failed.
            RunStoppedError: It was stopped, or came to a limit.
            NoConnectionError: The deployment stayed out of reach.
        """
        for update in follow(self._deployment, self.id, pause=self._invocation.pause):
            if show is not None and (line := _line(update)) is not None:
                show(line)
        ended = self._record()
        hint = f"run.logs() says what it printed; {ended.failure_reason or ''}".rstrip("; ")
        raise_unless_done(ended, hint=hint)
        return self

    def logs(self) -> str:
        """Return the output of its jobs so far, all attempts in order. Events are in words."""
        attempts = self._deployment.table.runs.attempts(self.id)
        updates = [
            update
            for attempt in attempts
            for update in read_lines(self._deployment.job_log(*attempt.log_names, backend=attempt.place.backend))
        ]
        return "\n".join(line for update in updates if (line := _line(update)) is not None)

    def metrics(self) -> pd.DataFrame:
        """Return the curves of its metrics, with a column a metric and an index of steps.

        Up to 60 values of a metric are all there. Of more, 30 to 60 are, the first and the last among them.

        Raises:
            UsageError: pandas is not installed.
        """
        pandas = pandas_for("metrics()", without='run.describe()["metrics"]')
        measured = self._measured().items()
        curves = {name: pandas.Series(dict(metric.points), dtype=float) for name, metric in measured}
        return pandas.DataFrame(curves).sort_index().rename_axis("step")

    def best(self, metric: str | None = None) -> Measurement:
        """Return the best value of a metric.

        Args:
            metric: Its name. Default: the only one that has a goal.

        Raises:
            UsageError: There is no such metric, it has no goal, or several have one.
        """
        with_goal = {name: each for name, each in self._measured().items() if each.best is not None}
        if metric is None and len(with_goal) == 1:
            metric = next(iter(with_goal))
        found = with_goal.get(metric or "")
        if metric is None or found is None or found.best is None:
            raise UsageError(
                f"{self.id} has no best {metric or 'value: name one of its metrics'}",
                hint=f"metrics with a goal: {', '.join(with_goal) or 'none'}; a job file gives one a goal: "
                "metrics: {validation_loss: {goal: minimize}}",
            )
        return Measurement(metric=metric, step=found.best_step, value=found.best)

    def stop(self) -> RunHandle:
        """Ask it to end. It saves first, and can be resumed.

        Raises:
            RefusedError: The caller may not stop it.
        """
        ask_launcher(self._deployment, {"action": "stop", "run": self.id}, what=f"{self.id} was not stopped")
        return self

    def resume(self, *, source: str | Path | None = None, **changes: Any) -> RunHandle:
        """Start its next attempt, on the same checkpoints, unchanged or with the given changes.

        Args:
            source: Code to go on with, as a directory or an archive, relative to the current directory.
            **changes: New values of fields of its job, such as `max_run="4h"`. None takes a field away.

        Raises:
            RefusedError: It has not ended, has completed, or the changed job would not be launched.
        """
        fields = changes if source is None else {**changes, "source": str(source)}
        resumed = resume_changes(self._record(), fields=fields, deployment=self._deployment)
        warn_of(resumed.warnings)
        resumed.send(self._deployment)
        return self

    def describe(self) -> dict[str, Any]:
        """Return its whole record, with run, attempts, timeline, metrics, and its plan where it has one."""
        region = None if self._invocation.options.local else self._deployment.region
        runs = self._deployment.table.runs
        return RunStory.read(self._record(), runs=runs, region=region, unreadable={}).as_document()

    def __repr__(self) -> str:
        """Return its id and its state."""
        return f"<Run {self.id}: {self.state.lower()}>"

    def _repr_html_(self) -> str:
        """Return it as a page for Jupyter."""
        return run_page(self._record(), metrics=self._deployment.table.runs.metrics(self.id))

    def _record(self) -> record.Run:
        found = self._deployment.table.runs.get(self.id)
        if found is None:
            raise RunNotFoundError(f"the record of {self.id} is gone", hint="ended runs are forgotten after a while")
        return found

    def _measured(self) -> dict[str, record.Metric]:
        found = self._deployment.table.runs.metrics(self.id)
        return {} if found is None else found.metrics


def pandas_for(call: str, *, without: str) -> Any:
    """Return pandas.

    Args:
        call: The call that gives a DataFrame.
        without: The call that has the same without pandas.

    Raises:
        UsageError: It is not installed.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise UsageError(
            f"{call} gives a pandas DataFrame, and pandas is not installed",
            hint=f"pip install 'spotkeep[client]'; {without} has the same without it",
        ) from error
    return pd


def _line(update: Update) -> str | None:
    """Return the text of an update in one line. None if the update is no line of a log."""
    if isinstance(update, LogLine):
        return update.text
    if isinstance(update, Reported):
        return f"spotkeep: {event_text(update.event)}"
    return None


class Spotkeep:
    """One deployed Spotkeep, in AWS or in the local AWS.

    Args:
        deployment: The `deployment` setting it was deployed with.
        region: The AWS region, or None for the AWS configuration's own.
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

    def launch(
        self, job: str | Path | Mapping[str, Any], *, source: str | Path | None = None, **fields: Any
    ) -> RunHandle:
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
        return RunHandle(self._sent(document)["run"], deployment=self._deployment, invocation=self._invocation)

    def launch_sweep(
        self, job: str | Path | Mapping[str, Any], *, source: str | Path | None = None, **fields: Any
    ) -> SweepHandle:
        """Launch a sweep, and return it at once. Arguments and errors are those of `launch`."""
        document = _document(job, source=source, fields=fields)
        if kind_of(document.fields) == "job":
            raise UsageError("the job is no sweep: it has no field sweep", hint="call launch")
        return SweepHandle(self._sent(document)["sweep"], deployment=self._deployment, invocation=self._invocation)

    def run(self, run: str) -> RunHandle:
        """Return a run by its id, or the beginning of it that no other has.

        Raises:
            RunNotFoundError: None has it, or several have.
        """
        found = find_run(self._deployment.table, run, command=self._invocation.options.command)
        return RunHandle(found.run, deployment=self._deployment, invocation=self._invocation)

    def sweep(self, sweep: str) -> SweepHandle:
        """Return a sweep by its id, or the beginning of it that no other has.

        Raises:
            RunNotFoundError: None has it, or several have.
        """
        found = find_sweep(self._deployment.table, sweep, command=self._invocation.options.command)
        return SweepHandle(found.sweep, deployment=self._deployment, invocation=self._invocation)

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
        warn_of([*prepared.warnings, *source_warnings(prepared)], inside=2)
        return send(prepared, deployment=self._deployment)


def _document(
    job: str | Path | Mapping[str, Any], *, source: str | Path | None, fields: Mapping[str, Any]
) -> JobDocument:
    """Return a job with other values for some of its fields."""
    if source is not None:
        fields = {**fields, "source": str(source)}
    if isinstance(job, Mapping):
        # What it names is relative to the current directory, as it is in a job file there.
        document = JobDocument(path=Path.cwd() / "job.yaml", fields=_as_written(job), is_file=False)
    else:
        document = read_job_file(Path(job))
    return document.with_fields(_as_written(fields))


def _as_written(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields as a job file would have them. Other fields stay, and are refused where all is judged."""
    written = {name: plain(value) for name, value in fields.items()}
    return {name: fields[name] if problems else value for name, (value, problems) in written.items()}
