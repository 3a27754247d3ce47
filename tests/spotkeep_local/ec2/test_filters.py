"""Filters and pages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.filters import matches, page


def passes(*filters: tuple[str, list[str]]) -> bool:
    values = {"state": ["running"], "group": ["a", "b"], "name": ["x[1]"]}
    asked = [{"Name": name, "Values": wanted} for name, wanted in filters]
    return matches(values, {"run": "digits-7", "empty": ""}, asked)


def test_every_filter_must_pass_and_any_value_of_one() -> None:
    assert passes()
    assert passes(("state", ["stopped", "running"]), ("group", ["b"]))
    assert not passes(("state", ["running"]), ("group", ["c"]))


def test_wildcards_are_a_star_and_a_question_mark_and_nothing_else() -> None:
    assert passes(("tag:run", ["digits-?"]), ("state", ["r*g"]))
    assert passes(("name", ["x[1]"]))
    assert not passes(("name", ["x[12]"]))
    assert not passes(("tag:run", ["DIGITS-7"]))


def test_tags_by_key_and_by_value() -> None:
    assert passes(("tag-key", ["run"]), ("tag:empty", [""]))
    assert not passes(("tag-key", ["other"]))
    assert not passes(("tag:other", ["*"]))


def test_an_unknown_filter() -> None:
    with pytest.raises(Ec2Error, match="'colour' is invalid"):
        passes(("colour", ["red"]))


@given(st.sets(st.text("abc", min_size=1, max_size=4), max_size=20), st.integers(1, 6))
def test_pages_hold_everything_once(resources: set[str], size: int) -> None:
    found: list[str] = []
    request: dict[str, Any] = {"MaxResults": size}
    while True:
        chosen, token = page(sorted(resources), request, key=str)
        assert len(chosen) <= size
        found += chosen
        if token is None:
            break
        request = {"MaxResults": size, "NextToken": token}
    assert found == sorted(resources)


def test_a_token_that_is_not_ours() -> None:
    with pytest.raises(Ec2Error, match="NextToken is not valid"):
        page(["a"], {"NextToken": "\x00"}, key=str)
