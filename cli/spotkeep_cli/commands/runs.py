"""Commands that show runs: `spotkeep ps`, `describe`, `logs` and `best`."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from spotkeep_cli.commands.parameters import (
    IN_THE_TERMINAL,
    AsJson,
    AsPage,
    NewestRunName,
    NewestRunOrSweepName,
    Plots,
    SweepName,
    Watch,
    invocation_of,
    write_page,
)
from spotkeep_cli.errors import RunNotFoundError, UsageError
from spotkeep_cli.run_names import MOST_RUNS, find_run, find_run_or_sweep, find_sweep
from spotkeep_cli.seams import Invocation
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_jobs.record.record import Run
    from spotkeep_jobs.record.sweep import Sweep

DEFAULT_LIMIT = 20


def ps(
    context: typer.Context,
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also runs that ended over a day ago.")] = False,
    owner: Annotated[str | None, typer.Option(help="Only this owner's.", show_default=False)] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many.")] = DEFAULT_LIMIT,
    rehearsals: Annotated[bool, typer.Option("--rehearsals", help="Also those of rehearsals.")] = False,
    watch: Watch = False,
    as_json: AsJson = False,
) -> None:
    """List the runs and sweeps: those at work, and those that ended in the last day."""
    from spotkeep_cli.next_steps import steps_for_run, steps_for_sweep
    from spotkeep_cli.watching import RunsAndSweeps, watched_list

    invocation = invocation_of(context)
    deployment, now = invocation.deployment(), invocation.seams.now
    terminal = Terminal(as_json=as_json)

    def read() -> RunsAndSweeps:
        return RunsAndSweeps.read(
            deployment.table,
            everything=everything,
            owner=owner,
            limit=limit,
            rehearsals=rehearsals,
            # Only a local AWS has rehearsals, which may be most of its runs.
            most_read=MOST_RUNS if invocation.options.local and not rehearsals else limit,
            now=now(),
        )

    if watch:
        listed = watched_list(read, console=terminal.people, deployment=deployment, invocation=invocation)
    else:
        listed = read()
    terminal.remark_unreadable(listed.unreadable)
    if as_json:
        terminal.give_json([each.model_dump(mode="json") for each in (*listed.sweeps, *listed.runs)])
        return
    if listed.sweeps or listed.runs:
        terminal.show(listed.draw(now=now(), width=terminal.people.width))
    if listed.sweeps and not listed.runs:
        terminal.show_next(*steps_for_sweep(listed.sweeps[0], invocation=invocation, after="ps"))
        return
    if not listed.runs:
        of_owner = f" of {owner}" if owner else ""
        terminal.show(f"No runs{of_owner} at work." if listed.found else f"No runs{of_owner} yet.")
        others = [("ps --all", "show those that ended")] if listed.found else []
        others += [("ps --rehearsals", "show those of rehearsals")] if listed.rehearsals_left_out else []
        terminal.show_next(
            *(NextStep(command=invocation.command(command), what=what) for command, what in others),
            NextStep(command=invocation.command("launch job.yaml"), what="launch one"),
        )
        return
    if listed.found == limit:
        terminal.remark(f"The newest {limit} runs; -n {limit * 5} goes further back.")
    at_work = next((run for run in listed.runs if not run.state.ended), listed.runs[0])
    terminal.show_next(*steps_for_run(at_work, invocation=invocation, after="ps"))


def status(context: typer.Context, name: NewestRunOrSweepName = None) -> None:
    """Show one run, or without its id list the runs: `describe RUN`, and `ps`."""
    if name is None:
        ps(context)
    else:
        describe(context, name)


def describe(
    context: typer.Context,
    name: NewestRunOrSweepName = None,
    *,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Of a sweep: all trials.")] = False,
    watch: Watch = False,
    plots: Plots = None,
    as_page: AsPage = None,
    as_json: AsJson = False,
) -> None:
    """Show one run: state, attempts, metrics, timeline, checkpoints, model, cost; or a sweep and its trials."""
    from spotkeep_jobs.record.sweep import Sweep

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run_or_sweep(deployment.table, name, command=invocation.options.command)
    terminal = Terminal(as_json=as_json)
    if isinstance(run, Sweep):
        _describe_sweep(
            run,
            deployment=deployment,
            invocation=invocation,
            terminal=terminal,
            everything=everything,
            watch=watch,
            plots=plots,
            as_page=as_page,
        )
        return
    if plots not in (None, Path(IN_THE_TERMINAL)):
        raise UsageError("a folder of pictures is of sweeps", hint="--plots without a folder draws the curves here")
    _describe_run(
        run,
        deployment=deployment,
        invocation=invocation,
        terminal=terminal,
        watch=watch,
        draws=plots is not None,
        as_page=as_page,
    )


def _describe_run(
    run: "Run",
    *,
    deployment: "DeploymentClient",
    invocation: Invocation,
    terminal: Terminal,
    watch: bool,
    draws: bool,
    as_page: Path | None,
) -> None:
    from spotkeep_cli.next_steps import steps_for_run
    from spotkeep_cli.rendering.curves import metric_curves
    from spotkeep_cli.rendering.quantities import moment
    from spotkeep_cli.rendering.run_bar import status_bar
    from spotkeep_cli.rendering.run_description import RunStory, run_description
    from spotkeep_cli.watching import log_of, metrics_now, status_of, watched_run

    if watch:
        run = watched_run(run, console=terminal.people, deployment=deployment, invocation=invocation)
    unreadable: dict[str, str] = {}
    region = None if invocation.options.local else deployment.region
    story = RunStory.read(run, runs=deployment.table.runs, region=region, unreadable=unreadable)
    terminal.remark_unreadable(unreadable)
    now, steps = invocation.seams.now(), steps_for_run(run, invocation=invocation, after="describe")
    page: Path | None = None
    if as_page is not None:
        from spotkeep_cli.rendering.run_page import run_page

        source = f"{invocation.command(f'describe {run.run} --html')}, {moment(now)} UTC"
        commands = [(step.command, step.what) for step in steps]
        page = write_page(run_page(story, now=now, steps=commands, footer=source), name=run.run, to=as_page)
    if terminal.as_json:
        terminal.give_json({**story.as_document(), **({} if page is None else {"page": str(page)})})
        return
    width, log = terminal.people.width, log_of(run, deployment=deployment)
    bar = None if run.state.ended else status_bar(status_of(run, log=log), now=now)
    terminal.show(run_description(story, now=now, width=width, bar=bar))
    if draws:
        metrics = metrics_now(story, log=log)
        if metrics is None or not metrics.metrics:
            terminal.remark("No curves: its script has logged no metric so far.")
        else:
            terminal.show(metric_curves(metrics, width=width))
    if page is not None:
        terminal.remark(f"page: {page}")
    terminal.show_next(*steps)


def _describe_sweep(
    sweep: "Sweep",
    *,
    deployment: "DeploymentClient",
    invocation: Invocation,
    terminal: Terminal,
    everything: bool,
    watch: bool,
    plots: Path | None,
    as_page: Path | None,
) -> None:
    from spotkeep_cli.next_steps import steps_for_sweep
    from spotkeep_cli.sweeps.sweep_view import best_curve, sweep_page
    from spotkeep_cli.watching import watched_sweep

    if watch:
        watched_sweep(
            sweep.sweep, everything=everything, console=terminal.people, deployment=deployment, invocation=invocation
        )
    found, trials = deployment.table.sweeps.with_trials(sweep.sweep)
    sweep = found or sweep
    now, width = invocation.seams.now(), terminal.people.width
    folder = None if plots == Path(IN_THE_TERMINAL) else plots
    drawn: list[Path] = []
    page: Path | None = None
    if folder is not None or as_page is not None:
        from spotkeep_cli.sweeps.sweep_plots import save_plots
        from spotkeep_cli.sweeps.sweep_report import SweepStory, sweep_html

        with terminal.remarks.status("reading the trials' curves") as status:
            unreadable: dict[str, str] = {}
            story = SweepStory.read(sweep, trials, runs=deployment.table.runs, unreadable=unreadable)
            status.update("drawing")
            if folder is not None:
                drawn = save_plots(story.drawn, folder=folder)
            if as_page is not None:
                page = write_page(sweep_html(story, invocation=invocation, now=now), name=sweep.sweep, to=as_page)
        terminal.remark_unreadable(unreadable)
    if terminal.as_json:
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
    if plots is not None and folder is None:
        terminal.show(best_curve(sweep, trials, width=width))
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
    printer = LogPrinter(terminal.results, raw=raw)
    attempts = [known for known in deployment.table.runs.attempts(run.run) if attempt in {None, known.attempt}]
    if attempt is not None and not attempts:
        raise UsageError(
            f"{run.run} has no attempt {attempt}: its last one is {run.attempt}",
            hint=f"leave --attempt out for all of them: {invocation.command(f'logs {run.run}')}",
        )
    following = follow and not run.state.ended and attempt in {None, run.attempt}
    # Following reads the current attempt's log itself, from its beginning. To count its lines it is read before, too.
    logs_of = [
        (
            known,
            read_lines(
                deployment.job_log(*known.log_names, backend=known.place.backend), hosts=known.place.instance_count
            ),
        )
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
        terminal.show("Back into the objects of the script (a scikit-learn estimator stands in EstimatorState):")
        # Never wrapped, so that it can be copied.
        line = f"  spotkeep.Checkpointer({{{objects}}}, {folder}).restore()"
        terminal.people.print(line, soft_wrap=True, highlight=False, markup=False)
        return
    terminal.show_next(
        NextStep(command=invocation.command(f"best {sweep.sweep} --export best"), what="fetch it"),
        NextStep(command=invocation.command(f"describe {found.run}"), what="how it went"),
    )
