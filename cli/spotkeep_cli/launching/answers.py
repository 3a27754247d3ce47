"""What the launcher answers: a success, a refusal with every problem, or several runs of one job file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from spotkeep_cli.errors import LauncherError, LocatedProblem, RefusedError
from spotkeep_cli.rendering.facts import facts
from spotkeep_cli.rendering.schedule_list import fires_at
from spotkeep_cli.terminal import NextStep
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from spotkeep_cli.launching.job_file import JobDocument
    from spotkeep_cli.seams import Invocation
    from spotkeep_cli.terminal import Terminal
    from spotkeep_jobs.errors import Problem


def read_answer(answer: dict[str, Any], *, what: str, document: JobDocument | None = None) -> dict[str, Any]:
    """Return the answer, when it is a success.

    Args:
        answer: As the launcher gave it.
        what: What did not happen if it refused: `nothing was launched`.
        document: The job file the request came from, for the lines of its problems.

    Raises:
        RefusedError: The launcher refused; carries every problem.
        LauncherError: It is no answer this version knows.
    """
    if answer.get("ok") is True:
        return answer
    if answer.get("ok") is False:
        problems = problems_from_answer(answer.get("problems") or [])
        raise refused(problems, what=what, document=document, message=str(answer.get("message") or ""))
    raise LauncherError(
        f"the launcher answered something this version does not know: {str(answer)[:120]}",
        hint="is the deployment of another version? Deploy again: cdk deploy --all",
    )


def refused(
    problems: list[Problem], *, what: str, document: JobDocument | None = None, message: str = ""
) -> RefusedError:
    """Return the error for a refused request, its problems located in the job file."""
    if document is not None:
        located = document.located(problems)
        place = f" in {document.path}"
        hint = f"`spotkeep doctor {document.path}` checks it again and launches nothing"
    else:
        located = [LocatedProblem(**vars(problem)) for problem in problems]
        place = hint = ""
    if not located:
        return RefusedError(f"{what}: {message or 'the launcher refused and gave no reason'}")
    count = "1 problem" if len(located) == 1 else f"{len(located)} problems"
    return RefusedError(f"{what}: {count}{place}", problems=located, hint=hint)


def show_several(answer: dict[str, Any], *, known: bool, invocation: Invocation, terminal: Terminal) -> None:
    """Show the runs of a launcher answer. They are not followed: several logs at once are not read.

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
    launched = "were launched before with this token; nothing new was launched" if known else "launched"
    terminal.show(f"{len(runs)} runs {launched}")
    terminal.show(facts([(str(run["run"]), _stands(run)) for run in runs]))
    for warning in answer.get("warnings") or ():
        terminal.remark(f"! {warning}")
    first = str(runs[0]["run"])
    terminal.show_next(
        NextStep(command=invocation.command("ps"), what="where they stand"),
        NextStep(command=invocation.command(f"logs {first} -f"), what="follow one of them"),
        NextStep(command=invocation.command(f"stop {first}"), what="end one of them"),
    )


def show_sweep(answer: dict[str, Any], *, known: bool, invocation: Invocation, terminal: Terminal) -> None:
    """Show the sweep of a launcher answer. Its trials are not followed: several logs at once are not read.

    Args:
        answer: What the launcher answered.
        known: Whether a token of the user's launched it before.
        invocation: How `spotkeep` was called.
        terminal: Where to show it.

    With `--json`, standard output gets the answer.
    """
    if terminal.as_json:
        terminal.give_json(answer)
        return
    sweep = str(answer["sweep"])
    launched = "was launched before with this token; nothing new was launched" if known else "launched"
    terminal.show(f"{sweep} {launched}; its first trial is {sweep}/1, the others follow by themselves")
    for run, reason in (answer.get("refused") or {}).items():
        terminal.remark(f"! {run} was refused: {reason}")
    for warning in answer.get("warnings") or ():
        terminal.remark(f"! {warning}")
    terminal.show_next(
        NextStep(command=invocation.command(f"describe {sweep}"), what="its trials, the best first"),
        NextStep(command=invocation.command(f"logs {sweep}/1 -f"), what="follow the first trial"),
    )


def show_schedule(answer: dict[str, Any], *, known: bool, invocation: Invocation, terminal: Terminal) -> None:
    """Show the schedule of a launcher answer: nothing runs yet, so nothing is followed.

    Args:
        answer: What the launcher answered.
        known: Whether a token of the user's made it before.
        invocation: How `spotkeep` was called.
        terminal: Where to show it.

    With `--json`, standard output gets the answer.
    """
    if terminal.as_json:
        terminal.give_json(answer)
        return
    schedule = answer["schedule"]
    name, first = str(schedule["schedule"]), fires_at(schedule.get("next_firing"))
    made = (
        "was made before with this token; nothing new was made. It fires" if known else "is scheduled; it fires first"
    )
    terminal.show(f"{name} {made} at {first}")
    for warning in answer.get("warnings") or ():
        terminal.remark(f"! {warning}")
    terminal.show_next(
        NextStep(command=invocation.command("schedules ls"), what="when it fires next, and what it launched"),
        NextStep(command=invocation.command(f"schedules rm {name}"), what="remove it"),
    )


def _stands(run: dict[str, Any]) -> str:
    parts = [str(run.get("capacity", "")), str(run.get("job_arn") or run.get("state", "")).lower()]
    return ", ".join(part for part in parts if part)


def problems_from_answer(entries: Iterable[Mapping[str, Any] | str]) -> list[Problem]:
    """Return the `problems` or `warnings` of a launcher answer; a warning may be a bare sentence."""
    return [
        Problem(field="", found="", problem=entry, fix="")
        if isinstance(entry, str)
        else Problem(**{name: str(entry.get(name) or "") for name in ("field", "found", "problem", "fix")})
        for entry in entries
    ]
