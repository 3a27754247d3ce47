"""A deployment, as a notebook or a pipeline uses it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.spinner import Spinner

from spotkeep_cli.aws.connection import connect, spot_market
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.aws.job_log import LogLine
from spotkeep_cli.aws.stored_objects import StoredObjects
from spotkeep_cli.errors import CommandLineError, RunFailedError, RunNotFoundError, RunStoppedError, UsageError
from spotkeep_cli.failure_causes import hint_of_failure
from spotkeep_cli.following import (
    Reported,
    SparseProgress,
    Unreachable,
    Update,
    follow,
    host_before,
    polls,
    raise_unless_done,
    read_lines,
    take,
)
from spotkeep_cli.launching.answers import ask_launcher
from spotkeep_cli.launching.job_checks import source_warnings
from spotkeep_cli.launching.job_file import JobDocument, read_job_file
from spotkeep_cli.launching.json_values import plain
from spotkeep_cli.launching.judgement import judge_or_refuse
from spotkeep_cli.launching.preparation import send
from spotkeep_cli.launching.resume_changes import resume_changes
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.job_event import event_text
from spotkeep_cli.rendering.lists import is_rehearsal, where
from spotkeep_cli.rendering.metric_list import at_step
from spotkeep_cli.rendering.pictures import require_drawing
from spotkeep_cli.rendering.printable import printable_line
from spotkeep_cli.rendering.run_bar import RunStatus
from spotkeep_cli.rendering.run_description import RunStory
from spotkeep_cli.rendering.run_pictures import metric_pictures, resumed_steps
from spotkeep_cli.run_names import MOST_RUNS, find_run, find_sweep
from spotkeep_cli.seams import Invocation, Seams
from spotkeep_cli.sweeps.sweep_plots import sweep_pictures
from spotkeep_cli.sweeps.sweep_report import SweepStory
from spotkeep_cli.sweeps.sweep_view import states_in_words
from spotkeep_client.displays import (
    Plots,
    html_table,
    run_line,
    run_table,
    showing,
    shown_run,
    shown_sweep,
    sweep_line,
    sweep_tables,
)
from spotkeep_jobs.document.request import kind_of
from spotkeep_jobs.errors import Problem
from spotkeep_jobs.progress.job_events import JobEventKind
from spotkeep_jobs.record.states import SweepState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import pandas as pd

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record import record
    from spotkeep_jobs.record import sweep as sweep_record


HandleT = TypeVar("HandleT")
_MOST_LISTED = 1000


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

    def wait(self, *, show: Callable[[str], object] | None = None, bar: bool | None = None) -> SweepHandle:
        """Wait until its search is over. Leaving off (an interrupt of the kernel) leaves it running.

        A notebook shows a bar of its ended trials. Elsewhere nothing is printed unless it is asked for.

        Args:
            show: Called with a line whenever trials have changed their states, or one is the best now: `print`.
            bar: True for a bar at a terminal, too. False for none in a notebook.

        Raises:
            RunFailedError: Its trials failed, one after the other.
            RunStoppedError: It was stopped or paused, or its `max_cost` is spent.
            NoConnectionError: The deployment stayed out of reach.
        """
        ended = self._ended(show, bar=bar)
        if ended.state is SweepState.COMPLETED:
            return self
        because = f", {ended.ended_because}" if ended.ended_because else ""
        said, hint = f"{self.id} is {ended.state.value.lower()}{because}", "trials() says what became of each"
        error = RunFailedError if ended.state is SweepState.FAILED else RunStoppedError
        raise error(said, hint=hint)

    def _ended(self, show: Callable[[str], object] | None, *, bar: bool | None) -> sweep_record.Sweep:
        line, newest, spinner = "", None, Spinner("dots")
        with showing(lambda: shown_sweep(newest, name=self.id, spinner=spinner), wanted=bar) as draw_again:
            for found in polls(self._record, pause=self._invocation.pause):
                if isinstance(found, Unreachable):
                    continue
                newest = found
                draw_again()
                if show is not None and sweep_line(found) != line:
                    line = sweep_line(found)
                    show(line)
                if found.state.ended:
                    return found
        raise AssertionError("polls ends only where its reader leaves")

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

    def plot(self) -> Plots:
        """Draw its objective over time and money, its trials' curves and its parameters.

        Raises:
            UsageError: It has no objective.
            MissingExtraError: matplotlib is not installed.
        """
        require_drawing("plot()")
        found, trials = self._deployment.table.sweeps.with_trials(self.id)
        record = self._record() if found is None else found
        drawn = SweepStory.read(record, trials, runs=self._deployment.table.runs).drawn
        if drawn is None:
            raise UsageError(f"{self.id} has no objective to draw", hint="trials() lists its trials")
        return Plots(of=self.id, pictures=sweep_pictures(drawn))

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
        return f"<Sweep {_or_problem(lambda: sweep_line(self._record()), name=self.id)}>"

    def _repr_html_(self) -> str:
        """Return it as a page for Jupyter, with its best trials."""
        found, trials = self._deployment.table.sweeps.with_trials(self.id)
        return sweep_tables(self._record() if found is None else found, trials)

    def _record(self) -> sweep_record.Sweep:
        found = self._deployment.table.sweeps.get(self.id)
        if found is None:
            raise RunNotFoundError(f"the record of {self.id} is gone", hint="ended sweeps are forgotten after a while")
        return found


def warn_of(problems: Iterable[Problem], *, inside: int = 1) -> None:
    """Warn the caller of `launch` or `resume`, for example of a branch, which moves, or of files that stay behind.

    Args:
        problems: A warning each.
        inside: The number of functions of ours between this one and the caller's line. It is 1 in the one that they
            call.
    """
    for problem in problems:
        warnings.warn(str(problem), UserWarning, stacklevel=inside + 2)


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

    def wait(self, *, show: Callable[[str], object] | None = None, bar: bool | None = None) -> RunHandle:
        """Wait until it has completed, or paused at its `pause_at_step`.

        Leaving off (an interrupt of the kernel) leaves it running. A notebook shows a bar with its step, its times and
        its newest metrics or its last line. Elsewhere nothing is printed unless it is asked for.

        Args:
            show: Called with each line that is new, for example `print`.
            bar: True for a bar at a terminal, too. False for none in a notebook.

        Raises:
            RunFailedError: It failed.
            RunStoppedError: It was stopped, or came to a limit.
            NoConnectionError: The deployment stayed out of reach.
        """
        status, spinner, now = RunStatus(), Spinner("dots"), self._invocation.seams.now
        with showing(lambda: shown_run(self.id, status, now=now(), spinner=spinner), wanted=bar) as draw_again:

            def pause() -> None:
                draw_again()
                self._invocation.pause()

            sparse = SparseProgress()
            for update in follow(self._deployment, self.id, pause=pause):
                take(update, status=status)
                if isinstance(update, LogLine):
                    status.take_line(update.text)
                elif isinstance(update, Unreachable):
                    status.take_line(update.problem)
                if show is not None and (line := _line(update, sparse)) is not None:
                    show(line)
            draw_again()
        ended = self._record()
        reason = ended.failure_reason or ""
        hint = hint_of_failure(reason) or f"run.logs() says what it printed; {reason}".rstrip("; ")
        raise_unless_done(ended, hint=hint)
        return self

    def logs(self) -> str:
        """Return the output of its jobs so far, all attempts in order. Events are in words."""
        attempts = self._deployment.table.runs.attempts(self.id)
        updates = [
            update
            for attempt in attempts
            for update in read_lines(
                self._deployment.job_log(*attempt.log_names, backend=attempt.place.backend),
                hosts=attempt.place.instance_count,
            )
        ]
        sparse = SparseProgress()
        return "\n".join(line for update in updates if (line := _line(update, sparse)) is not None)

    def metrics(self) -> pd.DataFrame:
        """Return the curves of its metrics, with a column a metric and an index of steps.

        Up to 60 values of a metric are all there. Of more, 30 to 63 are. The first, the last, the least and the
        greatest are among them.

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

    def plot(self) -> Plots:
        """Draw its metrics, with the steps from which its jobs went on.

        Raises:
            MissingExtraError: matplotlib is not installed.
        """
        require_drawing("plot()")
        runs = self._deployment.table.runs
        metrics, steps = runs.metrics(self.id), resumed_steps(runs.timeline(self.id, unreadable={}))
        pictures = () if metrics is None else tuple(metric_pictures(metrics, steps=steps))
        return Plots(of=self.id, pictures=pictures)

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
        """Return its id, its state and its time."""
        now = self._invocation.seams.now
        return f"<Run {_or_problem(lambda: run_line(self._record(), now=now()), name=self.id)}>"

    def _repr_html_(self) -> str:
        """Return it as a page for Jupyter."""
        now = self._invocation.seams.now()
        return run_table(self._record(), metrics=self._deployment.table.runs.metrics(self.id), now=now)

    def download_model(self, folder: str | Path | None = None) -> Path:
        """Download its model, and return the path of the archive. An earlier download is replaced.

        Args:
            folder: The folder to write to, which is made where it is missing. Default: one with the run's id.

        Raises:
            UsageError: It has no model yet.
            NoConnectionError: S3 refused or could not be reached.
        """
        uri = self._record().output_uri
        if uri is None:
            raise UsageError(f"{self.id} has no model yet", hint="run.wait() waits for it, run.state says where it is")
        prefix, _, name = uri.rpartition("/")
        into = Path(self.id) if folder is None else Path(folder)
        into.mkdir(parents=True, exist_ok=True)
        stored = StoredObjects(self._deployment.client("s3"), uri=f"{prefix}/", options=self._deployment.options)
        unfinished = into / f".{name}.part"
        try:
            stored.download(name, unfinished, on_bytes=lambda _: None)
            unfinished.replace(into / name)
        finally:
            unfinished.unlink(missing_ok=True)
        return into / name

    def _record(self) -> record.Run:
        found = self._deployment.table.runs.get(self.id)
        if found is None:
            raise RunNotFoundError(f"the record of {self.id} is gone", hint="ended runs are forgotten after a while")
        return found

    def _measured(self) -> dict[str, record.Metric]:
        found = self._deployment.table.runs.metrics(self.id)
        return {} if found is None else found.metrics


class Listed(list[HandleT]):
    """Handles of runs or of sweeps, newest first. A notebook shows them as a table, with their states when listed.

    Args:
        handles: The handles.
        caption: The name of the table.
        headings: Its headings.
        rows: Its rows, a text a column.
    """

    def __init__(
        self, handles: Iterable[HandleT], *, caption: str, headings: Sequence[str], rows: Sequence[Sequence[str]]
    ) -> None:
        super().__init__(handles)
        self._caption, self._headings, self._rows = caption, headings, rows

    def __repr__(self) -> str:
        """Return a line each."""
        widths = [max(map(len, cells)) for cells in zip(*self._rows, strict=True)]
        lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in self._rows)
        return "\n".join(printable_line(line) for line in lines) or "[]"

    def _repr_html_(self) -> str:
        """Return them as a table for Jupyter."""
        return html_table(self._headings, self._rows, caption=self._caption)


def _or_problem(say: Callable[[], str], *, name: str) -> str:
    """Return a text, or the reason why it is not known. An object whose record is gone has a text, too."""
    try:
        return say()
    except CommandLineError as error:
        return f"{name}: {error.message}"


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


def _line(update: Update, sparse: SparseProgress) -> str | None:
    """Return the text of an update in one line. None if the update is no line of a log, or one of many metrics.

    With several hosts the line begins with the one that wrote it.
    """
    if isinstance(update, LogLine):
        return f"{host_before(update)}{update.text}"
    if isinstance(update, Reported):
        if update.event.kind is JobEventKind.METRICS and not sparse.worth_a_line(update.event):
            return None
        return f"{host_before(update.line)}spotkeep: {event_text(update.event)}"
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

    def runs(self, *, owner: str | None = None, limit: int = 20) -> Listed[RunHandle]:
        """Return the newest runs, newest first. Trials of sweeps and runs of rehearsals are left out.

        Args:
            owner: Only those of this owner.
            limit: At most so many, from 1 to 1000.

        Raises:
            UsageError: The limit is out of its range.
        """
        _check_limit(limit)
        now = self._invocation.seams.now()
        # Only a local AWS has rehearsals, which may be most of its runs.
        most_read = max(MOST_RUNS, limit) if self._invocation.options.local else limit
        read = self._deployment.table.runs.list(owner=owner, limit=most_read, unreadable={})
        found = [run for run in read if not is_rehearsal(run)][:limit]
        return Listed(
            [RunHandle(run.run, deployment=self._deployment, invocation=self._invocation) for run in found],
            caption="the newest runs",
            headings=("run", "state", "on", "age", "owner"),
            rows=[
                (run.run, run.state.value.lower(), where(run), quantities.age(run.created_at, now=now), run.owner or "")
                for run in found
            ],
        )

    def sweeps(self, *, owner: str | None = None, limit: int = 20) -> Listed[SweepHandle]:
        """Return the newest sweeps, newest first. Those of rehearsals are left out.

        Args:
            owner: Only those of this owner.
            limit: At most so many, from 1 to 1000.

        Raises:
            UsageError: The limit is out of its range.
        """
        _check_limit(limit)
        now = self._invocation.seams.now()
        read = self._deployment.table.sweeps.list(owner=owner, limit=limit, unreadable={})
        found = [sweep for sweep in read if not is_rehearsal(sweep)]
        return Listed(
            [SweepHandle(each.sweep, deployment=self._deployment, invocation=self._invocation) for each in found],
            caption="the newest sweeps",
            headings=("sweep", "state", "trials", "best", "age", "owner"),
            rows=[
                (
                    each.sweep,
                    each.state.value.lower(),
                    states_in_words(each.counts),
                    "" if each.best is None else at_step(each.best.value, each.best.step),
                    quantities.age(each.created_at, now=now),
                    each.owner or "",
                )
                for each in found
            ],
        )

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


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= _MOST_LISTED:
        raise UsageError(f"limit is {limit}", hint=f"give a whole number from 1 to {_MOST_LISTED}")


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
