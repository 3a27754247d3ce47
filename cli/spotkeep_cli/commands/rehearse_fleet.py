"""`spotkeep rehearse-fleet job.yaml`: a run on a spot fleet, whose volume follows it, with a verdict."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, JobFile, Overrides, invocation_of
from spotkeep_cli.terminal import NextStep, Terminal
from spotkeep_local.options import Isolation

Isolated = Annotated[
    Isolation,
    typer.Option(
        "--instances",
        help="What instances are: hosts with block devices (namespace, needs root), process groups with directories"
        " (relocated), or what this machine can (auto).",
    ),
]
Timeout = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="The longest each stage may take.")]
KeepRunning = Annotated[bool, typer.Option("--keep-running", help="Leave the local AWS up afterwards.")]
ReportPath = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", help="Where to write the report. Default: .spotkeep/rehearsal/fleet-report.json"
    ),
]


def rehearse_fleet(
    context: typer.Context,
    job_file: JobFile,
    *,
    overrides: Overrides = None,
    instances: Isolated = Isolation.AUTO,
    timeout: Timeout = 300.0,
    keep_running: KeepRunning = False,
    report_path: ReportPath = None,
    as_json: AsJson = False,
) -> None:
    """Deploy to a local AWS, train on a spot fleet, take two instances away, and judge."""
    from spotkeep_cli.job_file import read_job_file
    from spotkeep_cli.rehearsed_deployment import RehearsedDeployment, on_fleet
    from spotkeep_cli.rehearsing import Rehearsing, report_file
    from spotkeep_cli.rendering.fleet_report import fleet_report
    from spotkeep_rehearsal.fleet_rehearsal import FleetRehearsalPlan
    from spotkeep_rehearsal.fleet_rehearsal import rehearse_fleet as run_rehearsal

    terminal, quoted = Terminal(as_json=as_json), shlex.quote(str(job_file))
    rehearsing = Rehearsing(
        invocation=invocation_of(context),
        terminal=terminal,
        document=on_fleet(read_job_file(job_file, overrides=overrides or ())),
    )
    plan = FleetRehearsalPlan(
        **rehearsing.plan_fields(), isolation=instances, timeout_seconds=timeout, keep_running=keep_running
    )
    terminal.show(
        f"Rehearsing {job_file} on a spot fleet on this machine: the real app, the real user data, nothing billed.\n"
    )
    rehearsing.conduct(
        run_rehearsal,
        plan,
        deployment=RehearsedDeployment,
        parts=fleet_report,
        report_path=report_file("fleet-report.json", given=report_path),
        failed_hint="docs/volume-protocol.md says what should happen, docs/training-scripts.md what a script must do",
        next_steps=[
            NextStep(command=f"spotkeep doctor {quoted}", what="check the job for AWS"),
            NextStep(command=f"spotkeep launch {quoted}", what="launch it, once the app is deployed"),
        ],
    )
