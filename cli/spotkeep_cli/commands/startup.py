"""`spotkeep startup`: where the time of a run's starts went."""

import shlex
from typing import TYPE_CHECKING

import typer

from spotkeep_cli.commands.parameters import AsJson, NewestRunName, invocation_of
from spotkeep_cli.run_names import find_run
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.startup.advice import KnownStart
    from spotkeep_cli.startup.starts import Start
    from spotkeep_jobs.progress.job_events import JobEvent
    from spotkeep_jobs.record.record import Attempt, Run

MOST_EARLIER_RUNS = 20
"""The number of other runs whose starts are compared. Each is a few reads of the run table."""


def startup(context: typer.Context, run_name: NewestRunName = None, *, as_json: AsJson = False) -> None:
    """Show where the time of a run's starts went: capacity, data, image, packages, restore, first step."""
    from spotkeep_cli.startup.advice import KnownStart, advise, groups_of
    from spotkeep_cli.startup.starts import facts_of
    from spotkeep_cli.startup.view import StartupReport, startup_page

    invocation = invocation_of(context)
    deployment = invocation.deployment()
    run = find_run(deployment.table, run_name, command=invocation.options.command)
    terminal = Terminal(as_json=as_json)
    unreadable: dict[str, str] = {}
    starts = list(_starts(deployment, run, unreadable))
    earlier_runs, earlier = _earlier(deployment, run, unreadable)
    facts = facts_of(run)
    report = StartupReport(
        facts=facts,
        starts=starts,
        earlier_runs=earlier_runs,
        groups=groups_of([*earlier, *(KnownStart(facts=facts, start=each) for each in starts)]),
        advice=advise(facts, starts, earlier),
    )
    terminal.remark_unreadable(unreadable)
    if as_json:
        terminal.give_json(report.as_document())
        return
    if not starts:
        terminal.show(f"{run.run} has not begun to start yet: it has no job with a phase.")
        terminal.show_next(NextStep(command=invocation.command(f"describe {run.run}"), what="why it waits"))
        return
    terminal.show(startup_page(report, width=terminal.people.width))
    change = next((each.change for each in report.advice if each.change is not None), None)
    steps = [NextStep(command=invocation.command(f"describe {run.run}"), what="the whole story")]
    if change is not None:
        launch = invocation.command(f"launch job.yaml --set {shlex.quote(change)}")
        launched = NextStep(command=launch, what="try the first advice")
        steps.insert(0, launched)
    terminal.show_next(*steps)


def _starts(deployment: "DeploymentClient", run: "Run", unreadable: dict[str, str]) -> "Iterator[Start]":
    from spotkeep_cli.startup.starts import starts_of

    table = deployment.table
    timeline = table.runs.timeline(run.run, unreadable=unreadable)
    for attempt in table.runs.attempts(run.run):
        events = list(_events(deployment, attempt)) if attempt.started_at is not None else []
        warm = table.pools.chain_of(attempt.job_name) is not None
        yield from starts_of(attempt, timeline, events, warm=warm)


def _events(deployment: "DeploymentClient", attempt: "Attempt") -> "Iterator[JobEvent]":
    """Yield the events of an attempt's log that its own job printed."""
    from spotkeep_jobs.backends.sagemaker.training_job import launch_id_of
    from spotkeep_jobs.progress.job_events import JobEvent, read_message

    launch = launch_id_of(attempt)
    for line in deployment.job_log(*attempt.log_names, backend=attempt.place.backend).read():
        for event in read_message(line.text, launch=launch):
            if isinstance(event, JobEvent):
                yield event


def _earlier(deployment: "DeploymentClient", run: "Run", unreadable: dict[str, str]) -> "tuple[int, list[KnownStart]]":
    """Return the number of other runs that trained, and their starts as their timelines show them."""
    from spotkeep_cli.startup.advice import KnownStart
    from spotkeep_cli.startup.starts import facts_of, starts_of
    from spotkeep_jobs.errors import UnreadableRecordError, in_words

    table = deployment.table
    others = table.runs.list(limit=2 * MOST_EARLIER_RUNS, unreadable=unreadable)
    trained = [each for each in others if each.run != run.run and each.started_at is not None][:MOST_EARLIER_RUNS]
    known = []
    for other in trained:
        facts, timeline = facts_of(other), table.runs.timeline(other.run, unreadable=unreadable)
        try:
            attempts = table.runs.attempts(other.run)
        except UnreadableRecordError as error:
            unreadable[error.what] = in_words(error)
            continue
        for attempt in attempts:
            warm = table.pools.chain_of(attempt.job_name) is not None
            known += [KnownStart(facts=facts, start=each) for each in starts_of(attempt, timeline, warm=warm)]
    return len(trained), known
