"""Records as DynamoDB's items: absent attributes instead of NULL, exact numbers, documents as text.

Source: https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_AttributeValue.html
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any, Final, TypeVar

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError

from spotkeep_jobs.record.record import Record

RecordT = TypeVar("RecordT", bound=Record)
Item = dict[str, Any]
_KEYS: Final = ("pk", "sk", "listing", "in_flight", "expires_at")
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
_LEAST_NUMBER = 1e-130
"""DynamoDB's least number above 0: "Supported data types and naming rules", DynamoDB developer guide."""
_serializer: Final = TypeSerializer()
_deserializer: Final = TypeDeserializer()


class TransactionCancelled(Exception):  # noqa: N818 - the word DynamoDB uses
    """A transaction in which a condition failed, or which met another one."""

    def __init__(self, error: ClientError) -> None:
        super().__init__(str(error))
        reasons: Iterable[Mapping[str, Any]] = error.response.get("CancellationReasons", ())
        self._codes = [reason.get("Code") for reason in reasons]

    def refused(self, position: int) -> bool:
        """Return whether the condition of the write at this position failed."""
        return position < len(self._codes) and self._codes[position] == "ConditionalCheckFailed"


def is_refused(error: ClientError) -> bool:
    """Return whether a write's condition did not hold."""
    return error.response["Error"]["Code"] == "ConditionalCheckFailedException"


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
    return fields


def record_of(record: type[RecordT], item: Item) -> RecordT:
    """Return the record that an item holds."""
    fields = {name: value for name, value in item.items() if name not in _KEYS}
    for name in _TEXT_FIELDS:
        if name in fields:
            fields[name] = json.loads(fields[name])
    return record.model_validate(fields)


def to_dynamodb(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item as the low-level client takes it."""
    return {name: _serializer.serialize(_with_decimals(value)) for name, value in item.items()}


def from_dynamodb(item: Mapping[str, Any]) -> Item:
    """Return an item as the low-level client gives it."""
    return {name: _from_dynamodb(value) for name, value in item.items()}


def _from_dynamodb(value: Any) -> Any:
    # Most values are text. boto3's own way takes twice as long, and a pass reads thousands of items.
    if "S" in value:
        return value["S"]
    if "L" in value:
        return [_from_dynamodb(inner) for inner in value["L"]]
    if "M" in value:
        return from_dynamodb(value["M"])
    return _deserializer.deserialize(value)


def _with_decimals(value: Any) -> Any:
    if isinstance(value, float):
        # A job may have printed a number that DynamoDB has no digits for, and boto3 raises at such a one.
        return Decimal(0) if abs(value) < _LEAST_NUMBER else Decimal(str(value))
    if isinstance(value, Mapping):
        return {key: _with_decimals(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_with_decimals(inner) for inner in value]
    return value
