"""From descriptions to phases, steps lost and a verdict."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from spotkeep_cli.drill.recovery import DrillState, Phase, Recovery, absorb, drill_report

BEGUN = Recovery(run="digits", began_at=100.0, instance="i-1", zone="a", seen={})


def state(at: float, **changes: Any) -> DrillState:
    fields: dict[str, Any] = {
        "at": 100.0 + at,
        "experiment": "running",
        "instances": {"i-1": "a"},
        "holder": "i-1",
        "step": 40,
        "durable_step": 38,
        "nodes": None,
    }
    return DrillState(**fields | changes)


def rendered(recovery: Recovery) -> str:
    console = Console(width=120, file=StringIO())
    console.print(drill_report(recovery))
    return str(console.file.getvalue())  # type: ignore[attr-defined]


def followed(*states: DrillState) -> Recovery:
    recovery = BEGUN
    for each in states:
        recovery = absorb(recovery, each)
    return recovery


STORY = (
    state(1, experiment="pending"),
    state(2, step=41, durable_step=38),
    state(9, holder=None, step=42, durable_step=42),
    state(15, instances={}, holder=None, step=42, durable_step=42),
    state(30, instances={"i-2": "b"}, holder=None, step=42, durable_step=42),
    state(45, instances={"i-2": "b"}, holder="i-2", step=42, durable_step=42),
    state(80, instances={"i-2": "b"}, holder="i-2", step=43, durable_step=42),
)


def test_each_phase_is_timed_by_when_it_was_first_seen() -> None:
    recovery = followed(*STORY)
    assert recovery.phases() == [
        (Phase.NOTICE, 2.0, 2.0),
        (Phase.LET_GO, 9.0, 7.0),
        (Phase.GONE, 15.0, 6.0),
        (Phase.REPLACED, 30.0, 15.0),
        (Phase.TAKEN_UP, 45.0, 15.0),
        (Phase.TRAINING, 80.0, 35.0),
    ]
    assert recovery.recovered
    assert (recovery.replacement, recovery.replacement_zone) == ("i-2", "b")


def test_steps_lost_are_those_reported_and_not_saved() -> None:
    assert followed(*STORY).steps_lost == 0
    sudden = followed(state(2, step=41, durable_step=38), state(9, instances={"i-2": "a"}, holder="i-2", step=41))
    assert sudden.steps_lost == 3
    assert followed(state(2, step=None, durable_step=None)).steps_lost is None


def test_a_run_that_has_only_been_taken_up_does_not_train_yet() -> None:
    recovery = followed(*STORY[:-1])
    assert not recovery.recovered
    assert not recovery.ended


def test_a_training_that_the_new_instance_finishes_has_come_back() -> None:
    recovery = followed(*STORY[:-2], state(50, instances={"i-2": "b"}, holder="i-2", over=True, step=42))
    assert recovery.recovered


NODES = replace(BEGUN, others=frozenset({"i-2"}))


def test_the_other_node_of_a_run_is_no_replacement_and_its_next_world_is_the_recovery() -> None:
    """The leader of two nodes is taken. The other one leads, and waits for a third."""
    two = {"i-1": "a", "i-2": "a"}
    recovery = absorb(NODES, state(1, instances=two, nodes=2))
    assert (set(recovery.seen), recovery.replacement) == ({Phase.NOTICE}, None)
    for each in (
        state(9, instances=two, holder=None, step=42, durable_step=42, nodes=1),
        state(12, instances={"i-2": "a"}, holder="i-2", step=42, durable_step=42, nodes=1),
    ):
        recovery = absorb(recovery, each)
    assert recovery.replacement is None
    assert not recovery.ended
    three = {"i-2": "a", "i-3": "a"}
    recovery = absorb(recovery, state(30, instances=three, holder="i-2", step=42, durable_step=42, nodes=1))
    assert recovery.replacement == "i-3"
    recovery = absorb(recovery, state(50, instances=three, holder="i-2", step=43, durable_step=42, nodes=2))
    assert [phase for phase, _, _ in recovery.phases()] == [
        Phase.NOTICE, Phase.LET_GO, Phase.GONE, Phase.TAKEN_UP, Phase.REPLACED, Phase.TRAINING
    ]  # fmt: skip
    printed = rendered(recovery)
    assert "i-2 leads the other nodes" in printed
    assert "the fleet has i-3 in a" in printed
    assert "digits trains again after 50 s, on 2 nodes." in printed


def test_nodes_that_go_on_without_the_lost_one_have_come_back() -> None:
    recovery = absorb(NODES, state(1, instances={"i-1": "a", "i-2": "a"}, nodes=2))
    recovery = absorb(recovery, state(12, instances={"i-2": "a"}, holder="i-2", step=39, nodes=1))
    recovery = absorb(recovery, state(20, instances={"i-2": "a"}, holder="i-2", step=41, nodes=1))
    assert recovery.recovered
    assert "on 1 node." in rendered(recovery)


def test_what_can_come_of_it_no_more_is_said() -> None:
    refused = followed(state(1, experiment="failed", reason="Target resolution returned empty set"))
    assert refused.problem == "the experiment failed: Target resolution returned empty set"
    assert followed(state(5, over=True)).problem == "the training was done before its instance was taken away"
    failed = followed(*STORY[:4], state(40, instances={"i-2": "b"}, holder="i-2", over=True, failed=True))
    assert failed.problem == "the training failed"
    assert not failed.recovered
    assert failed.ended


@given(
    st.lists(
        st.builds(
            state,
            st.floats(0, 1000),
            experiment=st.sampled_from(["pending", "running", "completed", "failed"]),
            instances=st.dictionaries(st.sampled_from(["i-1", "i-2", "i-3"]), st.sampled_from("ab")),
            holder=st.sampled_from([None, "i-1", "i-2", "i-3"]),
            step=st.none() | st.integers(0, 9),
            durable_step=st.none() | st.integers(0, 9),
            over=st.booleans(),
            failed=st.booleans(),
        ),
        max_size=12,
    )
)
def test_what_was_seen_stays_and_nothing_trains_on_the_instance_that_was_taken(states: list[DrillState]) -> None:
    recovery = BEGUN
    for each in sorted(states, key=lambda found: found.at):
        before, recovery = recovery, absorb(recovery, each)
        assert before.seen.items() <= recovery.seen.items()
        if recovery.recovered:
            assert recovery.replacement not in (None, "i-1")
            assert recovery.problem is None
    assert (recovery.steps_lost or 0) >= 0
