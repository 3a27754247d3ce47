"""The conditions of statements, with the meaning of every operator of AWS for keys with one value, many or none.

A condition names an operator, a key and values. It holds when the key's value in the request matches one of them. A
condition with a negated operator (`StringNotEquals`) holds when the value matches none. All conditions of a statement
must hold.

| in the request | holds |
|---|---|
| the key is missing | negated operators, `...IfExists`, `ForAllValues:`, `Null: true` |
| the key holds a set, `ForAllValues:` | when each of its values does. So with none |
| the key holds a set, `ForAnyValue:` | when one of its values does. So never with none |
| the key holds a set, neither | AWS says nothing: `UndefinedConditionError` |

Sources: "IAM JSON policy elements: Condition operators", "Set operators for multivalued context keys", "Condition with
multiple context keys or values" in the IAM user guide.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from enum import StrEnum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final

from spotkeep_local.iam.patterns import Pattern, read_pattern

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from spotkeep_local.iam.patterns import Values


class UndefinedConditionError(Exception):
    """AWS's documentation does not define a condition's meaning for a request."""


class Quantifier(StrEnum):
    """The way in which an operator takes the values of a key that holds a set."""

    ONE_VALUE = ""
    ALL_VALUES = "ForAllValues"
    ANY_VALUE = "ForAnyValue"


@dataclass(frozen=True, kw_only=True)
class RequestContext:
    """The condition keys of one request.

    Attributes:
        values: By the keys' names in lower case, tag keys too.
        multivalued: The keys, in lower case, that hold a set.
    """

    values: Values
    multivalued: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Operator:
    """One operator, without its prefix and suffix.

    Attributes:
        matches: Tells if a value of the request matches the value that was read.
        read: Reads a value of the policy. Raises `ValueError`. None for texts, which take policy variables.
        wildcards: True where `*` and `?` stand for other characters in such texts.
        negated: True where a match makes the condition fail.
    """

    matches: Callable[[str, Any, Values], bool]
    read: Callable[[str], Any] | None = None
    wildcards: bool = False
    negated: bool = False


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One operator with one key.

    Attributes:
        name: The operator as it is written, for example `ForAnyValue:StringLikeIfExists`.
        key: The key as it is written.
        values: The values as they are written.
    """

    name: str
    key: str
    values: tuple[str, ...]
    operator: Operator
    quantifier: Quantifier
    if_exists: bool
    wanted: tuple[Any, ...]

    def holds(self, context: RequestContext) -> bool:
        """Decide about a request.

        Raises:
            UndefinedConditionError: The key holds a set, and the operator is for one value.
        """
        key = self.key.lower()
        found = context.values.get(key, ())
        if self.operator is _NULL:
            return self._is_null(found)
        if not found:
            if self.quantifier is Quantifier.ANY_VALUE:
                return self.if_exists
            return self.if_exists or self.operator.negated or self.quantifier is Quantifier.ALL_VALUES
        if self.quantifier is Quantifier.ALL_VALUES:
            # AWS: a data set of nothing, "such as an empty string", has no value that could fail.
            return not any(found) or all(self._one(value, context.values) for value in found)
        if self.quantifier is Quantifier.ANY_VALUE:
            return any(self._one(value, context.values) for value in found)
        if key in context.multivalued or len(found) > 1:
            raise UndefinedConditionError(
                f"{self.name} on {self.key}, which holds a set: AWS says nothing about operators without "
                "ForAllValues or ForAnyValue there"
            )
        return self._one(found[0], context.values)

    def _one(self, value: str, values: Values) -> bool:
        matched = any(self.operator.matches(value, wanted, values) for wanted in self.wanted)
        return matched is not self.operator.negated

    def _is_null(self, found: tuple[str, ...]) -> bool:
        return any(wanted is (not found) for wanted in self.wanted)


def read_condition(name: str, key: str, values: tuple[str, ...], *, variables: bool) -> Condition:
    """Read an operator with one key and its values.

    Args:
        name: For example `ForAnyValue:StringLikeIfExists`.
        key: A condition key.
        values: Its values, as text.
        variables: True where the policy's version knows policy variables.

    Raises:
        ValueError: The operator is not known, or a value is none of its kind. The message names all such values.
    """
    prefix, colon, rest = name.rpartition(":")
    plain = rest.removesuffix("IfExists")
    operator = OPERATORS.get(plain)
    known = prefix in (Quantifier.ALL_VALUES, Quantifier.ANY_VALUE) if colon else True
    if operator is None or not known or (operator is _NULL and name != "Null"):
        raise ValueError(f"the condition operator `{name}` is not known")
    wanted, problems = [], []
    for value in values:
        try:
            if operator.read is None:
                wanted.append(read_pattern(value, wildcards=operator.wildcards, variables=variables))
            else:
                # A policy variable is none of these either: AWS takes them with texts and ARNs only.
                wanted.append(operator.read(value))
        except ValueError as error:
            problems.append(f"{name} on {key}: {error}")
    if problems:
        raise ValueError("; ".join(problems))
    return Condition(
        name=name,
        key=key,
        values=values,
        operator=operator,
        quantifier=Quantifier(prefix),
        if_exists=rest != plain,
        wanted=tuple(wanted),
    )


def _same_text(value: str, wanted: Pattern, values: Values) -> bool:
    return wanted.filled(values) == value


def _same_letters(value: str, wanted: Pattern, values: Values) -> bool:
    filled = wanted.filled(values)
    return filled is not None and filled.casefold() == value.casefold()


def _like(value: str, wanted: Pattern, values: Values) -> bool:
    return wanted.matches(value, values)


def _arn_like(value: str, wanted: Pattern, values: Values) -> bool:
    return wanted.matches_arn(value, values)


def _read_number(text: str) -> Decimal:
    try:
        number = Decimal(text.strip())
    except InvalidOperation:
        raise ValueError(f"`{text}` is not a number") from None
    if not number.is_finite():
        raise ValueError(f"`{text}` is not a number")
    return number


def _read_date(text: str) -> Decimal:
    """Read ISO 8601 as the W3C profiles it (from a year to fractions of a second), or seconds since 1970."""
    written = text.strip()
    if "-" not in written[1:] and len(written) != len("2026"):
        try:
            return _read_number(written)
        except ValueError:
            raise ValueError(f"`{text}` is not a date") from None
    try:
        moment = datetime.fromisoformat(written + {4: "-01-01", 7: "-01"}.get(len(written), ""))
    except ValueError:
        raise ValueError(f"`{text}` is not a date") from None
    return Decimal(str((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()))


def _compared(
    read: Callable[[str], Decimal], compare: Callable[[Decimal, Decimal], bool]
) -> Callable[[str, Decimal, Values], bool]:
    def matches(value: str, wanted: Decimal, _: Values) -> bool:
        try:
            return compare(read(value), wanted)
        except ValueError:
            return False

    return matches


def _read_bool(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"`{text}` is neither true nor false")
    return text.lower() == "true"


def _same_bool(value: str, wanted: Any, _: Values) -> bool:
    return value.lower() == ("true" if wanted else "false")


def _read_binary(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"`{text}` is not base64") from None


def _same_bytes(value: str, wanted: bytes, _: Values) -> bool:
    try:
        return _read_binary(value) == wanted
    except ValueError:
        return False


def _read_network(text: str) -> IPv4Network | IPv6Network:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"`{text}` is no IP address and no range of them") from None


def _in_network(value: str, wanted: IPv4Network | IPv6Network, _: Values) -> bool:
    try:
        return ip_address(value) in wanted
    except ValueError:
        return False


def _operators() -> Mapping[str, Operator]:
    positive = {
        "StringEquals": Operator(matches=_same_text),
        "StringEqualsIgnoreCase": Operator(matches=_same_letters),
        "StringLike": Operator(matches=_like, wildcards=True),
        "ArnEquals": Operator(matches=_arn_like, wildcards=True),
        "ArnLike": Operator(matches=_arn_like, wildcards=True),
        "Bool": Operator(matches=_same_bool, read=_read_bool),
        "BinaryEquals": Operator(matches=_same_bytes, read=_read_binary),
        "IpAddress": Operator(matches=_in_network, read=_read_network),
    }
    comparisons: dict[str, Callable[[Decimal, Decimal], bool]] = {
        "Equals": Decimal.__eq__,
        "LessThan": Decimal.__lt__,
        "LessThanEquals": Decimal.__le__,
        "GreaterThan": Decimal.__gt__,
        "GreaterThanEquals": Decimal.__ge__,
    }
    for family, read in (("Numeric", _read_number), ("Date", _read_date)):
        for name, compare in comparisons.items():
            positive[family + name] = Operator(matches=_compared(read, compare), read=read)
    negations = {
        "StringNotEquals": "StringEquals",
        "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
        "StringNotLike": "StringLike",
        "ArnNotEquals": "ArnEquals",
        "ArnNotLike": "ArnLike",
        "NumericNotEquals": "NumericEquals",
        "DateNotEquals": "DateEquals",
        "NotIpAddress": "IpAddress",
    }
    negated = {name: replace(positive[other], negated=True) for name, other in negations.items()}
    return {**positive, **negated, "Null": _NULL}


_NULL: Final = Operator(matches=_same_bool, read=_read_bool)
OPERATORS: Final = _operators()
"""Every operator of AWS, by its name without prefix and suffix."""
