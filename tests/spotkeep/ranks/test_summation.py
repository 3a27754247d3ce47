"""The order of a sum over virtual ranks is one, whatever processes add them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep.ranks.summation import Term, TreeSum, subtrees_of


def added(left: str, right: str) -> str:
    return f"({left} {right})"


def alone(count: int) -> str:
    tree = TreeSum(added)
    for number in range(count):
        tree.push(Term(number, 1, str(number)))
    return tree.total()


def by_neighbours(count: int, processes: int) -> str:
    """Each process adds its neighbours, and one adds the terms of all."""
    each = count // processes
    tree = TreeSum(added)
    for process in range(processes):
        own = TreeSum(added)
        for number in range(process * each, (process + 1) * each):
            own.push(Term(number, 1, str(number)))
        assert [(term.first, term.count) for term in own.terms] == subtrees_of(process * each, each)
        for term in own.terms:
            tree.push(term)
    return tree.total()


WORLDS = st.integers(1, 96).flatmap(
    lambda count: st.tuples(st.just(count), st.sampled_from([n for n in range(1, count + 1) if count % n == 0]))
)


@given(WORLDS)
def test_any_number_of_processes_adds_in_the_same_order(world):
    count, processes = world
    assert by_neighbours(count, processes) == alone(count)


def test_the_order_is_the_documented_one():
    assert alone(6) == "(((0 1) (2 3)) (4 5))"
    assert alone(7) == "(((0 1) (2 3)) ((4 5) 6))"


@pytest.mark.parametrize("count", [1, 2, 8, 64])
def test_a_power_of_two_travels_as_one_term(count):
    for first in range(0, 256, count):
        assert subtrees_of(first, count) == [(first, count)]


def test_few_terms_wait():
    tree = TreeSum(added)
    for number in range(1000):
        tree.push(Term(number, 1, ""))
        assert len(tree.terms) <= (number + 1).bit_length()


def test_a_gap_is_refused():
    tree = TreeSum(added)
    tree.push(Term(0, 1, "0"))
    with pytest.raises(ValueError, match="virtual rank 2 follows 0"):
        tree.push(Term(2, 1, "2"))
