"""The tree in which the values of virtual ranks are added. Pure.

Rounding makes a sum depend on the order of its additions. This order depends on the numbers of the virtual ranks
alone, and not on the process that adds. `0 1 2 3 4 5` are added as `((0 + 1) + (2 + 3)) + (4 + 5)`. A process that has
some neighbours adds the subtrees that it has whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Generic, TypeVar

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Term(Generic[_Value]):
    """The sum of a whole subtree.

    Attributes:
        first: Number of its first virtual rank.
        count: Number of its virtual ranks, a power of two.
        value: Their sum.
    """

    first: int
    count: int
    value: _Value


class TreeSum(Generic[_Value]):
    """A sum of values that come in the order of the virtual ranks. It may begin at any of them.

    At most two terms of each size wait for their neighbours.

    Args:
        add: Adds two values. The first one may change.
    """

    def __init__(self, add: Callable[[_Value, _Value], _Value]) -> None:
        self._add = add
        self.terms: list[Term[_Value]] = []

    def push(self, term: Term[_Value]) -> None:
        """Take the term that follows.

        Raises:
            ValueError: It does not follow the last one.
        """
        if self.terms and term.first != self.terms[-1].first + self.terms[-1].count:
            raise ValueError(f"virtual rank {term.first} follows {self.terms[-1].first + self.terms[-1].count - 1}")
        self.terms.append(term)
        while len(self.terms) > 1 and _are_siblings(*self.terms[-2:]):
            self._join_last()

    def total(self) -> _Value:
        """Add all terms, the last ones first. There is one at least."""
        while len(self.terms) > 1:
            self._join_last()
        return self.terms[0].value

    def _join_last(self) -> None:
        left, right = self.terms[-2:]
        self.terms[-2:] = [Term(left.first, left.count + right.count, self._add(left.value, right.value))]


def subtrees_of(first: int, count: int) -> list[tuple[int, int]]:
    """Give the subtrees that a process with some neighbours adds, each as its first virtual rank and their number.

    Args:
        first: Number of its first virtual rank.
        count: Number of its virtual ranks.
    """
    tree: TreeSum[None] = TreeSum(lambda left, right: None)  # noqa: ARG005 - the form alone counts
    for number in range(first, first + count):
        tree.push(Term(number, 1, None))
    return [(term.first, term.count) for term in tree.terms]


def _are_siblings(left: Term[_Value], right: Term[_Value]) -> bool:
    return left.count == right.count and left.first % (2 * left.count) == 0
