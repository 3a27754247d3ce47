"""The fleet record in DynamoDB: kept as long as its run may be resumed, and no longer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec, encode_job
from spotkeep_fleet.record import FleetRecord, opened
from spotkeep_jobs.backends.ec2.records import DynamoFleetRecords, FleetRecordChangedError

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
RECORD = opened(run="count")
JOB = InstanceJob(command=("true",), volume=VolumeSpec(size_gb=1), attempt=2)


@pytest.fixture
def client() -> Any:
    return boto3.client("dynamodb", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")


def item(record: FleetRecord) -> dict[str, Any]:
    return {
        "pk": {"S": "fleet#count"},
        "sk": {"S": "fleet"},
        "version": {"N": str(record.version + 1)},
        "record": ANY,
        "updated_at": {"S": "2026-11-21T12:00:00.000Z"},
    }


def job_item() -> dict[str, Any]:
    return {
        "pk": {"S": "fleet-job#count"},
        "sk": {"S": "fleet-job"},
        "attempt": {"N": "2"},
        "job": {"S": encode_job(JOB)},
        "updated_at": {"S": "2026-11-21T12:00:00.000Z"},
    }


def table(client: Any) -> DynamoFleetRecords:
    return DynamoFleetRecords(client, table_name="t", retention_days=90)


@pytest.mark.parametrize(
    ("over", "condition"),
    [
        (None, {"ConditionExpression": "attribute_not_exists(pk)"}),
        (
            1,
            {
                "ConditionExpression": "#v = :read",
                "ExpressionAttributeNames": {"#v": "attempt"},
                "ExpressionAttributeValues": {":read": {"N": "1"}},
            },
        ),
    ],
)
def test_job_and_record_are_written_at_once_and_nothing_in_the_record_stands_before_it(
    client: Any, over: int | None, condition: dict[str, Any]
) -> None:
    """The record of a live run has no date to go: a run may outlast any."""
    job = {"Put": {"TableName": "t", "Item": job_item(), **condition}}
    record = {"Put": {"TableName": "t", "Item": item(RECORD)}}
    with Stubber(client) as stub:
        stub.add_response("transact_write_items", {}, {"TransactItems": [job, record]})
        written = table(client).write_with_job(RECORD, job=JOB, over=over, now=NOON)
    assert written.version == RECORD.version + 1


def test_the_job_of_another_attempt_is_not_written_over(client: Any) -> None:
    with Stubber(client) as stub:
        stub.add_client_error("transact_write_items", service_error_code="TransactionCanceledException")
        with pytest.raises(FleetRecordChangedError):
            table(client).write_with_job(RECORD, job=JOB, over=1, now=NOON)


def test_the_job_that_was_written_is_read(client: Any) -> None:
    with Stubber(client) as stub:
        stub.add_response("get_item", {"Item": job_item()})
        stub.add_response("get_item", {})
        assert (table(client).job("count"), table(client).job("other")) == (JOB, None)


def test_that_of_a_run_that_is_over_goes_after_the_run(client: Any) -> None:
    over = replace(RECORD, ended=True)
    kept_at_least = NOON + timedelta(days=90)
    seen: list[int] = []
    client.meta.events.register(
        "before-parameter-build.dynamodb.PutItem",
        lambda params, **_: seen.append(int(params["Item"]["expires_at"]["N"])),
    )
    with Stubber(client) as stub:
        stub.add_response("put_item", {})
        table(client).write_record(over, now=NOON)
    assert seen[0] > kept_at_least.timestamp()


def test_another_version_is_not_written_over(client: Any) -> None:
    with Stubber(client) as stub:
        stub.add_client_error("put_item", service_error_code="ConditionalCheckFailedException")
        with pytest.raises(FleetRecordChangedError):
            table(client).write_record(RECORD, now=NOON)
