"""`spotkeep plan job.yaml --deadline 60h`: what it will cost and when it will be done, before anything is paid."""

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from spotkeep_cli.commands.parameters import AsJson, JobFile, Overrides, invocation_of
from spotkeep_cli.terminal import NextStep, Terminal

_KNOWLEDGE = "What is known of capacity"


def _time(what: str) -> Any:
    return typer.Option(metavar="TIME", help=what, show_default=False)


def plan(
    context: typer.Context,
    job_file: JobFile,
    *,
    overrides: Overrides = None,
    deadline: Annotated[
        str | None, _time("Until when it must be done: 60h, 2d12h. Default: deadline, else max_wait.")
    ] = None,
    work: Annotated[str | None, _time("Training time without interruptions. Default: work, else max_run.")] = None,
    restart: Annotated[
        str | None, _time("From asking for capacity to working, checkpoint loaded. Default: restart, else 12m.")
    ] = None,
    save: Annotated[str, typer.Option(metavar="TIME", help="How long training stands still for a save.")] = "30s",
    traces: Annotated[
        Path | None,
        typer.Option(
            metavar="PATH",
            help="A capacity trace, or a folder of them.",
            rich_help_panel=_KNOWLEDGE,
            show_default=False,
        ),
    ] = None,
    zones: Annotated[
        list[str] | None,
        typer.Option(
            "--zone", metavar="ZONE", help="Only this zone. Repeatable.", rich_help_panel=_KNOWLEDGE, show_default=False
        ),
    ] = None,
    on_demand_price: Annotated[
        float | None,
        typer.Option(metavar="USD", help="On-demand price an hour.", rich_help_panel=_KNOWLEDGE, show_default=False),
    ] = None,
    band: Annotated[
        str,
        typer.Option(
            metavar="BAND",
            help="Interruption band of the Spot Instance Advisor: <5%, 5-10%, 10-15%, 15-20%, >20%.",
            rich_help_panel=_KNOWLEDGE,
        ),
    ] = ">20%",
    compare: Annotated[bool, typer.Option("--compare", help="Set other policies beside it.")] = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it: a .png, .svg or .pdf file.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the imagined futures: the same seed, the same plan.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Forecast cost, end and interruptions of a job with a deadline."""
    from spotkeep_cli.planning.job_planning import PlanOptions, plan_job, seconds_of
    from spotkeep_cli.planning.plan_view import plan_view

    invocation = invocation_of(context)
    terminal = Terminal(as_json=as_json)
    options = PlanOptions(
        deadline_s=None if deadline is None else seconds_of("--deadline", deadline),
        work_s=None if work is None else seconds_of("--work", work),
        restart_s=None if restart is None else seconds_of("--restart", restart),
        save_s=seconds_of("--save", save),
        traces=traces,
        zones=tuple(zones or ()),
        on_demand_price=on_demand_price,
        band=band,
        compare=compare,
        plot=plot,
        seed=seed,
    )
    with terminal.remarks.status("planning"):
        planned = plan_job(job_file, overrides=overrides or (), options=options, invocation=invocation)
    if as_json:
        terminal.give_json({"ok": True, "job_file": str(job_file), **planned.as_document()})
        return
    terminal.show(plan_view(planned, width=terminal.people.width))
    quoted = shlex.quote(str(job_file))
    if plot is not None:
        terminal.show("", f"The spread of cost and end is drawn in {plot}")
    steps = []
    if not compare:
        given = [
            ("--deadline", deadline),
            ("--work", work),
            ("--traces", traces),
            ("--on-demand-price", on_demand_price),
        ]
        given += [("--zone", zone) for zone in zones or ()]
        same = [f"{option} {shlex.quote(str(value))}" for option, value in given if value is not None]
        again = " ".join(["plan", quoted, *same, "--compare"])
        steps.append(NextStep(command=invocation.command(again), what="set other policies beside it"))
    terminal.show_next(*steps, NextStep(command=invocation.command(f"launch {quoted}"), what="launch it"))
