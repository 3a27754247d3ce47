"""The useful next steps with a run, by its state."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from spotkeep_cli.failure_causes import hint_of_failure
from spotkeep_cli.terminal import NextStep
from spotkeep_jobs.record.states import RunState

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record.record import Run
    from spotkeep_jobs.record.sweep import Sweep


def steps_for_run(run: Run, *, invocation: Invocation, after: str) -> list[NextStep]:
    """Return the next commands for a run.

    Args:
        run: The run as it stands.
        invocation: The words that `spotkeep` was called with.
        after: The command that was just run. It is not offered again.
    """
    name, now = run.run, invocation.seams.now()
    describe, resume = (f"describe {name}", "the whole story"), (f"resume {name}", _effect_of_resume(run))
    if run.state is RunState.COMPLETED:
        steps = [describe, ("savings", "what spot saved so far"), (f"logs {name}", "its log")]
    elif run.state is RunState.FAILED and run.started_at is None:
        # It was refused, or never had an instance: there is no log.
        steps = [(f"describe {name}", "why it did not begin"), (f"resume {name}", "try again when that is put right")]
    elif run.state is RunState.FAILED:
        steps = [(f"logs {name}", "what it said before it ended"), resume_of(run), describe]
    elif run.next_pause_at_step is not None:
        steps = [
            (f"resume {name} --set pause_at_step={run.next_pause_at_step}", "go on, and pause there"),
            (f"resume {name} --set pause_at_step=", "go on to the end"),
            describe,
        ]
    elif run.state is RunState.STOPPED:
        steps = [resume, describe, (f"logs {name}", "its log")]
    else:
        steps = [(f"logs {name} -f", "follow its log"), (f"describe {name}", "what happened so far")]
        if run.state is not RunState.STOPPING:
            steps.append((f"stop {name}", "end it"))
    if run.ending is not None and run.ending.at.timestamp() + run.request.get("keep_alive", 0) > now.timestamp():
        steps.insert(0, (f"pool stop {name}", "give its instances back, which are billed while they wait"))
    offered = _offered(steps, invocation=invocation, but={after, "resume"} if run.adopted else {after})
    # The plain AWS command would ask the real AWS.
    if run.state is RunState.COMPLETED and run.output_uri and not invocation.options.local:
        offered.insert(0, NextStep(command=f"aws s3 cp {run.output_uri} .", what="fetch the model"))
    return offered[:2]


def resume_of(run: Run) -> tuple[str, str]:
    """Return the resume of an ended run as a command and its effect, with the change that a failure asks for."""
    name, command = run.run, run.request.get("command")
    failure = "" if run.ending is None else run.ending.failure_reason or ""
    if isinstance(command, list) and hint_of_failure(failure) is not None:
        given = shlex.quote(f"command={shlex.join(map(str, command))}")
        return f"resume {name} --set {given}", "go on with the command put right"
    if "cannot be mounted" in failure or "cannot be written to channel" in failure:
        return f"resume {name}", "go on when the file system is put right"
    if run.state is not RunState.FAILED or run.request.get("source") is None:
        return f"resume {name}", _effect_of_resume(run)
    return f"resume {name} --source .", f"{_effect_of_resume(run)} with the script mended"


def _effect_of_resume(run: Run) -> str:
    """Return the effect in words. A run that never trained, or that saves nothing, has no checkpoint."""
    if run.started_at is None:
        return "start it again"
    # On EC2 a volume keeps what the script saves there.
    may_have_one = run.request.get("checkpoints", True) or run.request.get("backend") == "ec2"
    return "go on from its last checkpoint" if may_have_one else "train again from zero"


def _offered(steps: Sequence[tuple[str, str]], *, invocation: Invocation, but: Collection[str]) -> list[NextStep]:
    """Return steps as commands to copy, without some commands."""
    return [NextStep(command=invocation.command(rest), what=what) for rest, what in steps if rest.split()[0] not in but]


def steps_for_sweep(sweep: Sweep, *, invocation: Invocation, after: str) -> list[NextStep]:
    """Return the next commands for a sweep.

    Args:
        sweep: Its item.
        invocation: The words that `spotkeep` was called with.
        after: The command that was just run. It is not offered again.
    """
    name = sweep.sweep
    steps = [(f"describe {name}", "its trials, the best first")]
    if not sweep.state.ended:
        number = 1 if sweep.best is None else sweep.best.number
        steps += [(f"logs {name}/{number} -f", "follow a trial"), (f"pause {name}", "pause it")]
    steps += _about_best(sweep)
    if sweep.can_go_on:
        steps.append((f"resume {name}", "try what failed again" if sweep.counts.failed else "go on with it"))
    return _offered(steps, invocation=invocation, but={after})[:2]


def steps_for_best(sweep: Sweep, *, invocation: Invocation) -> list[NextStep]:
    """Return the next commands for the best trial of a sweep. None where it has none.

    Args:
        sweep: Its item.
        invocation: The words that `spotkeep` was called with.
    """
    return _offered(_about_best(sweep), invocation=invocation, but=())


def _about_best(sweep: Sweep) -> list[tuple[str, str]]:
    steps = []
    if (unfinished := sweep.best_to_finish) is not None:
        steps.append((f"resume {unfinished.run} {sweep.options_to_finish}", "train the best trial to its end"))
    if sweep.best is not None:
        steps.append((f"best {sweep.sweep} --export best", "fetch the best trial"))
    return steps
