"""How far a run is: by what its jobs say, and never further than what would survive the loss of its capacity.

A run that trains and does not save is notified once, from what its own log says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind
from spotkeep_jobs.progress.progress import (
    MISSED_INTERVALS,
    SHORTEST,
    UNKNOWN_INTERVAL,
    UPLOAD_SETTLES_SECONDS,
    ProgressFollower,
    freshness_of,
    work_left,
)
from spotkeep_jobs.record.record import Progress
from spotkeep_jobs.runs.rules import CHECKPOINTS_READ_EVERY

T0 = 1_795_262_400.0


def event(kind: str, at: float, step: int | None = None, **fields: Any) -> JobEvent:
    return JobEvent(kind=JobEventKind(kind), at=T0 + at, step=step, fields=fields)


def follow(progress: Progress | None, events: Iterable[JobEvent]) -> Progress | None:
    follower = ProgressFollower(progress)
    for each in events:
        follower.add(each)
    return follower.progress


def after(*events: JobEvent) -> Progress:
    progress = follow(None, events)
    assert progress is not None
    return progress


BEGUN = (event("start", 0), event("resume", 1, 0))


def test_nothing_said_is_nothing_known_and_all_of_the_work_is_left() -> None:
    assert follow(None, []) is None
    for progress in (None, after(*BEGUN), after(*BEGUN, event("progress", 5, 10))):
        left = work_left(progress, work_seconds=1_000)
        assert (left.seconds, left.if_lost_seconds, left.known) == (1_000, 1_000, False)


def test_until_steps_were_timed_for_a_while_the_declared_work_says_how_long_one_takes() -> None:
    progress = after(*BEGUN, event("progress", 11, 10, total_steps=100))
    assert work_left(progress, work_seconds=1_000).seconds == 900


def test_then_the_steps_themselves_say_it() -> None:
    progress = after(*BEGUN, event("progress", 101, 50, total_steps=100))
    assert work_left(progress, work_seconds=1_000).seconds == 100


def test_an_upload_that_the_job_tells_is_durable_at_once() -> None:
    progress = after(*BEGUN, event("progress", 101, 50, total_steps=100), event("uploaded", 102, 40))
    left = work_left(progress, work_seconds=1_000)
    assert (left.seconds, left.if_lost_seconds) == (100, 120)


def test_a_checkpoint_on_the_disk_is_durable_when_the_job_has_lived_long_enough_after_it() -> None:
    saved = (*BEGUN, event("progress", 90, 40, total_steps=100), event("saved", 91, 40))
    assert after(*saved, event("progress", 300, 60, total_steps=100)).durable_step == 0
    settled = 91 + UPLOAD_SETTLES_SECONDS
    assert after(*saved, event("progress", settled, 90, total_steps=100)).durable_step == 40


def test_a_checkpoint_that_the_job_did_not_outlive_is_not() -> None:
    progress = after(
        *BEGUN, event("saved", 91, 40), event("start", 5_000), event("progress", 5_001, 31, total_steps=100)
    )
    assert progress.durable_step == 0


def test_what_a_script_goes_on_from_was_durable_even_if_it_is_less_than_was_thought() -> None:
    progress = after(*BEGUN, event("uploaded", 50, 40), event("start", 100), event("resume", 110, 30))
    assert (progress.step, progress.durable_step) == (30, 30)


def test_after_a_new_start_nothing_is_left_undone_twice_until_it_has_gone_on() -> None:
    progress = after(*BEGUN, event("progress", 101, 50, total_steps=100), event("start", 200))
    left = work_left(progress, work_seconds=1_000)
    assert left.seconds == left.if_lost_seconds == 200


def test_a_save_that_took_a_while_takes_no_time_from_the_steps() -> None:
    steps = (event("progress", 61, 30, total_steps=100), event("saved", 80, 25), event("progress", 101, 50))
    progress = after(*BEGUN, *steps)
    assert (progress.step, progress.timed_steps, progress.timed_seconds) == (50, 50, 100)


def test_more_steps_than_there_should_be_leave_no_work() -> None:
    progress = after(*BEGUN, event("progress", 101, 150, total_steps=100), event("uploaded", 102, 150))
    assert work_left(progress, work_seconds=1_000).if_lost_seconds == 0


@st.composite
def logs(draw: st.DrawFn) -> list[JobEvent]:
    gaps = draw(st.lists(st.floats(0.01, 900), min_size=1, max_size=25))
    at, events = 0.0, []
    for gap in gaps:
        at += gap
        kind = draw(st.sampled_from(["start", "resume", "progress", "saved", "uploaded", "finish", "notice"]))
        step = None if kind in ("start", "notice") else draw(st.integers(0, 200))
        total = {"total_steps": 100} if kind == "progress" and draw(st.booleans()) else {}
        events.append(event(kind, at, step, **total))
    return events


@given(log=logs(), cut=st.integers(0, 25))
def test_a_log_read_in_two_portions_that_overlap_says_the_same(log: list[JobEvent], cut: int) -> None:
    first = follow(None, log[:cut])
    assert follow(first, log[max(0, cut - 3) :]) == follow(None, log)


@given(log=logs())
def test_what_would_be_lost_is_never_counted_as_safe(log: list[JobEvent]) -> None:
    left = work_left(follow(None, log), work_seconds=1_000)
    assert 0 <= left.seconds <= left.if_lost_seconds


def test_a_checkpoint_of_one_training_of_the_script_makes_no_step_of_the_next_durable() -> None:
    first = (*BEGUN, event("saved", 100, 50, total_steps=50), event("finish", 100, 50))
    second = (event("resume", 101, 0, training="b"), event("progress", 101 + 2 * UPLOAD_SETTLES_SECONDS, 10))
    assert after(*first, *second).durable_step == 0


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
