"""Event lines are read from logs that hold anything else too."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.facts.job_events import MARKER, JobEvent, JobEventKind, parse_line, parse_log


def test_an_event_is_read_with_all_its_fields() -> None:
    line = 'spotkeep-event: {"event": "progress", "time": 12.5, "step": 7, "total_steps": 10, "metrics": {"loss": 1}}'
    assert parse_line(line) == JobEvent(
        kind=JobEventKind.PROGRESS, at=12.5, step=7, fields={"total_steps": 10, "metrics": {"loss": 1}}
    )


@pytest.mark.parametrize("kind", JobEventKind)
def test_every_kind_is_known(kind: JobEventKind) -> None:
    event = parse_line(f'{MARKER} {{"event": "{kind}", "time": 1}}')
    assert event is not None
    assert event.kind is kind


@pytest.mark.parametrize(
    "line",
    [
        '\x1b[32m 40%|####      | 2/5 spotkeep-event: {"event": "saved", "time": 1, "step": 3}',
        'spotkeep-event: {"event": "saved", "time": 1, "step": 3} and then some',
        'spotkeep-event:{"event":"saved","time":1,"step":3}',
    ],
)
def test_what_stands_around_an_event_does_not_matter(line: str) -> None:
    event = parse_line(line)
    assert event is not None
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


@pytest.mark.parametrize("step", ["-1", "true", "1.5", '"7"', "null", "1e400"])
def test_a_step_that_is_no_count_is_no_step(step: str) -> None:
    event = parse_line(f'{MARKER} {{"event": "progress", "time": 1, "step": {step}}}')
    assert event is not None
    assert event.step is None


@given(text=st.text())
def test_no_text_breaks_the_parser(text: str) -> None:
    parse_line(text)
    parse_line(MARKER + text)


@given(st.integers(0, 120))
def test_a_line_cut_off_anywhere_is_whole_or_nothing(length: int) -> None:
    line = f"{MARKER} {json.dumps({'event': 'progress', 'time': 1.5, 'step': 30, 'metrics': {'loss': 0.25}})}"
    event = parse_line(line[:length])
    assert event is None or event == parse_line(line)


def test_a_log_is_read_in_order_of_time_whatever_lines_come_in_one_message() -> None:
    def line(event: str, time: float) -> str:
        return f'{MARKER} {{"event": "{event}", "time": {time}}}'

    log = parse_log([f"noise\n{line('finish', 3)}\r{line('exit', 4)}", line("start", 1)], complete=False)
    assert [event.kind.value for event in log.events] == ["start", "finish", "exit"]
    assert not log.complete


def test_every_event_that_the_library_emits_is_known() -> None:
    library = Path(__file__).parents[3] / "training" / "spotkeep"
    sources = [path.read_text() for path in library.rglob("*.py")]
    emitted = {name for source in sources for name in re.findall(r"""\bemit\(\s*["']([a-z-]+)["']""", source)}
    assert {"start", "resume", "saved", "exit"} <= emitted
    assert emitted <= {kind.value for kind in JobEventKind}
