"""What the run table holds of a fleet: the record that the instances write too, and the history that functions write.

Items (`pk` / `sk`):
    as `fleet_key(run)` says                                  the fleet record; see `spotkeep_fleet.record`
    run#<run>              fleet-history#0001                 what became of one attempt's fleet

Every write names the version that was read; whoever comes second reads again.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol

from botocore.exceptions import ClientError

from spotkeep_fleet.record import FleetRecord, decode, encode, fleet_key
from spotkeep_jobs.errors import RunTableError
from spotkeep_jobs.facts.record import format_time
from spotkeep_jobs.fleets.history import FleetHistory

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_KEPT: Final = timedelta(days=56)
"""The longest run, before what becomes of it is kept for as long as the deployment says."""


class FleetRecordChangedError(RunTableError):
    """Somebody else wrote the fleet record or its history since it was read: read it again, decide again."""

    def __init__(self, run: str) -> None:
        super().__init__(f"the fleet record of run {run!r} was changed by somebody else meanwhile. Read it again")
        self.run = run


class FleetRecords(Protocol):
    """The seam: what is kept of fleets."""

    def record(self, run: str, /) -> FleetRecord | None:
        """The fleet record of a run (strongly consistent), or None.

        Raises:
            spotkeep_fleet.errors.DocumentError: It cannot be understood.
        """
        ...

    def write_record(self, record: FleetRecord, /, *, now: datetime, new: bool = False) -> FleetRecord:
        """Write the fleet record over the version it was read with. Gives it as written.

        Args:
            record: What to write.
            now: The time.
            new: Whether there must be none yet.

        Raises:
            FleetRecordChangedError: There is another version by now.
        """
        ...

    def history(self, run: str, attempt: int, /) -> FleetHistory | None:
        """The history of one attempt's fleet (strongly consistent), or None."""
        ...

    def write_history(self, history: FleetHistory, /, *, new: bool = False) -> FleetHistory:
        """Write a history over the version it was read with. Gives it as written.

        Raises:
            FleetRecordChangedError: There is another version by now.
        """
        ...


class DynamoFleetRecords:
    """The seam, on a boto3 client."""

    def __init__(self, client: DynamoDBClient, *, table_name: str, retention_days: int) -> None:
        self._client = client
        self._table = table_name
        self._kept = _KEPT + timedelta(days=retention_days)

    def record(self, run: str, /) -> FleetRecord | None:
        """Read the fleet record; see `FleetRecords.record`."""
        item = self._get(*fleet_key(run))
        return None if item is None else decode(item["record"]["S"])

    def write_record(self, record: FleetRecord, /, *, now: datetime, new: bool = False) -> FleetRecord:
        """Write the fleet record; see `FleetRecords.write_record`."""
        following = record.next_version()
        pk, sk = fleet_key(record.run)
        item = {
            "pk": {"S": pk},
            "sk": {"S": sk},
            "version": {"N": str(following.version)},
            "record": {"S": encode(following)},
            "updated_at": {"S": format_time(now)},
        }
        if following.ended:
            # Not before: instances write the record whole, and a live run outlasts any date set at its launch.
            item["expires_at"] = {"N": str(int((now + self._kept).timestamp()))}
        self._put(item, read=None if new else record.version, run=record.run)
        return following

    def history(self, run: str, attempt: int, /) -> FleetHistory | None:
        """Read a history; see `FleetRecords.history`."""
        item = self._get(f"run#{run}", _history_sort_key(attempt))
        return None if item is None else FleetHistory.model_validate_json(item["history"]["S"])

    def write_history(self, history: FleetHistory, /, *, new: bool = False) -> FleetHistory:
        """Write a history; see `FleetRecords.write_history`."""
        following = history.model_copy(update={"version": history.version + 1})
        item = {
            "pk": {"S": f"run#{history.run}"},
            "sk": {"S": _history_sort_key(history.attempt)},
            "version": {"N": str(following.version)},
            "history": {"S": following.model_dump_json()},
            "expires_at": {"N": str(int((history.created_at + self._kept).timestamp()))},
        }
        self._put(item, read=None if new else history.version, run=history.run)
        return following

    def _get(self, pk: str, sk: str) -> dict[str, Any] | None:
        found = self._client.get_item(
            TableName=self._table, Key={"pk": {"S": pk}, "sk": {"S": sk}}, ConsistentRead=True
        )
        item: dict[str, Any] | None = found.get("Item")
        return item

    def _put(self, item: dict[str, Any], *, read: int | None, run: str) -> None:
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(pk)"}
        if read is not None:
            condition = {
                "ConditionExpression": "#v = :read",
                "ExpressionAttributeNames": {"#v": "version"},
                "ExpressionAttributeValues": {":read": {"N": str(read)}},
            }
        try:
            self._client.put_item(TableName=self._table, Item=item, **condition)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                raise FleetRecordChangedError(run) from error
            raise


def _history_sort_key(attempt: int) -> str:
    return f"fleet-history#{attempt:04d}"
