"""What users and the deployment ask the launcher for, parsed: a type for each thing, and all problems at once (I7)."""

from __future__ import annotations

from typing import Any

import pytest

from launcher.payload import (
    ACTIONS,
    DocumentAction,
    PoolEnd,
    PoolExtension,
    PoolListing,
    PriorityChange,
    RunAction,
    ScheduleFiring,
    ScheduleRemoval,
    ShellOpening,
    SweepAction,
    SweepAdvance,
    read_action,
    read_own_event,
)
from spotkeep_jobs.errors import RequestRefusedError

JOB = {"name": "first", "command": "python train.py"}


def refused_fields(payload: object) -> list[str]:
    with pytest.raises(RequestRefusedError) as refused:
        read_action(payload)
    return [problem.field for problem in refused.value.problems]


@pytest.mark.parametrize(
    ("payload", "asked"),
    [
        (JOB, DocumentAction(document=JOB, action="launch")),
        ({"action": "launch", **JOB}, DocumentAction(document=JOB, action="launch")),
        ({"action": "validate", **JOB}, DocumentAction(document=JOB, action="validate")),
        ("no document", DocumentAction(document="no document", action="launch")),
        ({"action": "stop", "run": "a"}, RunAction(action="stop", run="a", changes={})),
        ({"action": "describe", "run": "a"}, RunAction(action="describe", run="a", changes={})),
        (
            {"action": "resume", "run": "a", "changes": {"max_run": "2h"}},
            RunAction(action="resume", run="a", changes={"max_run": "2h"}),
        ),
        (
            {"action": "replay-notifications", "run": "a"},
            RunAction(action="replay-notifications", run="a", changes={}),
        ),
        ({"action": "stop", "sweep": "s"}, SweepAction(action="stop", sweep="s", changes={})),
        ({"action": "pause", "sweep": "s"}, SweepAction(action="pause", sweep="s", changes={})),
        (
            {"action": "resume", "sweep": "s", "changes": {"parallel": 3}},
            SweepAction(action="resume", sweep="s", changes={"parallel": 3}),
        ),
        ({"action": "priority", "run": "a", "priority": 7}, PriorityChange(run="a", priority=7)),
        ({"action": "shell", "run": "a"}, ShellOpening(run="a", command=None, host=1)),
        ({"action": "shell", "run": "a", "command": "ls", "host": 2}, ShellOpening(run="a", command="ls", host=2)),
        ({"action": "pools"}, PoolListing()),
        ({"action": "extend-pool", "run": "a", "for": "10m"}, PoolExtension(run="a", seconds=600)),
        ({"action": "stop-pool", "run": "a"}, PoolEnd(run="a")),
        ({"action": "remove-schedule", "schedule": "nightly"}, ScheduleRemoval(schedule="nightly")),
    ],
)
def test_each_action_has_a_type_of_its_own(payload: object, asked: object) -> None:
    assert read_action(payload) == asked


@pytest.mark.parametrize("action", [action for action in ACTIONS if action not in ("launch", "validate", "pools")])
def test_i7_all_that_is_wrong_with_an_action_is_said_at_once(action: str) -> None:
    named = {"pause": "sweep", "remove-schedule": "schedule"}.get(action, "run")
    beside = {"shell": {"host": 0}, "extend-pool": {"for": "soon"}, "resume": {"changes": []}}.get(action, {})
    asked = {"action": action, named: "x" * 64, **beside, "force": True}
    assert refused_fields(asked) == ["'force'", named, *beside]


@pytest.mark.parametrize(
    ("payload", "fields"),
    [
        ({"action": "shell", "run": "a", "command": "", "host": "2"}, ["command", "host"]),
        ({"action": "shell", "run": "a", "command": "x" * 4_001, "host": True}, ["command", "host"]),
        ({"action": "extend-pool", "run": "a"}, ["for"]),
        ({"action": "extend-pool", "run": "a", "for": 0}, ["for"]),
        ({"action": "pools", "run": "a"}, ["'run'"]),
    ],
)
def test_what_an_action_takes_has_bounds(payload: dict[str, Any], fields: list[str]) -> None:
    assert refused_fields(payload) == fields


@pytest.mark.parametrize("action", ["resum", "advance-sweep", "launch-scheduled", None, 7, ["stop"], {"a": 1}])
def test_what_no_user_may_ask_for_is_refused_with_what_there_is(action: object) -> None:
    """Not what the deployment asks of itself either: it comes as an event, never as a user's payload."""
    assert refused_fields({"action": action, "sweep": "s", "schedule": "nightly"}) == ["action"]


@pytest.mark.parametrize("sweep", [{}, {"sweep": 7}, {"sweep": "s", "run": "a"}])
def test_a_pause_is_of_a_sweep_alone(sweep: dict[str, Any]) -> None:
    fields = refused_fields({"action": "pause", **sweep})
    assert fields == (["'run'"] if "run" in sweep else ["sweep"])


@pytest.mark.parametrize(
    ("event", "asked"),
    [
        ({"action": "advance-sweep", "sweep": "s"}, SweepAdvance(sweep="s", ended_runs=None)),
        ({"action": "advance-sweep", "sweep": "s", "runs": ["s-1"]}, SweepAdvance(sweep="s", ended_runs=["s-1"])),
        (
            {"action": "launch-scheduled", "schedule": "nightly", "firing": "2026-11-26T02:00:00Z"},
            ScheduleFiring(schedule="nightly", firing="2026-11-26T02:00:00Z"),
        ),
        ({"action": "stop", "run": "a"}, None),
        ({"body": '{"action": "advance-sweep", "sweep": "s"}'}, None),
        (["advance-sweep"], None),
    ],
)
def test_what_the_deployment_asks_of_itself_is_known_by_its_action(event: object, asked: object) -> None:
    assert read_own_event(event) == asked


@pytest.mark.parametrize("fields", [{}, {"sweep": 7}, {"sweep": "s", "runs": 7}])
def test_no_sweep_to_advance_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestRefusedError, match="is no sweep to advance"):
        read_own_event({"action": "advance-sweep", **fields})
