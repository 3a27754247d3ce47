"""The scenario of several nodes takes three of them, in an order that the job allows, and ends early with its run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from spotkeep_cli.rehearsal.nodes import (
    NodesOnEc2,
    least_nodes,
    most_nodes,
    nodes_scenario,
    take_nodes,
    trains_on_nodes,
)
from spotkeep_cli.rehearsal.nodes_verdict import TakenNode
from spotkeep_jobs.record.states import RunState
from spotkeep_local.hosts.isolation import Isolation

_POLLS = 100


class FakeNodes:
    """A run whose worlds are whole at once, until it has ended after so many stages."""

    run = "nodes"

    def __init__(self, *, ends_in: int) -> None:
        self.left = ends_in
        self.acts: list[str] = []
        self.taken: list[TakenNode] = []

    def trains_with(self, nodes: int, *, steps: int = 1) -> bool:
        self.acts.append(f"trains with {nodes}")
        self.left -= 1
        return steps > 0

    def is_gone(self, instance_id: str) -> bool:
        return instance_id == self.taken[-1].instance_id

    def share(self) -> float:
        return 1.0

    def stored_steps(self) -> set[int]:
        return set()

    def steps(self) -> tuple[int, int | None]:
        return 0, None

    def worlds(self) -> list[Any]:
        return [SimpleNamespace(nodes=("i-1",), process=SimpleNamespace(resumed_from_step=3))]

    def standing(self, run: Any) -> str:
        return str(run.state)

    def take_node(self, *, notice: bool, held_lease: bool, fewer: bool) -> TakenNode:
        self.acts.append(f"takes {'with' if notice else 'without'} notice{', for good' if fewer else ''}")
        self.taken.append(TakenNode(instance_id="i-1", at=1.0, notice=notice, held_lease=held_lease, fewer=fewer))
        return self.taken[-1]

    def has_room(self) -> None:
        self.acts.append("has room")


class FakeRehearsal:
    """A rehearsal that follows the fake nodes."""

    def __init__(self, nodes: FakeNodes, job: Mapping[str, Any]) -> None:
        self.nodes, self.notes = nodes, list[str]()
        self.launched: list[str] = []
        self.deployment = SimpleNamespace(job=job, launch=lambda *, run: self.launched.append(run))
        self.view = SimpleNamespace(stage=self._stage, note=self.notes.append, progress=lambda **_: None)

    def follow(self, name: str, *, until: Callable[[], object], **_: object) -> dict[str, Any]:
        ended = name != "nodes" or self.nodes.left <= 0 or not any(until() for _ in range(_POLLS))
        return {name: SimpleNamespace(state=RunState.COMPLETED if ended else RunState.TRAINING)}

    @contextmanager
    def _stage(self, _: object) -> Any:
        yield []


class ClimbingNodes(FakeNodes):
    """A run of a hundred steps that saves each tenth one."""

    done = 0.0

    def share(self) -> float:
        self.done += 0.01
        return self.done

    def stored_steps(self) -> set[int]:
        return set(range(10, round(self.done * 100) + 1, 10))

    def take_node(self, **how: Any) -> TakenNode:
        self.acts.append(f"takes at {self.done:.1f}")
        return super().take_node(**how)


def performed(
    nodes: FakeNodes,
    job: Mapping[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    alone_stores: frozenset[int] = frozenset(),
) -> FakeRehearsal:
    monkeypatch.setattr("spotkeep_cli.rehearsal.nodes._WAITING_SECONDS", 0.0)
    rehearsal = FakeRehearsal(nodes, job)
    untouched: Any = SimpleNamespace(
        run="nodes-untouched", standing=str, steps=lambda: (0, None), stored_steps=lambda: alone_stores
    )
    given: Any = rehearsal
    run: Any = nodes
    take_nodes(given, run, untouched)
    return rehearsal


def test_a_node_goes_after_a_notice_one_without_and_one_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = FakeNodes(ends_in=100)
    rehearsal = performed(nodes, {"nodes": {"min": 1, "max": 2}}, monkeypatch)
    assert sorted(rehearsal.launched) == ["nodes", "nodes-untouched"]
    assert nodes.acts == [
        "trains with 2",
        "takes with notice", "trains with 2",
        "takes without notice", "trains with 2",
        "trains with 2",
        "takes with notice, for good", "trains with 1",
        "has room", "trains with 2",
    ]  # fmt: skip
    assert [each.held_lease for each in nodes.taken] == [False, True, False]
    assert rehearsal.notes[1] == "i-1, to which the others connect, is gone without notice"


@pytest.mark.parametrize(
    ("alone_stores", "at"), [((20,), "0.2"), ((30, 40), "0.3"), ((20, 30), "0.2"), ((15,), "0.4"), ((), "0.4")], ids=str
)
def test_no_node_is_taken_before_both_runs_have_saved_one_step_unless_they_never_do(
    alone_stores: tuple[int, ...], at: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes = ClimbingNodes(ends_in=100)
    performed(nodes, {"nodes": {"min": 1, "max": 2}}, monkeypatch, alone_stores=frozenset(alone_stores))
    assert next(act for act in nodes.acts if act.startswith("takes at")) == f"takes at {at}"


def test_both_runs_begin_with_all_nodes_and_later_ones_as_on_aws() -> None:
    waits: list[float | None] = []
    control: Any = SimpleNamespace(first_worlds_wait=waits.append)
    nodes = NodesOnEc2("nodes", ec2=None, control=control)

    def interrupted() -> None:
        with nodes.all_at_first(within_seconds=9.0):
            assert waits == [9.0]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert waits == [9.0, None]


def test_nodes_that_need_all_are_watched_while_they_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = FakeNodes(ends_in=100)
    performed(nodes, {"nodes": 2}, monkeypatch)
    assert nodes.acts[-3:] == ["takes with notice, for good", "has room", "trains with 2"]


@pytest.mark.parametrize(("ends_in", "taken"), [(1, 0), (2, 1), (3, 2), (4, 2), (5, 3)])
def test_a_run_that_ends_before_loses_no_more_nodes(ends_in: int, taken: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = FakeNodes(ends_in=ends_in)
    performed(nodes, {"nodes": {"min": 1, "max": 2}}, monkeypatch)
    assert len(nodes.taken) == taken


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"backend": "ec2", "nodes": 2}, (True, 2, 2)),
        ({"backend": "ec2", "nodes": {"min": 1, "max": 3}}, (True, 1, 3)),
        ({"backend": "ec2", "nodes": 1}, (False, 1, 1)),
        ({"backend": "ec2"}, (False, 1, 1)),
        ({"nodes": 2}, (False, 2, 2)),
    ],
    ids=str,
)
def test_a_job_file_says_how_many_nodes_train_together(fields: dict[str, Any], expected: tuple[bool, int, int]) -> None:
    assert (trains_on_nodes(fields), least_nodes(fields), most_nodes(fields)) == expected


def test_the_whole_training_is_rehearsed_on_ec2() -> None:
    scenario = nodes_scenario(isolation=Isolation.AUTO)
    assert scenario.job_fields["pause_at_step"] is None
    assert scenario.report_name == "nodes-report.json"
