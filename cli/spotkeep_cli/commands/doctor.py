"""`spotkeep doctor`: of a job file all that the launcher would refuse, and what is rarely meant; or the account."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, Overrides, invocation_of
from spotkeep_cli.errors import NoConnectionError, RefusedError, UsageError
from spotkeep_cli.terminal import NextStep, Terminal


def doctor(
    context: typer.Context,
    job_file: Annotated[
        Path | None, typer.Argument(metavar="JOB.YAML", help="The job file.", show_default=False)
    ] = None,
    *,
    account: Annotated[
        bool, typer.Option("--account", help="Check the account instead: what belongs to no live run, and quotas.")
    ] = False,
    permissions: Annotated[
        bool,
        typer.Option("--permissions", help="Show what the last rehearsal called, what allowed it, what nothing used."),
    ] = False,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Check a job file without launching anything, or the account without changing anything."""
    if permissions and job_file is None and not account:
        show_permissions(as_json=as_json)
        return
    if account and job_file is None:
        from spotkeep_cli.commands.doctor_account import check_account

        check_account(invocation_of(context), as_json=as_json)
        return
    if job_file is None or account or permissions:
        raise UsageError(
            "doctor checks a job file, the account or the permissions, one of the three",
            hint="spotkeep doctor job.yaml, or: spotkeep doctor --account, or: spotkeep doctor --permissions",
        )
    check_job_file(context, job_file, overrides=overrides, as_json=as_json)


def show_permissions(*, as_json: bool) -> None:
    """Show what the last rehearsal found of the deployment's permissions.

    Raises:
        UsageError: There was none.
    """
    from spotkeep_cli.aws.connection import project_directory
    from spotkeep_cli.rehearsal.permissions import (
        FILE_NAME,
        judging_line,
        permission_document,
        permission_tables,
        read_permissions,
    )

    terminal = Terminal(as_json=as_json)
    reports, judging = read_permissions(project_directory() / ".spotkeep" / "rehearsal" / FILE_NAME)
    if as_json:
        terminal.give_json(permission_document(reports, judging=judging))
        return
    for part in permission_tables(reports):
        terminal.show(part)
    if judging is not None:
        terminal.show(f"\n{judging_line(judging)}")


def check_job_file(context: typer.Context, job_file: Path, *, overrides: list[str] | None, as_json: bool) -> None:
    """Judge a job file and show what was found.

    Raises:
        typer.Exit: It would be refused.
    """
    from spotkeep_cli.launching.job_checks import check_job
    from spotkeep_cli.launching.job_file import read_job_file
    from spotkeep_cli.launching.judgement import judge
    from spotkeep_cli.planning.launch_forecast import forecast_launch
    from spotkeep_cli.planning.plan_view import launch_forecast_view
    from spotkeep_cli.planning.spot_or_pool import MOST_RUNS, advice_for
    from spotkeep_cli.rendering.problem_list import problem_list
    from spotkeep_cli.rendering.quantities import counted
    from spotkeep_jobs.sweeps.document import is_sweep

    invocation = invocation_of(context)
    terminal = Terminal(as_json=as_json)
    document = read_job_file(job_file, overrides=overrides or ())
    judged = judge(document, invocation=invocation)
    judgement, deployment = judged.judgement, judged.deployment
    advice = None
    if deployment is None:
        terminal.remark(f"Checked here, without a deployment ({judged.unreachable}).")
    elif judgement.request:
        try:
            advice = advice_for(judgement, runs=deployment.runs.list(limit=MOST_RUNS))
        except NoConnectionError as error:
            terminal.remark(f"No advice on spot or pool ({error.message}).")
    forecast = None
    if not judgement.problems:
        with terminal.remarks.status("forecasting"):
            forecast = forecast_launch(judgement, deployment=deployment, invocation=invocation)
    problems = document.located([*judgement.problems, *(forecast.problems if forecast else ())])
    warnings = document.located(
        [*judgement.warnings, *(forecast.warnings if forecast else ()), *check_job(judged.prepared)]
    )
    if as_json:
        terminal.give_json(
            {
                "ok": not problems,
                "checked_by": "here" if deployment is None else "the launcher",
                "problems": [problem.as_document() for problem in problems],
                "warnings": [warning.as_document() for warning in warnings],
                "spot_or_pool": None if advice is None else advice.as_document(),
                **({} if forecast is None else {"forecast": forecast.as_document()}),
            }
        )
        if problems:
            raise typer.Exit(RefusedError.exit_code)
        return
    if problems:
        terminal.show(f"{job_file}: {counted(len(problems), 'problem')}, it would be refused")
        terminal.show(problem_list(problems))
    if warnings:
        terminal.show(f"{job_file}: {counted(len(warnings), 'warning')}")
        terminal.show(problem_list(warnings, mark="!", style="yellow"))
    if advice is not None:
        terminal.show(f"Spot or pool: {advice}.")
    if forecast is not None:
        terminal.show(launch_forecast_view(forecast))
    quoted = shlex.quote(str(job_file))
    again = NextStep(command=invocation.command(f"doctor {quoted}"), what="check again")
    if problems:
        terminal.show_next(again)
        raise typer.Exit(RefusedError.exit_code)
    if not warnings:
        terminal.show(f"{job_file}: nothing wrong with it")
    rehearse = "rehearse-sweep" if is_sweep(document.fields) else "rehearse"
    terminal.show_next(
        NextStep(command=f"spotkeep {rehearse} {quoted}", what="take its capacity away, here, for free"),
        NextStep(command=invocation.command(f"launch {quoted}"), what="launch it"),
    )
