"""`spotkeep notifications ls|replay`: what was sent, what could not be, and sending that again."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated

import typer

from spotkeep_cli.commands.parameters import AsJson, AssumeYes, invocation_of
from spotkeep_cli.run_names import find_run
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from spotkeep_cli.aws.deployment import DeploymentClient

MOST_WAITING = 500

app = typer.Typer(no_args_is_help=True, help="Notifications of runs: sent, and not sent.")


@app.command("ls")
def list_notifications(
    context: typer.Context,
    *,
    run_name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Every notification of this run.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List a run's notifications; without a run, those that have not gone out yet, and those that could not."""
    from spotkeep_cli.rendering.lists import notification_list
    from spotkeep_jobs.record.states import NotificationState

    invocation = invocation_of(context)
    table = invocation.deployment().table
    terminal = Terminal(as_json=as_json)
    unreadable: dict[str, str] = {}
    if run_name is None:
        found = [
            *table.notifications.dead(unreadable=unreadable),
            *table.notifications.unsent(limit=MOST_WAITING, unreadable=unreadable),
        ]
    else:
        run = find_run(table, run_name, command=invocation.options.command).run
        found = table.notifications.of_run(run, unreadable=unreadable)
    terminal.remark_unreadable(unreadable)
    if as_json:
        terminal.give_json([notification.model_dump(mode="json") for notification in found])
        return
    if not found:
        terminal.show("Everything has been sent." if run_name is None else "There was nothing to send yet.")
        terminal.show_next(NextStep(command=invocation.command("ps"), what="runs at work"))
        return
    terminal.show(notification_list(found, width=terminal.people.width))
    dead = next((notification for notification in found if notification.state is NotificationState.DEAD), None)
    if dead is not None:
        what = "send what could not be sent"
        terminal.show_next(NextStep(command=invocation.command(f"notifications replay {dead.subject_id}"), what=what))
    else:
        of_schedule = "schedule" in found[0].attributes
        described = "schedules ls" if of_schedule else f"describe {found[0].subject_id}"
        terminal.show_next(NextStep(command=invocation.command(described), what="what happened to it"))


@app.command()
def replay(
    context: typer.Context,
    *,
    subject: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Only the notifications of this one.", show_default=False)
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All that could not be sent.")] = False,
    yes: AssumeYes = False,
    as_json: AsJson = False,
) -> None:
    """Send undelivered notifications again, and take their messages out of the dead-letter queue.

    Each notification goes out once, however often this is called.
    """
    from spotkeep_cli.errors import UsageError
    from spotkeep_cli.rendering.quantities import counted

    if (subject is None) == (not everything):
        raise UsageError("name a run, or give --all", hint="see what could not be sent: spotkeep notifications ls")
    invocation = invocation_of(context)
    deployment = invocation.deployment()
    terminal = Terminal(as_json=as_json)
    unreadable: dict[str, str] = {}
    dead = [
        notification
        for notification in deployment.table.notifications.dead(unreadable=unreadable)
        if everything or notification.subject_id == subject
    ]
    terminal.remark_unreadable(unreadable)
    if dead:
        terminal.confirm(f"Send {counted(len(dead), 'notification')} again?", assume_yes=yes)
    # The table first: it knows what is dead, also when the queue does not, or cannot be read.
    asked = {notification.subject_id for notification in dead}
    replayed = _replay(deployment, asked)
    letters = deployment.dead_letters.take()
    spent = [letter for letter in letters if everything or letter.subject_id == subject]
    try:
        replayed += _replay(deployment, {letter.subject_id for letter in spent} - asked)
        deployment.dead_letters.delete(spent)
    finally:
        deployment.dead_letters.give_back([letter for letter in letters if letter not in spent])
    removed = len(spent)
    if as_json:
        terminal.give_json({"ok": True, "notifications": replayed, "messages_removed": removed})
        return
    if not replayed:
        terminal.show("There is nothing that could not be sent.")
        if removed:
            gone = counted(removed, "notification")
            terminal.show(f"The dead-letter queue held messages of {gone} that had gone out since: removed.")
    else:
        terminal.show(f"{counted(len(replayed), 'notification')}: out again within five minutes, each once.")
    terminal.show_next(NextStep(command=invocation.command("notifications ls"), what="what has not gone out yet"))


def _replay(deployment: "DeploymentClient", subjects: Collection[str]) -> list[str]:
    """Ask the launcher to send the dead notifications of each run again. Return those that it will send."""
    from spotkeep_cli.launching.answers import ask_launcher

    replayed: list[str] = []
    for name in sorted(subjects):
        request = {"action": "replay-notifications", "run": name}
        answer = ask_launcher(deployment, request, what=f"the notifications of {name} were not sent again")
        replayed += answer["notifications"]
    return replayed
