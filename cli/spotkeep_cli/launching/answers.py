"""The launcher's answers.

An answer is a success, a refusal with every problem, or a launch of more than one run that can be followed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from spotkeep_cli.errors import LauncherError, LocatedProblem, RefusedError
from spotkeep_cli.launching.json_values import plain
from spotkeep_cli.rendering.columns import facts
from spotkeep_cli.rendering.lists import fires_at
from spotkeep_cli.rendering.quantities import counted
from spotkeep_cli.terminal import NextStep
from spotkeep_jobs.errors import Problem

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.launching.job_file import JobDocument
    from spotkeep_cli.seams import Invocation
    from spotkeep_cli.terminal import Terminal


def ask_launcher(
    deployment: DeploymentClient, request: Mapping[str, Any], *, what: str, document: JobDocument | None = None
) -> dict[str, Any]:
    """Call the launcher, and return its answer when it is a success.

    Args:
        deployment: The deployment of the launcher.
        request: The request to the launcher.
        what: The effect of a refusal in words, for example `nothing was launched`.
        document: The job file the request came from, for the lines of its problems.

    Raises:
        RefusedError: The launcher refused. The error carries every problem.
        LauncherError: The launcher broke, or gave no answer that this version knows.
        NoConnectionError: The call did not come through.
    """
    sent, problems = plain(request)
    if problems:
        raise refused(problems, what=what, document=document)
    return read_answer(deployment.invoke_launcher(sent), what=what, document=document)


def read_answer(answer: dict[str, Any], *, what: str, document: JobDocument | None = None) -> dict[str, Any]:
    """Return the answer, when it is a success.

    Args:
        answer: As the launcher gave it.
        what: The effect of a refusal in words, for example `nothing was launched`.
        document: The job file the request came from, for the lines of its problems.

    Raises:
        RefusedError: The launcher refused. The error carries every problem.
        LauncherError: It is no answer that this version knows.
    """
    if answer.get("ok") is True:
        return answer
    if answer.get("ok") is False:
        problems = problems_from_answer(answer.get("problems") or [])
        error = refused(problems, what=what, document=document, message=str(answer.get("message") or ""))
        error.temporary = answer.get("temporary") is True
        raise error
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
        place = f" in {document.path}" if document.is_file else " in the job's fields"
        hint = f"`spotkeep doctor {document.path}` checks it again and launches nothing" if document.is_file else ""
    else:
        located = [LocatedProblem(**vars(problem)) for problem in problems]
        place = hint = ""
    if not located:
        return RefusedError(f"{what}: {message or 'the launcher refused and gave no reason'}")
    return RefusedError(f"{what}: {counted(len(located), 'problem')}{place}", problems=located, hint=hint)


def show_launched(answer: dict[str, Any], *, known: bool, invocation: Invocation, terminal: Terminal) -> None:
    """Show the runs, the sweep or the schedule of a launcher answer.

    They are not followed. A reader cannot read several logs at once, and a schedule has no run yet. With `--json`,
    standard output gets the answer.

    Args:
        answer: The launcher's answer, with `runs`, `sweep` or `schedule`.
        known: True if a token of the user launched them before.
        invocation: The words that `spotkeep` was called with.
        terminal: The terminal to show it on.

    With `--json`, standard output gets the answer.
    """
    if terminal.as_json:
        terminal.give_json(answer)
        return
    if "schedule" in answer:
        shown, steps = _schedule(answer["schedule"], known=known)
    elif "sweep" in answer:
        shown, steps = _sweep(str(answer["sweep"]), known=known)
    else:
        shown, steps = _runs(answer["runs"], known=known)
    for part in shown:
        terminal.show(part)
    for run, reason in (answer.get("refused") or {}).items():
        terminal.remark(f"! {run} was refused: {reason}")
    for warning in answer.get("warnings") or ():
        terminal.remark(f"! {warning}")
    terminal.show_next(*(NextStep(command=invocation.command(command), what=what) for command, what in steps))


_Shown: TypeAlias = "tuple[list[RenderableType], list[tuple[str, str]]]"
"""The launched runs, and the next commands with their effect."""
_KNOWN: Final = "launched before with this token; nothing new was launched"


def _runs(runs: Sequence[Mapping[str, Any]], *, known: bool) -> _Shown:
    first = runs[0]["run"]
    launched = f"were {_KNOWN}" if known else "launched"
    return [f"{len(runs)} runs {launched}", facts([(str(run["run"]), _stands(run)) for run in runs])], [
        ("ps", "where they stand"),
        (f"logs {first} -f", "follow one of them"),
        (f"stop {first}", "end one of them"),
    ]


def _sweep(sweep: str, *, known: bool) -> _Shown:
    launched = f"was {_KNOWN}" if known else "launched"
    return [f"{sweep} {launched}; its first trial is {sweep}/1, the others follow by themselves"], [
        (f"describe {sweep}", "its trials, the best first"),
        (f"logs {sweep}/1 -f", "follow the first trial"),
    ]


def _schedule(schedule: Mapping[str, Any], *, known: bool) -> _Shown:
    name = schedule["schedule"]
    made = (
        "was made before with this token; nothing new was made. It fires" if known else "is scheduled; it fires first"
    )
    return [f"{name} {made} at {fires_at(schedule.get('next_firing'))}"], [
        ("schedules ls", "when it fires next, and what it launched"),
        (f"schedules rm {name}", "remove it"),
    ]


def _stands(run: Mapping[str, Any]) -> str:
    parts = [str(run.get("capacity", "")), str(run.get("job_id") or run.get("state", "")).lower()]
    return ", ".join(part for part in parts if part)


def problems_from_answer(entries: Iterable[Mapping[str, Any] | str]) -> list[Problem]:
    """Return the `problems` or `warnings` of a launcher answer. A warning may be a bare sentence."""
    return [_problem({"problem": entry} if isinstance(entry, str) else entry) for entry in entries]


def _problem(entry: Mapping[str, Any]) -> Problem:
    field, found, problem, fix = (str(entry.get(name) or "") for name in ("field", "found", "problem", "fix"))
    return Problem(field=field, found=found, problem=problem, fix=fix)
