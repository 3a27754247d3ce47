"""A run that trains and does not save is notified once, from what its own log says."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spotkeep_jobs.progress.checkpoint_alert import MISSED_INTERVALS, SHORTEST, UNKNOWN_INTERVAL, freshness_of
from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind
from spotkeep_jobs.progress.progress import ProgressFollower
from spotkeep_jobs.record.record import Progress
from spotkeep_jobs.runs.rules import CHECKPOINTS_READ_EVERY

RUN = "digits-1a2b3c4d"
REQUEST = {"name": "digits", "command": ["python", "train.py"], "max_run": 86_400, "max_wait": 172_800}


def notified(world: Any) -> list[str]:
    world.outbox.deliver_all()
    return [notification.notification_id.removeprefix(f"{RUN}/") for notification in world.topic.published]


def trains(world: Any, make: Any, *, notify: tuple[str, ...] = ("checkpoint-stale",), **asked: Any) -> str:
    run = world.launch(make.run(notify=notify, request=REQUEST | asked), make.attempt())
    world.sagemaker.has_job(run.job_name, ("Starting", 0.0), ("Training", 1.0))
    return str(run.job_name)


def says(world: Any, make: Any, job_name: str, kind: str, *, minute: float, **fields: Any) -> None:
    event = {"event": kind, "time": make.noon.timestamp() + minute * 60, **fields}
    world.logs.lines.setdefault(job_name, []).append(f"spotkeep-event: {json.dumps(event)}")


def looked_at_every_minute(world: Any, *, minutes: float) -> None:
    for _ in range(int(minutes)):
        world.clock.pass_by(minutes=1)
        world.runs.reconcile(RUN)


def test_a_checkpoint_that_is_older_than_three_intervals_is_notified_once_until_it_is_fresh_again(
    world: Any, make: Any
) -> None:
    job = trains(world, make)
    says(world, make, job, "start", minute=1)
    says(world, make, job, "resume", minute=1, step=0)
    says(world, make, job, "schedule", minute=1, seconds=600)
    says(world, make, job, "saved", minute=11, step=100)
    looked_at_every_minute(world, minutes=40)
    assert notified(world) == []
    looked_at_every_minute(world, minutes=2)
    assert notified(world) == ["checkpoint-stale/1-1"]
    looked_at_every_minute(world, minutes=48)
    assert notified(world) == ["checkpoint-stale/1-1"]
    body = " ".join(world.topic.published[0].body.split())
    assert "its newest checkpoint is of 2026-11-21 12:11 UTC" in body
    assert "it saves every 10 min otherwise" in body
    says(world, make, job, "saved", minute=89, step=200)
    looked_at_every_minute(world, minutes=35)
    assert notified(world) == ["checkpoint-stale/1-1", "checkpoint-stale/1-2"]


def test_one_that_saves_in_time_is_never_notified(world: Any, make: Any) -> None:
    job = trains(world, make)
    for minute in range(1, 120, 20):
        says(world, make, job, "saved", minute=minute, step=minute)
    looked_at_every_minute(world, minutes=120)
    assert notified(world) == []


def test_a_script_that_tells_of_no_checkpoint_gets_an_hour(world: Any, make: Any) -> None:
    trains(world, make)
    looked_at_every_minute(world, minutes=UNKNOWN_INTERVAL.total_seconds() / 60)
    assert notified(world) == []
    looked_at_every_minute(world, minutes=3)
    assert notified(world) == ["checkpoint-stale/1-1"]
    assert "has reported no checkpoint" in " ".join(world.topic.published[0].body.split())


def test_the_job_file_may_say_how_old_is_too_old(world: Any, make: Any) -> None:
    trains(world, make, checkpoint_stale=600)
    looked_at_every_minute(world, minutes=12)
    assert notified(world) == ["checkpoint-stale/1-1"]


def test_checkpoints_that_do_not_reach_s3_are_stale(world: Any, make: Any) -> None:
    job = trains(world, make)
    says(world, make, job, "schedule", minute=1, seconds=600)
    says(world, make, job, "saved", minute=5, step=10)
    says(world, make, job, "uploaded", minute=6, step=10)
    for minute in range(15, 60, 10):
        says(world, make, job, "saved", minute=minute, step=minute)
    looked_at_every_minute(world, minutes=45)
    assert notified(world) == ["checkpoint-stale/1-1"]
    assert "do not reach S3" in " ".join(world.topic.published[0].body.split())


@pytest.mark.parametrize("silent", [{"notify": ("completed",)}, {"checkpoints": False}])
def test_no_user_is_notified_who_did_not_ask_or_has_no_checkpoints(world: Any, make: Any, silent: Any) -> None:
    trains(world, make, **silent)
    looked_at_every_minute(world, minutes=70)
    assert notified(world) == []


def test_a_log_that_cannot_be_read_is_no_reason_to_tell(world: Any, make: Any) -> None:
    trains(world, make)

    def refuse(operation: str) -> None:
        raise make.error(operation, "ThrottlingException")

    world.logs.before_call = refuse
    looked_at_every_minute(world, minutes=70)
    assert notified(world) == []


def test_a_log_is_read_when_a_checkpoint_seems_stale_and_then_now_and_then(world: Any, make: Any) -> None:
    """Two calls of CloudWatch Logs for each: a run without that request costs none."""
    trains(world, make)
    read: list[str] = []
    says(world, make, f"{RUN}-1", "start", minute=1)
    world.logs.before_call = lambda operation: read.append(operation) if operation == "FilterLogEvents" else None
    world.runs.reconcile(RUN)
    assert read == []
    began = make.noon + timedelta(minutes=1)
    assert world.table.runs.attempt(RUN, 1).last_reconciled.again_at == began + SHORTEST
    world.clock.pass_by(minutes=17)
    world.runs.reconcile(RUN)
    assert len(read) == 1
    assert world.table.runs.attempt(RUN, 1).last_reconciled.again_at == began + UNKNOWN_INTERVAL
    world.clock.pass_by(minutes=60)
    world.runs.reconcile(RUN)
    assert len(read) == 2
    assert world.table.runs.attempt(RUN, 1).last_reconciled.again_at == world.clock() + CHECKPOINTS_READ_EVERY


@given(
    events=st.lists(
        st.builds(
            JobEvent,
            kind=st.sampled_from(JobEventKind),
            at=st.floats(0, 1e9),
            step=st.none() | st.integers(0, 100),
            fields=st.fixed_dictionaries({"seconds": st.none() | st.text() | st.floats() | st.booleans()}),
        ),
        max_size=12,
    ),
    asked=st.none() | st.integers(300, 10_000),
)
@example(
    events=[JobEvent(kind=JobEventKind.SCHEDULE, at=0.0, step=None, fields={"seconds": 83869012800.0})], asked=None
)
def test_whatever_a_log_says_there_is_a_moment_from_which_on_it_is_stale(
    events: list[JobEvent], asked: int | None, make: Any
) -> None:
    follower = ProgressFollower(None)
    for event in sorted(events, key=lambda event: event.at):
        follower.add(event)
    fresh = freshness_of(follower.progress, training_since=make.noon, longest_age_seconds=asked)
    assert fresh.counted_from >= make.noon or fresh.newest_at is None
    assert fresh.stale_at - fresh.counted_from >= (timedelta(seconds=asked) if asked else SHORTEST)


def test_what_a_run_measured_of_itself_counts_where_it_has_no_schedule(make: Any) -> None:
    progress = Progress(
        step=1, reported_at=make.noon, read_to=0.0, saved_at=make.noon.timestamp(), saves_every_seconds=1_200
    )
    fresh = freshness_of(progress, training_since=make.noon)
    assert fresh.stale_at - make.noon == timedelta(seconds=MISSED_INTERVALS * 1_200)
