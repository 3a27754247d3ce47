"""The bar of a run is there from the first second, also for a script that reports no steps."""

from __future__ import annotations

import io
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from spotkeep_cli.aws.job_log import LogLine
from spotkeep_cli.following import FollowView, Reported
from spotkeep_cli.rendering.run_bar import RunBar, RunStatus, status_bar
from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Progress
from spotkeep_jobs.record.states import EndReason, RunState

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BEGAN = 1_795_262_400.0


def said(kind: str, step: int | None, *, after: float = 0.0, **fields: Any) -> JobEvent:
    return JobEvent(kind=JobEventKind(kind), at=BEGAN + after, step=step, fields=fields)


def status_after(*events: JobEvent, run: Any = None) -> RunStatus:
    status = RunStatus()
    if run is not None:
        status.take_run(run)
    for event in events:
        status.take_event(event)
    return status


def drawn(status: RunStatus, now: datetime, *, width: int = 60) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as captured:
        console.print(status_bar(status, now=now))
    return [line.rstrip() for line in captured.get().splitlines()]


def test_a_run_that_waits_has_its_state_and_its_time(make: Any) -> None:
    waiting = make.run(state=RunState.WAITING, started_at=None)
    assert drawn(status_after(run=waiting), make.now) == ["waiting 20m"]


def test_the_time_of_a_run_that_stops_is_counted_from_the_stop_that_was_asked_for(make: Any) -> None:
    trains = make.run()
    asked = trains.to_end(EndReason.STOPPED_BY_USER, text="asked", at=make.now - timedelta(seconds=40))
    assert drawn(status_after(run=asked), make.now) == ["stopping 40s"]
    by_a_limit = with_changes(trains, state=RunState.STOPPING)
    assert drawn(status_after(run=by_a_limit), make.now) == ["stopping"]


def test_a_script_without_steps_has_the_time_at_work_and_its_last_line(make: Any) -> None:
    status = status_after(said("resume", 0), run=make.run())
    for line in ("Epoch 1", "\x1b[32mEpoch 2\x1b[0m  10%|#  | loss 3\r 20%|##  | loss 2\r", "  "):
        status.take_line(line)
    assert drawn(status, make.now) == ["training 18m", "  20%|##  | loss 2"]
    assert status.share is None


def test_steps_have_a_bar_a_share_and_the_time_that_is_left(make: Any) -> None:
    now = make.now.timestamp() - BEGAN
    events = [
        said("resume", 0, after=now - 100),
        said("progress", 400, after=now, total_steps=1_000, metrics={"loss": 0.2134567}),
    ]
    first, second = drawn(status_after(*events, run=make.run()), make.now)
    assert first.startswith("training ━━")
    assert first.endswith("40% 18m, 2m 30s left")
    assert len(first) == 60
    assert second == "  step 400 of 1,000  loss 0.2135"


def test_the_time_that_is_left_runs_down_between_two_reports_and_ends_at_nothing(make: Any) -> None:
    status = status_after(said("resume", 0), said("progress", 50, after=50, total_steps=100), run=make.run())
    at = datetime.fromtimestamp(BEGAN + 50, tz=UTC)
    assert [status.remaining_seconds(at + timedelta(seconds=after)) for after in (0, 20, 90)] == [50, 30, 0]


def test_after_an_interruption_the_pace_is_that_of_the_new_process(make: Any) -> None:
    before = [said("resume", 0), said("progress", 100, after=1, total_steps=200)]
    again = [said("resume", 50, after=1_000), said("progress", 60, after=1_010, total_steps=200)]
    status = status_after(*before, *again, run=make.run())
    now = datetime.fromtimestamp(BEGAN + 1_010, tz=UTC)
    assert (status.step, status.remaining_seconds(now)) == (60, 140)


def test_a_run_that_waits_for_capacity_again_has_no_time_left_and_keeps_its_step(make: Any) -> None:
    events = [said("resume", 0), said("progress", 50, after=50, total_steps=100)]
    status = status_after(*events, run=make.run(state=RunState.INTERRUPTED))
    assert status.remaining_seconds(make.now) is None
    assert status.share == 0.5


def test_the_record_knows_steps_where_no_log_is_read(make: Any) -> None:
    progress = Progress(
        step=40, total_steps=100, reported_at=make.now, read_to=make.now.timestamp(), timed_steps=20, timed_seconds=40
    )
    status = status_after(run=make.run(progress=progress))
    assert (status.share, status.remaining_seconds(make.now)) == (0.4, 120)


def test_a_metric_that_was_found_in_a_line_moves_no_step_and_a_logged_one_does() -> None:
    begun = [said("resume", 0), said("progress", 3, total_steps=90, metrics={"loss": 2.0})]
    printed = status_after(*begun, said("metrics", 7, metrics={"accuracy": 0.5}))
    assert (printed.step, printed.words()) == (3, "step 3 of 90  loss 2  accuracy 0.5")
    logged = status_after(*begun, said("metrics", 7, metrics={"loss": 1.5}))
    assert (logged.step, logged.words()) == (7, "step 7 of 90  loss 1.5")


@given(
    events=st.lists(
        st.builds(
            said,
            st.sampled_from(["resume", "progress", "metrics", "finish", "start", "saved"]),
            st.none() | st.integers(0, 2**53),
            after=st.floats(-1e6, 1e6),
            total_steps=st.integers(1, 2**53),
            metrics=st.dictionaries(st.sampled_from(["a", "\x1b[2J"]), st.floats(allow_nan=False), max_size=2),
        )
    ),
    lines=st.lists(st.text(), max_size=3),
)
def test_whatever_a_job_says_the_bar_is_two_lines_that_fit_and_steer_nothing(
    events: list[JobEvent], lines: list[str]
) -> None:
    status = status_after(*events)
    for line in lines:
        status.take_line(line)
    shown = drawn(status, NOW)
    assert 1 <= len(shown) <= 2
    assert all(line.isprintable() for line in shown)
    assert status.share is None or 0 <= status.share <= 1


def at_a_terminal(show: Callable[[Console], None]) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system=None)
    show(console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_at_a_terminal_the_bar_is_there_before_anything_is_known(make: Any) -> None:
    def show(console: Console) -> None:
        with RunBar(console, now=lambda: make.now):
            pass

    assert "asking" in at_a_terminal(show)


def test_at_a_terminal_a_script_without_steps_has_a_bar_below_its_lines(make: Any) -> None:
    def show(console: Console) -> None:
        with FollowView(console, now=lambda: make.now) as view:
            view.show(make.run())
            view.show(LogLine(time=make.now, stream="algo-1", text="Epoch 1"))
            view.show(Reported(event=said("metrics", None, metrics={"loss": 1.0}), line=LogLine(
                time=make.now, stream="algo-1", text="event")))  # fmt: skip

    output = at_a_terminal(show)
    assert "training" in output
    assert "18m" in output
    assert "           Epoch 1\n" in output
    assert "measured" not in output


@pytest.mark.parametrize("terminal", ["dumb", "unknown"])
def test_elsewhere_nothing_moves(make: Any, terminal: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", terminal)

    def show(console: Console) -> None:
        with RunBar(console, now=lambda: make.now):
            pass

    assert at_a_terminal(show) == ""
