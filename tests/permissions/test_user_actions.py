"""What users ask for after a launch: when it is asked for, and when it is so."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from spotkeep_cli.errors import NoConnectionError
from spotkeep_jobs.record.states import RunState, SweepState
from tests.permissions import live
from tests.permissions.live import (
    FAILS_ONCE,
    ON_A_RUN_IN_A_QUEUE,
    ON_A_SCHEDULE,
    ON_A_SWEEP,
    LaunchedWork,
    UserAction,
)

FIRED, REMOVED = ON_A_SCHEDULE
PRIORITY, PAUSED, GOES_ON, STOPPED = ON_A_SWEEP
ANOTHER_TURN, ENDED = ON_A_RUN_IN_A_QUEUE


class AppWithOneItem:
    """A deployed app with one item of each kind, and what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[dict[str, object]] = []
        self.schedule_item: Any = None
        self.sweep: Any = SimpleNamespace(state=SweepState.RUNNING)
        self.run: Any = a_run()
        self.controller_function = "spotkeep-controller"
        self.refuses = False
        trials = [SimpleNamespace(sweep="item", number=1)]
        self.table = SimpleNamespace(
            schedules=SimpleNamespace(get=lambda _: self.schedule_item),
            sweeps=SimpleNamespace(get=lambda _: self.sweep, with_trials=lambda _: (self.sweep, trials)),
            runs=SimpleNamespace(get=lambda _: self.run, trial_run=lambda _sweep, _number: self.run),
        )

    def ask(self, action: str, **fields: object) -> None:
        self.asked.append({"action": action, **fields})
        if self.refuses:
            raise NoConnectionError("is throttled")

    def effect(self, action: UserAction) -> bool:
        deployment: Any = self
        functions = SimpleNamespace(invoke=self._pass)
        local: Any = SimpleNamespace(session=lambda: SimpleNamespace(client=lambda _: functions))
        return action.ask(LaunchedWork(name="item", deployment=deployment, local=local))

    def _pass(self, **parameters: object) -> None:
        assert parameters["FunctionName"] == self.controller_function
        self.asked.append({"action": "a pass of the controller"})


def a_run(**fields: object) -> Any:
    found = {"run": "trial", "job_id": None, "attempt": 1, "state": RunState.WAITING, "asked_to_end": None}
    return SimpleNamespace(**{**found, **fields})


def test_a_schedule_has_fired_when_it_has_launched_something() -> None:
    app = AppWithOneItem()
    assert not app.effect(FIRED)
    app.schedule_item = SimpleNamespace(last_launched=None)
    assert not app.effect(FIRED)
    app.schedule_item = SimpleNamespace(last_launched="item-20261126-0100")
    assert app.effect(FIRED)
    assert app.effect(REMOVED)
    assert app.asked == [{"action": "remove-schedule", "schedule": "item"}]


def test_a_priority_is_changed_once_aws_batch_has_the_job() -> None:
    app = AppWithOneItem()
    assert not app.effect(PRIORITY)
    app.run = a_run(job_id="arn")
    assert app.effect(PRIORITY)
    assert app.asked == [{"action": "priority", "run": "trial", "priority": 9}]


def test_a_sweep_is_paused_resumed_and_stopped_each_time_it_is_asked_for_and_waited_for() -> None:
    app = AppWithOneItem()
    states = (SweepState.RUNNING, SweepState.STOPPING, SweepState.PAUSED)
    found = []
    for app.sweep.state in states:
        found.append(app.effect(PAUSED))
    assert found == [False, False, True]
    assert not app.effect(GOES_ON)
    app.sweep.state, app.run = SweepState.RUNNING, a_run(job_id="arn", attempt=2)
    assert app.effect(GOES_ON)
    assert not app.effect(STOPPED)
    app.sweep.state = SweepState.STOPPED
    assert app.effect(STOPPED)
    assert [each["action"] for each in app.asked] == ["pause", "resume", "stop"]


def test_a_run_has_another_turn_when_its_second_job_trains() -> None:
    app = AppWithOneItem()
    found = []
    for app.run in (a_run(state=RunState.TRAINING), a_run(attempt=2), a_run(attempt=2, state=RunState.TRAINING)):
        found.append(app.effect(ANOTHER_TURN))
    assert found == [False, False, True]
    assert FAILS_ONCE["script_retries"] == 1


def test_batch_is_busy_for_the_launcher_and_not_for_the_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    app = AppWithOneItem()
    app.refuses = True
    monkeypatch.setattr(live, "LocalControl", lambda _: SimpleNamespace(call_faults=set_faults))
    monkeypatch.setattr(live, "_PASS_SECONDS", 0.0)

    def set_faults(faults: Any) -> None:
        app.asked.append({"action": f"{faults.throttled:g} of {faults.service}"})

    assert not app.effect(ENDED)
    assert [each["action"] for each in app.asked] == ["1 of batch", "stop", "0 of None", "a pass of the controller"]
    app.run = a_run(asked_to_end="now")
    assert not app.effect(ENDED)
    assert [each["action"] for each in app.asked[4:]] == ["a pass of the controller"]
    app.run = a_run(state=RunState.STOPPED)
    assert app.effect(ENDED)
    app.run = a_run(state=RunState.FAILED)
    assert not app.effect(ENDED)
