"""Calls of the local AWS meet what AWS's may meet, once that is asked for: each client gets its service's own error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from spotkeep_local.capacity import CallFaults
from spotkeep_local.control import LocalControl
from spotkeep_local.service_base.error_answers import BUSY_ERRORS

ASKED = {
    "batch": lambda client: client.describe_job_queues(),
    "dynamodb": lambda client: client.list_tables(),
    "ec2": lambda client: client.describe_volumes(),
    "lambda": lambda client: client.list_functions(),
    "logs": lambda client: client.describe_log_groups(),
    "s3": lambda client: client.list_buckets(),
    "sagemaker": lambda client: client.list_training_jobs(),
    "scheduler": lambda client: client.list_schedules(),
    "sns": lambda client: client.list_topics(),
    "sqs": lambda client: client.list_queues(),
}
ONCE = Config(retries={"total_max_attempts": 1})


@pytest.fixture
def control(local_aws: Any) -> Iterator[LocalControl]:
    control = LocalControl(local_aws)
    yield control
    control.call_faults(CallFaults())


def test_every_service_throttles_with_its_own_code(local_aws: Any, control: LocalControl) -> None:
    control.call_faults(CallFaults(throttled=1.0))
    assert ASKED.keys() == BUSY_ERRORS.keys()
    for service, ask in ASKED.items():
        with pytest.raises(ClientError) as refused:
            ask(local_aws.session().client(service, config=ONCE))
        answer = refused.value.response
        assert answer["Error"]["Code"] == BUSY_ERRORS[service].throttle
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == BUSY_ERRORS[service].throttle_status


def test_faults_of_one_service_leave_the_others_alone(local_aws: Any, control: LocalControl) -> None:
    control.call_faults(CallFaults(throttled=1.0, service="batch"))
    ASKED["sqs"](local_aws.session().client("sqs", config=ONCE))
    with pytest.raises(ClientError, match="TooManyRequestsException"):
        ASKED["batch"](local_aws.session().client("batch", config=ONCE))


def test_a_call_whose_answer_is_lost_took_effect(local_aws: Any, control: LocalControl) -> None:
    sqs = local_aws.session().client("sqs", config=ONCE)
    control.call_faults(CallFaults(lost=1.0))
    with pytest.raises(ClientError) as lost:
        sqs.create_queue(QueueName="lost-answer")
    assert lost.value.response["ResponseMetadata"]["HTTPStatusCode"] == 500
    control.call_faults(CallFaults())
    sqs.delete_queue(QueueUrl=sqs.get_queue_url(QueueName="lost-answer")["QueueUrl"])


def test_a_throttled_object_of_megabytes_is_refused_and_not_stored(local_aws: Any, control: LocalControl) -> None:
    s3 = local_aws.session().client("s3", config=ONCE)
    s3.create_bucket(Bucket="unsure")
    control.call_faults(CallFaults(throttled=1.0))
    with pytest.raises(ClientError, match="SlowDown"):
        s3.put_object(Bucket="unsure", Key="large", Body=bytes(3 << 20))
    control.call_faults(CallFaults())
    assert "Contents" not in s3.list_objects_v2(Bucket="unsure")
    s3.delete_bucket(Bucket="unsure")


def test_the_same_seed_chooses_the_same(local_aws: Any, control: LocalControl) -> None:
    def outcomes() -> list[str]:
        control.call_faults(CallFaults(throttled=0.3, seed=7))
        client = local_aws.session().client("sqs", config=ONCE)
        found = []
        for _ in range(30):
            try:
                client.list_queues()
            except ClientError as error:
                found.append(error.response["Error"]["Code"])
            else:
                found.append("answered")
        return found

    first = outcomes()
    assert set(first) == {"answered", BUSY_ERRORS["sqs"].throttle}, "some calls are answered, the others throttled"
    assert outcomes() == first
