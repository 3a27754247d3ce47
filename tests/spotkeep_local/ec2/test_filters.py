"""Filters, and the one page."""

from __future__ import annotations

import pytest

from spotkeep_local.ec2.errors import Ec2Error
from spotkeep_local.ec2.filters import in_one_page, matches


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


def test_what_does_not_fit_on_one_page_is_refused() -> None:
    assert in_one_page(["a", "b"], {"MaxResults": 1000}) == ["a", "b"]
    for request in ({"MaxResults": 1}, {"NextToken": "x"}):
        with pytest.raises(Ec2Error, match="leave MaxResults out, or ask for 2 and more"):
            in_one_page(["a", "b"], request)
