"""Reads and writes items of the run table, for all kinds of records.

Records are stored with absent attributes instead of NULL, exact numbers, and documents as text.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_AttributeValue.html
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError
from pydantic import ValidationError

from spotkeep_jobs.errors import RunChangedError, RunTableError, UnreadableRecordError, in_words
from spotkeep_jobs.record.record import Record
from spotkeep_jobs.temporary_errors import is_temporary

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

RecordT = TypeVar("RecordT", bound=Record)
T = TypeVar("T")
Item = dict[str, Any]
_KEYS: Final = ("pk", "sk", "form", "listing", "in_flight", "expires_at")
# Documents of users (or of SageMaker) keep their exact numbers and empty values as text.
_TEXT_FIELDS: Final = (
    "request",
    "job_request",
    "facts",
    "table",
    "metrics",
    "document",
    "parameters",
    "values",
    "best",
)
CANCELLED_CODES: Final = ("TransactionCanceledException", "TransactionInProgressException")
_NAMES_OF_PARTS: Final = {"pool": "warm pool", "event": "timeline entry", "fleet-history": "fleet"}
_LONGEST_FOUND: Final = 60
TRIES: Final = 8
"""The number of tries of a change, where other functions keep changing the same record."""
_LEAST_NUMBER = 1e-130
"""DynamoDB's least number above 0, from "Supported data types and naming rules" in the DynamoDB developer guide."""
_serializer: Final = TypeSerializer()
_deserializer: Final = TypeDeserializer()
Write = dict[str, Any]
"""One write of a transaction."""
Unreadable: TypeAlias = dict[str, str]
"""The reason of each record that could not be read, such as `{"run a": "UnreadableRecordError: ..."}`."""
BY_CREATED_INDEX: Final = "by-created"
IN_FLIGHT_INDEX: Final = "in-flight"
RUN_RETENTION_DAYS: Final = 365
"""Days that an ended run stays in the run table. A year of runs costs cents there."""
# A run lives 28 days of training and as long a wait at most: what is written beside its item outlives the item.
_LONGEST_RUN: Final = timedelta(days=56)


_REFUSED_IN_A_TRANSACTION: Final = frozenset({"ValidationError", "ItemCollectionSizeLimitExceeded"})
"""Reasons of a cancelled transaction for which it is never taken as it is.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_CancellationReason.html
"""


class RecordRefusedError(RunTableError):
    """A write that DynamoDB never takes as it is.

    The item is too large, the table is gone, or a permission is missing. A function that meets this error still ends
    the work that is to end. It raises the error afterwards.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the run table does not take the record: {reason}. Nothing begins without its record, and what was to end "
            "was asked to end all the same. See the table and its permissions, and report this where they are well"
        )


def never_taken(error: ClientError) -> RecordRefusedError | None:
    """Return the lasting problem of a failed write, or None where a later try of it can succeed.

    Args:
        error: The error of a write whose condition held, or was not asked.
    """
    if is_temporary(error.response):
        return None
    found, reason = error.response["Error"], ""
    if found["Code"] in CANCELLED_CODES:
        reasons: Iterable[Mapping[str, Any]] = error.response.get("CancellationReasons", ())
        refused = [each for each in reasons if each.get("Code") in _REFUSED_IN_A_TRANSACTION]
        if not refused:
            return None
        reason = str(refused[0].get("Message") or refused[0]["Code"])
    return RecordRefusedError(reason or f"{found['Code']}: {found.get('Message', '')}")


class TransactionCancelled(Exception):  # noqa: N818 - the word DynamoDB uses
    """A transaction in which a condition failed, or which met another one."""

    def __init__(self, error: ClientError) -> None:
        super().__init__(str(error))
        reasons: Iterable[Mapping[str, Any]] = error.response.get("CancellationReasons", ())
        self._codes = [reason.get("Code") for reason in reasons]

    def refused(self, position: int) -> bool:
        """Return whether the condition of the write at this position failed."""
        return position < len(self._codes) and self._codes[position] == "ConditionalCheckFailed"


class TableClient:
    """One DynamoDB table."""

    def __init__(self, *, client: DynamoDBClient, table_name: str, retention_days: int = RUN_RETENTION_DAYS) -> None:
        """Bind the table.

        Args:
            client: A DynamoDB client, with retries as the caller chooses.
            table_name: The run table of the deployment.
            retention_days: Days that an ended run stays (TTL attribute `expires_at`).
        """
        self.dynamodb = client
        self.name = table_name
        self.retention = timedelta(days=retention_days)

    def put(self, item: Item, *, condition: str | None = None, values: Item | None = None) -> Write:
        """Return the write of an item, on a condition where one is named."""
        put: dict[str, Any] = {"TableName": self.name, "Item": to_dynamodb(item)}
        if condition is not None:
            put["ConditionExpression"] = condition
        if values:
            put["ExpressionAttributeValues"] = to_dynamodb(values)
        return {"Put": put}

    def absent(self, partition: str, sort: str = "item") -> Write:
        """Return the part of a transaction that refuses it where an item is there."""
        return {
            "ConditionCheck": {
                "TableName": self.name,
                "Key": to_dynamodb({"pk": partition, "sk": sort}),
                "ConditionExpression": "attribute_not_exists(pk)",
            }
        }

    def put_if(
        self,
        item: Item,
        condition: str,
        *,
        names: Mapping[str, str] | None = None,
        values: Item | None = None,
    ) -> bool:
        """Write an item. Return False where its condition does not hold, and nothing was written."""
        put: dict[str, Any] = {"Item": to_dynamodb(item), "ConditionExpression": condition}
        if names:
            put["ExpressionAttributeNames"] = names
        if values:
            put["ExpressionAttributeValues"] = to_dynamodb(values)
        try:
            self.dynamodb.put_item(TableName=self.name, **put)
        except ClientError as error:
            if error.response["Error"]["Code"] == "ConditionalCheckFailedException":
                return False
            if (refused := never_taken(error)) is not None:
                raise refused from error
            raise
        return True

    def transact(self, writes: Sequence[Write]) -> None:
        """Write all or nothing.

        Raises:
            TransactionCancelled: A condition failed, or another transaction was under way.
            RecordRefusedError: DynamoDB never takes one of the writes as it is.
        """
        items: Sequence[Any] = writes
        try:
            self.dynamodb.transact_write_items(TransactItems=items)
        except ClientError as error:
            if (refused := never_taken(error)) is not None:
                raise refused from error
            if error.response["Error"]["Code"] not in CANCELLED_CODES:
                raise
            raise TransactionCancelled(error) from error

    def read(self, record: type[RecordT], pk: str, sk: str) -> RecordT | None:
        """Return the record of one item (strongly consistent), or None."""
        item = self.get_item(pk, sk)
        return None if item is None else record_of(record, item)

    def get_item(self, pk: str, sk: str) -> Item | None:
        """Return one item (strongly consistent), or None."""
        answer = self.dynamodb.get_item(TableName=self.name, Key=to_dynamodb({"pk": pk, "sk": sk}), ConsistentRead=True)
        item = answer.get("Item")
        return None if item is None else from_dynamodb(item)

    def query_run(self, pk: str, prefix: str) -> Iterator[Item]:
        """Yield the items of a partition with one beginning of their sort keys (strongly consistent)."""
        return self.query(
            KeyConditionExpression="pk = :pk AND begins_with(sk, :prefix)",
            ExpressionAttributeValues=to_dynamodb({":pk": pk, ":prefix": prefix}),
            ConsistentRead=True,
        )

    def query_index(self, index: str, key: str, value: str, *, forward: bool) -> Iterator[Item]:
        """Yield the items of one part of an index (eventually consistent)."""
        return self.query(
            IndexName=index,
            KeyConditionExpression="#key = :value",
            ExpressionAttributeNames={"#key": key},
            ExpressionAttributeValues=to_dynamodb({":value": value}),
            ScanIndexForward=forward,
        )

    def query(self, **query: Any) -> Iterator[Item]:
        """Yield the items of a query, page by page."""
        while True:
            page = self.dynamodb.query(TableName=self.name, **query)
            for item in page["Items"]:
                yield from_dynamodb(item)
            if "LastEvaluatedKey" not in page:
                return
            query["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def scan(self, **scan: Any) -> Iterator[Item]:
        """Yield items of the whole table, as they are stored (strongly consistent)."""
        while True:
            page = self.dynamodb.scan(TableName=self.name, ConsistentRead=True, **scan)
            for item in page["Items"]:
                yield from_dynamodb(item)
            if "LastEvaluatedKey" not in page:
                return
            scan["ExclusiveStartKey"] = page["LastEvaluatedKey"]

    def outlives_run(self, at: datetime) -> int:
        """Return the time when DynamoDB removes an item that a run's item may need, in epoch seconds."""
        return epoch_seconds(at + self.retention + _LONGEST_RUN)


def epoch_seconds(at: datetime) -> int:
    """Return a time as DynamoDB expires items by it."""
    return int(at.timestamp())


def fields_of(record: Record) -> Item:
    """Return a record's fields, as an item holds them."""
    # An absent attribute, not a NULL, keeps an item out of a sparse index and short.
    fields = {name: value for name, value in record.model_dump(mode="json").items() if value is not None}
    for name in _TEXT_FIELDS:
        if name in fields:
            fields[name] = json.dumps(fields[name])
    return fields | {"form": record.FORM}


def record_of(record: type[RecordT], item: Item) -> RecordT:
    """Return the record that an item holds.

    Raises:
        UnreadableRecordError: This version cannot read it. It says which one can, where the item says that.
    """

    def parsed() -> RecordT:
        fields = {name: value for name, value in item.items() if name not in _KEYS}
        for name in _TEXT_FIELDS:
            if name in fields:
                fields[name] = json.loads(fields[name])
        return record.model_validate(fields)

    return _read_form(record, item, parsed)


def record_of_text(record: type[RecordT], item: Item, attribute: str) -> RecordT:
    """Return the record that an item holds as one text. Raises as `record_of` does."""
    return _read_form(record, item, lambda: record.model_validate_json(str(item.get(attribute, ""))))


def _read_form(record: type[RecordT], item: Item, parsed: Callable[[], RecordT]) -> RecordT:
    form = item.get("form", 1)
    if not isinstance(form, Decimal | int) or form > record.FORM:
        raise UnreadableRecordError(
            _named(item),
            problem="was written by a newer version of Spotkeep",
            found=f"form {form}; this version reads {record.FORM}",
            fix="Use that version: deploy it again, or update this command line.",
            item=item,
        )
    try:
        return parsed()
    except (ValueError, TypeError, RecursionError) as error:
        problem, found = _wrong_with(error)
        raise UnreadableRecordError(
            _named(item),
            problem=f"cannot be read: {problem}",
            found=found[:_LONGEST_FOUND],
            fix="Use the version of Spotkeep that wrote it. More: spotkeep help runbook a record cannot be read.",
            item=item,
        ) from error


def _wrong_with(error: Exception) -> tuple[str, str]:
    """Return the problem with a record, and the value that was found there."""
    if not isinstance(error, ValidationError):
        return str(error), "no JSON"
    wrong = error.errors(include_url=False, include_context=False)[0]
    where = ".".join(str(part) for part in wrong["loc"])
    return f"{where}: {wrong['msg']}" if where else wrong["msg"], repr(wrong["input"])


def readable(
    record: type[RecordT], items: Iterable[Item], *, unreadable: Unreadable | None, at_most: int | None = None
) -> Iterator[RecordT]:
    """Yield the records that items hold. Those that cannot be read are passed over, and reported.

    Args:
        record: The type of the records.
        items: As they are stored.
        unreadable: Takes those that cannot be read, or None to raise at the first.
        at_most: The number of records at most, or None for all.

    Raises:
        UnreadableRecordError: One cannot be read, and nothing takes it.
    """
    left = math.inf if at_most is None else at_most
    for item in items:
        if left <= 0:
            return
        try:
            found = record_of(record, item)
        except UnreadableRecordError as error:
            if unreadable is None:
                raise
            unreadable[error.what] = in_words(error)
        else:
            left -= 1
            yield found


def _named(item: Item) -> str:
    """Return the name of an item in words, such as `run a`, `attempt 2 of run a` or `trial 3 of sweep b`."""
    kind, _, name = str(item.get("pk")).partition("#")
    part, _, number = str(item.get("sk")).partition("#")
    owner = f"{kind} {name}".strip()
    if part in ("item", "claim"):
        return owner
    part = _NAMES_OF_PARTS.get(part, part)
    return f"{part} {number.lstrip('0')}".strip() + f" of {owner}"


def to_dynamodb(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item as the low-level client takes it."""
    return {name: _to_dynamodb(value) for name, value in item.items()}


def from_dynamodb(item: Mapping[str, Any]) -> Item:
    """Return an item as the low-level client gives it."""
    return {name: _from_dynamodb(value) for name, value in item.items()}


def _to_dynamodb(value: Any) -> dict[str, Any]:
    # Most values are text. boto3's own way takes several times as long, and a pass writes and reads thousands of items.
    if isinstance(value, str):
        return {"S": value}
    if isinstance(value, float):
        # A job may have printed a number that DynamoDB has no digits for, and boto3 raises at such a one.
        value = Decimal(0) if abs(value) < _LEAST_NUMBER else Decimal(str(value))
    if isinstance(value, Mapping):
        return {"M": to_dynamodb(value)}
    if isinstance(value, list | tuple):
        return {"L": [_to_dynamodb(inner) for inner in value]}
    return dict(_serializer.serialize(value))


def _from_dynamodb(value: Any) -> Any:
    if "S" in value:
        return value["S"]
    if "L" in value:
        return [_from_dynamodb(inner) for inner in value["L"]]
    if "M" in value:
        return from_dynamodb(value["M"])
    return _deserializer.deserialize(value)


def until_written(
    attempt: Callable[[], T],
    *,
    changed: type[Exception] = RunChangedError,
    tries: int = TRIES,
    pause: Callable[[int], None] = lambda _tries: None,
    has_time: Callable[[], bool] = lambda: True,
) -> T:
    """Call a function that reads, decides and writes, again after another process has written meanwhile.

    Args:
        attempt: The function, which raises `changed` when another process was faster, and must read again at its next
            call.
        changed: The type of that error.
        tries: The number of calls at most.
        pause: Called with the number of tries so far, from 0, before the next call.
        has_time: Asked before the next call, and False ends the tries.

    Returns:
        The result of `attempt`.

    Raises:
        changed: The record kept changing under every try.
    """
    for tried in range(tries - 1):
        try:
            return attempt()
        except changed:
            if not has_time():
                raise
            pause(tried)
    return attempt()
