"""The fleet record in DynamoDB: kept as long as its run may be resumed, and no longer."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.stub import ANY, Stubber

from spotkeep_fleet.instance_job import InstanceJob, VolumeSpec
from spotkeep_fleet.record import FleetRecord, opened
from spotkeep_jobs.fleets.records import DynamoFleetRecords, FleetRecordChangedError

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
RECORD = opened(run="count", job=InstanceJob(command=("true",), volume=VolumeSpec(size_gb=1)))


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


def test_the_record_of_a_live_run_has_no_date_to_go(client: Any) -> None:
    with Stubber(client) as stub:
        stub.add_response(
            "put_item", {}, {"TableName": "t", "Item": item(RECORD), "ConditionExpression": "attribute_not_exists(pk)"}
        )
        written = DynamoFleetRecords(client, table_name="t", retention_days=90).write_record(RECORD, now=NOON, new=True)
    assert written.version == RECORD.version + 1


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
        DynamoFleetRecords(client, table_name="t", retention_days=90).write_record(over, now=NOON)
    assert seen[0] > kept_at_least.timestamp()


def test_another_version_is_not_written_over(client: Any) -> None:
    with Stubber(client) as stub:
        stub.add_client_error("put_item", service_error_code="ConditionalCheckFailedException")
        with pytest.raises(FleetRecordChangedError):
            DynamoFleetRecords(client, table_name="t", retention_days=90).write_record(RECORD, now=NOON)
