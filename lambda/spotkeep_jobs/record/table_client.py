"""Reads and writes items of the run table: what everything that is stored in it has in common."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from botocore.exceptions import ClientError

from spotkeep_jobs.record.table_items import (
    CANCELLED_CODES,
    Item,
    RecordT,
    TransactionCancelled,
    epoch_seconds,
    from_dynamodb,
    record_of,
    to_dynamodb,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

Write = dict[str, Any]
"""One write of a transaction."""
BY_CREATED_INDEX: Final = "by-created"
IN_FLIGHT_INDEX: Final = "in-flight"
RUN_RETENTION_DAYS: Final = 365
"""An ended run stays in the run table for a year: what a year of runs costs there is cents."""
# A run lives 28 days of training and as long a wait at most: what is written beside its item outlives the item.
_LONGEST_RUN: Final = timedelta(days=56)


class TableClient:
    """One DynamoDB table."""

    def __init__(self, *, client: DynamoDBClient, table_name: str, retention_days: int = RUN_RETENTION_DAYS) -> None:
        """Bind the table.

        Args:
            client: A DynamoDB client; its retries are the caller's choice.
            table_name: The run table of the deployment.
            retention_days: How long an ended run stays (TTL attribute `expires_at`).
        """
        self._client = client
        self._table = table_name
        self._retention = timedelta(days=retention_days)

    def _put(self, item: Item, *, condition: str | None = None, values: Item | None = None) -> Write:
        put: dict[str, Any] = {"TableName": self._table, "Item": to_dynamodb(item)}
        if condition is not None:
            put["ConditionExpression"] = condition
        if values:
            put["ExpressionAttributeValues"] = to_dynamodb(values)
        return {"Put": put}

    def _transact(self, writes: Sequence[Write]) -> None:
        items: Sequence[Any] = writes
        try:
            self._client.transact_write_items(TransactItems=items)
        except ClientError as error:
            if error.response["Error"]["Code"] not in CANCELLED_CODES:
                raise
            raise TransactionCancelled(error) from error

    def _read(self, record: type[RecordT], pk: str, sk: str) -> RecordT | None:
        item = self._get_item(pk, sk)
        return None if item is None else record_of(record, item)

    def _get_item(self, pk: str, sk: str) -> Item | None:
        answer = self._client.get_item(
            TableName=self._table, Key=to_dynamodb({"pk": pk, "sk": sk}), ConsistentRead=True
        )
        item = answer.get("Item")
        return None if item is None else from_dynamodb(item)

    def _query_run(self, pk: str, prefix: str) -> Iterator[Item]:
        return self._query(
            KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
            ExpressionAttributeValues=to_dynamodb({":pk": pk, ":prefix": prefix}),
            ConsistentRead=True,
        )

    def _query_index(self, index: str, key: str, value: str, *, forward: bool) -> Iterator[Item]:
        return self._query(
            IndexName=index,
            KeyConditionExpression="#key = :value",
            ExpressionAttributeNames={"#key": key},
            ExpressionAttributeValues=to_dynamodb({":value": value}),
            ScanIndexForward=forward,
        )

    def _query(self, **query: Any) -> Iterator[Item]:
        while True:
            page = self._client.query(TableName=self._table, **query)
            for item in page["Items"]:
                yield from_dynamodb(item)
            if "LastEvaluatedKey" not in page:
                return
            query["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def _outlives_run(self, at: datetime) -> int:
        return epoch_seconds(at + self._retention + _LONGEST_RUN)
