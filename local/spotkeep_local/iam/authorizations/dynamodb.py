"""What the operations of DynamoDB ask for.

A transaction asks for each item's own action. Keys name the values of partition keys, and the attributes of the top
level that a request names in any of its expressions.

A table behind a customer's key asks for kms:Decrypt on the caller's behalf. DynamoDB keeps the plaintext table key for
five minutes for each principal; here it is asked for with every call, which is stricter.

Sources: "Using IAM policy conditions for fine-grained access control", "DynamoDB API permissions: Actions, resources,
and conditions reference", "IAM and DynamoDB transactions" and "DynamoDB encryption at rest: usage notes" in the
DynamoDB developer guide.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.iam.authorizations.asking import (
    AccountView,
    Asked,
    AuthorizationRule,
    Parameters,
    Rules,
    UndecidableError,
    always,
    arn_of,
    ask,
    existing,
    making,
    needed,
    use_key,
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
"""What stands in expressions and is no attribute, in lower case."""
# A path's first name; what follows a dot is below it, and what follows a colon is a value.
_NAMES: Final = re.compile(r"(?<![.\w#:\-])(#?[A-Za-z_][\w\-]*|#\w+)")


def _table(parameters: Parameters, account: AccountView) -> str:
    return arn_of(needed(parameters, "TableName"), "dynamodb", "table/", account)


def _value(attribute: Mapping[str, Any]) -> str:
    """Return the text of an attribute's value."""
    ((kind, value),) = attribute.items()
    if kind not in ("S", "N", "B"):
        raise UndecidableError(f"A partition key cannot be of type {kind}.")
    return str(value)


def _leading(items: Iterable[Mapping[str, Any]], resource: str, account: AccountView) -> list[str]:
    """Return the values of the partition key in keys or items.

    None of a table that is not there, and of an item that lacks its key: DynamoDB refuses such calls itself.
    """
    if (name := account.partition_key(resource)) is None:
        return []
    return [_value(item[name]) for item in items if name in item]


def _leading_of_query(parameters: Parameters, resource: str, account: AccountView) -> list[str]:
    condition = str(needed(parameters, "KeyConditionExpression"))
    if (name := account.partition_key(resource)) is None:
        return []
    names, values = parameters.get("ExpressionAttributeNames", {}), parameters.get("ExpressionAttributeValues", {})
    for left, right in re.findall(r"([#\w\-]+)\s*=\s*(:\w+)", condition):
        if names.get(left, left) == name:
            return [_value(values[right])]
    raise UndecidableError(f"The condition {condition!r} names no value of the partition key {name}.")


def _attributes(parameters: Parameters, *items: Mapping[str, Any]) -> list[str]:
    """Return the attributes that a request names, each once."""
    names = parameters.get("ExpressionAttributeNames", {})
    found = dict.fromkeys(name for item in items for name in item)
    for expression in _EXPRESSIONS:
        for name in _NAMES.findall(str(parameters.get(expression, ""))):
            if name.lower() not in _WORDS:
                found[names.get(name, name)] = None
    return list(found | dict.fromkeys(parameters.get("AttributesToGet", ())))


def _key_use(table: str, account: AccountView) -> tuple[Authorization, ...]:
    context = {"aws:dynamodb:tableName": table.rpartition("/")[2], "aws:dynamodb:subscriberId": account.account_id}
    return use_key(account.key_of(table), ("Decrypt",), via="dynamodb", account=account, encryption_context=context)


def _ask(
    action: str,
    resource: str,
    parameters: Parameters,
    account: AccountView,
    *,
    leading: Iterable[str] = (),
    attributes: Iterable[str] = (),
    **keys: object,
) -> Authorization:
    return ask(
        f"dynamodb:{action}",
        resource,
        keys={
            "dynamodb:returnconsumedcapacity": parameters.get("ReturnConsumedCapacity"),
            **{f"dynamodb:{name}": value for name, value in keys.items()},
        },
        sets={"dynamodb:leadingkeys": leading, "dynamodb:attributes": attributes},
        resource_tags=account.tags(resource),
    )


def _item(action: str, *, within: str, enclosing: str | None = None) -> AuthorizationRule:
    """Return the rule of an operation on one item.

    Args:
        action: Its name.
        within: The parameter that holds the key: `Key`, or `Item` with all attributes.
        enclosing: The operation that this one is a part of.
    """

    def rule(parameters: Parameters, account: AccountView) -> Asked:
        table, item = _table(parameters, account), needed(parameters, within)
        further: dict[str, object] = {} if enclosing is None else {"enclosingoperation": enclosing}
        if action == "GetItem" and enclosing is None:
            further["select"] = _selected(parameters, "ALL_ATTRIBUTES")
        if action not in ("GetItem", "ConditionCheckItem"):
            further["returnvalues"] = parameters.get("ReturnValues")
        yield _ask(
            action,
            table,
            parameters,
            account,
            leading=_leading([item], table, account),
            attributes=_attributes(parameters, item),
            **further,
        )
        yield from _key_use(table, account)

    return rule


def _transact(operation: str, parts: Mapping[str, AuthorizationRule]) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Asked:
        keys_asked: list[Authorization] = []
        for entry in needed(parameters, "TransactItems"):
            ((kind, item),) = entry.items()
            if kind not in parts:
                raise UndecidableError(f"{operation} has no {kind}.")
            for each in parts[kind](item, account):
                # The same key is asked for once.
                if each.action.startswith("kms:"):
                    if each in keys_asked:
                        continue
                    keys_asked.append(each)
                yield each

    return rule


def _batch(action: str) -> AuthorizationRule:
    def rule(parameters: Parameters, account: AccountView) -> Asked:
        for name, entry in needed(parameters, "RequestItems").items():
            table = _table({"TableName": name}, account)
            if action == "BatchGetItem":
                items, attributes = list(entry["Keys"]), _attributes(entry, *entry["Keys"])
            else:
                items = [request[kind][within] for request in entry for kind, within in _WRITES if kind in request]
                attributes = _attributes({}, *items)
            yield _ask(
                action,
                table,
                parameters,
                account,
                leading=dict.fromkeys(_leading(items, table, account)),
                attributes=attributes,
            )
            yield from _key_use(table, account)

    return rule


_WRITES: Final = (("PutRequest", "Item"), ("DeleteRequest", "Key"))


def _several(action: str) -> AuthorizationRule:
    """Return the rule of Query or Scan."""

    def rule(parameters: Parameters, account: AccountView) -> Asked:
        table, index = _table(parameters, account), parameters.get("IndexName")
        resource = table if index is None else f"{table}/index/{index}"
        everything = "ALL_ATTRIBUTES" if index is None else "ALL_PROJECTED_ATTRIBUTES"
        yield _ask(
            action,
            resource,
            parameters,
            account,
            leading=_leading_of_query(parameters, resource, account) if action == "Query" else (),
            attributes=_attributes(parameters),
            select=parameters.get("Select", _selected(parameters, everything)),
        )
        yield from _key_use(table, account)

    return rule


def _selected(parameters: Parameters, everything: str) -> str:
    chosen = any(name in parameters for name in ("ProjectionExpression", "AttributesToGet"))
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
