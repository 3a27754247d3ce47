"""The outcome of a world for the agent of one node, without processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from spotkeep.errors import RemoteError
from spotkeep_agent.errors import InputError, NodePortError
from spotkeep_agent.nodes.decisions import DONE, FAILED, INTERRUPTED, NodeEnd
from spotkeep_agent.nodes.outcome import REFUSED, Outcome, join_world, outcome_of_world
from spotkeep_agent.volume.protocol import Leaving
from spotkeep_fleet.training_spec import NOT_STARTED


@dataclass
class Nodes:
    """This node's part in a run, in which the world ends in a known way.

    Attributes:
        holds_lease: True on the leader.
        ends: The end of the world. None for that of this node.
        problem: The problem of the next world.
        own: The end that this node has reported.
    """

    holds_lease: bool = True
    ends: NodeEnd | None = None
    problem: Exception | None = None
    own: NodeEnd | None = None

    def ended(self, own: NodeEnd, *, seconds_left: Callable[[], float]) -> NodeEnd:
        self.own = own
        return own if self.ends is None else self.ends

    def begin(self, *, should_leave: Callable[[], str | None]) -> Any:
        assert self.problem is not None
        raise self.problem


def outcome(
    nodes: Nodes, exit_code: int, *, is_ended: bool = False, failure: str = "it fails", never_entered: bool = False
) -> Outcome:
    given: Any = nodes
    return outcome_of_world(
        given, exit_code, is_ended=is_ended, failure=lambda: failure, never_entered=lambda: never_entered,
        seconds_left=lambda: 0.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("exit_code", "is_ended", "own"),
    [
        (0, False, NodeEnd(DONE, 0)),
        (75, False, NodeEnd(INTERRUPTED, 75)),
        (1, False, NodeEnd(FAILED, 1, "it fails")),
        (137, True, NodeEnd(INTERRUPTED, 137)),
    ],
)
def test_a_node_reports_its_own_end(exit_code: int, is_ended: bool, own: NodeEnd) -> None:
    nodes = Nodes(holds_lease=False)
    assert outcome(nodes, exit_code, is_ended=is_ended) == Outcome(INTERRUPTED, exit_code), "the leader concludes"
    assert nodes.own == own


@pytest.mark.parametrize(
    ("exit_code", "ends", "found"),
    [
        (0, None, Outcome(DONE, 0)),
        (1, None, Outcome(FAILED, 1, "it fails")),
        (75, None, Outcome(INTERRUPTED, 75)),
        (1, NodeEnd(INTERRUPTED, 1), Outcome(INTERRUPTED, 1)),
        (0, NodeEnd(FAILED, 3, "on 10.0.0.2: it fails"), Outcome(FAILED, 3, "on 10.0.0.2: it fails")),
    ],
)
def test_the_leader_concludes_by_the_end_of_the_world(exit_code: int, ends: NodeEnd | None, found: Outcome) -> None:
    assert outcome(Nodes(ends=ends), exit_code) == found


def test_a_script_that_runs_no_line_is_the_fault_of_the_input() -> None:
    assert outcome(Nodes(), 1, never_entered=True).never_entered
    assert not outcome(Nodes(ends=NodeEnd(FAILED, 3)), 0, never_entered=True).never_entered, "that of another node"
    others = Nodes(holds_lease=False)
    assert outcome(others, 1, never_entered=True) == Outcome(REFUSED, 1, "it fails")
    not_started = f"{NOT_STARTED}: no such program"
    assert outcome(others, 1, failure=not_started) == Outcome(REFUSED, 1, not_started)
    assert others.own is None


@pytest.mark.parametrize("problem", [RemoteError("S3 is gone"), NodePortError("it is taken"), OSError("the disk")])
@pytest.mark.parametrize("why", [None, "notice"])
def test_a_node_that_cannot_join_leaves(problem: Exception, why: str | None) -> None:
    given: Any = Nodes(problem=problem)
    expected = Leaving(str(problem), failed=True) if why is None else Leaving(why)
    assert join_world(given, should_leave=lambda: why) == expected


def test_input_that_works_on_no_node_is_raised() -> None:
    given: Any = Nodes(problem=InputError("no such data"))
    with pytest.raises(InputError):
        join_world(given, should_leave=lambda: None)
