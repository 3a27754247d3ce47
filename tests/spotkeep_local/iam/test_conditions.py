"""IAM JSON policy elements: Condition operators, and what they mean for keys with one value, with many, with none."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.iam.conditions import OPERATORS, RequestContext, UndefinedConditionError, read_condition

KEY = "s3:Prefix"
ARN = "arn:aws:iam::111122223333:role/a"
POSITIVE_OF = {
    "StringNotEquals": "StringEquals",
    "StringNotEqualsIgnoreCase": "StringEqualsIgnoreCase",
    "StringNotLike": "StringLike",
    "ArnNotEquals": "ArnEquals",
    "ArnNotLike": "ArnLike",
    "NumericNotEquals": "NumericEquals",
    "DateNotEquals": "DateEquals",
    "NotIpAddress": "IpAddress",
}
VALUES = {
    "String": ("a", "A", "a*", "b?", ""),
    "Arn": (ARN, ARN.upper(), "arn:aws:iam::*:role/*", "arn:*:*:*:*:*"),
    "Numeric": ("1", "1.0", "-2", "10"),
    "Date": ("2026-11-23", "2026-11-23T00:00:00Z", "1795392000", "2027"),
    "Bool": ("true", "false", "True"),
    "Binary": ("YQ==", "Yg=="),
    "IpAddress": ("10.0.0.0/8", "10.1.2.3", "::1", "192.0.2.1"),
    "NotIpAddress": ("10.0.0.0/8", "10.1.2.3", "::1", "192.0.2.1"),
}
"""Values that a policy may have, by how the operator's name begins."""


def values_of(operator: str) -> tuple[str, ...]:
    return next(values for begin, values in VALUES.items() if operator.startswith(begin))


def holds(operator: str, wanted: str | list[str], found: str | list[str] | None, **keys: str) -> bool:
    values = tuple([wanted] if isinstance(wanted, str) else wanted)
    context = {key.replace("_", ":"): (value,) for key, value in keys.items()}
    if found is not None:
        context[KEY.lower()] = (found,) if isinstance(found, str) else tuple(found)
    return read_condition(operator, KEY, values, variables=True).holds(RequestContext(values=context))


@pytest.mark.parametrize(
    ("operator", "wanted", "found", "expected"),
    [
        # String condition operators
        ("StringEquals", "a", "a", True),
        ("StringEquals", "a", "A", False),
        ("StringEquals", "a*", "ab", False),
        ("StringEquals", "a${*}", "a*", True),
        ("StringEqualsIgnoreCase", "a", "A", True),
        ("StringLike", "a*", "ab/c", True),
        ("StringLike", "a?", "ab", True),
        ("StringLike", "a?", "a", False),
        ("StringLike", "a*", "Ab", False),
        # Numeric condition operators
        ("NumericEquals", "600", "600.0", True),
        ("NumericLessThan", "10", "9", True),
        ("NumericLessThan", "10", "10", False),
        ("NumericLessThanEquals", "10", "10", True),
        ("NumericGreaterThan", "9", "10", True),
        ("NumericGreaterThanEquals", "11", "10", False),
        ("NumericLessThan", "10", "none", False),
        # Date condition operators
        ("DateEquals", "2026-11-23T10:00:00Z", "2026-11-23T11:00:00+01:00", True),
        ("DateEquals", "1795428000", "2026-11-23T10:00:00Z", True),
        ("DateEquals", "2026", "2026-01-01T00:00:00Z", True),
        ("DateEquals", "2026-11", "2026-11-01", True),
        ("DateGreaterThan", "2026-11-23", "2026-11-23T00:00:01Z", True),
        ("DateGreaterThan", "2026-11-23", "2026-11-22T23:59:59.999Z", False),
        # Boolean condition operators
        ("Bool", "true", "true", True),
        ("Bool", "false", "true", False),
        ("Bool", "True", "true", True),
        ("Bool", "false", "neither", False),
        # Binary condition operators
        ("BinaryEquals", "QmluYXJ5", "no base64", False),
        # IP address condition operators
        ("IpAddress", "203.0.113.0/24", "203.0.113.7", True),
        ("IpAddress", "203.0.113.0/24", "203.0.114.7", False),
        ("IpAddress", "203.0.113.7", "203.0.113.7", True),
        ("IpAddress", "2001:db8::/32", "2001:db8:1::1", True),
        ("IpAddress", "0.0.0.0/0", "2001:db8::1", False),
        ("IpAddress", "10.0.0.0/8", "no address", False),
        # ARN condition operators
        ("ArnEquals", "arn:aws:iam::*:role/a", ARN, True),
        ("ArnLike", "arn:aws:iam::111122223333:role/?", ARN, True),
        ("ArnLike", "arn:aws:iam::111122223333:*", ARN, True),
        ("ArnLike", "arn:aws:*:role/a:x:y", ARN, False),
        ("ArnLike", "arn:aws:iam::111122223333:role/A", ARN, False),
        ("ArnLike", "*", ARN, False),
        # Condition operator to check existence of condition keys
        ("Null", "true", None, True),
        ("Null", "false", None, False),
        ("Null", "true", "a", False),
        ("Null", "false", "a", True),
    ],
)
def test_operators(operator: str, wanted: str, found: str | None, expected: bool) -> None:
    assert holds(operator, wanted, found) is expected


def test_every_operator_of_aws_is_known() -> None:
    families = {
        "String": ("Equals", "NotEquals", "EqualsIgnoreCase", "NotEqualsIgnoreCase", "Like", "NotLike"),
        "Numeric": ("Equals", "NotEquals", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals"),
        "Date": ("Equals", "NotEquals", "LessThan", "LessThanEquals", "GreaterThan", "GreaterThanEquals"),
        "Arn": ("Equals", "Like", "NotEquals", "NotLike"),
    }
    named = {family + name for family, names in families.items() for name in names}
    assert set(OPERATORS) == named | {"Bool", "BinaryEquals", "IpAddress", "NotIpAddress", "Null"}


def test_several_values_are_alternatives() -> None:
    assert holds("StringEquals", ["a", "b"], "b")
    assert not holds("StringEquals", ["a", "b"], "c")


def test_several_values_of_a_negated_operator_must_all_be_missed() -> None:
    assert not holds("StringNotEquals", ["a", "b"], "b")
    assert holds("StringNotEquals", ["a", "b"], "c")


@given(operator=st.sampled_from(sorted(POSITIVE_OF)), data=st.data())
def test_a_negated_operator_is_the_opposite_where_the_key_is_present(operator: str, data: st.DataObject) -> None:
    texts = values_of(operator)
    wanted = data.draw(st.lists(st.sampled_from(texts), min_size=1, max_size=3))
    found = data.draw(st.sampled_from([*texts, "neither"]))
    assert holds(operator, wanted, found) is not holds(POSITIVE_OF[operator], wanted, found)


@pytest.mark.parametrize("operator", sorted(set(OPERATORS) - {"Null"}))
def test_a_missing_key_is_no_match(operator: str) -> None:
    wanted = values_of(operator)[0]
    assert holds(operator, wanted, None) is (operator in POSITIVE_OF)


@pytest.mark.parametrize("operator", sorted(set(OPERATORS) - {"Null"}))
def test_if_exists_holds_without_the_key_and_changes_nothing_with_it(operator: str) -> None:
    wanted, *others = values_of(operator)
    assert holds(f"{operator}IfExists", wanted, None)
    for found in (wanted, *others, "neither"):
        assert holds(f"{operator}IfExists", wanted, found) is holds(operator, wanted, found)


class TestSetOperatorsForMultivaluedContextKeys:
    def test_for_all_values_asks_every_value_of_the_request(self) -> None:
        assert holds("ForAllValues:StringEquals", ["a", "b", "c"], ["a", "b"])
        assert not holds("ForAllValues:StringEquals", ["a", "b"], ["a", "x"])

    def test_for_all_values_holds_without_the_key_and_for_the_empty_string(self) -> None:
        assert holds("ForAllValues:StringEquals", "a", None)
        assert holds("ForAllValues:StringEquals", "a", [])
        assert holds("ForAllValues:StringEquals", "a", "")
        assert not holds("ForAllValues:StringEquals", "a", ["", "x"])

    def test_for_any_value_asks_one_value_of_the_request(self) -> None:
        assert holds("ForAnyValue:StringEquals", ["a", "b"], ["x", "b"])
        assert not holds("ForAnyValue:StringEquals", ["a", "b"], ["x", "y"])

    def test_for_any_value_fails_without_the_key_negated_or_not(self) -> None:
        assert not holds("ForAnyValue:StringEquals", "a", None)
        assert not holds("ForAnyValue:StringNotEquals", "a", None)
        assert holds("ForAnyValue:StringEqualsIfExists", "a", None)

    def test_negated_ones(self) -> None:
        assert holds("ForAllValues:StringNotEquals", ["a", "b"], ["x", "y"])
        assert not holds("ForAllValues:StringNotEquals", ["a", "b"], ["x", "b"])
        assert holds("ForAnyValue:StringNotEquals", ["a", "b"], ["x", "b"])
        assert not holds("ForAnyValue:StringNotEquals", ["a", "b"], ["a", "b"])

    @given(st.lists(st.sampled_from("abc"), min_size=1), st.lists(st.sampled_from("abc"), min_size=1))
    def test_any_is_not_all_that_are_not(self, wanted: list[str], found: list[str]) -> None:
        any_matches = holds("ForAnyValue:StringEquals", wanted, found)
        assert any_matches is not holds("ForAllValues:StringNotEquals", wanted, found)

    def test_one_value_works_with_both(self) -> None:
        assert holds("ForAllValues:StringEquals", "a", "a")
        assert holds("ForAnyValue:StringEquals", "a", "a")

    def test_a_set_without_either_is_undefined(self) -> None:
        with pytest.raises(UndefinedConditionError, match="s3:Prefix, which holds a set"):
            holds("StringEquals", "a", ["a", "b"])
        condition = read_condition("StringEquals", KEY, ("a",), variables=True)
        with pytest.raises(UndefinedConditionError):
            condition.holds(RequestContext(values={"s3:prefix": ("a",)}, multivalued=frozenset({"s3:prefix"})))

    def test_a_set_of_nothing_is_null(self) -> None:
        assert holds("Null", "true", [])


def test_names_of_keys_are_not_case_sensitive() -> None:
    condition = read_condition("StringEquals", "AWS:requestTAG/Team", ("a",), variables=True)
    assert condition.holds(RequestContext(values={"aws:requesttag/team": ("a",)}))


def test_policy_variables_stand_in_texts_and_arns() -> None:
    assert holds("StringEquals", "${aws:username}", "ann", aws_username="ann")
    assert holds("StringLike", "${aws:username}/*", "ann/x", aws_username="ann")
    assert not holds("StringLike", "${aws:username}/*", "bob/x", aws_username="*")
    assert holds("ArnLike", "arn:aws:iam::*:role/${aws:username}", ARN, aws_username="a")


def test_a_variable_without_a_value_matches_nothing_so_its_negation_holds() -> None:
    assert not holds("StringEquals", "${aws:username}", "ann")
    assert holds("StringNotEquals", "${aws:username}", "ann")


@given(st.binary(max_size=8), st.binary(max_size=8))
def test_binary_values_are_compared_byte_by_byte(wanted: bytes, found: bytes) -> None:
    # An empty text is a key without a value.
    texts = [base64.b64encode(each).decode() or "YQ==" for each in (wanted, found)]
    assert holds("BinaryEquals", texts[0], texts[1]) is (texts[0] == texts[1])


@pytest.mark.parametrize(
    ("operator", "value"),
    [
        ("StringEqual", "a"),
        ("stringequals", "a"),
        ("ForSomeValues:StringEquals", "a"),
        (":StringEquals", "a"),
        ("NullIfExists", "true"),
        ("ForAllValues:Null", "true"),
        ("StringEqualsIfExistsIfExists", "a"),
        ("NumericEquals", "a"),
        ("NumericEquals", "NaN"),
        ("NumericEquals", "${aws:username}"),
        ("DateEquals", "tomorrow"),
        ("DateEquals", "12:00"),
        ("Bool", "yes"),
        ("Null", "maybe"),
        ("BinaryEquals", "?"),
        ("IpAddress", "10.0.0.0/33"),
        ("StringEquals", "${username}"),
    ],
)
def test_what_is_not_known_is_an_error_that_names_it(operator: str, value: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        read_condition(operator, KEY, (value,), variables=True)
    assert operator in str(caught.value) or value in str(caught.value)


def test_every_value_that_is_none_of_its_kind_is_named() -> None:
    with pytest.raises(ValueError, match=r"`x` is not a number; .*`y` is not a number"):
        read_condition("NumericEquals", KEY, ("x", "1", "y"), variables=True)
