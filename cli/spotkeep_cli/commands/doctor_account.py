"""`spotkeep doctor --account`: what belongs to no live run, what it costs or risks, and the command that mends it."""

from typing import TYPE_CHECKING

from spotkeep_cli.errors import NoConnectionError, OrphanError
from spotkeep_cli.terminal import NextStep, Terminal

if TYPE_CHECKING:
    from spotkeep_cli.seams import Invocation


def check_account(invocation: "Invocation", *, as_json: bool) -> None:
    """Check the account, read-only, and show what was found.

    Raises:
        OrphanError: Something should not be there.
        NoConnectionError: Something could not be read.
    """
    from spotkeep_cli.account import check
    from spotkeep_cli.account.view import account_report
    from spotkeep_cli.rendering.quantities import counted

    terminal = Terminal(as_json=as_json)
    deployment = invocation.deployment()
    with terminal.remarks.status("reading jobs, warm pools, schedules, checkpoints and quotas"):
        found = check.check_account(deployment, clock=invocation.seams.now)
    if as_json:
        terminal.give_json(found.as_document())
    else:
        about = f"{invocation.options.deployment} in {deployment.region}"
        verdict = f"{counted(found.wrong, 'thing')} that should not be there" if found.wrong else "no orphans"
        terminal.show(f"{about}: {verdict}")
        for part in account_report(found, now=invocation.seams.now(), width=terminal.people.width):
            terminal.show(part)
        terminal.show_next(
            NextStep(command=invocation.command("ps"), what="the runs at work"),
            NextStep(command=invocation.command("pool ls"), what="warm pools, and who left them"),
        )
    if found.wrong:
        raise OrphanError(
            f"{counted(found.wrong, 'thing')} in the account should not be there",
            hint="the controller removes by rule, once an hour; the commands above do it now",
        )
    if found.unreadable:
        raise NoConnectionError(
            f"{' and '.join(found.unreadable)} could not be read",
            hint=f"ask for the managed policy of users of the deployment {invocation.options.deployment!r}",
        )
