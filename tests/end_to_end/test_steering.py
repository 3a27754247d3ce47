"""A run with a deadline in the deployed app: its policy gives up spot, and its work goes on demand in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.states import EndReason, RunState, TimelineKind
from spotkeep_local.capacity import CapacityScript, Interruption

if TYPE_CHECKING:
    from conftest import DeployedApp

pytestmark = pytest.mark.long


def decisions(app: DeployedApp, run: str) -> list[str]:
    return [entry.text for entry in app.table.runs.timeline(run) if entry.kind is TimelineKind.STEERED]


def in_time(run: Run) -> bool:
    return run.ended_at is not None and run.deadline_at is not None and run.ended_at <= run.deadline_at


def plan_that_leaves_a_drought_of(seconds: int) -> dict[str, Any]:
    """A plan as `spotkeep launch` sends it: its policy has time to spare, and gives up spot after a while without."""
    patient, gives_up = [0], [10**9]
    return {
        "made_at": "2026-11-21T12:00:00Z",
        "table": {
            "version": 1, "age_edges_s": [seconds], "work_step_s": 60,
            "from_nothing_s": [patient, gives_up, patient, patient], "from_on_demand_s": [patient] * 4,
            "zones": ["any"], "horizons_s": [3600], "lasting_s": [[[3600], [3600]]],
            "slack_step_s": 3600, "restart_usd": [[0]],
        },
        "finish_seconds": {"p10": 600, "p50": 700, "p90": 900}, "chance_of_on_demand": 0.5,
    }  # fmt: skip


def test_spot_that_does_not_return_is_left_when_the_policy_says_so_and_its_work_is_taken_along(
    deployed_app: DeployedApp,
) -> None:
    job = deployed_app.counting(
        "200 --pause 0.1 --hurry", instance_type="ml.m5.large", work="60s", restart="60s", deadline="3h",
        plan=plan_that_leaves_a_drought_of(15), notify=["completed", "next-fallback"],
    )  # fmt: skip
    loss = Interruption(at_step=12, notice=True, notice_seconds=20, capacity_returns_after_seconds=None)
    deployed_app.control.script_capacity(run=job["run"], script=CapacityScript(interruptions=(loss,)))
    deployed_app.launch(**job)
    ended = deployed_app.wait_until_ended(job["run"], passes=True)
    assert (ended.state, ended.place.capacity, ended.attempt, in_time(ended)) == (
        RunState.COMPLETED,
        "on-demand",
        2,
        True,
    )
    texts = decisions(deployed_app, job["run"])
    assert texts[-2].startswith("Waits for spot: no spot capacity for 0 min; 3.0 h to spare")
    assert texts[-1].startswith("Leaves spot for on-demand: 3.0 h to spare, and on-demand pays whatever is to spare")
    [first, _] = deployed_app.table.runs.attempts(job["run"])
    assert first.end_reason is EndReason.DEADLINE
    notified = [notification.kind.value for notification in deployed_app.table.notifications.of_run(job["run"])]
    assert notified == ["next-fallback", "completed"]
    steps = [
        entry.step for entry in deployed_app.table.runs.timeline(job["run"]) if entry.kind is TimelineKind.STEP_RESUMED
    ]
    assert steps[0] == 0
    assert (steps[-1] or 0) >= 12
