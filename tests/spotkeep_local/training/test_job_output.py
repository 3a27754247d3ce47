import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.training.job import ProcessLifetime
from spotkeep_local.training.job_output import observe

FRESH = ProcessLifetime(pid=1, started_at=0.0)


def seen(*events: dict) -> ProcessLifetime:
    lifetime = FRESH
    for event in events:
        lifetime = observe(lifetime, f"spotkeep-event: {json.dumps(event)}")
    return lifetime


def test_progress_saves_and_the_end_tell_the_step():
    life = seen(
        {"event": "resume", "step": 4, "checkpoint": "step-4"},
        {"event": "progress", "step": 5, "total_steps": 10, "metrics": {"loss": 0.1}},
        {"event": "saved", "step": 6},
    )
    assert (life.resumed_step, life.last_step_seen, life.total_steps) == (4, 6, 10)


def test_the_highest_step_stays():
    assert seen({"event": "progress", "step": 7}, {"event": "saved", "step": 5}).last_step_seen == 7


def folds(*reported):
    return seen(*({"event": event, "step": step, "training": f"fold-{fold}"} for event, fold, step in reported))


def test_the_steps_of_several_trainings_of_a_script_are_added_up():
    begun = folds(("resume", 1, 0), ("progress", 1, 20), ("finish", 1, 20), ("resume", 2, 0), ("progress", 2, 7))
    assert (begun.resumed_step, begun.last_step_seen) == (0, 27)
    again = folds(("resume", 1, 20), ("finish", 1, 20), ("resume", 2, 5), ("saved", 2, 7), ("resume", 3, 0))
    assert (again.resumed_step, again.last_step_seen) == (25, 27)


def test_a_line_may_carry_something_before_the_event():
    line = '[1,0]<stdout>: spotkeep-event: {"event": "progress", "step": 1}'
    assert observe(FRESH, line).last_step_seen == 1


@pytest.mark.parametrize(
    "line",
    [
        "",
        "loss 0.1",
        "spotkeep-event:",
        "spotkeep-event: {",
        "spotkeep-event: []",
        'spotkeep-event: {"event": "progress"}',
        'spotkeep-event: {"event": "progress", "step": "3"}',
        'spotkeep-event: {"event": "progress", "step": true}',
        'spotkeep-event: {"event": "progress", "step": -1}',
        'spotkeep-event: {"event": "notice", "step": 3}',
        "spotkeep-event: " + "[" * 100_000,
    ],
)
def test_everything_else_passes(line):
    assert observe(FRESH, line) is FRESH


@given(st.text())
def test_no_text_breaks_it(text):
    observe(FRESH, "spotkeep-event: " + text)
