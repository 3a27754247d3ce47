"""A schedule of the deployed app fires on the local AWS and launches a run; a removed one is silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from spotkeep_jobs.record.states import RunState

from .conftest import until

if TYPE_CHECKING:
    from spotkeep_jobs.record.schedule import Schedule

    from .conftest import DeployedApp

pytestmark = pytest.mark.long


def fired(app: DeployedApp, schedule: str) -> str:
    """Wait for what the first firing of a schedule launches."""

    def recorded() -> Schedule:
        item = app.table.schedules.get(schedule)
        assert item is not None
        assert item.last_refusal is None
        return item

    return str(until(lambda: recorded().last_launched, lambda: f"{schedule} to fire", pause_seconds=1))


def test_a_rate_fires_and_launches_a_run_and_a_removed_one_launches_none(deployed_app: DeployedApp) -> None:
    app = deployed_app
    document = app.counting("10", instance_type="ml.m5.large") | {"schedule": "rate(1 minute)", "token": "every-minute"}
    schedule = document["run"]
    answer = app.invoke("launcher", document)
    assert answer["ok"], answer
    assert answer["schedule"]["next_firing"] is not None
    assert app.invoke("launcher", document)["replayed"]
    assert app.table.runs.get(schedule) is None
    run = fired(app, schedule)
    assert app.invoke("launcher", {"action": "remove-schedule", "schedule": schedule})["ok"]
    assert run.startswith(f"{schedule}-")
    assert app.wait_until_ended(run).state is RunState.COMPLETED
    scheduler = app.client("scheduler")
    assert scheduler.list_schedules(GroupName="spotkeep-launches")["Schedules"] == []
    late = app.invoke(
        "launcher", {"action": "launch-scheduled", "schedule": schedule, "firing": "2199-01-01T00:00:00Z"}
    )
    assert "ignored" in late
