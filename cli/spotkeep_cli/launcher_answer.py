"""Reads what the launcher answers: a success, or a refusal with every problem."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from spotkeep_cli.errors import LauncherError, RefusedError
from spotkeep_cli.problems import LocatedProblem, problems_from_answer

if TYPE_CHECKING:
    from spotkeep_cli.job_file import JobDocument
    from spotkeep_jobs.errors import Problem


def read_answer(answer: dict[str, Any], *, what: str, document: JobDocument | None = None) -> dict[str, Any]:
    """The answer, when it is a success.

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
    """The error for a refused request, its problems located in the job file."""
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
