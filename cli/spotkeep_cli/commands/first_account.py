"""The command of the first paid hour: `spotkeep first-account`."""

import getpass
import json
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, invocation_of
from spotkeep_cli.errors import NoConnectionError, OrphanError, RefusedError
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from spotkeep_cli.aws.calls import ClientFactory
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.first_account.plan import PlannedJob
    from spotkeep_cli.first_account.report import FirstAccountReport, Removal
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record.record import Run

_NO_DEPLOYMENT = (
    "make one first: spotkeep cdk bootstrap; spotkeep cdk deploy --all -c drills=true (spotkeep help first-account)"
)


def first_account(
    context: typer.Context,
    *,
    ceiling: Annotated[float, typer.Option(metavar="USD", min=0.01, help="The highest cost, in US dollars.")] = 5.0,
    instance_type: Annotated[
        str, typer.Option(metavar="TYPE", help="The instance type of the training jobs.")
    ] = "ml.m5.large",
    queue: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run a job in this queue too.", show_default=False)
    ] = None,
    share: Annotated[
        str | None, typer.Option(metavar="NAME", help="The share of the queue.", show_default=False)
    ] = None,
    report_folder: Annotated[
        Path | None,
        typer.Option(
            "--report",
            metavar="FOLDER",
            help="The folder of the report; default .spotkeep/first-account/SESSION.",
            show_default=False,
        ),
    ] = None,
    clean_up: Annotated[
        bool, typer.Option("--clean-up", help="Remove what earlier hours left, and run nothing.")
    ] = False,
    yes: AssumeYes = False,
    as_json: AsJson = False,
) -> None:
    """Run the smallest jobs of each kind in your account, and answer what AWS's documentation leaves open.

    Shows the jobs with their highest cost first, and asks. Removes everything at the end, and writes a report.
    """
    from spotkeep_cli.aws.connection import administrator_session
    from spotkeep_cli.first_account.plan import ON_AWS, ON_LOCAL_AWS, Wishes, planned_jobs, sum_usd
    from spotkeep_cli.first_account.removal import Remover, runs_of_first_hours
    from spotkeep_cli.first_account.report import FirstAccountReport
    from spotkeep_cli.first_account.run import FirstHour, probe_folder
    from spotkeep_cli.signals import unwinding_on_sigterm

    invocation, terminal = invocation_of(context), Terminal(as_json=as_json)
    deployment = _deployment(invocation)
    client = administrator_session(invocation.options).client
    remover = Remover(deployment, client=client, invocation=invocation)
    earlier = runs_of_first_hours(deployment)
    if clean_up:
        terminal.confirm(f"Remove what {len(earlier)} runs of first-account left?", assume_yes=yes)
        removal = remover.remove(earlier)
        if as_json:
            terminal.give_json({"ok": not removal.left, "removed": removal.removed, "left": removal.left})
        _end(removal, invocation=invocation, terminal=terminal)
        return
    connection, pace = deployment.connection, ON_LOCAL_AWS if invocation.options.local else ON_AWS
    wishes = Wishes(
        session=invocation.seams.new_token()[:6],
        instance_type=instance_type,
        queue=queue,
        share=share,
        fleets=bool(connection.fleet_log_group),
        drills=bool(connection.drill_template_id),
    )
    with probe_folder() as source:
        hour = FirstHour(
            deployment,
            client=client,
            source=source,
            invocation=invocation,
            pace=pace,
            ceiling_usd=ceiling,
            tell=terminal.remark,
        )
        with terminal.remarks.status("judging the jobs"):
            jobs = [hour.priced(job) for job in planned_jobs(wishes, pace=pace)]
        _show_plan(jobs, earlier=earlier, ceiling_usd=ceiling, terminal=terminal)
        if sum_usd(jobs) > ceiling:
            raise RefusedError(
                f"the plan costs up to {sum_usd(jobs):.2f} USD, and the ceiling is {ceiling:.2f} USD",
                hint="choose a smaller --instance-type, or a higher --ceiling",
            )
        terminal.confirm("Run these jobs, and remove everything afterwards?", assume_yes=yes)
        try:
            with unwinding_on_sigterm():
                remover.remove(earlier)
                too_dear = hour.perform(jobs)
                observed = hour.observed()
        except BaseException:
            terminal.remark("removing everything that was made; another Ctrl-C leaves it to --clean-up")
            remover.remove(hour.launched())
            raise
    runs = hour.launched()
    removal = remover.remove(runs)
    report = FirstAccountReport(
        version=metadata.version("spotkeep"),
        region=deployment.region,
        local=invocation.options.local,
        ceiling_usd=ceiling,
        spent_usd=hour.spent_usd(),
        ended_early="" if too_dear is None else too_dear.message,
        jobs=jobs,
        observed=observed,
        removal=removal,
        people=_people(runs, client=client, invocation=invocation),
    )
    _show_report(report, folder=report_folder or _report_folder(wishes.session), terminal=terminal)
    if too_dear is not None:
        raise too_dear
    _end(removal, invocation=invocation, terminal=terminal)


def _deployment(invocation: "Invocation") -> "DeploymentClient":
    """Return the deployment, or refuse with the commands that make one."""
    try:
        return invocation.deployment()
    except NoConnectionError as error:
        if invocation.options.local:
            raise
        raise NoConnectionError(error.message, hint=f"{error.hint}\n{_NO_DEPLOYMENT}") from error


def _people(runs: "Collection[Run]", *, client: "ClientFactory", invocation: "Invocation") -> set[str]:
    """Return the names of the person in the records, on this machine and in AWS."""
    from spotkeep_cli.aws.calls import translated_aws_errors

    with translated_aws_errors("asking AWS for the caller", options=invocation.options):
        caller = client("sts").get_caller_identity()
    names = {getpass.getuser(), caller["UserId"], caller["Arn"].rpartition("/")[2]}
    names |= {run.launched_by.name for run in runs if run.launched_by is not None}
    return names | {run.owner for run in runs if run.owner is not None}


def _report_folder(session: str) -> Path:
    from spotkeep_cli.aws.connection import STATE_DIRECTORY, project_directory

    return project_directory() / STATE_DIRECTORY / "first-account" / session


def _show_plan(
    jobs: "Sequence[PlannedJob]", *, earlier: "Sequence[Run]", ceiling_usd: float, terminal: Terminal
) -> None:
    from spotkeep_cli.first_account.plan import sum_usd
    from spotkeep_cli.rendering.columns import Column, table_that_fits
    from spotkeep_cli.rendering.quantities import dollars

    planned = [job for job in jobs if not job.left_out]
    table = table_that_fits(
        [
            Column(heading="job", cells=[job.kind for job in planned], footer="at most"),
            Column(heading="shows", cells=[job.shows for job in planned], importance=1),
            Column(heading="runs on", cells=[job.runs_on for job in planned]),
            Column(
                heading="at most",
                cells=[dollars(job.usd_at_most or 0.0) for job in planned],
                footer=dollars(sum_usd(jobs)),
                justify="right",
            ),
        ],
        width=terminal.people.width,
    )
    terminal.show(table, f"The ceiling is {dollars(ceiling_usd)}. Storage and requests cost cents more.")
    for job in jobs:
        if job.left_out:
            terminal.show(f"Left out: {job.kind}. {job.left_out}")
    if earlier:
        terminal.show(f"First removes what {len(earlier)} runs of earlier hours left.")


def _show_report(report: "FirstAccountReport", *, folder: Path, terminal: Terminal) -> None:
    from spotkeep_cli.first_account.report import markdown

    document = report.to_document()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").write_text(json.dumps(document, indent=2) + "\n")
    (folder / "report.md").write_text(markdown(document))
    if terminal.as_json:
        terminal.give_json(document)
        return
    for answer in document["answers"]:
        terminal.show(f"{answer['id']}: {answer['verdict']}. {answer['seen']}")
    terminal.show(f"\nCost by the records: {document['spent_usd']:.2f} USD", f"Report: {folder / 'report.md'}")


def _end(removal: "Removal", *, invocation: "Invocation", terminal: Terminal) -> None:
    """Print the outcome of the removal.

    Raises:
        OrphanError: Something is left.
    """
    from spotkeep_cli.first_account.report import ALWAYS_LEFT

    again = invocation.command("first-account --clean-up")
    if removal.left:
        raise OrphanError("; ".join(["something is left", *removal.left]), hint=f"try again: {again}")
    terminal.show(f"Removed: {'; '.join(removal.removed) or 'nothing was there'}.", f"Left: {'; '.join(ALWAYS_LEFT)}.")
    terminal.show_next(NextStep(command=invocation.command("doctor --account"), what="see that nothing is left"))
