"""The flows run with their permissions withheld: each ends in a denial, and the next one gets one step further.

Everything that a job was seen to need is withheld at once, from every role and from its user. A caller that misses
something is denied it, once, as AWS would: the launch is refused, the job fails, the instance gives up. Then the job is
launched again, until it misses nothing more or the time is over. So is a sweep, or a schedule.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep.notices.notice import NOTICE_SECONDS_VARIABLE
from spotkeep_cli.errors import CommandLineError
from spotkeep_cli.rehearsal.sweep_queue import OF_ONE_JOB
from spotkeep_jobs.record.states import RunState, SweepState
from spotkeep_local.capacity import CallFaults
from spotkeep_local.control import LocalControl
from tests.permissions import control

if TYPE_CHECKING:
    from spotkeep_cli.rehearsal.deployment import RehearsedDeployment
    from spotkeep_local.lifecycle import LocalAws
    from tests.permissions.withheld import WithheldGrant

_POLL_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 90.0
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


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How something is launched again and again.

    Attributes:
        overrides: `--set` values, besides those of the rehearsal.
        fields: Fields of the job file that have another value.
        actions: What its user asks for meanwhile, one after the other.
        quiet_seconds: One that misses nothing for so long waits for something that was refused, and is given up.
        after_seconds: Seconds that the events after the end of one may take.
    """

    overrides: tuple[str, ...] = ()
    fields: Mapping[str, object] = field(default_factory=dict)
    actions: tuple[UserAction, ...] = ()
    quiet_seconds: float
    after_seconds: float = 3.0


@dataclass(frozen=True, kw_only=True)
class Flow:
    """What is launched again and again.

    Attributes:
        connect: Finds the deployed app as a command does, with the job file.
        name: What the ids of the runs, sweeps or schedules begin with.
        launch: The launch of each.
    """

    connect: Callable[[], RehearsedDeployment]
    name: str
    launch: Launch


def act_out(flow: Flow, *, local: LocalAws, timeout_seconds: float) -> Sequence[UserAction]:
    """Launch once while everything is allowed, do what the user asks for, and return the actions without effect.

    Args:
        flow: What is launched.
        local: The local AWS.
        timeout_seconds: Seconds that it may take.
    """
    launched = LaunchedWork(name=f"{flow.name}-1", deployment=flow.connect(), local=local)
    try:
        launched.deployment.launch(run=launched.name, **flow.launch.fields)
        until = time.monotonic() + timeout_seconds
        return _follow(launched, flow=flow, missed=lambda: 0, quiet_seconds=timeout_seconds, until=until)
    finally:
        _end(flow)


def run_without(
    grants: Sequence[WithheldGrant],
    flow: Flow,
    *,
    local: LocalAws,
    until: float,
    progress: Callable[[int], None],
) -> None:
    """Launch again and again while grants are withheld, until a launch and what follows miss none; then give all back.

    Args:
        grants: What is withheld.
        flow: What is launched.
        local: The local AWS.
        until: When there is no more time, on the monotonic clock.
        progress: Called after each launch with how many grants were missed so far.
    """
    before = len(control.missed(local))

    def missed() -> int:
        return len(control.missed(local)) - before

    control.withhold(local, grants)
    try:
        seen, number = -1, 0
        while missed() > seen and time.monotonic() < until:
            seen, number = missed(), number + 1
            name = f"{flow.name}-{number}"
            with _refused():
                launched = LaunchedWork(name=name, deployment=flow.connect(), local=local)
                launched.deployment.launch(run=name, **flow.launch.fields)
                _follow(launched, flow=flow, missed=missed, quiet_seconds=flow.launch.quiet_seconds, until=until)
            with _refused():
                flow.connect().stop(name)
            progress(missed())
    finally:
        control.withhold(local, ())
        _end(flow)


def _follow(
    launched: LaunchedWork, *, flow: Flow, missed: Callable[[], int], quiet_seconds: float, until: float
) -> Sequence[UserAction]:
    """Read it and act on it as its user does, until it has ended and what follows has happened; or it is long quiet.

    Returns:
        The actions that had no effect.
    """
    actions = list(flow.launch.actions)
    count, since = missed(), time.monotonic()
    ended_at = None
    while time.monotonic() < min(since + quiet_seconds, until):
        if missed() != count:
            count, since = missed(), time.monotonic()
        if ended_at is not None and time.monotonic() > ended_at + flow.launch.after_seconds:
            break
        with _refused():
            if actions and actions[0].ask(launched):
                del actions[0]
        with _refused():
            over = _is_over(launched)
            if over is None:
                break
            ended_at = (ended_at or time.monotonic()) if over else None
        time.sleep(_POLL_SECONDS)
    return actions


def _is_over(launched: LaunchedWork) -> bool | None:
    """Read a run, or a sweep and its trials, with all logs; return whether it has ended, None where it is not there."""
    table = launched.deployment.table
    sweep, trials = table.sweeps.with_trials(launched.name)
    of_trials = (table.runs.trial_run(trial.sweep, trial.number) for trial in trials)
    found = [run for run in (table.runs.get(launched.name), *of_trials) if run is not None]
    for run in found:
        for attempt in table.runs.attempts(run.run):
            launched.deployment.job_log(*attempt.log_names, backend=run.place.backend).read()
    if sweep is not None or found:
        return (sweep or found[0]).state.ended
    return None if table.schedules.get(launched.name) is None else False


def _end(flow: Flow) -> None:
    """Stop what has not ended, now that everything is allowed, and wait for it."""
    deployment = flow.connect()
    table = deployment.table
    for schedule in table.schedules.list():
        if schedule.schedule.startswith(flow.name):
            with _refused():
                deployment.ask("remove-schedule", schedule=schedule.schedule)

    def alive() -> list[str]:
        return [name for name in (*table.sweeps.in_flight(), *table.runs.in_flight()) if name.startswith(flow.name)]

    for name in alive():
        with _refused():
            deployment.stop(name)
    deadline = time.monotonic() + _STOP_SECONDS
    while alive() and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)


@contextlib.contextmanager
def _refused() -> Iterator[None]:
    """Go on after what was refused: that is what is waited for."""
    with contextlib.suppress(CommandLineError, ClientError, BotoCoreError):
        yield


def _schedule_fired(launched: LaunchedWork) -> bool:
    schedule = launched.deployment.table.schedules.get(launched.name)
    return schedule is not None and schedule.last_launched is not None


def _schedule_is_removed(launched: LaunchedWork) -> bool:
    launched.deployment.ask("remove-schedule", schedule=launched.name)
    return True


def _trial_has_priority(launched: LaunchedWork) -> bool:
    """Change the priority of the first trial whose service job is known."""
    table = launched.deployment.table
    for trial in table.sweeps.with_trials(launched.name)[1]:
        run = table.runs.trial_run(trial.sweep, trial.number)
        if run is not None and run.job_id is not None and not run.state.ended:
            launched.deployment.ask("priority", run=run.run, priority=_PRIORITY)
            return True
    return False


def _sweep_is(state: SweepState, *, action: str) -> Callable[[LaunchedWork], bool]:
    def ask(launched: LaunchedWork) -> bool:
        sweep = launched.deployment.table.sweeps.get(launched.name)
        if sweep is not None and sweep.state is SweepState.RUNNING:
            launched.deployment.ask(action, sweep=launched.name)
        return sweep is not None and sweep.state is state

    return ask


def _sweep_goes_on(launched: LaunchedWork) -> bool:
    """Resume the sweep, until a trial has another service job."""
    table = launched.deployment.table
    sweep, trials = table.sweeps.with_trials(launched.name)
    if sweep is not None and sweep.state is SweepState.PAUSED:
        launched.deployment.ask("resume", sweep=launched.name)
    found = [run for trial in trials if (run := table.runs.trial_run(trial.sweep, trial.number)) is not None]
    return any(run.attempt > 1 and run.job_id is not None for run in found)


def _has_another_turn(launched: LaunchedWork) -> bool:
    run = launched.deployment.table.runs.get(launched.name)
    return run is not None and run.attempt > 1 and run.state is RunState.TRAINING


def _ends_although_batch_was_busy(launched: LaunchedWork) -> bool:
    """Stop the run while AWS Batch takes no call: the launcher records it, the controller's next pass ends the job."""
    deployment, local = launched.deployment, launched.local
    run = deployment.table.runs.get(launched.name)
    if run is None or run.state.ended:
        return run is not None and run.state is RunState.STOPPED
    if run.asked_to_end is None:
        faults = LocalControl(local)
        faults.call_faults(CallFaults(throttled=1.0, service="batch"))
        try:
            with contextlib.suppress(CommandLineError):
                deployment.ask("stop", run=launched.name)
        finally:
            faults.call_faults(CallFaults())
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
