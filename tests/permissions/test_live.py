"""A job is launched with grants withheld until a run misses none; whatever happens, all of them are given back."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_cli.errors import NoConnectionError
from tests.permissions import control
from tests.permissions.live import Flow, Launch, UserAction, act_out, run_without
from tests.permissions.withheld import MissedGrant, WithheldGrant

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.permissions.live import LaunchedWork

LAUNCH, TRAIN, ACT, NEVER = (
    WithheldGrant(identity=name, statement=f"{name}#0", action="s3:GetObject")
    for name in ("launcher", "job", "action", "pool")
)


class App:
    """A deployed app whose launch misses one grant, whose job misses another, and which needs no third.

    Attributes:
        withheld: What is withheld at the moment.
        missed: What was missed.
        launched: The runs that were asked for.
        stopped: Those that were asked to stop while nothing was withheld.
        removed: The schedules that were.
        read: The runs whose logs were read.
        ends: Whether a run ends by itself.
    """

    def __init__(self) -> None:
        self.withheld: list[WithheldGrant] = []
        self.missed: list[MissedGrant] = []
        self.launched: list[str] = []
        self.stopped: list[str] = []
        self.removed: list[str] = []
        self.read: list[str] = []
        self.ends = True
        self.trials: list[Any] = []
        self.table = SimpleNamespace(
            runs=SimpleNamespace(
                get=self._get,
                trial_run=lambda sweep, number: self._get(f"{sweep}-{number}"),
                attempts=lambda run: [SimpleNamespace(log_names=names) for names in ((f"{run}-1", f"{run}-2"), ())],
                in_flight=lambda: [name for name in ("a-strangers", *self.launched) if name not in self.stopped],
            ),
            sweeps=SimpleNamespace(
                with_trials=lambda name: (self._a_sweep(name), self.trials),
                in_flight=lambda: (),
            ),
            schedules=SimpleNamespace(
                get=lambda _name: None,
                list=lambda: [SimpleNamespace(schedule=name) for name in ("without-1", "a-strangers")],
            ),
        )

    def miss(self, grant: WithheldGrant) -> bool:
        if grant not in self.withheld:
            return False
        self.withheld.remove(grant)
        self.missed.append(MissedGrant(grant=grant, operation="s3.GetObject", denial="is not authorized"))
        return True

    def launch(self, *, run: str, keep_alive: int) -> None:
        assert keep_alive == 5
        self.launched.append(run)
        if self.miss(LAUNCH):
            raise NoConnectionError("is not authorized")

    def job_log(self, *jobs: str, backend: str) -> Any:
        assert backend == "sagemaker"
        self.read += jobs
        return SimpleNamespace(read=list)

    def _a_sweep(self, _name: str) -> Any:
        return SimpleNamespace(state=SimpleNamespace(ended=self.ends)) if self.trials else None

    def _get(self, _run: str) -> Any:
        self.miss(TRAIN)
        return SimpleNamespace(
            run=_run, place=SimpleNamespace(backend="sagemaker"), state=SimpleNamespace(ended=self.ends)
        )

    def ask(self, action: str, *, schedule: str) -> None:
        assert action == "remove-schedule"
        self.removed.append(schedule)

    def stop(self, name: str) -> bool:
        if not self.withheld:
            self.stopped.append(name)
        return True


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> App:
    made = App()
    monkeypatch.setattr(control, "missed", lambda _local: list(made.missed))
    monkeypatch.setattr(control, "withhold", lambda _local, grants: setattr(made, "withheld", list(grants)))
    return made


def flow_of(app: App, actions: Iterable[UserAction] = ()) -> Flow:
    deployment: Any = app
    return Flow(
        connect=lambda: deployment,
        name="without",
        launch=Launch(fields={"keep_alive": 5}, actions=tuple(actions), quiet_seconds=5.0, after_seconds=0.0),
    )


def run(app: App, actions: Iterable[UserAction] = (), *, seconds: float = 60.0) -> list[int]:
    """Run the flow, and return what was shown of its progress."""
    shown: list[int] = []
    local: Any = None
    run_without(
        [LAUNCH, TRAIN, ACT, NEVER],
        flow_of(app, actions),
        local=local,
        until=time.monotonic() + seconds,
        progress=shown.append,
    )
    return shown


def test_it_is_launched_until_a_run_misses_nothing_then_all_is_given_back_and_what_it_launched_is_stopped(
    app: App,
) -> None:
    assert run(app) == [1, 2, 2]
    assert [missed.grant for missed in app.missed] == [LAUNCH, TRAIN]
    assert app.launched == ["without-1", "without-2", "without-3"]
    assert app.withheld == []
    assert app.stopped == app.launched, "once nothing is withheld, and no others"
    assert app.removed == ["without-1"], "its schedule, and no others"


def test_of_a_sweep_the_logs_of_all_trials_are_read(app: App) -> None:
    app.trials = [SimpleNamespace(sweep="trial", number=number) for number in (1, 2)]
    run(app)
    assert {f"trial-{trial}-{job}" for trial in (1, 2) for job in (1, 2)} <= set(app.read)


class TestWhatAUserAsksFor:
    def test_is_asked_for_in_turn_and_again_after_a_denial(self, app: App) -> None:
        asked: list[str] = []

        def first(launched: LaunchedWork) -> bool:
            asked.append(f"first {launched.name}")
            if app.miss(ACT):
                raise NoConnectionError("is not authorized")
            return True

        def second(_launched: LaunchedWork) -> bool:
            asked.append("second")
            app.ends = True
            return True

        app.ends = False
        assert run(app, [UserAction(effect="one is so", ask=first), UserAction(effect="two is so", ask=second)]) == [
            1,
            3,
            3,
        ]
        assert asked[:3] == ["first without-2", "first without-2", "second"]

    def test_without_effect_before_the_end_is_named(self, app: App) -> None:
        done, never = UserAction(effect="done", ask=lambda _: True), UserAction(effect="never", ask=lambda _: False)
        local: Any = None
        assert act_out(flow_of(app, [done, never]), local=local, timeout_seconds=5.0) == [never]
        assert act_out(flow_of(app, [done]), local=local, timeout_seconds=5.0) == []
        assert set(app.stopped) == {"without-1"}


def test_without_time_nothing_is_launched(app: App) -> None:
    assert run(app, seconds=0) == []
    assert app.launched == []


def test_what_goes_wrong_otherwise_is_raised_and_all_is_given_back(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(**_: object) -> None:
        raise ValueError("no such job file")

    monkeypatch.setattr(app, "launch", broken)
    with pytest.raises(ValueError, match="no such job file"):
        run(app)
    assert app.withheld == []
