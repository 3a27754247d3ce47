"""`spotkeep rehearse job.yaml`: the whole way on this machine, with interruptions, and a verdict."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, JobFile, Overrides, invocation_of
from spotkeep_cli.terminal import NextStep, Terminal

InterruptAt = Annotated[
    list[str] | None,
    typer.Option(
        "--interrupt-at",
        metavar="40%|STEP|30s",
        help="When to take the capacity away. Repeatable. Default: 35% with a notice, 70% without.",
        show_default=False,
    ),
]
Notice = Annotated[bool, typer.Option("--notice/--no-notice", help="Send SIGTERM before the capacity goes.")]
Timeout = Annotated[float, typer.Option(min=1, metavar="SECONDS", help="The longest the training may take.")]
Deploy = Annotated[
    bool, typer.Option("--deploy/--no-deploy", help="Deploy first, or rehearse on what the running local AWS holds.")
]
KeepRunning = Annotated[bool, typer.Option("--keep-running", help="Leave the local AWS up afterwards.")]
ReportPath = Annotated[
    Path | None,
    typer.Option(
        "--report", metavar="FILE", help="Where to write the report. Default: .spotkeep/rehearsal/report.json"
    ),
]


def rehearse(
    context: typer.Context,
    job_file: JobFile,
    *,
    overrides: Overrides = None,
    interrupt_at: InterruptAt = None,
    notice: Notice = True,
    timeout: Timeout = 900,
    deploy: Deploy = True,
    keep_running: KeepRunning = False,
    report_path: ReportPath = None,
    as_json: AsJson = False,
) -> None:
    """Deploy to a local AWS, train, take the capacity away, and judge what came back."""
    from spotkeep_cli.interruption_points import read_interruptions
    from spotkeep_cli.job_file import read_job_file
    from spotkeep_cli.rehearsed_deployment import RehearsedDeployment
    from spotkeep_cli.rehearsing import Rehearsing, report_file
    from spotkeep_cli.rendering.rehearsal_view import report_of
    from spotkeep_rehearsal.rehearsal import RehearsalPlan
    from spotkeep_rehearsal.rehearsal import rehearse as run_rehearsal

    terminal, quoted = Terminal(as_json=as_json), shlex.quote(str(job_file))
    rehearsing = Rehearsing(
        invocation=invocation_of(context),
        terminal=terminal,
        document=read_job_file(job_file, overrides=overrides or ()),
    )
    plan = RehearsalPlan(
        **rehearsing.plan_fields(),
        interruptions=read_interruptions(interrupt_at or (), notice=notice),
        timeout_seconds=timeout,
        deploy=deploy,
        keep_running=keep_running,
    )
    terminal.show(f"Rehearsing {job_file} on this machine: the real app, no account, nothing billed.\n")
    rehearsing.conduct(
        run_rehearsal,
        plan,
        deployment=RehearsedDeployment,
        parts=report_of,
        report_path=report_file("report.json", given=report_path),
        failed_hint="docs/training-scripts.md shows how to make a script resumable",
        next_steps=[
            NextStep(command=f"spotkeep doctor {quoted}", what="check the job for AWS"),
            NextStep(command=f"spotkeep launch {quoted}", what="launch it, once the app is deployed"),
        ],
    )
