"""Job events: lines of standard output that the controller, the command line and the rehearsal read."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spotkeep
from spotkeep import events

VALUES_OF_A_CURVE = 60


def test_nothing_is_printed_when_a_script_runs_by_hand(capsys):
    events.emit("saved", step=1)
    assert capsys.readouterr().out == ""


def test_an_event_is_one_line_with_its_name_and_time(job_events, monkeypatch):
    monkeypatch.setattr(events.time, "time", lambda: 1234.56789)
    events.emit("saved", step=3, bytes=10)
    assert job_events() == [{"event": "saved", "time": 1234.568, "step": 3, "bytes": 10}]


def test_in_a_job_that_was_launched_an_event_carries_the_id_of_the_launch(job_events, monkeypatch):
    monkeypatch.setenv("SPOTKEEP_LAUNCH", "feed")
    events.emit("saved", step=3, launch="another")
    assert job_events()[0]["launch"] == "feed"


@given(text=st.text(), number=st.floats())
def test_an_event_is_one_line_of_json_whatever_it_says(text, number):
    line = events.event_line("fallback", time_seconds=1.0, fields={"problem": text, "number": number})
    assert line.startswith(events.EVENT_PREFIX)
    assert line.count("\n") == 1
    assert line.isascii()
    document = json.loads(line[len(events.EVENT_PREFIX) :])
    assert document["problem"] == text


@pytest.mark.parametrize(
    ("metric", "printed"),
    [(np.float32(0.5), 0.5), (np.array(2), 2.0), (float("nan"), None), (float("inf"), None), (3, 3), (True, True)],
)
def test_metrics_may_be_numbers_of_any_library(job_events, metric, printed):
    spotkeep.report_progress(step=1, total_steps=2, loss=metric)
    assert job_events()[-1]["metrics"] == {"loss": printed}


def test_progress_is_reported_at_most_every_so_often_and_always_at_the_end(job_events, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(events, "_last_progress", None)
    monkeypatch.setattr(events.time, "monotonic", lambda: now)
    monkeypatch.setenv("SPOTKEEP_PROGRESS_SECONDS", "5")
    for step in range(1, 21):
        now += 1.0
        spotkeep.report_progress(step=step, total_steps=20)
    assert [event["step"] for event in job_events()] == [1, 6, 11, 16, 20]


def test_a_script_with_checkpoints_of_its_own_can_tell_of_them(job_events):
    spotkeep.report_resumed(step=4, checkpoint="mine.pt")
    spotkeep.report_saved(step=8, seconds=0.5, size_bytes=100)
    resumed, saved = job_events()
    assert (resumed["event"], resumed["step"], resumed["checkpoint"]) == ("resume", 4, "mine.pt")
    assert (saved["event"], saved["step"], saved["bytes"], saved["reason"]) == ("saved", 8, 100, "script")


@pytest.fixture
def in_ten_seconds(monkeypatch):
    """One progress event goes out, and no other before the clock is moved by ten seconds."""
    now = [1000.0]
    monkeypatch.setattr(events, "_last_progress", None)
    monkeypatch.setattr(events, "_values_reported", {})
    monkeypatch.setattr(events.time, "monotonic", lambda: now[0])
    monkeypatch.setenv("SPOTKEEP_PROGRESS_SECONDS", "10")
    return now


def values_of(name, said):
    return [(event["step"], event["metrics"][name]) for event in said if name in event["metrics"]]


def test_all_values_of_a_short_training_go_out(job_events, in_ten_seconds):
    for step in range(1, 61):
        spotkeep.report_progress(step=step, loss=1 / step)
    said = job_events()
    assert values_of("loss", said) == [(step, 1 / step) for step in range(1, 61)]
    assert [event["event"] for event in said] == ["progress", *["metrics"] * 59]


def test_of_a_long_training_ever_fewer_values_go_out_between_two_reports(job_events, in_ten_seconds):
    for step in range(100_000):
        spotkeep.report_progress(step=step, loss=step, accuracy=step)
    steps = [step for step, _ in values_of("loss", job_events())]
    gaps = [later - earlier for earlier, later in itertools.pairwise(steps)]
    assert gaps == sorted(gaps)
    assert gaps[:59] == [1] * 59
    assert len(steps) <= VALUES_OF_A_CURVE + VALUES_OF_A_CURVE // 2 * (100_000 // VALUES_OF_A_CURVE).bit_length()


def test_names_that_change_with_each_step_are_not_said_at_each_step(job_events, in_ten_seconds):
    for step in range(5_000):
        spotkeep.report_progress(step=step, **{f"loss_{step}": step})
    assert len(job_events()) <= 1 + 256
    assert len(events._values_reported) <= 256


@given(doubling=st.integers(0, 40), number=st.integers(0, 2**20))
def test_after_as_many_values_as_a_curve_holds_half_of_them_go_out_then_a_quarter(doubling, number):
    assert events.belongs_to_curve(number % VALUES_OF_A_CURVE)
    begin, each = VALUES_OF_A_CURVE << doubling, 2 << doubling
    value = begin + number % begin
    assert events.belongs_to_curve(value) == (value % each == 0)


def test_the_newest_of_the_other_values_goes_out_with_the_second_report(job_events, in_ten_seconds):
    for _ in range(61):
        spotkeep.report_progress(step=0, loss=10, accuracy=0, validation_loss=10)
    earlier = len(job_events())
    spotkeep.report_progress(step=2, loss=8, accuracy=0.1)
    spotkeep.report_progress(step=3, validation_loss=6)
    in_ten_seconds[0] += 10.0
    spotkeep.report_progress(step=5, loss=5)
    said = [(event["event"], event["step"], event["metrics"]) for event in job_events()[earlier:]]
    assert said == [
        ("metrics", 2, {"accuracy": 0.1}),
        ("metrics", 3, {"validation_loss": 6}),
        ("progress", 5, {"loss": 5}),
    ]


def test_a_value_of_the_curve_takes_the_place_of_an_earlier_one_that_waits(job_events, in_ten_seconds):
    for step in range(63):
        spotkeep.report_progress(step=step, loss=step)
    earlier = len(job_events())
    in_ten_seconds[0] += 10.0
    spotkeep.report_progress(step=63)
    assert [(event["event"], event["metrics"]) for event in job_events()[earlier:]] == [("progress", {})]
