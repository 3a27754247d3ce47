"""`spotkeep logs RUN [-f]`: what the job wrote."""

from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import RunName, invocation_of
from spotkeep_cli.errors import UsageError
from spotkeep_cli.run_names import find_run
from spotkeep_cli.terminal import NextStep, Terminal


def logs(
    context: typer.Context,
    run_name: RunName,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the run has ended.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Every line as the job wrote it, events too.")] = False,
    attempt: Annotated[int | None, typer.Option(min=1, help="Only this attempt's log.", show_default=False)] = None,
) -> None:
    """Print a run's log, all attempts in order."""
    from spotkeep_cli.following import LogPrinter, read_lines
    from spotkeep_cli.following import follow as follow_run
    from spotkeep_cli.next_steps import steps_for_run

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
    # Following reads the current attempt's log itself, from its beginning.
    for known in attempts[: len(attempts) - 1] if following else attempts:
        if len(attempts) > 1:
            terminal.remark(f"--- attempt {known.attempt}: {known.job_name}")
        for line in read_lines(deployment.job_log(*known.log_names, backend=known.place.backend)):
            printer.show(line)
    if following:
        try:
            for update in follow_run(deployment, run.run, pause=invocation.pause):
                printer.show(update)
        except KeyboardInterrupt:
            terminal.remark("")
        run = deployment.table.runs.get(run.run) or run
    if not printer.printed:
        terminal.remark(
            "No log: it never had instances." if run.state.ended else "No log yet: it waits for its instances."
        )
    if raw:
        return
    if not run.state.ended and not follow:
        terminal.show_next(NextStep(command=invocation.command(f"logs {run.run} -f"), what="follow it"))
    else:
        terminal.show_next(*steps_for_run(run, invocation=invocation, after="logs"))
