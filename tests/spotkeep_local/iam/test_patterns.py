"""IAM policy elements: Variables and tags; wildcards in resources, and in ARNs of conditions."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.iam.patterns import read_pattern

LETTERS = st.text(alphabet="ab*?:/", max_size=12)


def like(text: str, value: str, **tags: str) -> bool:
    values = {f"aws:principaltag/{key}": (tag,) for key, tag in tags.items()}
    return read_pattern(text, wildcards=True, variables=True).matches(value, values)


@given(LETTERS, LETTERS)
def test_a_star_is_any_text_and_a_question_mark_any_character(text: str, value: str) -> None:
    expression = re.escape(text).replace(r"\*", ".*").replace(r"\?", ".")
    assert like(text, value) is (re.fullmatch(expression, value, re.DOTALL) is not None)


@given(st.text(alphabet="ab*?$", max_size=8), st.text(alphabet="ab*?$", max_size=8))
def test_what_a_variable_is_filled_with_stands_for_itself_alone(tag: str, value: str) -> None:
    assert like("${aws:PrincipalTag/run}", value, run=tag) is (tag == value)


def test_a_variable_is_filled_in_where_it_stands() -> None:
    assert like("arn:aws:s3:::bucket/runs/${aws:PrincipalTag/run}/*", "arn:aws:s3:::bucket/runs/a/x", run="a")
    assert not like("arn:aws:s3:::bucket/runs/${aws:PrincipalTag/run}/*", "arn:aws:s3:::bucket/runs/b/x", run="a")


def test_names_of_variables_are_not_case_sensitive() -> None:
    assert like("${AWS:principaltag/RUN}", "a", run="a")


def test_a_variable_without_a_value_matches_nothing() -> None:
    assert not like("${aws:PrincipalTag/run}*", "")
    assert not like("*${aws:PrincipalTag/run}", "a")


def test_a_variable_of_a_key_that_holds_a_set_matches_nothing() -> None:
    pattern = read_pattern("${aws:TagKeys}", wildcards=True, variables=True)
    assert not pattern.matches("a", {"aws:tagkeys": ("a", "b")})


def test_a_default_stands_in_for_a_key_that_is_missing() -> None:
    assert like("${aws:PrincipalTag/team, 'company wide'}", "company wide")
    assert like("${aws:PrincipalTag/run, '*'}", "*")
    assert not like("${aws:PrincipalTag/run, '*'}", "a")
    assert not like("${aws:PrincipalTag/run, 'other'}", "other", run="a")


def test_special_characters_that_are_no_wildcards() -> None:
    assert like("a${*}b${?}c${$}", "a*b?c$")
    assert not like("a${*}b", "axb")
    assert not like("a${?}b", "axb")


@pytest.mark.parametrize("text", ["${}", "${username}", "${aws:username, none}", "a${aws:username", "${aws:}"])
def test_a_variable_that_names_no_condition_key_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"\$"):
        read_pattern(text, wildcards=True, variables=True)


def arn_like(text: str, value: str) -> bool:
    return read_pattern(text, wildcards=True, variables=True).matches_arn(value, {})


def test_each_of_the_six_sections_of_an_arn_is_matched_for_itself() -> None:
    arn = "arn:aws:sns:us-west-1:111122223333:topic:subscription"
    assert arn_like("arn:*:sns:*:111122223333:*", arn)
    assert arn_like("arn:aws:s?s:us-*-1:*:topic*", arn)
    assert not arn_like("arn:aws:sns:*:topic:subscription", arn)
    assert not arn_like("arn:aws:*:topic:subscription", arn)
    assert not arn_like("arn:*", arn)
    assert not arn_like("*", arn)


@given(st.lists(st.text(alphabet="ab*?", max_size=3), min_size=4, max_size=8))
def test_no_wildcard_reaches_over_one_of_the_five_colons(sections: list[str]) -> None:
    text, value = ":".join(sections), "a:a:a:a:a:ab:a"
    expected = len(sections) >= 6 and all(
        read_pattern(section, wildcards=True, variables=True).matches(part, {})
        for section, part in zip(text.split(":", 5), value.split(":", 5), strict=True)
    )
    assert arn_like(text, value) is expected
