"""Job events: lines of standard output that the controller, the command line and the rehearsal read."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import spotkeep
from spotkeep import events


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


def test_what_is_measured_between_two_reports_goes_out_with_the_second(job_events, monkeypatch):
    now = 1000.0
    monkeypatch.setattr(events, "_last_progress", None)
    monkeypatch.setattr(events.time, "monotonic", lambda: now)
    monkeypatch.setenv("SPOTKEEP_PROGRESS_SECONDS", "10")
    spotkeep.report_progress(step=1, loss=9)
    spotkeep.report_progress(step=2, loss=8, accuracy=0.1)
    spotkeep.report_progress(step=3, loss=7, accuracy=0.2)
    spotkeep.report_progress(step=4, validation_loss=6)
    now += 10.0
    spotkeep.report_progress(step=5, loss=5)
    said = [(event["event"], event["step"], event["metrics"]) for event in job_events()]
    assert said == [
        ("progress", 1, {"loss": 9}),
        ("metrics", 3, {"accuracy": 0.2}),
        ("metrics", 4, {"validation_loss": 6}),
        ("progress", 5, {"loss": 5}),
    ]
