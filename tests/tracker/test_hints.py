"""Events are hints: a job's name is taken from them, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracker.hints import TRAINING_JOB_CHANGED, TUNING_JOB_CHANGED, Hint, NotAHintError, hint_of

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
