"""What the run table holds of fleets: no write over what was not read, kept as long as its run may be resumed."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from spotkeep_fleet.instance_job import VolumeSpec, fleet_job_key
from spotkeep_fleet.record import encode, fleet_key, new_record
from spotkeep_jobs.backends.ec2.fleet_table import FleetRecordChangedError, FleetTable
from spotkeep_jobs.backends.ec2.history import opened
from spotkeep_jobs.errors import UnreadableRecordError
from tests.models.clock import NOON
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.ec2 import instance_job

RECORD = new_record(run="count")
JOB = instance_job(command=("true",), volume=VolumeSpec(size_gb=1), attempt=1)


@pytest.fixture
def dynamodb() -> InMemoryDynamoDb:
    return InMemoryDynamoDb()


@pytest.fixture
def table(dynamodb: Any) -> FleetTable:
    return FleetTable(dynamodb, table_name="t", retention_days=90)


def test_job_and_record_are_written_at_once_and_nothing_in_the_record_stands_before_it(
    dynamodb: InMemoryDynamoDb, table: FleetTable
) -> None:
    first = table.write_with_job(RECORD, job=JOB, over=None, now=NOON)
    assert (table.job("count"), table.record("count"), table.job("other")) == (JOB, first, None)
    dynamodb.items[fleet_key("count")]["version"] = {"N": "7"}
    second = table.write_with_job(first, job=replace(JOB, attempt=2), over=1, now=NOON)
    assert (table.job("count"), table.record("count")) == (replace(JOB, attempt=2), second)


@pytest.mark.parametrize("over", [None, 2])
def test_the_job_of_another_attempt_is_not_written_over(
    dynamodb: InMemoryDynamoDb, table: FleetTable, over: int | None
) -> None:
    table.write_with_job(RECORD, job=JOB, over=None, now=NOON)
    before = dict(dynamodb.items)
    with pytest.raises(FleetRecordChangedError):
        table.write_with_job(RECORD, job=replace(JOB, attempt=3), over=over, now=NOON)
    assert dynamodb.items == before


def test_another_version_is_not_written_over(table: FleetTable) -> None:
    written = table.write_with_job(RECORD, job=JOB, over=None, now=NOON)
    table.write_record(replace(written, problem="first"), now=NOON)
    with pytest.raises(FleetRecordChangedError):
        table.write_record(replace(written, problem="second"), now=NOON)
    found = table.record("count")
    assert found.problem == "first"


def test_the_record_of_a_live_run_has_no_date_to_go_and_that_of_one_that_is_over_goes_after_the_run(
    dynamodb: InMemoryDynamoDb, table: FleetTable
) -> None:
    """A run may outlast any date."""
    written = table.write_with_job(RECORD, job=JOB, over=None, now=NOON)
    kept = [dynamodb.items[key] for key in (fleet_key("count"), fleet_job_key("count"))]
    assert not any("expires_at" in item for item in kept)
    assert kept[0]["record"]["S"] == encode(written)
    table.write_record(replace(written, ended=True), now=NOON)
    expires = int(dynamodb.items[fleet_key("count")]["expires_at"]["N"])
    assert expires > (NOON + timedelta(days=90)).timestamp()


@pytest.mark.parametrize(
    ("change", "says"),
    [({"form": {"N": "2"}}, "was written by a newer version"), ({"history": {"S": "{}"}}, "cannot be read")],
)
def test_a_history_that_another_version_wrote_is_named_as_such(
    dynamodb: InMemoryDynamoDb, table: FleetTable, change: dict[str, Any], says: str
) -> None:
    history = opened(
        run="count", attempt=1, job_name="count-1", marks={}, capacity="spot", template_id="lt-1",
        max_run_seconds=3600, max_wait_seconds=None, now=NOON,
    )  # fmt: skip
    written = table.write_history(history, new=True)
    assert table.history("count", 1) == written
    (key,) = dynamodb.items
    dynamodb.items[key] = dynamodb.items[key] | change
    with pytest.raises(UnreadableRecordError, match=rf"\(record of fleet 1 of run count\): {says}"):
        table.history("count", 1)
