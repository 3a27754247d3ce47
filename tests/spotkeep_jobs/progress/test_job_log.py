"""A log is added up line by line, and keeps what decisions need."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.progress.job_events import JobEventKind, LineRefusal
from spotkeep_jobs.progress.job_log import MOST_RESUMES, Extent, JobLog, LogAccount, Resumed
from spotkeep_jobs.progress.progress import MOST_TRAININGS


def test_nothing_read_is_nothing_known() -> None:
    assert LogAccount(launch="a").log() == JobLog()
    assert LogAccount(launch="a").log().complete
    assert not LogAccount(launch="a").log(Extent.CUT).complete


def test_lines_that_are_printed_out_of_order_count_in_order_of_time(make: Any) -> None:
    lines = [
        make.line("start", 0.0),
        make.line("resume", 0.1, step=0),
        *(make.line("progress", minute, step=minute * 10) for minute in range(1, 200)),
    ]
    shuffled = [*lines[1::2], *lines[::2]]
    assert make.log(*shuffled) == make.log(*lines)
    assert make.log("\n".join(lines)) == make.log(*lines)


@given(events=st.lists(st.tuples(st.sampled_from(JobEventKind), st.none() | st.integers(0, 100)), max_size=30))
def test_more_progress_than_an_account_needs_changes_nothing(make: Any, events: list[tuple[Any, Any]]) -> None:
    lines = [make.line(kind, at, step=step) for at, (kind, step) in enumerate(events)]
    without = make.log(*lines, follows_progress=False)
    assert without.progress is None
    assert without.steps == make.log(*lines).steps


def test_of_very_many_resumes_the_last_are_kept_and_the_others_counted(make: Any) -> None:
    many = 10 * MOST_RESUMES
    log = make.log(*(make.line("resume", number / 60, step=number) for number in range(many)))
    assert len(log.resumes) == MOST_RESUMES
    assert log.resumes_left_out == many - MOST_RESUMES
    assert log.resumes[-1] == Resumed(at=make.noon.timestamp() + many - 1, step=many - 1)


def test_a_script_that_paused_says_where_and_a_process_that_began_after_it_does_not(make: Any) -> None:
    lines = [make.line("start", 0), make.line("progress", 1, step=9), make.line("paused", 2, step=10)]
    assert (make.log(*lines).paused_at_step, make.log(*lines).exited) == (10, False)
    lines.append(make.line("exit", 3, code=0))
    assert (make.log(*lines).paused_at_step, make.log(*lines).exited) == (10, True)
    lines.append(make.line("start", 4))
    assert (make.log(*lines).paused_at_step, make.log(*lines).exited) == (None, False)


def test_an_end_that_only_counts_as_done_is_doubtful_until_a_process_begins_after_it(make: Any) -> None:
    lines = [make.line("start", 0), make.line("exit-on-notice", 1, code=75, in_a_row=2), make.line("exit", 1, code=75)]
    assert not make.log(*lines).end_is_doubtful
    lines += [make.line("start", 2), make.line("exit-on-notice", 3, code=0, in_a_row=3), make.line("exit", 3, code=0)]
    assert make.log(*lines).end_is_doubtful
    lines.append(make.line("start", 4))
    assert not make.log(*lines).end_is_doubtful


def test_lines_of_other_launches_count_for_nothing(make: Any) -> None:
    account = LogAccount(launch="ours")
    account.take(make.line("progress", 1, step=5, launch="ours"))
    account.take(make.line("progress", 2, step=500, launch="theirs"))
    account.take(make.line("progress", 3, step=500))
    log = account.log()
    assert log.steps.last_step == 5
    assert log.refused == {LineRefusal.OTHER_LAUNCH: 2}


@pytest.mark.parametrize("line", ["Epoch 3", "spotkeep-event: {", "spotkeep-event: []"])
def test_what_is_no_event_is_not_counted_as_refused(line: str) -> None:
    account = LogAccount(launch=None)
    account.take(line)
    assert account.log() == JobLog()


def of_fold(make: Any, fold: int, kind: str, at: float, step: int, **fields: Any) -> str:
    line: str = make.line(kind, at, step=step, training=f"fold-{fold}", **fields)
    return line


def test_the_steps_of_several_trainings_of_a_script_are_added_up_and_none_counts_as_done_twice(make: Any) -> None:
    first_life = [
        make.line("start", 0),
        of_fold(make, 1, "resume", 0, 0), of_fold(make, 1, "progress", 20, 20), of_fold(make, 1, "finish", 20, 20),
        of_fold(make, 2, "resume", 20, 0), of_fold(make, 2, "saved", 25, 5), of_fold(make, 2, "progress", 27, 7),
    ]  # fmt: skip
    steps = make.log(*first_life).steps
    assert (steps.last_step, steps.redone_steps, steps.seconds_per_step) == (27, 0, 60)
    second_life = [
        make.line("start", 30), of_fold(make, 1, "resume", 30, 20), of_fold(make, 1, "finish", 30, 20),
        of_fold(make, 2, "resume", 30, 5), of_fold(make, 2, "progress", 35, 10),
    ]  # fmt: skip
    steps = make.log(*first_life, *second_life).steps
    assert (steps.last_step, steps.redone_steps) == (30, 2)


def test_very_many_trainings_take_no_more_memory_and_break_no_bound(make: Any) -> None:
    lines = [of_fold(make, number, "progress", number, 2**50) for number in range(3 * MOST_TRAININGS)]
    assert (make.log(*lines).steps.last_step or 0) < 2**53
