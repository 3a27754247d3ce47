"""What `launch` does once several runs of one job file are on their way: it tells all of them, and leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotkeep_cli.rendering.facts import facts
from spotkeep_cli.terminal import NextStep

if TYPE_CHECKING:
    from spotkeep_cli.seams import Invocation
    from spotkeep_cli.terminal import Terminal


def tell_of_several(answer: dict[str, Any], *, known: bool, invocation: Invocation, terminal: Terminal) -> None:
    """Tells the runs of a launcher answer: nobody follows several logs at once.

    Args:
        answer: What the launcher answered, with `runs`.
        known: Whether a token of the user's launched them before.
        invocation: How `spotkeep` was called.
        terminal: Where to show it.

    With `--json`, standard output gets the answer.
    """
    if terminal.as_json:
        terminal.give_json(answer)
        return
    runs = answer["runs"]
    told = "were launched before with this token; nothing new was launched" if known else "launched"
    terminal.show(f"{len(runs)} runs {told}")
    terminal.show(facts([(str(run["run"]), _stands(run)) for run in runs]))
    for warning in answer.get("warnings") or ():
        terminal.remark(f"! {warning}")
    first = str(runs[0]["run"])
    terminal.show_next(
        NextStep(command=invocation.command("ps"), what="where they stand"),
        NextStep(command=invocation.command(f"logs {first} -f"), what="follow one of them"),
        NextStep(command=invocation.command(f"stop {first}"), what="end one of them"),
    )


def _stands(run: dict[str, Any]) -> str:
    parts = [str(run.get("capacity", "")), str(run.get("job_arn") or run.get("state", "")).lower()]
    return ", ".join(part for part in parts if part)
