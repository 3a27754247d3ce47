"""`spotkeep rehearse`, `rehearse-pool`, `-fleet` and `-sweep`: the whole way on this machine, with a verdict."""

from pathlib import Path
from typing import Annotated, Any

import typer

from spotkeep_cli.commands.parameters import AsJson, JobFile, Overrides, invocation_of
from spotkeep_cli.terminal import Terminal
from spotkeep_local.hosts.isolation import Isolation

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
Deploy = Annotated[
    bool, typer.Option("--deploy/--no-deploy", help="Deploy first, or rehearse on the app of the running local AWS.")
]
Faster = Annotated[
    float, typer.Option(min=1, metavar="FACTOR", help="The factor by which the pool's periods run faster.")
]
Isolated = Annotated[
    Isolation,
    typer.Option(
        "--instances",
        help="The kind of instances: hosts with block devices (namespace, needs root), process groups with directories"
        " (relocated), or the best that this machine allows (auto).",
    ),
]
Python = Annotated[
    Path | None,
    typer.Option(
        "--python", metavar="PATH", help="The interpreter that the script runs with, of your own environment."
    ),
]
KeepRunning = Annotated[bool, typer.Option("--keep-running", help="Leave the local AWS up afterwards.")]


def _timeout(what: str) -> Any:
    return typer.Option(min=1, metavar="SECONDS", help=f"The longest {what} may take.")


def _report(name: str) -> Any:
    return typer.Option(
        "--report", metavar="FILE", help=f"Where to write the report. Default: .spotkeep/rehearsal/{name}"
    )


def rehearse(
    context: typer.Context,
    job_file: JobFile,
    *,
    overrides: Overrides = None,
    interrupt_at: InterruptAt = None,
    notice: Notice = True,
    instances: Isolated = Isolation.AUTO,
    timeout: Annotated[float, _timeout("the training")] = 900,
    deploy: Deploy = True,
    python: Python = None,
    keep_running: KeepRunning = False,
    report_path: Annotated[Path | None, _report("report.json, or nodes-report.json")] = None,
    as_json: AsJson = False,
) -> None:
    """Deploy to a local AWS, train, take the capacity away, and judge the result.

    A job with `nodes` trains on several EC2 instances and loses three of them, so `--interrupt-at` is not for it.

    `spotkeep rehearse -- python train.py` rehearses any command, without a job file and without a local AWS.
    """
    from spotkeep_cli.errors import UsageError
    from spotkeep_cli.launching.job_file import read_job_file
    from spotkeep_cli.rehearsal.command import rehearse_job
    from spotkeep_cli.rehearsal.interruption_points import read_interruptions
    from spotkeep_cli.rehearsal.nodes import nodes_scenario, trains_on_nodes
    from spotkeep_cli.rehearsal.spot import spot_scenario

    interruptions = read_interruptions(interrupt_at or (), notice=notice)
    on_nodes = trains_on_nodes(read_job_file(job_file, overrides=overrides or ()).fields)
    if on_nodes and (interrupt_at or not notice):
        raise UsageError(
            "a rehearsal of several nodes has one plan: a node goes after a notice, one without, and one for good",
            hint="leave --interrupt-at and --no-notice out",
        )
    rehearse_job(
        job_file,
        nodes_scenario(isolation=instances) if on_nodes else spot_scenario(interruptions),
        overrides=overrides or (),
        timeout_seconds=timeout,
        deploy=deploy,
        python=python,
        keep_running=keep_running,
        report_path=report_path,
        invocation=invocation_of(context),
        terminal=Terminal(as_json=as_json),
    )


def rehearse_pool(
    context: typer.Context,
    job_file: JobFile,
    *,
    overrides: Overrides = None,
    faster: Faster = 40.0,
    timeout: Annotated[float, _timeout("a job")] = 300.0,
    keep_running: KeepRunning = False,
    report_path: Annotated[Path | None, _report("pool-report.json")] = None,
    as_json: AsJson = False,
) -> None:
    """Deploy to a local AWS, leave a warm pool, reuse, extend and outlive it, and judge."""
    from spotkeep_cli.rehearsal.command import rehearse_job
    from spotkeep_cli.rehearsal.pool import pool_scenario

    rehearse_job(
        job_file,
        pool_scenario(faster=faster),
        overrides=overrides or (),
        timeout_seconds=timeout,
        keep_running=keep_running,
        report_path=report_path,
        invocation=invocation_of(context),
        terminal=Terminal(as_json=as_json),
    )


def rehearse_fleet(
    context: typer.Context,
    job_file: JobFile,
    *,
    overrides: Overrides = None,
    instances: Isolated = Isolation.AUTO,
    timeout: Annotated[float, _timeout("each stage")] = 300.0,
    deploy: Deploy = True,
    keep_running: KeepRunning = False,
    report_path: Annotated[Path | None, _report("fleet-report.json")] = None,
    as_json: AsJson = False,
) -> None:
    """Deploy to a local AWS, train on a spot fleet, take two instances away, and judge."""
    from spotkeep_cli.errors import UsageError
    from spotkeep_cli.launching.job_file import read_job_file
    from spotkeep_cli.rehearsal.command import rehearse_job
    from spotkeep_cli.rehearsal.fleet import fleet_scenario
    from spotkeep_cli.rehearsal.nodes import trains_on_nodes

    if trains_on_nodes(read_job_file(job_file, overrides=overrides or ()).fields):
        raise UsageError(
            f"{job_file} is of a job on several nodes, which have no volume to follow them",
            hint=f"spotkeep rehearse {job_file}",
        )
    rehearse_job(
        job_file,
        fleet_scenario(isolation=instances),
        overrides=overrides or (),
        timeout_seconds=timeout,
        deploy=deploy,
        keep_running=keep_running,
        report_path=report_path,
        invocation=invocation_of(context),
        terminal=Terminal(as_json=as_json),
    )


def rehearse_sweep(
    context: typer.Context,
    job_file: JobFile,
    *,
    overrides: Overrides = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, metavar="NUMBER", help="The seed of the losses. Default: drawn at random."),
    ] = None,
    timeout: Annotated[float, _timeout("the sweep, or a trial left alone,")] = 900.0,
    deploy: Deploy = True,
    keep_running: KeepRunning = False,
    report_path: Annotated[Path | None, _report("sweep-report.json")] = None,
    as_json: AsJson = False,
) -> None:
    """Deploy to a local AWS, search, take capacity and controller away, and judge each trial."""
    import secrets

    from spotkeep_cli.rehearsal.command import rehearse_job
    from spotkeep_cli.rehearsal.sweep import sweep_scenario

    rehearse_job(
        job_file,
        sweep_scenario(seed=secrets.randbelow(1_000_000) if seed is None else seed),
        overrides=overrides or (),
        timeout_seconds=timeout,
        deploy=deploy,
        keep_running=keep_running,
        report_path=report_path,
        invocation=invocation_of(context),
        terminal=Terminal(as_json=as_json),
    )
