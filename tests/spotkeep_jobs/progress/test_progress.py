"""How far a run is: by what its jobs say, and never further than what would survive the loss of its capacity."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind
from spotkeep_jobs.progress.progress import UPLOAD_SETTLES_SECONDS, ProgressFollower, work_left
from spotkeep_jobs.record.record import Progress

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
