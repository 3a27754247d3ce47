"""A run, as a notebook or a pipeline uses it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from spotkeep_cli.aws.job_log import LogLine
from spotkeep_cli.errors import RunNotFoundError, UsageError
from spotkeep_cli.following import Reported, Update, follow, raise_unless_done, read_lines
from spotkeep_cli.launching.answers import ask_launcher
from spotkeep_cli.launching.resume_changes import resume_changes
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.job_event import event_text
from spotkeep_cli.rendering.lists import reason_text, where
from spotkeep_cli.rendering.metric_list import at_step, sparkline
from spotkeep_cli.rendering.printable import printable_line
from spotkeep_cli.rendering.run_description import RunStory
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    import pandas as pd

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record import record
    from spotkeep_jobs.record.record import ScriptMetrics


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


class Run:
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

    def wait(self, *, show: Callable[[str], object] | None = None) -> Run:
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
        """Return the curves of its metrics, with a column a metric and an index of steps. At most 60 points each.

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

    def stop(self) -> Run:
        """Ask it to end. It saves first, and can be resumed.

        Raises:
            RefusedError: The caller may not stop it.
        """
        ask_launcher(self._deployment, {"action": "stop", "run": self.id}, what=f"{self.id} was not stopped")
        return self

    def resume(self, *, source: str | Path | None = None, **changes: Any) -> Run:
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
