"""What a user may choose to hear while a run goes on, each sent once."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from spotkeep_jobs.document.deployment_facts import DEFAULT_LONG_WAIT
from spotkeep_jobs.record.record import AskedToEnd, RunChange
from spotkeep_jobs.record.states import EndReason
from tests.models.clock import NOON
from tests.models.run_table import open_run

ASKED_TO_STOP = AskedToEnd(at=NOON, reason=EndReason.STOPPED_BY_USER, text="A user asked")

RUN = "digits-1a2b3c4d"
LADDER = {
    "name": "digits", "command": ["python", "train.py"], "capacity": "auto", "instance_types": ["ml.m5.xlarge"],
    "max_run": 3600,
}  # fmt: skip


def notified(world: Any) -> list[str]:
    """What reached the topic so far."""
    world.outbox.deliver_all()
    return [notification.notification_id.removeprefix(f"{RUN}/") for notification in world.topic.published]


def test_a_long_wait_is_notified_once_for_each_wait(world: Any, make: Any) -> None:
    run = world.launch(make.run(notify=("waiting-too-long",)), make.attempt())
    long = DEFAULT_LONG_WAIT.total_seconds()
    world.sagemaker.has_job(run.job_name, ("Starting", 0.0))
    world.clock.pass_by(seconds=long - 1)
    world.runs.reconcile(RUN)
    assert notified(world) == []
    for _ in range(3):
        world.clock.pass_by(seconds=60)
        world.runs.reconcile(RUN)
    assert notified(world) == ["waiting-too-long/1"]
    world.sagemaker.has_job(run.job_name, ("Starting", 0.0), ("Training", 130.0), ("Interrupted", 140.0))
    world.clock.pass_by(seconds=2 * long)
    for _ in range(2):
        world.runs.reconcile(RUN)
    assert notified(world) == ["waiting-too-long/1", "waiting-too-long/1-1"]
    assert "ml.m5.xlarge for" in world.topic.published[-1].body


def test_a_long_wait_says_why_where_ec2_does(world: Any, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    because = "allLaunchSpecsTemporarilyBlacklisted: there is no spot capacity"
    run = world.launch(make.run(notify=("waiting-too-long",)), make.attempt())
    waits = dataclasses.replace(make.job(("Starting", 0.0)), waits_because=because)
    world.clock.pass_by(seconds=DEFAULT_LONG_WAIT.total_seconds())
    with monkeypatch.context() as patch:
        patch.setattr(world.jobs, "observe", lambda _job_name: waits)
        observed = world.runs.reconcile(RUN)
    assert observed.run.waits_because == because
    assert notified(world) == ["waiting-too-long/1"]
    body = world.topic.published[-1].body
    assert "there is no spot capacity" in body
    assert "none to spare" not in body
    world.sagemaker.has_job(run.job_name, ("Starting", 0.0), ("Training", 130.0))
    assert world.runs.reconcile(RUN).run.waits_because is None


def test_a_job_file_may_say_what_a_long_wait_is(world: Any, make: Any) -> None:
    request = {"name": "digits", "command": ["x"], "max_run": 3_600, "max_wait": 90_000, "waiting_too_long": 600}
    run = world.launch(make.run(notify=("waiting-too-long",), request=request), make.attempt())
    world.sagemaker.has_job(run.job_name, ("Starting", 0.0))
    world.clock.pass_by(seconds=599)
    world.runs.reconcile(RUN)
    assert notified(world) == []
    world.clock.pass_by(seconds=1)
    world.runs.reconcile(RUN)
    assert notified(world) == ["waiting-too-long/1"]


@pytest.mark.parametrize(
    "silent",
    [
        {"notify": ("completed",)},
        {
            "notify": ("waiting-too-long",),
            "asked_to_end": ASKED_TO_STOP,
        },
    ],
)
def test_a_long_wait_is_not_notified_to_a_user_who_did_not_ask_or_stops_it(
    world: Any, make: Any, silent: dict[str, Any]
) -> None:
    run = world.launch(make.run(**silent), make.attempt())
    world.sagemaker.has_job(run.job_name, ("Starting", 0.0))
    world.clock.pass_by(days=1)
    world.runs.reconcile(RUN)
    assert notified(world) == []


def on_second_fallback(world: Any, make: Any, *, capacity: str) -> Any:
    """A run whose first attempt found no spot capacity and whose second has a job."""
    usage = {"instance_count": 1, "billable_seconds": None, "training_seconds": None, "waited_seconds": 0.0,
             "redone_steps": 0, "redone_seconds": 0.0, "restart_overhead_seconds": 0.0}  # fmt: skip
    first = make.attempt(state="FAILED", end_reason="CAPACITY", ended_at=make.noon, job_id=make.arn(f"{RUN}-1"),
                         usage=usage)  # fmt: skip
    run = make.run(notify=("on-demand", "completed"), request=LADDER)
    open_run(world.table, run=run, attempt=first)
    second = make.attempt(attempt=2, fallback=1, capacity=capacity, job_id=make.arn(f"{RUN}-2"))
    run_item = run.model_copy(
        update={"attempt": 2, "capacity": capacity, "job_name": second.job_name, "job_id": second.job_id}
    )
    world.table.runs.commit(RunChange(run=run_item, attempt=first, next_attempt=second))
    return second


@pytest.mark.parametrize(("capacity", "heard"), [("on-demand", ["on-demand/2"]), ("spot", [])])
def test_the_full_price_is_notified_once_when_it_begins(world: Any, make: Any, capacity: str, heard: list[str]) -> None:
    second = on_second_fallback(world, make, capacity=capacity)
    for story in ([("Starting", 1.0)], [("Starting", 1.0), ("Training", 2.0)]):
        world.sagemaker.has_job(second.job_name, *story)
        for _ in range(2):
            world.runs.reconcile(RUN)
    assert notified(world) == heard
