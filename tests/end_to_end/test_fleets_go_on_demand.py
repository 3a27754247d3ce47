"""Fleets in the deployed app that leave spot for their deadline, or that their max_cost ends: nothing saved is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_jobs.record.states import EndReason, RunState, TimelineKind
from spotkeep_local.ec2.market import SpotPoolChange

from .conftest import OnEc2, until
from .test_steering import decisions, in_time, plan_that_leaves_a_drought_of

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.long


@pytest.fixture
def no_spot(on_ec2: OnEc2) -> Iterator[Any]:
    """Takes all spot capacity away when it is called. It is there again after the test."""
    zones = [each["ZoneName"] for each in on_ec2.ec2.describe_availability_zones()["AvailabilityZones"]]

    def change(capacity: int) -> None:
        for zone in zones:
            on_ec2.control.change_pool(SpotPoolChange(zone=zone, capacity=capacity))

    yield lambda: change(0)
    change(-1)


def steps_resumed(on_ec2: OnEc2, run: str) -> list[int]:
    timeline = on_ec2.app.table.runs.timeline(run)
    return [entry.step or 0 for entry in timeline if entry.kind is TimelineKind.STEP_RESUMED]


def test_spot_that_does_not_return_is_left_for_the_deadline_and_its_volume_goes_along(
    on_ec2: OnEc2, no_spot: Any
) -> None:
    app = on_ec2.app
    run = on_ec2.launch(
        "400", work="60s", restart="60s", deadline="3h", plan=plan_that_leaves_a_drought_of(15),
        notify=["completed", "next-fallback", "on-demand"],
    )  # fmt: skip
    on_ec2.wait_for(run, '"event":"saved"')
    (first,) = on_ec2.instances(run)
    volumes = on_ec2.volumes(run)
    # A notice of two minutes is one of two seconds here, in which a busy machine may not save.
    on_ec2.control.interrupt(first["InstanceId"], notice_seconds=20.0)
    no_spot()
    ended = app.wait_until_ended(run, passes=True)
    said = on_ec2.said(run)
    assert (ended.state, ended.attempt, ended.place.capacity) == (RunState.COMPLETED, 2, "on-demand"), said
    assert in_time(ended)
    assert decisions(app, run)[-1].startswith("Leaves spot for on-demand: 3.0 h to spare")
    assert [each.end_reason for each in app.table.runs.attempts(run)] == [EndReason.DEADLINE, EndReason.COMPLETED]
    sent = [notification.kind.value for notification in app.table.notifications.of_run(run)]
    assert sent == ["next-fallback", "on-demand", "completed"]
    lifecycles = {each["InstanceId"]: each.get("InstanceLifecycle", "on-demand") for each in on_ec2.instances(run)}
    assert lifecycles.pop(first["InstanceId"]) == "spot"
    assert set(lifecycles.values()) == {"on-demand"}
    assert ended.cost is not None
    assert ended.cost.redone_steps == 0, "the notice came before the end: no step is trained twice"
    assert steps_resumed(on_ec2, run)[-1] > 0
    assert ended.volume is not None
    assert set(volumes) <= {ended.volume.id}, "the same volume, unless it moved to another zone"
    assert on_ec2.live_fleets() == []
    on_ec2.wait_until_no_volume_is_left(run)


def test_a_fleet_saves_and_ends_before_its_max_cost_is_exceeded_and_goes_on_with_more_money(on_ec2: OnEc2) -> None:
    """An hour costs 0.096 USD, and 0.018 of storage. 16 minutes are kept for the end, less than two are left."""
    app, max_cost = on_ec2.app, round((960 + 105) * (0.096 + 0.018) / 3600, 5)
    document = app.counting(
        "100000 --pause 0.2", backend="ec2", instance_types=["m5.large"], capacity="on-demand", max_cost=max_cost,
        volume={"size_gb": 1, "when_done": "delete"}, notify=["stopped", "max-cost-near"],
        environment={"SPOTKEEP_PROGRESS_SECONDS": "10"},
    )  # fmt: skip
    run = str(app.launch(**document)["run"])
    ended = app.wait_until_ended(run, passes=True)
    assert (ended.state, ended.end_reason) == (RunState.STOPPED, EndReason.MAX_COST), on_ec2.said(run)
    assert ended.cost is not None
    assert ended.cost.billed_usd is not None
    assert 0.0016 < ended.cost.billed_usd < max_cost
    spent = [entry.text for entry in app.table.runs.timeline(run) if entry.kind is TimelineKind.MAX_COST]
    assert spent[-1].endswith("and the rest is kept for its end. Its instance saves first")
    saved = on_ec2.said(run).count('"event":"saved"')
    assert saved > 1
    refused = app.invoke("launcher", {"action": "resume", "run": run})
    assert "is spent" in refused["problems"][0]["problem"]
    app.invoke("launcher", {"action": "resume", "run": run, "changes": {"max_cost": 1.0}})
    # It may train for a while before its script has resumed.
    until(lambda: on_ec2.said(run).count('"event":"resume"') > 1, lambda: f"a second start in\n{on_ec2.said(run)}")
    app.invoke("launcher", {"action": "stop", "run": run})
    app.wait_until_ended(run, passes=True)
    assert steps_resumed(on_ec2, run)[-1] > 5
    assert on_ec2.live_fleets() == []
