"""Commands that show runs: `spotkeep ps`, `describe`, `logs` and `best`."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotkeep_cli.commands.parameters import (
    AsJson,
    AsPage,
    NewestRunName,
    NewestRunOrSweepName,
    SweepName,
    invocation_of,
    write_page,
)
from spotkeep_cli.errors import RunNotFoundError, UsageError
from spotkeep_cli.run_names import MOST_RUNS, find_run, find_run_or_sweep, find_sweep
from spotkeep_cli.seams import Invocation
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from spotkeep_jobs.record.run_table import RunTable
    from spotkeep_jobs.record.sweep import Sweep

DEFAULT_LIMIT = 20


def ps(
    context: typer.Context,
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also runs that ended over a day ago.")] = False,
    owner: Annotated[str | None, typer.Option(help="Only this owner's.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many.")] = DEFAULT_LIMIT,
    rehearsals: Annotated[bool, typer.Option("--rehearsals", help="Also those of rehearsals.")] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs and sweeps: those at work, and those that ended in the last day."""
    from spotkeep_cli.next_steps import steps_for_run, steps_for_sweep
    from spotkeep_cli.rendering.lists import is_rehearsal, run_list, worth_listing
    from spotkeep_cli.sweeps.sweep_view import sweep_list

    invocation = invocation_of(context)
    now = invocation.seams.now()
    table = invocation.deployment().table
    unreadable: dict[str, str] = {}
    # Only a local AWS has rehearsals, which may be most of its runs.
    read = MOST_RUNS if invocation.options.local and not rehearsals else limit
    known = table.runs.list(owner=owner, limit=read, unreadable=unreadable)
    found = [run for run in known if rehearsals or not is_rehearsal(run)][:limit]
    listed = found if everything else [run for run in found if worth_listing(run, now=now)]
    all_sweeps = table.sweeps.list(owner=owner, limit=limit, unreadable=unreadable)
    all_sweeps = [each for each in all_sweeps if rehearsals or not is_rehearsal(each)]
    sweeps = [each for each in all_sweeps if everything or worth_listing(each, now=now)]
    terminal = Terminal(as_json=as_json)
    terminal.remark_unreadable(unreadable)
    if as_json:
        terminal.give_json([each.model_dump(mode="json") for each in (*sweeps, *listed)])
        return
    if sweeps:
        terminal.show(sweep_list(sweeps, now=now, width=terminal.people.width))
        if not listed:
            terminal.show_next(*steps_for_sweep(sweeps[0], invocation=invocation, after="ps"))
            return
        terminal.show("")
    if not listed:
        of_owner = f" of {owner}" if owner else ""
        terminal.show(f"No runs{of_owner} at work." if found else f"No runs{of_owner} yet.")
        others = [("ps --all", "show those that ended")] if found else []
        others += [("ps --rehearsals", "show those of rehearsals")] if len(known) > len(found) else []
        terminal.show_next(
            *(NextStep(command=invocation.command(command), what=what) for command, what in others),
            NextStep(command=invocation.command("launch job.yaml"), what="launch one"),
        )
        return
    terminal.show(run_list(listed, now=now, width=terminal.people.width))
    if len(found) == limit:
        terminal.remark(f"The newest {limit} runs; -n {limit * 5} goes further back.")
    at_work = next((run for run in listed if not run.state.ended), listed[0])
    terminal.show_next(*steps_for_run(at_work, invocation=invocation, after="ps"))


def status(context: typer.Context, name: NewestRunOrSweepName = None) -> None:
    """Show one run, or without its id list the runs: `describe RUN`, and `ps`."""
    if name is None:
        ps(context)
    else:
        describe(context, name)


Plots = Annotated[
    Path | None,
    typer.Option("--plots", metavar="FOLDER", help="Of a sweep: draw pictures into this folder.", show_default=False),
]


def describe(
    context: typer.Context,
    name: NewestRunOrSweepName = None,
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Of a sweep: all trials.")] = False,
    plots: Plots = None,
    as_page: AsPage = False,
    as_json: AsJson = False,
) -> None:
    """Show one run: state, attempts, metrics, timeline, checkpoints, model, cost; or a sweep and its trials."""
    from spotkeep_jobs.record.sweep import Sweep

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    table = deployment.table
    run = find_run_or_sweep(table, name, command=invocation.options.command)
    if isinstance(run, Sweep):
        _describe_sweep(
            run,
            table=table,
            invocation=invocation,
            everything=everything,
            plots=plots,
            as_page=as_page,
            as_json=as_json,
        )
        return
    from spotkeep_cli.next_steps import steps_for_run
    from spotkeep_cli.rendering.quantities import moment
    from spotkeep_cli.rendering.run_description import RunStory, run_description

    if plots is not None:
        raise UsageError("pictures are of sweeps", hint="leave --plots out: the page of a run draws its metrics")
    unreadable: dict[str, str] = {}
    region = None if invocation.options.local else deployment.region
    story = RunStory.read(run, runs=table.runs, region=region, unreadable=unreadable)
    terminal = Terminal(as_json=as_json)
    terminal.remark_unreadable(unreadable)
    now, steps = invocation.seams.now(), steps_for_run(run, invocation=invocation, after="describe")
    page: Path | None = None
    if as_page:
        from spotkeep_cli.rendering.run_page import run_page

        source = f"{invocation.command(f'describe {run.run} --html')}, {moment(now)} UTC"
        commands = [(step.command, step.what) for step in steps]
        page = write_page(run_page(story, now=now, steps=commands, footer=source), name=run.run)
    if as_json:
        terminal.give_json({**story.as_document(), **({} if page is None else {"page": str(page)})})
        return
    terminal.show(run_description(story, now=now, width=terminal.people.width))
    if page is not None:
        terminal.remark(f"page: {page}")
    terminal.show_next(*steps)


def _describe_sweep(
    sweep: "Sweep",
    *,
    table: "RunTable",
    invocation: Invocation,
    everything: bool,
    plots: Path | None,
    as_page: bool,
    as_json: bool,
) -> None:
    from spotkeep_cli.next_steps import steps_for_sweep
    from spotkeep_cli.sweeps.sweep_view import sweep_page

    trials = table.sweeps.with_trials(sweep.sweep)[1]
    terminal = Terminal(as_json=as_json)
    now, width = invocation.seams.now(), terminal.people.width
    drawn: list[Path] = []
    page: Path | None = None
    if plots is not None or as_page:
        from spotkeep_cli.sweeps.sweep_plots import save_plots
        from spotkeep_cli.sweeps.sweep_report import SweepStory, sweep_html

        with terminal.remarks.status("reading the trials' curves") as status:
            unreadable: dict[str, str] = {}
            story = SweepStory.read(sweep, trials, runs=table.runs, unreadable=unreadable)
            status.update("drawing")
            if plots is not None:
                drawn = save_plots(story.drawn, folder=plots)
            if as_page:
                page = write_page(sweep_html(story, invocation=invocation, now=now), name=sweep.sweep)
        terminal.remark_unreadable(unreadable)
    if as_json:
        terminal.give_json(
            {
                **sweep.model_dump(mode="json"),
                "trials": [trial.model_dump(mode="json", exclude_none=True) for trial in trials],
                "plots": [str(path) for path in drawn],
                **({} if page is None else {"page": str(page)}),
            }
        )
        return
    terminal.show(sweep_page(sweep, trials, now=now, width=width, everything=everything))
    for path in drawn:
        terminal.remark(f"drawn: {path}")
    if page is not None:
        terminal.remark(f"page: {page}")
    terminal.show_next(*steps_for_sweep(sweep, invocation=invocation, after="describe"))


def logs(
    context: typer.Context,
    run_name: NewestRunName = None,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Every line as the job wrote it, events too.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this attempt's log.", show_default=False)] = None,
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-n", min=0, metavar="LINES", help="Only the last lines.", show_default=False),
    ] = None,
) -> None:
    """Print a run's log, all attempts in order."""
    from spotkeep_cli.aws.job_log import LogLine
    from spotkeep_cli.following import LogPrinter, Reported, read_lines, take
    from spotkeep_cli.following import follow as follow_run
    from spotkeep_cli.next_steps import steps_for_run
    from spotkeep_cli.rendering.run_bar import RunBar
    from spotkeep_cli.signals import CtrlC

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run(deployment.table, run_name, command=invocation.options.command)
    terminal = Terminal()
    printer = LogPrinter(terminal.results, raw=raw, hosts=run.place.instance_count)
    attempts = [known for known in deployment.table.runs.attempts(run.run) if attempt in {None, known.attempt}]
    if attempt is not None and not attempts:
        raise UsageError(
            f"{run.run} has no attempt {attempt}: its last one is {run.attempt}",
            hint=f"leave --attempt out for all of them: {invocation.command(f'logs {run.run}')}",
        )
    following = follow and not run.state.ended and attempt in {None, run.attempt}
    # Following reads the current attempt's log itself, from its beginning. To count its lines it is read before, too.
    logs_of = [
        (known, read_lines(deployment.job_log(*known.log_names, backend=known.place.backend)))
        for known in (attempts[:-1] if following and tail is None else attempts)
    ]
    left_out = 0 if tail is None else max(0, sum(len(lines) for _, lines in logs_of) - tail)
    for known, lines in logs_of[: len(attempts) - 1] if following else logs_of:
        if len(attempts) > 1 and lines[left_out:]:
            terminal.remark(f"--- attempt {known.attempt}: {known.job_name}")
        for line in lines[left_out:]:
            printer.show(line)
        left_out = max(0, left_out - len(lines))
    if following:
        try:
            with CtrlC(invocation.pause) as ctrl_c, RunBar(terminal.results, now=invocation.seams.now) as bar:
                for update in follow_run(deployment, run.run, pause=ctrl_c.pause):
                    take(update, status=bar.status)
                    if left_out and isinstance(update, LogLine | Reported):
                        left_out -= 1
                    else:
                        printer.show(update)
        except KeyboardInterrupt:
            terminal.remark("")
        run = deployment.table.runs.get(run.run) or run
    if not printer.printed and tail != 0:
        terminal.remark(
            "No log: it never had instances." if run.state.ended else "No log yet: it waits for its instances."
        )
    if raw:
        return
    if not run.state.ended and not follow:
        terminal.show_next(NextStep(command=invocation.command(f"logs {run.run} -f"), what="follow it"))
    else:
        terminal.show_next(*steps_for_run(run, invocation=invocation, after="logs"))


Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FOLDER",
        help="Write the best trial's parameters and checkpoint into this folder.",
        show_default=False,
    ),
]


def best(context: typer.Context, sweep_name: SweepName, *, export: Export = None, as_json: AsJson = False) -> None:
    """Show the best trial of a sweep, and fetch it."""
    from spotkeep_cli.rendering.columns import facts
    from spotkeep_cli.rendering.metric_list import at_step
    from spotkeep_cli.rendering.progress_bars import showing_bytes
    from spotkeep_cli.sweeps.best_trial import CHECKPOINTS, export_trial

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    sweep = find_sweep(deployment.table, sweep_name, command=invocation.options.command)
    found = sweep.best
    if found is None:
        raise UsageError(
            f"{sweep.sweep} has no best trial yet: none has reported its objective, or it has none",
            hint=f"see its trials: {invocation.command(f'describe {sweep.sweep}')}",
        )
    terminal = Terminal(as_json=as_json)
    document = {"ok": True, "sweep": sweep.sweep, **found.model_dump(mode="json")}
    exported = None
    if export is not None:
        if deployment.table.runs.trial_run(sweep.sweep, found.number) is None:
            raise RunNotFoundError(
                f"the run of trial {found.number} is gone: what is called {found.run} now is no trial of {sweep.sweep}",
                hint="ended runs are forgotten after a while",
            )
        exported = export_trial(
            found, folder=export, invocation=invocation, show_progress=partial(showing_bytes, terminal.remarks)
        )
        document |= {"folder": str(export), "checkpoint": exported.checkpoint, "checkpoint_step": exported.step}
    if as_json:
        terminal.give_json(document)
        return
    metric = sweep.document["sweep"]["objective"]["metric"]
    terminal.show(f"Trial {found.number} of {sweep.sweep}: {metric} {at_step(found.value, found.step)}")
    terminal.show(facts([(name, str(value)) for name, value in found.parameters.items()]))
    if exported is not None and export is not None:
        terminal.show(
            f"{export / 'parameters.json'} holds its parameters, {export / exported.checkpoint} its checkpoint"
        )
        if exported.step != found.step:
            terminal.remark(
                f"The checkpoint is of step {exported.step:,}: of step {found.step} none is kept. "
                "keep_best of the Checkpointer keeps it."
            )
        objects = ", ".join(f'"{name}": {name}' for name in exported.state)
        folder = json.dumps(str((export / CHECKPOINTS).resolve()))
        terminal.show(
            "Back into the objects of the script (a scikit-learn estimator stands in EstimatorState):",
            f"  spotkeep.Checkpointer({{{objects}}}, {folder}).restore()",
        )
        return
    terminal.show_next(
        NextStep(command=invocation.command(f"best {sweep.sweep} --export best"), what="fetch it"),
        NextStep(command=invocation.command(f"describe {found.run}"), what="how it went"),
    )
