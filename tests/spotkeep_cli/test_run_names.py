"""A run is found by its id, or by as much of it as tells it apart."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.errors import RunNotFoundError
from spotkeep_cli.run_names import find_run, find_run_or_sweep, find_sweep, known_ids, nearest


@pytest.fixture
def runs(deployment: Any, make: Any) -> Any:
    for name in ("digits-1a2b3c4d", "digits-1aff0000", "resnet50-cifar10-9f8e7d6c"):
        deployment.dynamodb.add(make.run(name))
    return deployment.table


@pytest.mark.parametrize("text", ["digits-1a2b3c4d", "digits-1a2", "res", "resnet50-cifar10-9f8e7d6c"])
def test_an_id_or_a_beginning_of_only_one_finds_it(runs: Any, text: str) -> None:
    assert find_run(runs, text, command="spotkeep").run.startswith(text)


def test_an_id_is_found_though_it_begins_another(deployment: Any, make: Any) -> None:
    deployment.dynamodb.add(make.run("digits"))
    deployment.dynamodb.add(make.run("digits-2"))
    assert find_run(deployment.table, "digits", command="spotkeep").run == "digits"


def test_a_beginning_of_several_names_them(runs: Any) -> None:
    with pytest.raises(RunNotFoundError) as refusal:
        find_run(runs, "digits-1a", command="spotkeep")
    assert "beginning of 2 runs: digits-1a" in refusal.value.message


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("digits-1a2b3c4e", "digits-1a2b3c4d"),
        ("digit-1a2b3c4d", "digits-1a2b3c4d"),
        ("resnet50-cifar100", "resnet50-cifar10-9f8e7d6c"),
        ("restnet50-cifar10", "resnet50-cifar10-9f8e7d6c"),
    ],
)
def test_a_slip_of_the_finger_is_answered_with_the_nearest(runs: Any, typed: str, meant: str) -> None:
    with pytest.raises(RunNotFoundError) as refusal:
        find_run(runs, typed, command="spotkeep --local")
    assert meant in refusal.value.hint
    assert "spotkeep --local ps --all" in refusal.value.hint


def test_nothing_like_it_says_where_to_look(runs: Any) -> None:
    with pytest.raises(RunNotFoundError) as refusal:
        find_run(runs, "zzzzzz", command="spotkeep")
    assert refusal.value.hint == "`spotkeep ps --all` lists the runs"


def test_a_run_in_a_sweeps_place_is_called_a_run(runs: Any) -> None:
    with pytest.raises(RunNotFoundError) as refusal:
        find_sweep(runs, "digits-1a2b3c4d", command="spotkeep")
    assert refusal.value.message == "digits-1a2b3c4d is a run, and this is of a sweep"
    assert refusal.value.hint == "`spotkeep ps --all` lists the sweeps"
    with pytest.raises(RunNotFoundError) as refusal:
        find_sweep(runs, "digits-1a2b3c4d", command="spotkeep", hint_of_run="stop it")
    assert refusal.value.hint == "stop it"


ids = st.text(alphabet="abc12-", max_size=20)


@given(typed=ids, known=st.lists(ids, max_size=6, unique=True))
def test_suggestions_are_known_different_and_few(typed: str, known: list[str]) -> None:
    suggested = nearest(typed, known)
    assert set(suggested) <= set(known)
    assert len(suggested) == len(set(suggested)) <= 3


def test_without_an_id_the_newest_is_meant_and_a_rehearsal_only_where_there_is_nothing_else(
    deployment: Any, make: Any
) -> None:
    with pytest.raises(RunNotFoundError) as refusal:
        find_run(deployment.table, None, command="spotkeep")
    assert "there is no run yet" in refusal.value.message
    rehearsed = make.run("rehearsed-1", created_at=make.now, token="rehearsal-0123")
    deployment.dynamodb.add(rehearsed)
    assert find_run(deployment.table, None, command="spotkeep").run == "rehearsed-1"
    deployment.dynamodb.add(make.run("older-1", created_at=make.now - timedelta(hours=2)))
    deployment.dynamodb.add(make.completed("newer-1", created_at=make.now - timedelta(hours=1)))
    assert find_run(deployment.table, None, command="spotkeep").run == "newer-1"
    at_work = find_run_or_sweep(deployment.table, None, command="spotkeep", at_work=True)
    assert at_work.run == "older-1"  # type: ignore[union-attr]
    assert known_ids(deployment.table) == ["newer-1", "older-1"]
