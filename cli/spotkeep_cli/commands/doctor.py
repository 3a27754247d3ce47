"""`spotkeep doctor`: of a job file all that the launcher would refuse, and what is rarely meant; or the account."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, Overrides, invocation_of
from spotkeep_cli.errors import NoConnectionError, OrphanError, UsageError
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from spotkeep_cli.seams import Invocation


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
        check_account(invocation_of(context), as_json=as_json)
        return
    if job_file is None or account or permissions:
        raise UsageError(
            "doctor checks a job file, the account or the permissions, one of the three",
            hint="spotkeep doctor job.yaml, or: spotkeep doctor --account, or: spotkeep doctor --permissions",
        )
    from spotkeep_cli.commands.doctor_job_file import check_job_file

    check_job_file(job_file, overrides=overrides or (), invocation=invocation_of(context), as_json=as_json)


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


def check_account(invocation: "Invocation", *, as_json: bool) -> None:
    """Check the account, read-only, and show what was found.

    Raises:
        OrphanError: Something should not be there.
        NoConnectionError: Something could not be read.
    """
    from spotkeep_cli.account import check
    from spotkeep_cli.account.view import account_report
    from spotkeep_cli.rendering.quantities import counted

    terminal = Terminal(as_json=as_json)
    deployment = invocation.deployment()
    with terminal.remarks.status("reading jobs, warm pools, schedules, checkpoints and quotas"):
        found = check.check_account(deployment, clock=invocation.seams.now)
    if as_json:
        terminal.give_json(found.as_document())
    else:
        about = f"{invocation.options.deployment} in {deployment.region}"
        verdict = f"{counted(found.wrong, 'thing')} that should not be there" if found.wrong else "no orphans"
        terminal.show(f"{about}: {verdict}")
        for part in account_report(found, now=invocation.seams.now(), width=terminal.people.width):
            terminal.show(part)
        terminal.show_next(
            NextStep(command=invocation.command("ps"), what="the runs at work"),
            NextStep(command=invocation.command("pool ls"), what="warm pools, and who left them"),
        )
    if found.wrong:
        raise OrphanError(
            f"{counted(found.wrong, 'thing')} in the account should not be there",
            hint="the controller removes by rule, once an hour; the commands above do it now",
        )
    if found.unreadable:
        raise NoConnectionError(
            f"{' and '.join(found.unreadable)} could not be read",
            hint=f"ask for the managed policy of users of the deployment {invocation.options.deployment!r}",
        )
