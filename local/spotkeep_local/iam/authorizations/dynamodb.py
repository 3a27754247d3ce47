"""The permissions that the operations of DynamoDB need.

A transaction needs each item's own action. The condition keys hold the values of partition keys. They also hold the
top-level attributes that any expression of a request names.

A table that a customer's key encrypts needs kms:Decrypt on the caller's behalf. DynamoDB keeps the plaintext table key
for five minutes for each principal. Here every call needs the permission, which is stricter.

Sources: "Using IAM policy conditions for fine-grained access control", "DynamoDB API permissions: Actions, resources,
and conditions reference", "IAM and DynamoDB transactions" and "DynamoDB encryption at rest: usage notes" in the
DynamoDB developer guide.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.iam.authorizations.asking import (
    Asked,
    Asking,
    AuthorizationRule,
    Rules,
    UndecidableError,
    always,
    ask,
    existing,
    making,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from spotkeep_local.iam.authorization import Authorization

_EXPRESSIONS: Final = (
    "ConditionExpression",
    "FilterExpression",
    "KeyConditionExpression",
    "ProjectionExpression",
    "UpdateExpression",
)
_WORDS: Final = frozenset(
    ("add", "and", "attribute_exists", "attribute_not_exists", "attribute_type", "begins_with", "between", "contains")
    + ("delete", "if_not_exists", "in", "list_append", "not", "or", "remove", "set", "size")
)
"""The words in expressions that are no attributes, in lower case."""
# A path's first name; what follows a dot is below it, and what follows a colon is a value.
_NAMES: Final = re.compile(r"(?<![.\w#:\-])(#?[A-Za-z_][\w\-]*|#\w+)")


def _table(call: Asking) -> str:
    return call.arn_of(call.needed("TableName"), "dynamodb", "table/")


def _value(attribute: Mapping[str, Any]) -> str:
    """Return the text of an attribute's value."""
    ((kind, value),) = attribute.items()
    if kind not in ("S", "N", "B"):
        raise UndecidableError(f"A partition key cannot be of type {kind}.")
    return str(value)


def _leading(call: Asking, items: Iterable[Mapping[str, Any]], resource: str) -> list[str]:
    """Return the values of the partition key in keys or items.

    A table that does not exist has none, and neither has an item that lacks its key. DynamoDB refuses such calls
    itself.
    """
    if (name := call.account.partition_key(resource)) is None:
        return []
    return [_value(item[name]) for item in items if name in item]


def _leading_of_query(call: Asking, resource: str) -> list[str]:
    condition = str(call.needed("KeyConditionExpression"))
    if (name := call.account.partition_key(resource)) is None:
        return []
    names, values = call.get("ExpressionAttributeNames", {}), call.get("ExpressionAttributeValues", {})
    for left, right in re.findall(r"([#\w\-]+)\s*=\s*(:\w+)", condition):
        if names.get(left, left) == name:
            return [_value(values[right])]
    raise UndecidableError(f"The condition {condition!r} names no value of the partition key {name}.")


def _attributes(given: Mapping[str, Any], *items: Mapping[str, Any]) -> list[str]:
    """Return the attributes that a request names, each once."""
    names = given.get("ExpressionAttributeNames", {})
    found = dict.fromkeys(name for item in items for name in item)
    for expression in _EXPRESSIONS:
        for name in _NAMES.findall(str(given.get(expression, ""))):
            if name.lower() not in _WORDS:
                found[names.get(name, name)] = None
    return list(found | dict.fromkeys(given.get("AttributesToGet", ())))


def _key_use(call: Asking, table: str) -> Asked:
    context = {"aws:dynamodb:tableName": table.rpartition("/")[2], "aws:dynamodb:subscriberId": call.account.account_id}
    return call.use_key(call.account.key_of(table), ("Decrypt",), via="dynamodb", encryption_context=context)


def _ask(
    call: Asking,
    action: str,
    resource: str,
    *,
    leading: Iterable[str] = (),
    attributes: Iterable[str] = (),
    **keys: object,
) -> Authorization:
    return ask(
        f"dynamodb:{action}",
        resource,
        keys={
            "dynamodb:returnconsumedcapacity": call.get("ReturnConsumedCapacity"),
            **{f"dynamodb:{name}": value for name, value in keys.items()},
        },
        sets={"dynamodb:leadingkeys": leading, "dynamodb:attributes": attributes},
        resource_tags=call.tags(resource),
    )


def _item(action: str, *, within: str, enclosing: str | None = None) -> AuthorizationRule:
    """Return the rule of an operation on one item.

    Args:
        action: Its name.
        within: The parameter that holds the key: `Key`, or `Item` with all attributes.
        enclosing: The operation around this one.
    """

    def rule(call: Asking) -> Asked:
        table, item = _table(call), call.needed(within)
        further: dict[str, object] = {} if enclosing is None else {"enclosingoperation": enclosing}
        if action == "GetItem" and enclosing is None:
            further["select"] = _selected(call, "ALL_ATTRIBUTES")
        if action not in ("GetItem", "ConditionCheckItem"):
            further["returnvalues"] = call.get("ReturnValues")
        yield _ask(
            call,
            action,
            table,
            leading=_leading(call, [item], table),
            attributes=_attributes(call.parameters, item),
            **further,
        )
        yield from _key_use(call, table)

    return rule


def _transact(operation: str, parts: Mapping[str, AuthorizationRule]) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        keys_asked: list[Authorization] = []
        for entry in call.needed("TransactItems"):
            ((kind, item),) = entry.items()
            if kind not in parts:
                raise UndecidableError(f"{operation} has no {kind}.")
            for each in parts[kind](Asking(item, call.account)):
                # The same key is asked for once.
                if each.action.startswith("kms:"):
                    if each in keys_asked:
                        continue
                    keys_asked.append(each)
                yield each

    return rule


def _batch(action: str) -> AuthorizationRule:
    def rule(call: Asking) -> Asked:
        for name, entry in call.needed("RequestItems").items():
            table = call.arn_of(name, "dynamodb", "table/")
            if action == "BatchGetItem":
                items, attributes = list(entry["Keys"]), _attributes(entry, *entry["Keys"])
            else:
                items = [request[kind][within] for request in entry for kind, within in _WRITES if kind in request]
                attributes = _attributes({}, *items)
            yield _ask(
                call,
                action,
                table,
                leading=dict.fromkeys(_leading(call, items, table)),
                attributes=attributes,
            )
            yield from _key_use(call, table)

    return rule


_WRITES: Final = (("PutRequest", "Item"), ("DeleteRequest", "Key"))


def _several(action: str) -> AuthorizationRule:
    """Return the rule of Query or Scan."""

    def rule(call: Asking) -> Asked:
        table, index = _table(call), call.get("IndexName")
        resource = table if index is None else f"{table}/index/{index}"
        everything = "ALL_ATTRIBUTES" if index is None else "ALL_PROJECTED_ATTRIBUTES"
        yield _ask(
            call,
            action,
            resource,
            leading=_leading_of_query(call, resource) if action == "Query" else (),
            attributes=_attributes(call.parameters),
            select=call.get("Select", _selected(call, everything)),
        )
        yield from _key_use(call, table)

    return rule


def _selected(call: Asking, everything: str) -> str:
    chosen = any(name in call.parameters for name in ("ProjectionExpression", "AttributesToGet"))
    return "SPECIFIC_ATTRIBUTES" if chosen else everything


_RULES: Final[Rules] = {
    "BatchGetItem": _batch("BatchGetItem"),
    "BatchWriteItem": _batch("BatchWriteItem"),
    "CreateTable": making("dynamodb:CreateTable", _table, tagging="dynamodb:TagResource"),
    "DeleteItem": _item("DeleteItem", within="Key"),
    "GetItem": _item("GetItem", within="Key"),
    "ListTables": always("dynamodb:ListTables"),
    "PutItem": _item("PutItem", within="Item"),
    "Query": _several("Query"),
    "Scan": _several("Scan"),
    "TransactGetItems": _transact(
        "TransactGetItems", {"Get": _item("GetItem", within="Key", enclosing="TransactGetItems")}
    ),
    "TransactWriteItems": _transact(
        "TransactWriteItems",
        {
            "ConditionCheck": _item("ConditionCheckItem", within="Key"),
            "Delete": _item("DeleteItem", within="Key", enclosing="TransactWriteItems"),
            "Put": _item("PutItem", within="Item", enclosing="TransactWriteItems"),
            "Update": _item("UpdateItem", within="Key", enclosing="TransactWriteItems"),
        },
    ),
    "UpdateItem": _item("UpdateItem", within="Key"),
    **{
        name: existing(f"dynamodb:{name}", _table)
        for name in ("DeleteTable", "DescribeContinuousBackups", "DescribeTable", "DescribeTimeToLive")
    },
}
OPERATIONS: Final = {"dynamodb": _RULES}
