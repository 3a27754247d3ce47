"""A job is launched with grants withheld until a run misses none; whatever happens, all of them are given back."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from spotkeep_cli.errors import NoConnectionError
from spotkeep_cli.proving.live import Flow, run_without
from spotkeep_local import permission_control
from spotkeep_local.iam.withheld import Missed, WithheldGrant

LAUNCH, TRAIN, NEVER = (
    WithheldGrant(identity=name, statement=f"{name}#0", action="s3:GetObject") for name in ("launcher", "job", "pool")
)


class App:
    """A deployed app whose launch misses one grant, whose job misses another, and which needs no third.

    Attributes:
        withheld: What is withheld at the moment.
        missed: What was missed.
        launched: The runs that were asked for.
        stopped: Those that were asked to stop while nothing was withheld.
    """

    def __init__(self) -> None:
        self.withheld: list[WithheldGrant] = []
        self.missed: list[Missed] = []
        self.launched: list[str] = []
        self.stopped: list[str] = []
        self.runs = SimpleNamespace(get=self._get, attempts=lambda _run: [])

    def _miss(self, grant: WithheldGrant) -> bool:
        if grant not in self.withheld:
            return False
        self.withheld.remove(grant)
        self.missed.append(Missed(grant=grant, operation="s3.GetObject", denial="is not authorized"))
        return True

    def launch(self, *, run: str, keep_alive: int) -> None:
        assert keep_alive == 5
        self.launched.append(run)
        if self._miss(LAUNCH):
            raise NoConnectionError("is not authorized")

    def _get(self, _run: str) -> Any:
        self._miss(TRAIN)
        return SimpleNamespace(state=SimpleNamespace(ended=True))

    def ask(self, _action: str, *, run: str) -> None:
        if not self.withheld:
            self.stopped.append(run)


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> App:
    made = App()
    monkeypatch.setattr(permission_control, "missed", lambda _local: list(made.missed))
    monkeypatch.setattr(permission_control, "withhold", lambda _local, grants: setattr(made, "withheld", list(grants)))
    return made


def run(app: App, *, seconds: float = 60.0) -> list[int]:
    """Run the flow, and return what was shown of its progress."""
    shown: list[int] = []
    local: Any = None
    deployment: Any = app
    run_without(
        [LAUNCH, TRAIN, NEVER],
        Flow(
            connect=lambda: deployment, name="without", fields={"keep_alive": 5}, quiet_seconds=5.0, after_seconds=0.0
        ),
        local=local,
        until=time.monotonic() + seconds,
        progress=shown.append,
    )
    return shown


def test_it_is_launched_until_a_run_misses_nothing(app: App) -> None:
    assert run(app) == [1, 2, 2]
    assert [missed.grant for missed in app.missed] == [LAUNCH, TRAIN]
    assert app.launched == ["without-1", "without-2", "without-3"]


def test_what_nothing_missed_is_given_back_before_the_runs_are_stopped(app: App) -> None:
    run(app)
    assert app.withheld == []
    assert app.stopped == app.launched


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
