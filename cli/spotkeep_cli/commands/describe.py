"""`spotkeep describe RUN`: one run on one page."""

import typer

from spotkeep_cli.commands.parameters import AsJson, RunName, invocation_of
from spotkeep_cli.run_names import find_run
from spotkeep_cli.terminal import Terminal


def describe(context: typer.Context, run_name: RunName, *, as_json: AsJson = False) -> None:
    """Show one run: state, attempts, metrics, timeline, checkpoints, model, cost."""
    from spotkeep_cli.next_steps import steps_for_run
    from spotkeep_cli.rendering.run_description import run_description, run_document
    from spotkeep_jobs.record.console_page import console_page

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    runs = deployment.runs
    run = find_run(runs, run_name, command=invocation.options.command)
    page = None if invocation.options.local else console_page(run, region=deployment.region)
    terminal = Terminal(as_json=as_json)
    if as_json:
        terminal.give_json(run_document(run, runs=runs, page=page))
        return
    attempts = runs.attempts(run.run)
    timeline = runs.timeline(run.run)
    metrics = runs.metrics(run.run)
    plan = None if run.deadline_at is None else runs.plan(run.run)
    terminal.show(
        run_description(
            run,
            attempts=attempts,
            timeline=timeline,
            plan=plan,
            metrics=metrics,
            page=page,
            now=invocation.seams.now(),
            width=terminal.people.width,
        )
    )
    terminal.show_next(*steps_for_run(run, invocation=invocation, after="describe"))
