"""A run's job and its fleet record in the run table. The record is written only over the version that was read."""

from __future__ import annotations

import time
from typing import Any

from spotkeep_agent.errors import AwsCallRefusedError
from spotkeep_fleet.instance_job import InstanceJob, decode_job, fleet_job_key
from spotkeep_fleet.record import FleetRecord, encode, fleet_key, fleet_record_of

from .calls import AwsCalls

_TARGET = "DynamoDB_20120810"


class RecordChangedError(Exception):
    """Another writer changed the record since it was read."""


class FleetRecords:
    """The job and the fleet record of one run.

    Args:
        calls: To DynamoDB.
        table: Name of the run table.
        run: The run's id.
    """

    def __init__(self, calls: AwsCalls, *, table: str, run: str) -> None:
        self._calls = calls
        self._table = table
        self._run = run
        self._key = _key(fleet_key(run))
        self._job_key = _key(fleet_job_key(run))

    def job(self) -> InstanceJob | None:
        """Read the job of the instances. Return None when the run has no job.

        Raises:
            DocumentError: It cannot be understood.
        """
        item = self._get(self._job_key)
        return None if item is None else decode_job(item["job"]["S"])

    def read(self) -> FleetRecord | None:
        """Read the fleet record. Return None when the run has no record.

        Raises:
            DocumentError: It cannot be understood.
        """
        item = self._get(self._key)
        return None if item is None else fleet_record_of(item, run=self._run)

    def write(self, record: FleetRecord) -> None:
        """Write it over the version it was read with.

        Raises:
            RecordChangedError: If there is another version by now. When an answer was lost, it may be our own.
        """
        following = record.next_version()
        request = {
            "TableName": self._table,
            "Item": {
                **self._key,
                "version": {"N": str(following.version)},
                "record": {"S": encode(following)},
                "updated_at": {"S": time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime())},
            },
            "ConditionExpression": "#v = :read",
            "ExpressionAttributeNames": {"#v": "version"},
            "ExpressionAttributeValues": {":read": {"N": str(record.version)}},
        }
        try:
            self._calls.json("dynamodb", f"{_TARGET}.PutItem", request, version="1.0")
        except AwsCallRefusedError as error:
            if error.code == "ConditionalCheckFailedException":
                raise RecordChangedError from error
            raise

    def _get(self, key: dict[str, Any]) -> dict[str, Any] | None:
        request = {"TableName": self._table, "Key": key, "ConsistentRead": True}
        found: dict[str, Any] | None = self._calls.json("dynamodb", f"{_TARGET}.GetItem", request, version="1.0").get(
            "Item"
        )
        return found


def _key(names: tuple[str, str]) -> dict[str, Any]:
    partition, sort = names
    return {"pk": {"S": partition}, "sk": {"S": sort}}
