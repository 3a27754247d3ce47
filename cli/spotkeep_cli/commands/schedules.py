"""`spotkeep schedules ls | rm`: the job files that are launched again and again."""

from typing import Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, invocation_of
from spotkeep_cli.terminal import NextStep, Terminal

app = typer.Typer(help="See and remove schedules: job files that are launched again and again.", no_args_is_help=True)


@app.command()
def ls(context: typer.Context, *, as_json: AsJson = False) -> None:
    """List schedules, with the next firing and the result of the last."""
    from spotkeep_cli.rendering.lists import schedule_list
    from spotkeep_jobs.schedules.document import next_firing

    invocation = invocation_of(context)
    now = invocation.seams.now()
    unreadable: dict[str, str] = {}
    schedules = invocation.deployment().table.schedules.list(unreadable=unreadable)
    terminal = Terminal(as_json=as_json)
    terminal.remark_unreadable(unreadable)
    next_firings = [next_firing(schedule, now=now) for schedule in schedules]
    if as_json:
        terminal.give_json(
            [
                {
                    **schedule.model_dump(mode="json", exclude={"token"}),
                    "next_firing": None if firing is None else firing.isoformat(),
                }
                for schedule, firing in zip(schedules, next_firings, strict=True)
            ]
        )
        return
    if not schedules:
        terminal.show("No schedule: `schedule: cron(0 2 * * ? *)` in a job file makes one.")
        terminal.show_next(NextStep(command=invocation.command("launch job.yaml"), what="launch it"))
        return
    terminal.show(schedule_list(schedules, next_firings, width=terminal.people.width))
    for schedule in schedules:
        if schedule.last_refusal is not None:
            terminal.remark(f"! {schedule.schedule} launched nothing the last time: {schedule.last_refusal}")
    launched = next((each for each in schedules if each.last_launched is not None), None)
    terminal.show_next(
        *(
            [NextStep(command=invocation.command(f"describe {launched.last_launched}"), what="how the last time went")]
            if launched is not None
            else []
        ),
        NextStep(command=invocation.command(f"schedules rm {schedules[0].schedule}"), what="remove one"),
    )


@app.command()
def rm(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The schedule's name.", show_default=False)],
    *,
    yes: AssumeYes = False,
    as_json: AsJson = False,
) -> None:
    """Remove a schedule. Runs that it has launched go on."""
    from spotkeep_cli.launching.answers import ask_launcher

    invocation = invocation_of(context)
    terminal = Terminal(as_json=as_json)
    deployment = invocation.deployment()
    terminal.confirm(f"Remove the schedule {name}?", assume_yes=yes)
    request = {"action": "remove-schedule", "schedule": name}
    answer = ask_launcher(deployment, request, what=f"{name} was not removed")
    if as_json:
        terminal.give_json(answer)
        return
    terminal.show(f"{name} is removed: it launches nothing any more. Runs that it has launched go on.")
    terminal.show_next(NextStep(command=invocation.command("ps"), what="see the runs at work"))
