"""How a service job goes from one status to the next: values in, values out."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from spotkeep_local.batch import attempts
from spotkeep_local.batch.records import JobStatus, LocalServiceJob
from spotkeep_local.training.job import SecondaryStatus, TrainingJob, advance

JOB = LocalServiceJob(
    job_id="id",
    arn="arn:aws:batch:us-east-1:000000000000:service-job/id",
    name="digits",
    queue="arn:aws:batch:us-east-1:000000000000:job-queue/queue",
    number=1,
    request={"serviceRequestPayload": "{}"},
    needs={},
    created_at=1.0,
    client_token="token",
    status=JobStatus.RUNNABLE,
)
TRAINING = TrainingJob(name="t", arn="arn:t", request={}, created_at=2.0, updated_at=2.0)


def test_an_interruption_does_not_take_a_job_back():
    job, training = attempts.dispatched(JOB, now=2.0), TRAINING
    statuses = []
    for secondary in (
        SecondaryStatus.STARTING,
        SecondaryStatus.DOWNLOADING,
        SecondaryStatus.TRAINING,
        SecondaryStatus.INTERRUPTED,
        SecondaryStatus.STARTING,
        SecondaryStatus.DOWNLOADING,
        SecondaryStatus.TRAINING,
        SecondaryStatus.UPLOADING,
        SecondaryStatus.COMPLETED,
    ):
        training = advance(training, secondary, now=3.0)
        job = attempts.follow(job, training, now=4.0)
        statuses.append(job.status.value)
    assert statuses == ["SCHEDULED", "STARTING", *["RUNNING"] * 6, "SUCCEEDED"]


def test_a_spot_job_that_never_got_an_instance_found_no_capacity():
    training = advance(advance(TRAINING, SecondaryStatus.STARTING, now=2.0), SecondaryStatus.MAX_WAIT_EXCEEDED, now=3.0)
    job = attempts.follow(attempts.dispatched(JOB, now=2.0), training, now=4.0)
    assert job.status is JobStatus.RUNNABLE
    assert job.status_reason == attempts.NO_CAPACITY
    assert job.not_before > 4.0
    started = advance(advance(TRAINING, SecondaryStatus.TRAINING, now=2.0), SecondaryStatus.MAX_WAIT_EXCEEDED, now=3.0)
    assert attempts.follow(attempts.dispatched(JOB, now=2.0), started, now=4.0).status is JobStatus.FAILED


@pytest.mark.parametrize("code", ["ResourceLimitExceeded", "ThrottlingException", "ValidationException"])
def test_a_terminated_job_that_sagemaker_refuses_waits_no_more(code: str):
    job = attempts.dispatched(dataclasses.replace(JOB, terminate_reason="not needed"), now=2.0)
    ended = attempts.refused(job, code=code, message="The account-level service limit is 0", now=3.0)
    assert (ended.status, ended.status_reason, ended.stopped_at) == (JobStatus.FAILED, "not needed", 3.0)


@pytest.mark.parametrize("name", ["digits", "run_1", "-", "x" * 128, "a--b__c", "Ends-23-characters-xxx-y"])
def test_batch_names_training_jobs_as_sagemaker_allows(name: str):
    made = attempts.training_job_name(name)
    assert re.fullmatch(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}", made)
    assert made.startswith("AWSBatch")
    assert made != attempts.training_job_name(name)


@pytest.mark.parametrize(
    ("resources", "needs"),
    [
        ({"InstanceType": "ml.m5.large", "InstanceCount": 2}, {"ml.m5.large": 2}),
        ({"InstanceType": "ml.m5.large"}, {"ml.m5.large": 1}),
        (
            {
                "InstanceGroups": [
                    {"InstanceType": "ml.m5.large", "InstanceCount": 1},
                    {"InstanceType": "ml.g5.xlarge", "InstanceCount": 2},
                    {"InstanceType": "ml.m5.large", "InstanceCount": 1},
                ]
            },
            {"ml.m5.large": 2, "ml.g5.xlarge": 2},
        ),
        ({}, {}),
        ("ml.m5.large", {}),
        ({"InstanceType": "ml.m5.large", "InstanceCount": "two"}, {}),
    ],
)
def test_a_payload_says_which_instances_it_needs(resources: object, needs: dict[str, int]):
    assert attempts.needs_of(json.dumps({"ResourceConfig": resources})) == needs


@pytest.mark.parametrize("payload", ["", "no JSON", "[]", "null", "7"])
def test_a_payload_that_is_nothing_needs_nothing(payload: str):
    assert attempts.needs_of(payload) == {}


def test_tags_of_the_service_job_are_its_own_unless_they_are_handed_on_beside_those_of_the_payload():
    payload = json.dumps({"Tags": [{"Key": "a", "Value": "payload"}]})
    job = LocalServiceJob(
        **{**JOB.__dict__, "request": {"serviceRequestPayload": payload}, "tags": {"a": "job"}, "training_job": "t"}
    )
    of_the_payload = [{"Key": "a", "Value": "payload"}]
    assert attempts.training_request(job, hands_tags_on=False) == {"TrainingJobName": "t", "Tags": of_the_payload}
    handed_on = attempts.training_request(job, hands_tags_on=True)["Tags"]
    assert handed_on == [*of_the_payload, {"Key": "a", "Value": "job"}], "SageMaker refuses a key that is there twice"
