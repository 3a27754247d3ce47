"""What users ask for after a launch of a schedule, a sweep, a run in a queue. Each is asked for until it is so."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from spotkeep.notices.notice import NOTICE_SECONDS_VARIABLE
from spotkeep_cli.errors import CommandLineError
from spotkeep_cli.rehearsal.sweep_queue import OF_ONE_JOB
from spotkeep_jobs.record.states import RunState, SweepState
from spotkeep_local.capacity import CallFaults
from spotkeep_local.control import LocalControl

if TYPE_CHECKING:
    from spotkeep_cli.rehearsal.deployment import RehearsedDeployment
    from spotkeep_local.lifecycle import LocalAws

_PRIORITY: Final = 9
_PASS_SECONDS: Final = 3.0


@dataclass(frozen=True, kw_only=True)
class LaunchedWork:
    """What was launched.

    Attributes:
        name: The id of the run, the sweep or the schedule.
        deployment: The deployed app.
        local: The local AWS.
    """

    name: str
    deployment: RehearsedDeployment
    local: LocalAws


@dataclass(frozen=True, kw_only=True)
class UserAction:
    """One thing that a user asks for, and waits for.

    Attributes:
        effect: What is so afterwards, in words.
        ask: Asks for it, unless that was done; returns whether it is so.
    """

    effect: str
    ask: Callable[[LaunchedWork], bool]


def _schedule_fired(launched: LaunchedWork) -> bool:
    schedule = launched.deployment.runs.schedule(launched.name)
    return schedule is not None and schedule.last_launched is not None


def _schedule_is_removed(launched: LaunchedWork) -> bool:
    launched.deployment.ask("remove-schedule", schedule=launched.name)
    return True


def _trial_has_priority(launched: LaunchedWork) -> bool:
    """Change the priority of the first trial whose service job is known."""
    runs = launched.deployment.runs
    for trial in runs.sweep_and_trials(launched.name)[1]:
        run = runs.trial_run(trial.sweep, trial.number)
        if run is not None and run.job_arn is not None and not run.state.ended:
            launched.deployment.ask("priority", run=run.run, priority=_PRIORITY)
            return True
    return False


def _sweep_is(state: SweepState, *, action: str) -> Callable[[LaunchedWork], bool]:
    def ask(launched: LaunchedWork) -> bool:
        sweep = launched.deployment.runs.sweep(launched.name)
        if sweep is not None and sweep.state is SweepState.RUNNING:
            launched.deployment.ask(action, sweep=launched.name)
        return sweep is not None and sweep.state is state

    return ask


def _sweep_goes_on(launched: LaunchedWork) -> bool:
    """Resume the sweep, until a trial has another service job."""
    runs = launched.deployment.runs
    sweep, trials = runs.sweep_and_trials(launched.name)
    if sweep is not None and sweep.state is SweepState.PAUSED:
        launched.deployment.ask("resume", sweep=launched.name)
    found = [run for trial in trials if (run := runs.trial_run(trial.sweep, trial.number)) is not None]
    return any(run.attempt > 1 and run.job_arn is not None for run in found)


def _has_another_turn(launched: LaunchedWork) -> bool:
    run = launched.deployment.runs.get(launched.name)
    return run is not None and run.attempt > 1 and run.state is RunState.TRAINING


def _ends_although_batch_was_busy(launched: LaunchedWork) -> bool:
    """Stop the run while AWS Batch takes no call: the launcher records it, the controller's next pass ends the job."""
    deployment, local = launched.deployment, launched.local
    run = deployment.runs.get(launched.name)
    if run is None or run.state.ended:
        return run is not None and run.state is RunState.STOPPED
    if run.stop_requested_at is None:
        control = LocalControl(local)
        control.call_faults(CallFaults(throttled=1.0, service="batch"))
        try:
            with contextlib.suppress(CommandLineError):
                deployment.ask("stop", run=launched.name)
        finally:
            control.call_faults(CallFaults())
    local.session().client("lambda").invoke(
        FunctionName=deployment.controller_function, InvocationType="Event", Payload=b"{}"
    )
    time.sleep(_PASS_SECONDS)
    return False


ON_A_SCHEDULE: Final = (
    UserAction(effect="the schedule has fired", ask=_schedule_fired),
    UserAction(effect="the schedule is removed", ask=_schedule_is_removed),
)
ON_A_SWEEP: Final = (
    UserAction(effect="a trial has another priority", ask=_trial_has_priority),
    UserAction(effect="the sweep has paused", ask=_sweep_is(SweepState.PAUSED, action="pause")),
    UserAction(effect="the sweep goes on", ask=_sweep_goes_on),
    UserAction(effect="the sweep has stopped", ask=_sweep_is(SweepState.STOPPED, action="stop")),
)
ON_A_RUN_IN_A_QUEUE: Final = (
    UserAction(effect="the run has another turn", ask=_has_another_turn),
    UserAction(effect="the run has stopped", ask=_ends_although_batch_was_busy),
)
FAILS_ONCE: Final[dict[str, Any]] = {
    **OF_ONE_JOB,
    "capacity": "on-demand",
    "command": """sh -c 'test "$SPOTKEEP_ATTEMPT" -gt 1 && exec sleep 300; exit 1'""",
    "script_retries": 1,
    "environment": {**{f"VARIABLE_{number}": "x" * 500 for number in range(24)}, NOTICE_SECONDS_VARIABLE: "5"},
}
"""The fields of a job file whose first job fails: the controller submits the next one. AWS Batch has no room for the
variables, so the launcher puts them into a file."""
