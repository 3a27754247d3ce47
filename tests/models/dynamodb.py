"""DynamoDB in memory: the six calls that the run table makes, with the conditions it uses, and its limits of size.

`tests/spotkeep_jobs/record/test_run_table.py` runs every test against this and against the local AWS, so that it stays
true.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.models.faults import Called, Model, client_error

Item = dict[str, Any]
Key = tuple[str, str]

LARGEST_ITEM_BYTES: Final = 400 * 1024
LARGEST_TRANSACTION_BYTES: Final = 4 * 1024 * 1024
"""Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""
_SORT_KEYS = {"by-created": "created_at", "in-flight": "updated_at"}


class InMemoryDynamoDb(Model):
    """A DynamoDB client, as far as the run table knows one.

    Attributes:
        items: What is stored, by partition and sort key.
        largest: The bytes of the largest item ever written of each kind, by the first words of its keys.
        checks_conditions: Whether a write whose condition does not hold is refused, as DynamoDB does.
    """

    checks_conditions = True

    def __init__(self, called: Called | None = None) -> None:
        super().__init__(called)
        self.items: dict[Key, Item] = {}
        self.largest: dict[str, int] = {}
        self._partitions: dict[str, dict[str, Item]] = {}
        self._seen_by_indexes: dict[Key, Item] | None = None
        self._not_in_indexes: set[Key] = set()

    def let_indexes_miss(self, key: Key) -> None:
        """Secondary indexes do not show an item yet, whatever else they show."""
        self._not_in_indexes.add(key)

    def let_indexes_lag(self) -> None:
        """From now on secondary indexes, and reads that are not consistent, show what is stored now."""
        self._seen_by_indexes = dict(self.items)

    def let_indexes_catch_up(self) -> None:
        """Secondary indexes, and every other read, show what is stored."""
        self._seen_by_indexes = None
        self._not_in_indexes.clear()

    def get_item(self, **parameters: Any) -> Item:
        return dict(self._call("GetItem", lambda: self._get_item(**parameters)))

    def put_item(self, **parameters: Any) -> None:
        self._call("PutItem", lambda: self._put_item(**parameters))

    def delete_item(self, **parameters: Any) -> None:
        self._call("DeleteItem", lambda: self._delete_item(**parameters))

    def transact_write_items(self, **parameters: Any) -> None:
        self._call("TransactWriteItems", lambda: self._transact_write_items(**parameters))

    def query(self, **parameters: Any) -> Item:
        return dict(self._call("Query", lambda: self._query(**parameters)))

    def scan(self, **parameters: Any) -> Item:
        return dict(self._call("Scan", lambda: self._scan(**parameters)))

    def _get_item(self, *, TableName: str, Key: Item, ConsistentRead: bool) -> Item:  # noqa: N803
        """One item, or none."""
        item = self._shown(consistent=ConsistentRead).get(key_of(Key))
        return {} if item is None else {"Item": item}

    def _put_item(self, **write: Any) -> None:
        """Write an item whole."""
        _refuse_too_large("PutItem", [write["Item"]])
        if not self._holds(key_of(write["Item"]), write):
            raise client_error("PutItem", "ConditionalCheckFailedException")
        self._put(write["Item"])

    def _delete_item(self, *, TableName: str, Key: Item) -> None:  # noqa: N803
        """Remove an item, if it is there."""
        self._remove(key_of(Key))

    def _transact_write_items(self, *, TransactItems: Sequence[Item]) -> None:  # noqa: N803
        """Write all or nothing."""
        writes = [next(iter(item.items())) for item in TransactItems]
        keys = [key_of(write["Item"] if kind == "Put" else write["Key"]) for kind, write in writes]
        assert len(keys) <= 100, "DynamoDB takes 100 writes in a transaction"
        assert len(set(keys)) == len(keys), "DynamoDB takes one write of an item in a transaction"
        _refuse_too_large("TransactWriteItems", [write["Item"] for kind, write in writes if kind == "Put"])
        held = [self._holds(key, write) for key, (_, write) in zip(keys, writes, strict=True)]
        if not all(held):
            reasons = [{"Code": "None" if fine else "ConditionalCheckFailed"} for fine in held]
            raise client_error("TransactWriteItems", "TransactionCanceledException", CancellationReasons=reasons)
        for key, (kind, write) in zip(keys, writes, strict=True):
            if kind == "Put":
                self._put(write["Item"])
            elif kind == "Delete":
                self._remove(key)
            else:
                assert kind == "ConditionCheck", f"no write of the run table: {kind}"

    def _scan(self, *, TableName: str, ConsistentRead: bool, FilterExpression: str) -> Item:  # noqa: N803
        """The items that have an attribute, in no order."""
        match = re.fullmatch(r"attribute_exists\((\w+)\)", FilterExpression)
        assert match is not None, f"no filter of the run table: {FilterExpression}"
        return {"Items": [item for item in self._shown(consistent=ConsistentRead).values() if match[1] in item]}

    def _query(self, **query: Any) -> Item:
        """The items of a partition, or of an index's, in the order of the sort key."""
        values = [next(iter(value.values())) for value in query["ExpressionAttributeValues"].values()]
        if "IndexName" in query:
            key, sort = query["ExpressionAttributeNames"]["#key"], _SORT_KEYS[query["IndexName"]]
            shown = self._shown(consistent=False)
            found = [
                item
                for at, item in shown.items()
                if item.get(key, {}).get("S") == values[0] and at not in self._not_in_indexes
            ]
        else:
            sort = "sk"
            partition = (
                self._partitions.get(values[0], {})
                if query.get("ConsistentRead") or self._seen_by_indexes is None
                else {key[1]: item for key, item in self._seen_by_indexes.items() if key[0] == values[0]}
            )
            found = [
                item for key, item in partition.items() if _is_in_part(key, query["KeyConditionExpression"], values)
            ]
        if "FilterExpression" in query:
            assert query["FilterExpression"] == "attribute_not_exists(#text)", "no filter of the run table"
            found = [item for item in found if query["ExpressionAttributeNames"]["#text"] not in item]
        found.sort(key=lambda item: str(item[sort]["S"]), reverse=not query.get("ScanIndexForward", True))
        return {"Items": found}

    def _shown(self, *, consistent: bool) -> Mapping[Key, Item]:
        return self.items if consistent or self._seen_by_indexes is None else self._seen_by_indexes

    def _put(self, item: Item) -> None:
        partition, sort = key_of(item)
        self.items[partition, sort] = item
        kind = f"{partition.partition('#')[0]} {sort.partition('#')[0]}"
        self.largest[kind] = max(self.largest.get(kind, 0), item_bytes(item))
        self._partitions.setdefault(partition, {})[sort] = item

    def _remove(self, key: Key) -> None:
        self.items.pop(key, None)
        self._partitions.get(key[0], {}).pop(key[1], None)

    def _holds(self, key: Key, write: Item) -> bool:
        item = self.items.get(key)
        condition: str | None = write.get("ConditionExpression")
        if condition is None or not self.checks_conditions:
            return True
        names = write.get("ExpressionAttributeNames", {})
        values = write.get("ExpressionAttributeValues", {})
        return any(
            all(_term_holds(term, item, names, values) for term in alternative.split(" AND "))
            for alternative in condition.split(" OR ")
        )


def _is_in_part(key: str, condition: str, values: Sequence[str]) -> bool:
    if "sk >= " in condition:
        return key >= values[1]
    return condition == "pk = :pk" or key.startswith(values[1])


def _term_holds(term: str, item: Item | None, names: Mapping[str, str], values: Item) -> bool:
    if term == "attribute_not_exists(pk)":
        return item is None
    match = re.fullmatch(r"(\S+) = (\S+)", term)
    assert match is not None, f"no condition of the run table: {term}"
    left, right = match.groups()
    return item is not None and operator.eq(item.get(names.get(left, left)), values[right])


def key_of(item: Item) -> Key:
    """Return the partition and sort key of an item, as it is stored."""
    return item["pk"]["S"], item["sk"]["S"]


def item_bytes(item: Item) -> int:
    """Return the size of an item, as DynamoDB counts it: names and values.

    Source: https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
    """
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(value: Item) -> int:
    kind, content = next(iter(value.items()))
    match kind:
        case "S":
            return len(str(content).encode())
        case "N":
            digits = re.sub(r"e.*|\D", "", str(content).lower()).strip("0")
            return (len(digits) + 1) // 2 + 1 + str(content).startswith("-")
        case "L":
            return 3 + sum(1 + _value_bytes(each) for each in content)
        case "M":
            return 3 + sum(1 + len(name.encode()) + _value_bytes(each) for name, each in content.items())
    assert kind in ("BOOL", "NULL"), f"the run table writes no {kind}"
    return 1


def _refuse_too_large(operation: str, items: Sequence[Item]) -> None:
    sizes = [item_bytes(item) for item in items]
    if max(sizes, default=0) > LARGEST_ITEM_BYTES:
        raise client_error(operation, "ValidationException", "Item size has exceeded the maximum allowed size")
    if sum(sizes) > LARGEST_TRANSACTION_BYTES:
        raise client_error(
            operation, "ValidationException", "Collection size exceeded: a transaction takes 4 MB in all its items"
        )
