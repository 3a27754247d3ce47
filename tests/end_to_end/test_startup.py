"""`spotkeep startup` on the deployed app: each part of a start is known, on both backends."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_jobs.record.states import RunState
from spotkeep_local.capacity import CapacityScript, Interruption

if TYPE_CHECKING:
    from .conftest import DeployedApp, OnEc2

pytestmark = pytest.mark.long

PARTS = ("capacity", "data", "packages", "restore", "first_step")


def started(app: DeployedApp, run: str) -> dict[str, Any]:
    result = app.spotkeep("startup", run, "--json")
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout))


def test_the_starts_of_a_training_job(deployed_app: DeployedApp) -> None:
    document = deployed_app.counting("200 --hurry", needs_a_package=True)
    deployed_app.control.script_capacity(
        run=document["run"],
        script=CapacityScript(
            interruptions=(Interruption(at_step=20, notice=True, capacity_returns_after_seconds=0.5),)
        ),
    )
    run = deployed_app.launch(**document)["run"]
    assert deployed_app.wait_until_ended(run).state is RunState.COMPLETED
    report = started(deployed_app, run)
    first, second = report["starts"]
    for start in (first, second):
        assert all(start["seconds"][part] is not None for part in PARTS), start
        assert start["total_seconds"] == pytest.approx(sum(filter(None, start["seconds"].values())))
    assert first["packages_from"] == "by pip"
    assert first["resumed_step"] is None
    assert second["resumed_step"] >= 20
    assert second["seconds"]["capacity"] >= 0.5
    page = deployed_app.spotkeep("startup", run)
    assert "CAPACITY" in page.stdout
    assert "Next: spotkeep describe" in page.stdout


def test_the_start_of_a_fleet(on_ec2: OnEc2) -> None:
    run = on_ec2.launch("10")
    assert on_ec2.app.wait_until_ended(run, passes=True).state is RunState.COMPLETED
    report = started(on_ec2.app, run)
    assert report["backend"] == "ec2"
    (start,) = report["starts"]
    assert all(start["seconds"][part] is not None for part in PARTS), start
    on_ec2.wait_until_no_volume_is_left(run)
