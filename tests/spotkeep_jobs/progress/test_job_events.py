"""Event lines are read from logs that hold anything else too."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.progress.job_events import (
    LATEST_TIME,
    LONGEST_LINE,
    MARKER,
    MOST,
    JobEvent,
    JobEventKind,
    LineRefusal,
    lines_of,
    parse_line,
    read_line,
)


def event_in(line: str) -> JobEvent:
    event = parse_line(line)
    assert event is not None
    return event


def test_an_event_is_read_with_all_its_fields() -> None:
    line = 'spotkeep-event: {"event": "progress", "time": 12.5, "step": 7, "total_steps": 10, "metrics": {"loss": 1}}'
    assert parse_line(line) == JobEvent(
        kind=JobEventKind.PROGRESS, at=12.5, step=7, fields={"total_steps": 10, "metrics": {"loss": 1}}
    )


@pytest.mark.parametrize(
    "line",
    [
        '\x1b[32m 40%|####      | 2/5 spotkeep-event: {"event": "saved", "time": 1, "step": 3}',
        'spotkeep-event: {"event": "saved", "time": 1, "step": 3} and then some',
        'spotkeep-event:{"event":"saved","time":1,"step":3}',
    ],
)
def test_what_stands_around_an_event_does_not_matter(line: str) -> None:
    event = event_in(line)
    assert (event.kind, event.step) == (JobEventKind.SAVED, 3)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Epoch 3: loss 0.2",
        "spotkeep-event:",
        'spotkeep-event: {"event": "progress", "time": 12.5, "st',
        "spotkeep-event: [1, 2]",
        "spotkeep-event: null",
        'spotkeep-event: {"event": "progress"}',
        'spotkeep-event: {"time": 1}',
        'spotkeep-event: {"event": "unheard-of", "time": 1}',
        'spotkeep-event: {"event": ["progress"], "time": 1}',
        'spotkeep-event: {"event": "progress", "time": "soon"}',
        'spotkeep-event: {"event": "progress", "time": NaN}',
        'spotkeep-event: {"event": "progress", "time": 1e999}',
        'spotkeep-event: {"event": "progress", "time": ' + "9" * 5000 + "}",
        "spotkeep-event: " + "[" * 100_000,
    ],
)
def test_what_is_no_whole_event_is_no_event(line: str) -> None:
    assert parse_line(line) is None


@pytest.mark.parametrize("step", ["-1", "true", "1.5", '"7"', "null"])
def test_a_step_that_is_no_count_is_no_step(step: str) -> None:
    event = event_in(f'{MARKER} {{"event": "progress", "time": 1, "step": {step}}}')
    assert event.step is None


@given(st.integers(0, 120))
def test_a_line_cut_off_anywhere_is_whole_or_nothing(length: int) -> None:
    line = f"{MARKER} {json.dumps({'event': 'progress', 'time': 1.5, 'step': 30, 'metrics': {'loss': 0.25}})}"
    event = parse_line(line[:length])
    assert event is None or event == parse_line(line)


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        (f'"time": 1, "step": {MOST}', LineRefusal.NUMBER),
        (f'"time": 1, "step": {10**50}', LineRefusal.NUMBER),
        ('"time": 1, "step": ' + "9" * 5_000, LineRefusal.NUMBER),
        ('"time": 1, "step": 1e400', LineRefusal.NUMBER),
        ('"time": 1, "total_steps": -1e300', LineRefusal.NUMBER),
        ('"time": 1, "seconds": NaN', LineRefusal.NUMBER),
        ('"time": -1', LineRefusal.NUMBER),
        (f'"time": {LATEST_TIME}', LineRefusal.NUMBER),
        ('"time": Infinity', LineRefusal.NUMBER),
        ('"time": 1, "more": ' + "[" * 10_000, LineRefusal.TOO_DEEP),
        ('"time": 1, "reason": "' + "x" * LONGEST_LINE + '"', LineRefusal.TOO_LONG),
    ],
)
def test_a_line_that_breaks_a_bound_is_refused_and_says_which(fields: str, why: LineRefusal) -> None:
    assert read_line(f'{MARKER} {{"event": "progress", {fields}}}') is why


def test_the_greatest_number_there_is_to_count_to_is_taken() -> None:
    event = event_in(f'{MARKER} {{"event": "progress", "time": 1, "step": {MOST - 1}}}')
    assert event.step == MOST - 1


@pytest.mark.parametrize(
    "other", ["", '"launch": "0123", ', '"launch": null, ', '"reason": "feed", "launch": ["feed"], ']
)
def test_a_line_without_the_id_of_the_launch_is_refused(other: str) -> None:
    assert read_line(f'{MARKER} {{{other}"event": "start", "time": 1}}', launch="feed") is LineRefusal.OTHER_LAUNCH


def test_a_line_with_it_is_taken() -> None:
    line = f'{MARKER} {{"event": "start", "time": 1, "launch": "feed"}}'
    assert read_line(line, launch="feed") == JobEvent(kind=JobEventKind.START, at=1.0)


def test_unknown_fields_are_left_out_and_texts_are_cut() -> None:
    more = {"reason": "x" * 1_000, "surprise": [1] * 100, "problem": {"no": "text"}, "bytes": "many"}
    event = event_in(MARKER + json.dumps({"event": "saved", "time": 1, "step": 2, **more}))
    assert event.fields == {"reason": "x" * 500}


def test_a_measured_number_may_be_as_large_as_it_likes_and_there_may_not_be_hundreds() -> None:
    metrics = {"flops": 1e300, "loss": float("inf"), "name": "x"} | {f"m{number}": number for number in range(500)}
    event = event_in(MARKER + json.dumps({"event": "progress", "time": 1, "metrics": metrics}))
    assert event.fields["metrics"]["flops"] == 1e300
    assert "loss" not in event.fields["metrics"]
    assert len(event.fields["metrics"]) <= 64


def test_a_message_may_hold_several_lines() -> None:
    assert list(lines_of("one\r\ntwo\rthree\n")) == ["one", "two", "three", ""]


def test_every_event_that_the_library_emits_is_known() -> None:
    library = Path(__file__).parents[3] / "training" / "spotkeep"
    sources = [path.read_text() for path in library.rglob("*.py")]
    emitted = {name for source in sources for name in re.findall(r"""\bemit\(\s*["']([a-z-]+)["']""", source)}
    assert {"start", "resume", "saved", "exit"} <= emitted
    assert emitted <= {kind.value for kind in JobEventKind}
