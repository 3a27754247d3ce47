"""`spotkeep doctor JOB.YAML`: all that the launcher would refuse of a job file, and what is rarely meant."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from spotkeep_cli.errors import LocatedProblem, NoConnectionError, RefusedError
from spotkeep_cli.launching.job_checks import with_checks
from spotkeep_cli.launching.job_file import JobDocument, channels_on_file_systems, read_job_file
from spotkeep_cli.launching.judgement import judge
from spotkeep_cli.planning.launch_forecast import LaunchForecast, forecast_launch
from spotkeep_cli.planning.plan_view import launch_forecast_view
from spotkeep_cli.planning.spot_or_pool import MOST_RUNS, Advice, advice_for
from spotkeep_cli.rendering.quantities import counted
from spotkeep_cli.seams import Invocation
from spotkeep_cli.terminal import NextStep, Terminal, problem_list
from spotkeep_jobs.document.request import kind_of
from spotkeep_jobs.document.shell_text import is_block
from spotkeep_jobs.schedules.document import launched_by_a_schedule


@dataclass(frozen=True, kw_only=True)
class CheckedJobFile:
    """What was found of a job file.

    Attributes:
        checked_by: `the launcher`, or `here` where no deployment could be reached.
        problems: Why it would be refused; empty when it would be launched.
        warnings: What is rarely meant.
        advice: Spot or a warm pool; None where nothing is known of earlier runs.
        forecast: When it would be done and what it would cost; None without a deadline.
    """

    checked_by: str
    problems: Sequence[LocatedProblem]
    warnings: Sequence[LocatedProblem]
    advice: Advice | None
    forecast: LaunchForecast | None

    def as_document(self) -> Mapping[str, Any]:
        """Return it as JSON."""
        return {
            "ok": not self.problems,
            "checked_by": self.checked_by,
            "problems": [problem.as_document() for problem in self.problems],
            "warnings": [warning.as_document() for warning in self.warnings],
            "spot_or_pool": None if self.advice is None else self.advice.as_document(),
            **({} if self.forecast is None else {"forecast": self.forecast.as_document()}),
        }


def check_job_file(job_file: Path, *, overrides: Sequence[str], invocation: Invocation, as_json: bool) -> None:
    """Judge a job file and show what was found.

    Args:
        job_file: The file.
        overrides: `--set` values.
        invocation: The outside world.
        as_json: Whether a program reads the answer.

    Raises:
        JobFileError: The file cannot be read.
        typer.Exit: It would be refused.
    """
    terminal = Terminal(as_json=as_json)
    document = read_job_file(job_file, overrides=overrides)
    checked = _check(document, invocation=invocation, terminal=terminal)
    if as_json:
        terminal.give_json(checked.as_document())
    else:
        _show_blocks(document, terminal=terminal)
        _show(checked, job_file, terminal=terminal)
        terminal.show_next(*_next_steps(checked, job_file, document=document, invocation=invocation))
    if checked.problems:
        raise typer.Exit(RefusedError.exit_code)


def _check(document: JobDocument, *, invocation: Invocation, terminal: Terminal) -> CheckedJobFile:
    judged = judge(document, invocation=invocation)
    judgement, deployment = judged.judgement, judged.deployment
    advice = forecast = None
    if deployment is None:
        terminal.remark(f"Checked here, without a deployment ({judged.unreachable}).")
    elif judgement.request:
        try:
            advice = advice_for(
                judgement.request,
                usd_per_hour=judgement.usd_per_hour,
                runs=deployment.table.runs.list(limit=MOST_RUNS, unreadable={}),
            )
        except NoConnectionError as error:
            terminal.remark(f"No advice on spot or pool ({error.message}).")
    if not judgement.problems:
        with terminal.remarks.status("forecasting"):
            forecast = forecast_launch(judgement, deployment=deployment, invocation=invocation)
    return CheckedJobFile(
        checked_by="here" if deployment is None else "the launcher",
        problems=document.located([*judgement.problems, *(forecast.problems if forecast else ())]),
        warnings=document.located(
            with_checks([*judgement.warnings, *(forecast.warnings if forecast else ())], judged.prepared)
        ),
        advice=advice,
        forecast=forecast,
    )


def _show_blocks(document: JobDocument, *, terminal: Terminal) -> None:
    """Say which commands are blocks of lines. Their text alone does not show whether a shell reads it."""
    for name in ("command", "setup"):
        text = document.fields.get(name)
        if isinstance(text, str) and is_block(text):
            lines = counted(sum(bool(line.strip()) for line in text.splitlines()), "line")
            terminal.show(f"{name}: {lines} for bash -euo pipefail, which ends at the first that fails")


def _show(checked: CheckedJobFile, job_file: Path, *, terminal: Terminal) -> None:
    if checked.problems:
        terminal.show(f"{job_file}: {counted(len(checked.problems), 'problem')}, it would be refused")
        terminal.show(problem_list(checked.problems))
    if checked.warnings:
        terminal.show(f"{job_file}: {counted(len(checked.warnings), 'warning')}")
        terminal.show(problem_list(checked.warnings, mark="!", style="yellow"))
    if checked.advice is not None:
        terminal.show(f"Spot or pool: {checked.advice}.")
    if checked.forecast is not None:
        terminal.show(launch_forecast_view(checked.forecast))
    if not checked.problems and not checked.warnings:
        terminal.show(f"{job_file}: nothing wrong with it")


def _next_steps(
    checked: CheckedJobFile, job_file: Path, *, document: JobDocument, invocation: Invocation
) -> Sequence[NextStep]:
    quoted = shlex.quote(str(job_file))
    if checked.problems:
        return [NextStep(command=invocation.command(f"doctor {quoted}"), what="check again")]
    launch = NextStep(command=invocation.command(f"launch {quoted}"), what="launch it")
    if channels_on_file_systems(document.fields):
        return [launch]
    rehearse = "rehearse-sweep" if kind_of(launched_by_a_schedule(document.fields)) == "sweep" else "rehearse"
    return [
        NextStep(command=f"spotkeep {rehearse} {quoted}", what="take its capacity away, here, for free"),
        launch,
    ]
