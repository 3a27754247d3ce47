"""Events are hints: a job's name is taken from them, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.hints import TRAINING_JOB_CHANGED, TUNING_JOB_CHANGED, Batch, Hint, NotAHintError, batch_of, hint_of

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def event(detail_type: str, **detail: Any) -> dict[str, Any]:
    return {"source": "aws.sagemaker", "detail-type": detail_type, "detail": detail}


def test_both_kinds_of_state_changes_are_read() -> None:
    training = event(TRAINING_JOB_CHANGED, TrainingJobName="digits-1", TrainingJobStatus="Completed")
    assert hint_of(training) == Hint(job_name="digits-1", tuning=False)
    tuning = event(TUNING_JOB_CHANGED, HyperParameterTuningJobName="search")
    assert hint_of(tuning) == Hint(job_name="search", tuning=True)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (None, "not an object"),
        ([], "not an object"),
        ({}, "source"),
        (event(TRAINING_JOB_CHANGED, TrainingJobName="a") | {"source": "custom.app"}, "source"),
        (event("EC2 Instance State-change Notification"), "detail-type"),
        (event(TRAINING_JOB_CHANGED), "TrainingJobName"),
        (event(TRAINING_JOB_CHANGED, TrainingJobName=7), "TrainingJobName"),
        (event(TRAINING_JOB_CHANGED, TrainingJobName="../../etc"), "TrainingJobName"),
        (event(TRAINING_JOB_CHANGED, TrainingJobName="a" * 64), "TrainingJobName"),
        (event(TUNING_JOB_CHANGED, TrainingJobName="a"), "HyperParameterTuningJobName"),
        ({"source": "aws.sagemaker", "detail-type": TRAINING_JOB_CHANGED, "detail": "a"}, "TrainingJobName"),
    ],
)
def test_anything_else_is_refused_with_what_is_wrong(wrong: object, says: str) -> None:
    with pytest.raises(NotAHintError, match=says):
        hint_of(wrong)


@given(
    junk=JSON
    | st.fixed_dictionaries(
        {"source": st.just("aws.sagemaker") | JSON, "detail-type": st.just(TRAINING_JOB_CHANGED) | JSON},
        optional={"detail": JSON | st.dictionaries(st.just("TrainingJobName"), JSON)},
    )
)
def test_no_event_breaks_the_reader(junk: object) -> None:
    try:
        hint = hint_of(junk)
    except NotAHintError:
        return
    assert 1 <= len(hint.job_name) <= 63


def message(message_id: str, body: object) -> dict[str, Any]:
    return {"messageId": message_id, "body": body if isinstance(body, str) else json.dumps(body)}


def test_the_events_of_a_batch_are_one_hint_a_job() -> None:
    training = event(TRAINING_JOB_CHANGED, TrainingJobName="digits-1")
    tuning = event(TUNING_JOB_CHANGED, HyperParameterTuningJobName="digits-1")
    read = batch_of(
        {"Records": [message("a", training), message("b", tuning), message("c", training), message("d", training)]}
    )
    assert read == Batch(
        messages={
            Hint(job_name="digits-1", tuning=False): ["a", "c", "d"],
            Hint(job_name="digits-1", tuning=True): ["b"],
        },
        problems=[],
    )


@pytest.mark.parametrize(
    ("record", "says"),
    [
        (None, "no message of a queue"),
        ({}, "no messageId or no body"),
        ({"messageId": "", "body": "{}"}, "no messageId"),
        ({"messageId": "a", "body": None}, "no body"),
        (message("a", "{"), "body of message a is no JSON"),
        (message("a", "[" * 100_000), "body of message a is no JSON"),
        (message("a", "{}"), "message a holds no hint: its source"),
    ],
)
def test_what_hints_at_nothing_is_told_and_stops_no_other(record: object, says: str) -> None:
    good = message("good", event(TRAINING_JOB_CHANGED, TrainingJobName="digits-1"))
    read = batch_of({"Records": [record, good]})
    assert read is not None
    assert read.messages == {Hint(job_name="digits-1", tuning=False): ["good"]}
    [problem] = read.problems
    assert says in problem


@pytest.mark.parametrize("no_batch", [None, [], {}, {"Records": "a"}, event(TRAINING_JOB_CHANGED, TrainingJobName="a")])
def test_a_bare_event_is_no_batch(no_batch: object) -> None:
    assert batch_of(no_batch) is None


@given(
    records=st.lists(
        JSON | st.fixed_dictionaries({"messageId": st.text() | JSON, "body": st.text() | JSON.map(json.dumps) | JSON}),
        max_size=10,
    )
)
def test_no_record_breaks_the_reader_or_gets_lost(records: list[object]) -> None:
    read = batch_of({"Records": records})
    assert read is not None
    assert len(read.problems) + sum(map(len, read.messages.values())) == len(records)
