"""What is useful to do next with a run, by its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_cli.terminal import NextStep
from spotkeep_jobs.record.states import RunState

if TYPE_CHECKING:
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record.record import Run
    from spotkeep_jobs.record.sweep import Sweep


def steps_for_run(run: Run, *, invocation: Invocation, after: str) -> list[NextStep]:
    """Return the next commands for a run.

    Args:
        run: The run as it stands.
        invocation: How `spotkeep` was called.
        after: The command that was just run; it is not offered again.
    """

    def step(rest: str, what: str) -> tuple[str, NextStep]:
        return rest.partition(" ")[0], NextStep(command=invocation.command(rest), what=what)

    name = run.run
    if run.state is RunState.COMPLETED:
        steps = [
            step(f"describe {name}", "the whole story"),
            step("savings", "what spot saved so far"),
            step(f"logs {name}", "its log"),
        ]
        # The plain AWS command would ask the real AWS.
        if run.output_uri and not invocation.options.local:
            steps.insert(0, ("aws", NextStep(command=f"aws s3 cp {run.output_uri} .", what="fetch the model")))
    elif run.state is RunState.FAILED and run.started_at is None:
        # It was refused, or never had an instance: there is no log.
        steps = [
            step(f"describe {name}", "why it did not begin"),
            step(f"resume {name}", "try again when that is put right"),
        ]
    elif run.state is RunState.FAILED:
        steps = [
            step(f"logs {name}", "what it said before it ended"),
            step(f"resume {name}", "go on from its last checkpoint"),
            step(f"describe {name}", "the whole story"),
        ]
    elif run.next_pause_at_step is not None:
        steps = [
            step(f"resume {name} --set pause_at_step={run.next_pause_at_step}", "go on, and pause there"),
            step(f"resume {name} --set pause_at_step=", "go on to the end"),
            step(f"describe {name}", "the whole story"),
        ]
    elif run.state is RunState.STOPPED:
        steps = [
            step(f"resume {name}", "go on from its last checkpoint"),
            step(f"describe {name}", "the whole story"),
            step(f"logs {name}", "its log"),
        ]
    else:
        steps = [
            step(f"logs {name} -f", "follow its log"),
            step(f"describe {name}", "what happened so far"),
        ]
        if run.state is not RunState.STOPPING:
            steps.append(step(f"stop {name}", "end it"))
    cannot = {after, "resume"} if run.adopted else {after}
    return [next_step for command, next_step in steps if command not in cannot][:2]


def steps_for_sweep(sweep: Sweep, *, invocation: Invocation, after: str) -> list[NextStep]:
    """Return the next commands for a sweep.

    Args:
        sweep: Its item.
        invocation: How `spotkeep` was called.
        after: The command that was just run; it is not offered again.
    """
    name = sweep.sweep
    steps = [("describe", f"describe {name}", "its trials, the best first")]
    if not sweep.state.ended:
        number = 1 if sweep.best is None else sweep.best.number
        steps += [("logs", f"logs {name}/{number} -f", "follow a trial"), ("pause", f"pause {name}", "pause it")]
    if sweep.best is not None:
        steps.append(("best", f"best {name} --export best", "fetch the best trial"))
    if sweep.can_go_on:
        what = "try what failed again" if sweep.counts.failed else "go on with it"
        steps.append(("resume", f"resume {name}", what))
    return [NextStep(command=invocation.command(rest), what=what) for verb, rest, what in steps if verb != after][:2]
