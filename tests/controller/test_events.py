"""What invokes the controller is distinguished; of an event a name is taken, and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.events import (
    CLOCK_EVENT,
    SERVICE_JOB_CHANGES,
    TRAINING_JOB_CHANGED,
    ClockTick,
    ControllerEvent,
    EventBatch,
    Hint,
    PoolCheck,
    Subject,
    UnknownEventError,
    controller_event_of,
    hint_of,
)
from spotkeep_jobs.record.deployment_records import StackRequest

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)

JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def event_of(event: object) -> ControllerEvent:
    return controller_event_of(event, now=NOON)


def event(detail_type: str, **detail: Any) -> dict[str, Any]:
    return {"source": "aws.sagemaker", "detail-type": detail_type, "detail": detail}


def test_a_training_job_that_batch_named_is_known_by_its_tags() -> None:
    tags = {"spotkeep:deployment": "spotkeep", "spotkeep:run": "digits"}
    named = event(TRAINING_JOB_CHANGED, TrainingJobName="AWSBatchdigits-188b610a69aa8380ca5b0a7aba3f81cb8", Tags=tags)
    hint = hint_of(named)
    assert (hint.run, hint.deployment) == ("digits", "spotkeep")
    strange = event(TRAINING_JOB_CHANGED, TrainingJobName="digits-1", Tags={**tags, "spotkeep:run": "no run\n"})
    assert hint_of(strange).run is None


@pytest.mark.parametrize("detail_type", SERVICE_JOB_CHANGES)
def test_what_batch_says_names_a_service_job_by_its_id(detail_type: str) -> None:
    """The event of a preemption has its ARN alone."""
    arn = "arn:aws:batch:us-east-1:123456789012:service-job/51f245a9-2995-4a53-bced-7b3c00028f84"
    said = {"source": "aws.batch", "detail-type": detail_type, "resources": [arn], "detail": {"preemptedJobArn": arn}}
    assert hint_of(said) == Hint(subject=Subject.SERVICE_JOB, name="51f245a9-2995-4a53-bced-7b3c00028f84")
    for wrong in ([], [arn.replace("service-job", "job")], "x", [7]):
        with pytest.raises(UnknownEventError, match="its resources name no service job"):
            hint_of({**said, "resources": wrong})


@pytest.mark.parametrize(
    ("event", "hint"),
    [
        (
            {"source": "spotkeep.agent", "detail-type": "Spotkeep Instance Change",
             "detail": {"run": "digits-1a2b", "attempt": 2, "instance_id": "i-0123456789abcdef0", "event": "left"}},
            Hint(subject=Subject.TRAINING_JOB, name="digits-1a2b-2"),
        ),
        (
            {"source": "aws.ec2fleet", "detail-type": "EC2 Fleet State Change", "detail": {"sub-type": "deleted"},
             "resources": ["arn:aws:ec2:us-east-1:123456789012:fleet/fleet-a1b2c3d4-0000-4000-8000-0123456789ab"]},
            Hint(subject=Subject.FLEET, name="fleet-a1b2c3d4-0000-4000-8000-0123456789ab"),
        ),
    ],
)  # fmt: skip
def test_what_agents_and_fleets_say_names_the_attempt_or_the_fleet(event: dict[str, Any], hint: Hint) -> None:
    assert hint_of(event) == hint


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (None, "not an object"),
        ([], "not an object"),
        ({}, "source"),
        (event(TRAINING_JOB_CHANGED, TrainingJobName="a") | {"source": "custom.app"}, "source"),
        (event("EC2 Instance State-change Notification"), "detail-type"),
        (
            {
                "source": "aws.ec2",
                "detail-type": "EC2 Spot Instance Interruption Warning",
                "detail": {"instance-id": "i-0123456789abcdef0", "instance-action": "terminate"},
            },
            "source",
        ),
        ({"source": "aws.ec2fleet", "detail-type": "EC2 Fleet Error", "resources": ["arn:x"]}, "no fleet"),
        ({"source": "spotkeep.agent", "detail-type": "Spotkeep Instance Change", "detail": {"run": "a"}}, "attempt"),
        ({"source": ["aws.ec2"], "detail-type": "EC2 Fleet Error"}, "source"),
        (event(TRAINING_JOB_CHANGED), "TrainingJobName"),
        (event(TRAINING_JOB_CHANGED, TrainingJobName=7), "TrainingJobName"),
        (event(TRAINING_JOB_CHANGED, TrainingJobName="../../etc"), "TrainingJobName"),
        (event(TRAINING_JOB_CHANGED, TrainingJobName="a" * 64), "TrainingJobName"),
        ({"source": "aws.sagemaker", "detail-type": TRAINING_JOB_CHANGED, "detail": "a"}, "TrainingJobName"),
    ],
)
def test_anything_else_is_refused_with_what_is_wrong(wrong: object, says: str) -> None:
    with pytest.raises(UnknownEventError, match=says):
        hint_of(wrong)


def message(message_id: str, body: object) -> dict[str, Any]:
    return {"messageId": message_id, "body": body if isinstance(body, str) else json.dumps(body)}


def test_the_events_of_a_batch_are_one_hint_a_job() -> None:
    training = event(TRAINING_JOB_CHANGED, TrainingJobName="digits-1")
    other = event(TRAINING_JOB_CHANGED, TrainingJobName="letters-1")
    read = event_of(
        {"Records": [message("a", training), message("b", other), message("c", training), message("d", training)]}
    )
    assert read == EventBatch(
        messages={
            Hint(subject=Subject.TRAINING_JOB, name="digits-1"): ["a", "c", "d"],
            Hint(subject=Subject.TRAINING_JOB, name="letters-1"): ["b"],
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
def test_what_hints_at_nothing_is_reported_and_stops_no_other(record: object, says: str) -> None:
    good = message("good", event(TRAINING_JOB_CHANGED, TrainingJobName="digits-1"))
    read = event_of({"Records": [record, good]})
    assert isinstance(read, EventBatch)
    assert read.messages == {Hint(subject=Subject.TRAINING_JOB, name="digits-1"): ["good"]}
    [problem] = read.problems
    assert says in problem


@pytest.mark.parametrize(
    ("event", "means"),
    [
        (None, ClockTick()),
        ({}, ClockTick()),
        (CLOCK_EVENT, ClockTick()),
        ({"run": "first", "attempt": 2, "firing": "expiry"}, PoolCheck(run="first", attempt=2)),
        ({"Records": []}, EventBatch(messages={}, problems=[])),
        (event(TRAINING_JOB_CHANGED, TrainingJobName="a"), Hint(subject=Subject.TRAINING_JOB, name="a")),
    ],
)
def test_each_way_to_invoke_the_controller_is_distinguished(event: object, means: ControllerEvent) -> None:
    assert event_of(event) == means


def test_a_request_of_cloudformation_is_distinguished() -> None:
    request = {
        "RequestType": "Delete", "RequestId": "r-1", "StackId": "arn:aws:cloudformation:us-east-1:1:stack/S/1",
        "LogicalResourceId": "Shutdown", "ResponseURL": "https://answers.example.com/1",
    }  # fmt: skip
    read = event_of(request)
    assert isinstance(read, StackRequest)
    assert (read.kind, read.asked_at) == ("Delete", NOON)


@pytest.mark.parametrize(
    "event",
    [[], "first", 0, False, {"reconcile": "some"}, {"Records": "a"}, {"attempt": 1}, {"run": "first"},
     {"run": "first", "attempt": 0}, {"run": "first", "attempt": True}, {"run": "a/b", "attempt": 1},
     {"run": "x" * 64, "attempt": 1}, {"run": "first", "attempt": "1"}],
)  # fmt: skip
def test_anything_else_invokes_nothing(event: object) -> None:
    with pytest.raises(UnknownEventError):
        event_of(event)


@given(
    JSON
    | st.fixed_dictionaries({"run": JSON, "attempt": JSON | st.integers()})
    | st.fixed_dictionaries(
        {"source": st.just("aws.sagemaker") | JSON, "detail-type": st.just(TRAINING_JOB_CHANGED) | JSON},
        optional={"detail": JSON | st.dictionaries(st.just("TrainingJobName"), JSON)},
    )
)
def test_no_event_breaks_the_reader(event: Any) -> None:
    try:
        read = event_of(event)
    except UnknownEventError:
        return
    if isinstance(read, PoolCheck):
        assert (read.run, read.attempt) == (event["run"], event["attempt"])
    if isinstance(read, Hint):
        assert 1 <= len(read.name) <= 63


@given(
    records=st.lists(
        JSON | st.fixed_dictionaries({"messageId": st.text() | JSON, "body": st.text() | JSON.map(json.dumps) | JSON}),
        max_size=4,
    )
)
def test_no_record_breaks_the_reader_or_gets_lost(records: list[object]) -> None:
    read = event_of({"Records": records})
    assert isinstance(read, EventBatch)
    assert len(read.problems) + sum(map(len, read.messages.values())) == len(records)
