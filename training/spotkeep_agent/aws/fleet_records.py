"""The fleet record in the run table: read consistently, written only over the version that was read."""

from __future__ import annotations

import time

from spotkeep_agent.errors import AwsRefusedError
from spotkeep_fleet.record import FleetRecord, decode, encode, fleet_key

from .calls import AwsCalls

_TARGET = "DynamoDB_20120810"


class RecordChangedError(Exception):
    """Somebody else wrote the record since it was read."""


class FleetRecords:
    """The fleet record of one run.

    Args:
        calls: To DynamoDB.
        table: Name of the run table.
        run: The run's id.
    """

    def __init__(self, calls: AwsCalls, *, table: str, run: str) -> None:
        self._calls = calls
        self._table = table
        partition, sort = fleet_key(run)
        self._key = {"pk": {"S": partition}, "sk": {"S": sort}}

    def read(self) -> FleetRecord | None:
        """Read it; None when the run has none.

        Raises:
            DocumentError: If it cannot be understood.
        """
        request = {"TableName": self._table, "Key": self._key, "ConsistentRead": True}
        item = self._calls.json("dynamodb", f"{_TARGET}.GetItem", request, version="1.0").get("Item")
        return None if item is None else decode(item["record"]["S"])

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
        except AwsRefusedError as error:
            if error.code == "ConditionalCheckFailedException":
                raise RecordChangedError from error
            raise
