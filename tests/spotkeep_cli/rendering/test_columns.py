"""A table gives up its least important columns before it cuts anything."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from spotkeep_cli.rendering.columns import Column, facts, table_that_fits


def printed(columns: list[Column], width: int) -> str:
    console = Console(file=io.StringIO(), width=width)
    with console.capture() as captured:
        console.print(table_that_fits(columns, width=width))
    return captured.get()


def three(longest: str = "digits-1a2b3c4d") -> list[Column]:
    return [
        Column(heading="RUN", cells=[longest]),
        Column(heading="ON", cells=["ml.m5.xlarge spot"], importance=1),
        Column(heading="AGE", cells=["3h"], importance=0),
    ]


def test_the_least_important_goes_first() -> None:
    assert all(word in printed(three(), 80) for word in ("RUN", "ON", "AGE"))
    narrower = printed(three(), 36)
    assert "AGE" not in narrower
    assert "ml.m5.xlarge spot" in narrower
    narrowest = printed(three(), 20)
    assert "ON" not in narrowest
    assert "digits-1a2b3c4d" in narrowest


def test_what_must_stay_folds_when_nothing_else_is_left() -> None:
    assert "".join(printed(three("x" * 30), 20).split()).count("x") == 30


words = st.text(alphabet="abcdefghij-", min_size=1, max_size=30)


@given(
    cells=st.lists(st.tuples(words, words, words), min_size=1, max_size=4),
    width=st.integers(min_value=8, max_value=120),
)
def test_no_line_is_wider_than_asked_and_no_id_is_lost(cells: list[tuple[str, str, str]], width: int) -> None:
    columns = [
        Column(heading="RUN", cells=[row[0] for row in cells]),
        Column(heading="B", cells=[row[1] for row in cells], importance=1),
        Column(heading="C", cells=[row[2] for row in cells], importance=0, justify="right"),
    ]
    lines = printed(columns, width).splitlines()
    assert max(len(line) for line in lines) <= width
    if max(len(row[0]) for row in cells) <= width:
        assert all(any(line.startswith(row[0]) for line in lines) for row in cells)


@pytest.mark.parametrize(
    "value", [f"s3://bucket/{'a' * 60}/", f"1.dkr.ecr.eu-west-1.amazonaws.com/{'a' * 60}:2.10.0-cpu"]
)
def test_a_value_without_a_space_stays_whole_to_be_copied(value: str) -> None:
    console = Console(file=io.StringIO(), width=40)
    with console.capture() as captured:
        console.print(facts([("image", value), ("note", "words " * 20)]), crop=False)
    lines = captured.get().splitlines()
    assert f"  image  {value}" in lines
    assert all(len(line) <= 40 for line in lines[1:])
