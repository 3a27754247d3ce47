"""The fleet's items in the run table. Instances write the fleet record too, and functions alone write the rest.

Items (`pk` / `sk`):
    `fleet_key(run)`: the fleet record (`spotkeep_fleet.record`)
    `fleet_job_key(run)`: the job, with the work of the newest attempt's instances
    `run#<run>` / `fleet-history#0001`: the history of one attempt's fleet

Every write is conditional on the version that was read. The second writer reads again. A write that begins or ends an
attempt is conditional on the attempt in the job instead. It writes job and record in one transaction. Instances cannot
write the job, so no content of the record blocks such a write.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from spotkeep_fleet.instance_job import InstanceJob, decode_job, encode_job, fleet_job_key
from spotkeep_fleet.record import FleetRecord, encode, fleet_key, fleet_record_of
from spotkeep_jobs.backends.ec2.history import FleetHistory
from spotkeep_jobs.errors import RunTableError
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import format_time
from spotkeep_jobs.record.table_client import (
    CANCELLED_CODES,
    Item,
    Write,
    from_dynamodb,
    never_taken,
    record_of_text,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_KEPT: Final = timedelta(days=56)
"""The longest run. Its history is kept for the deployment's retention time after that."""


class FleetRecordChangedError(RunTableError):
    """Another writer changed the fleet record or its history since it was read. The caller reads and decides again."""

    def __init__(self, run: str) -> None:
        super().__init__(f"the fleet record of run {run!r} was changed by another function meanwhile. Read it again")
        self.run = run


class FleetTable:
    """The fleet records, jobs and histories in the run table, on a boto3 client."""

    def __init__(self, client: DynamoDBClient, *, table_name: str, retention_days: int) -> None:
        self._client = client
        self._table = table_name
        self._kept = _KEPT + timedelta(days=retention_days)

    def job(self, run: str, /) -> InstanceJob | None:
        """Read the job of the instances of a run's newest attempt (strongly consistent). None where there is none."""
        item = self._get(*fleet_job_key(run))
        return None if item is None else decode_job(item["job"]["S"])

    def record(self, run: str, /) -> FleetRecord | None:
        """Read the fleet record of a run (strongly consistent), or None.

        Raises:
            spotkeep_fleet.errors.DocumentError: It cannot be understood.
        """
        item = self._get(*fleet_key(run))
        return None if item is None else fleet_record_of(item, run=run)

    def write_record(self, record: FleetRecord, /, *, now: datetime) -> FleetRecord:
        """Write the fleet record over the version it was read with. Returns it as written.

        Raises:
            FleetRecordChangedError: There is another version by now.
        """
        following = record.next_version()
        self._put(self._record_item(following, now=now), read=record.version, run=record.run)
        return following

    def write_with_job(
        self, record: FleetRecord, /, *, job: InstanceJob, over: int | None, now: datetime
    ) -> FleetRecord:
        """Write job and fleet record in one transaction, over any present record. Returns the record as written.

        Args:
            record: The new fleet record.
            job: The new job of the instances.
            over: The attempt of the job that was read. None where no job may exist yet.
            now: The time.

        Raises:
            FleetRecordChangedError: The job is of another attempt by now, or another writer is just writing the record.
        """
        following = record.next_version()
        pk, sk = fleet_job_key(record.run)
        job_item = {
            "pk": {"S": pk},
            "sk": {"S": sk},
            "attempt": {"N": str(job.attempt)},
            "job": {"S": encode_job(job)},
            "updated_at": {"S": format_time(now)},
            **self._expiry(following, now=now),
        }
        puts: list[Any] = [
            {"Put": {"TableName": self._table, "Item": job_item, **_condition("attempt", over)}},
            {"Put": {"TableName": self._table, "Item": self._record_item(following, now=now)}},
        ]
        try:
            self._client.transact_write_items(TransactItems=puts)
        except ClientError as error:
            if (refused := never_taken(error)) is not None:
                raise refused from error
            if error.response["Error"]["Code"] in CANCELLED_CODES:
                raise FleetRecordChangedError(record.run) from error
            raise
        return following

    def history(self, run: str, attempt: int, /) -> FleetHistory | None:
        """Read the history of one attempt's fleet (strongly consistent), or None.

        Raises:
            UnreadableRecordError: Another version wrote it.
        """
        item = self._get(f"run#{run}", _history_sort_key(attempt))
        return None if item is None else record_of_text(FleetHistory, from_dynamodb(item), "history")

    def history_among(self, items: Mapping[str, Item], attempt: int, /) -> FleetHistory | None:
        """Return the history of one attempt's fleet among a run's items by their sort keys, or None.

        Raises:
            UnreadableRecordError: Another version wrote it.
        """
        item = items.get(_history_sort_key(attempt))
        return None if item is None else record_of_text(FleetHistory, item, "history")

    def write_history(self, history: FleetHistory, /, *, new: bool = False) -> FleetHistory:
        """Write a history over the version it was read with. Returns it as written.

        Raises:
            FleetRecordChangedError: There is another version by now.
            RecordRefusedError: DynamoDB never takes it.
        """
        following = with_changes(history, version=history.version + 1)
        self._put(self._history_item(following), read=None if new else history.version, run=history.run)
        return following

    def history_write(self, history: FleetHistory, /) -> Write:
        """Return the write of a history over the version it was read with, as a part of a transaction."""
        item = self._history_item(with_changes(history, version=history.version + 1))
        return {"Put": {"TableName": self._table, "Item": item, **_condition("version", history.version)}}

    def _history_item(self, history: FleetHistory) -> dict[str, Any]:
        return {
            "pk": {"S": f"run#{history.run}"},
            "sk": {"S": _history_sort_key(history.attempt)},
            "version": {"N": str(history.version)},
            "history": {"S": history.model_dump_json()},
            "form": {"N": str(FleetHistory.FORM)},
            "expires_at": {"N": str(int((history.created_at + self._kept).timestamp()))},
        }

    def _get(self, pk: str, sk: str) -> dict[str, Any] | None:
        found = self._client.get_item(
            TableName=self._table, Key={"pk": {"S": pk}, "sk": {"S": sk}}, ConsistentRead=True
        )
        item: dict[str, Any] | None = found.get("Item")
        return item

    def _record_item(self, record: FleetRecord, *, now: datetime) -> dict[str, Any]:
        pk, sk = fleet_key(record.run)
        return {
            "pk": {"S": pk},
            "sk": {"S": sk},
            "version": {"N": str(record.version)},
            "record": {"S": encode(record)},
            "updated_at": {"S": format_time(now)},
            **self._expiry(record, now=now),
        }

    def _expiry(self, record: FleetRecord, *, now: datetime) -> dict[str, Any]:
        # Not before the end: instances write the record whole, and a live run outlasts any date set at its launch.
        return {"expires_at": {"N": str(int((now + self._kept).timestamp()))}} if record.ended else {}

    def _put(self, item: dict[str, Any], *, read: int | None, run: str) -> None:
        try:
            self._client.put_item(TableName=self._table, Item=item, **_condition("version", read))
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                raise FleetRecordChangedError(run) from error
            if (refused := never_taken(error)) is not None:
                raise refused from error
            raise


def _condition(attribute: str, read: int | None) -> dict[str, Any]:
    """Return the condition that an item is as it was read. None for an item that must not exist yet."""
    if read is None:
        return {"ConditionExpression": "attribute_not_exists(pk)"}
    return {
        "ConditionExpression": "#v = :read",
        "ExpressionAttributeNames": {"#v": attribute},
        "ExpressionAttributeValues": {":read": {"N": str(read)}},
    }


def _history_sort_key(attempt: int) -> str:
    return f"fleet-history#{attempt:04d}"
