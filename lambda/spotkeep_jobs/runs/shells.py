"""A shell in a run. It finds the machine where the run trains now, and opens a session of Systems Manager there.

The launcher opens the session and hands its token to the caller. The caller's Session Manager plugin then connects. So
a caller may open a shell in a run if the caller may stop it. No user has a permission for Systems Manager.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spotkeep_fleet.shells import COMMAND_DOCUMENT, TRAINING_JOB_TARGET, shell_on_an_instance
from spotkeep_jobs.backends.backend import JobView
from spotkeep_jobs.backends.session_manager import NOT_CONNECTED, Session
from spotkeep_jobs.errors import AwsRefusedError, Problem, RequestRefusedError
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.runs.callers import known_run
from spotkeep_jobs.runs.launch_completion import CALL_AGAIN, unfinished_without_an_answer

if TYPE_CHECKING:
    from spotkeep_jobs.deployment import Deployment
    from spotkeep_jobs.settings import LauncherSettings

_LONGEST_REASON: Final = 256
"""Source: https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_StartSession.html"""


@dataclass(frozen=True, kw_only=True)
class Shell:
    """A shell that was opened.

    Attributes:
        run: The run's id.
        session: The session.
        parameters: Those of StartSession that it was started with.
    """

    run: str
    session: Session
    parameters: Mapping[str, Any]


def open_shell(
    deployment: Deployment[LauncherSettings], run_id: str, *, command: str | None, host: int, asked_by: str | None
) -> Shell:
    """Open a shell.

    Args:
        deployment: The deployment.
        run_id: The run.
        command: A shell command to run instead of an interactive shell.
        host: The number of the job's instance, from 1.
        asked_by: The caller's name for AWS's record of the session, if known.

    Raises:
        RequestRefusedError: There is no such run, or no shell can be opened in it now. The error names the next step.
        LaunchUnfinishedError: AWS did not answer.
    """
    run = known_run(deployment.table, run_id)
    if deployment.sessions is None:
        raise RequestRefusedError([no_shells()])
    if run.state.ended:
        raise RequestRefusedError([_has_ended(run)])
    with unfinished_without_an_answer(f"opening a shell in run {run_id!r}", then=CALL_AGAIN):
        view = deployment.backend_of(run).observe(run.job_name)
        parameters = session_parameters(run, view, command=command, host=host, asked_by=asked_by)
        try:
            if view is not None and view.remote_debugging_off_in is not None:
                deployment.training_jobs.take_sessions(view.remote_debugging_off_in)
            return Shell(run=run_id, session=deployment.sessions.start(parameters), parameters=parameters)
        except AwsRefusedError as error:
            raise RequestRefusedError([_refused(run, error)]) from error


def session_parameters(
    run: Run, view: JobView | None, *, command: str | None, host: int, asked_by: str | None
) -> dict[str, Any]:
    """Return the parameters of StartSession. Pure.

    Args:
        run: The run.
        view: The backend's description of the run's job, or None if there is none.
        command: A shell command to run instead of an interactive shell.
        host: The number of the job's instance, from 1.
        asked_by: The caller's name, if known.

    Raises:
        RequestRefusedError: No instance takes a session now.
    """
    if run.request.get("algorithm") is not None:
        raise RequestRefusedError([_is_an_algorithms(run)])
    targets = () if view is None else view.session_targets
    if not targets:
        raise RequestRefusedError([_does_not_train(run)])
    if host > len(targets):
        raise RequestRefusedError([_no_such_host(host, of=len(targets))])
    target = targets[host - 1]
    what = f"spotkeep shell {run.run}"
    parameters: dict[str, Any] = {
        "Target": target,
        "Reason": (what if asked_by is None else f"{what}, for {asked_by}")[:_LONGEST_REASON],
    }
    if not target.startswith(f"{TRAINING_JOB_TARGET}:"):
        command = shell_on_an_instance(command)
    if command is not None:
        parameters |= {"DocumentName": COMMAND_DOCUMENT, "Parameters": {"command": [command]}}
    return parameters


def no_shells() -> Problem:
    """Return the problem of a deployment without shells."""
    return Problem(
        field="run",
        found="a deployment without shells",
        problem="opens no shell",
        fix="Have it deployed with them: cdk deploy --all -c shells=true",
    )


def _has_ended(run: Run) -> Problem:
    return Problem(
        field="run",
        found=run.state.value.lower(),
        problem="has ended: nothing runs that a shell could be opened in",
        fix=f"See what it printed: spotkeep logs {run.run}",
    )


def _does_not_train(run: Run) -> Problem:
    return Problem(
        field="run",
        found=run.state.value.lower(),
        problem="does not train now: a shell is opened in the job while it trains",
        fix=f"Try again when it does: spotkeep describe {run.run}",
    )


def _is_an_algorithms(run: Run) -> Problem:
    return Problem(
        field="algorithm",
        found=str(run.request["algorithm"]),
        problem="trains in a container of AWS's algorithms, in which AWS opens no shell",
        fix=f"See what it printed: spotkeep logs {run.run}",
    )


def _no_such_host(host: int, *, of: int) -> Problem:
    return Problem(
        field="host",
        found=str(host),
        problem=f"is not one of the job's {of} instances" if of > 1 else "is not there: the job has one instance",
        fix=f"Give 1 to {of}." if of > 1 else "Give 1, or leave it out.",
    )


def _refused(run: Run, error: AwsRefusedError) -> Problem:
    if error.code == NOT_CONNECTED:
        return Problem(
            field="run",
            found=error.reason,
            problem="has no connection to Systems Manager there",
            fix="Try again in a minute: the agent may be starting. If not, see `spotkeep help command-line shell`.",
            temporary=True,
        )
    if run.place.queue is not None and error.operation == "UpdateTrainingJob" and error.code.startswith("AccessDenied"):
        # The permission asks for the deployment's tag, and nothing else distinguishes it from other teams' jobs.
        return Problem(
            field="debug",
            found="false",
            problem="was not asked for, and the launcher may not switch it on in a training job of a queue that has no "
            "tags",
            fix=f"Set it and let the run go on from its checkpoint: spotkeep stop {run.run}, then, when it has ended, "
            f"spotkeep resume {run.run} --set debug=true",
        )
    return Problem(
        field="run",
        found=run.job_name,
        problem=f"takes no session: {error.operation} answered {error.code}: {error.reason}",
        fix="See `spotkeep help command-line shell`.",
    )
