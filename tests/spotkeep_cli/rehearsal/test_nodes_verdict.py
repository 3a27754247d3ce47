"""What speaks against a rehearsed run of several nodes: each check fails for its own reason and no other."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from spotkeep.disk.manifest import DataFile, Manifest, RankShare
from spotkeep_cli.rehearsal import view
from spotkeep_cli.rehearsal.evidence import CapacityLoss, ProcessEnding
from spotkeep_cli.rehearsal.fleet_verdict import ResourcesOfRun
from spotkeep_cli.rehearsal.nodes_verdict import (
    ComparedCheckpoints,
    NodesEvidence,
    RehearsedWorld,
    SampleCounts,
    StoredCheckpoint,
    TakenNode,
    WorldEnding,
    compare_checkpoints,
    digest_of,
    has_virtual_ranks,
    judge_nodes,
    losses_alone,
    sample_counts,
    with_other_sums,
    worlds_of,
)
from spotkeep_cli.rehearsal.verdict import Verdict

NOTHING = ResourcesOfRun(fleets={}, instances={}, volumes={}, snapshots={})


def event(kind: str, time: float, **fields: Any) -> dict[str, Any]:
    return {"event": kind, "time": time, **fields}


def began(time: float, fence: int, *nodes: str, step: int) -> dict[str, Any]:
    return event("world-began", time, fence=fence, nodes=list(nodes), step=step)


def stored(step: int, *, at: float, ranks: int = 4, fence: int = 1, content: str = "00000000") -> StoredCheckpoint:
    manifest = Manifest(
        step=step, epochs_completed=None, created=at, library="spotkeep 0.1.0",
        streams=((DataFile("data-00000.bin", 4, (content,)),), *[()] * ranks), state={"dict": []},
        ranks=tuple(RankShare({"dict": []}) for _ in range(ranks)),
    )  # fmt: skip
    return StoredCheckpoint(manifest=manifest, fence=fence, at=at)


TAKEN = (
    TakenNode(instance_id="i-2", at=120.0, notice=True, held_lease=False, fewer=False),
    TakenNode(instance_id="i-1", at=160.0, notice=False, held_lease=True, fewer=False),
    TakenNode(instance_id="i-4", at=190.0, notice=True, held_lease=False, fewer=True),
)
EVENTS = (
    began(100.0, 1, "i-1", "i-2", step=0),
    event("resume", 101.0, step=0),
    event("progress", 102.0, step=1),
    event("saved", 110.0, step=10),
    event("progress", 121.0, step=14),
    event("saved", 121.5, step=14),
    began(123.0, 2, "i-1", step=14),
    event("progress", 125.0, step=15),
    event("saved", 135.0, step=20),
    event("progress", 139.0, step=22),
    began(140.0, 3, "i-1", "i-3", step=22),
    event("progress", 141.0, step=23),
    event("saved", 150.0, step=30),
    event("progress", 159.0, step=36),
    began(165.0, 4, "i-3", "i-4", step=30),
    event("progress", 167.0, step=31),
    event("progress", 191.0, step=40),
    began(195.0, 5, "i-3", step=40),
    event("progress", 196.0, step=41),
    event("progress", 199.0, step=45),
    began(200.0, 6, "i-3", "i-5", step=45),
    event("progress", 201.0, step=46),
    event("progress", 210.0, step=60),
)
STORED = (stored(10, at=111.0), stored(20, at=136.0, ranks=2, fence=2), stored(30, at=152.0, fence=3))
WORLDS = worlds_of(EVENTS, taken=TAKEN, stored=STORED, ended_at=211.0)
GOOD = NodesEvidence(
    at_least=1,
    at_most=2,
    worlds=WORLDS,
    taken=TAKEN,
    compared=ComparedCheckpoints(steps=(10,), differing=()),
    samples=SampleCounts(doubled=0, missed=0),
    equal_on_any_world=True,
    after=NOTHING,
    isolation="relocated",
)


def failed(evidence: NodesEvidence) -> list[str]:
    return [check.expected for check in judge_nodes(evidence) if not check.passed]


def test_a_world_that_made_room_for_a_larger_one_lost_nothing() -> None:
    ends = [
        CapacityLoss(
            when="", at_step=world.process.last_step, notice=True, durable_step=0, resumed_from_step=None,
            steps_repeated=None, seconds_to_resume=None,
        )
        for world in WORLDS[:-1]
    ]  # fmt: skip
    assert [loss.at_step for loss in losses_alone(ends, worlds=WORLDS)] == [14, 36, 40]


def test_worlds_have_the_events_between_their_begin_and_that_of_the_next() -> None:
    ends = [WorldEnding.NOTICE, WorldEnding.MORE_NODES, WorldEnding.NO_NOTICE, WorldEnding.NOTICE]
    assert [world.ending for world in WORLDS] == [*ends, WorldEnding.MORE_NODES, WorldEnding.DONE]
    assert [world.ranks for world in WORLDS] == [4, 2, 4, 4, 2, 4], "those that saved nothing have as many on a node"
    assert [world.process.resumed_from_step for world in WORLDS] == [0, 14, 22, 30, 40, 45]
    assert [world.process.last_step for world in WORLDS] == [14, 22, 36, 40, 45, 60]
    first, _, lost, *_ = (world.process for world in WORLDS)
    assert first.saved_steps == (10, 14)
    assert (first.started_at, first.ended_at) == (102.0, 121.0), "the others train on to a step that all save"
    assert (lost.ending, lost.ended_at, lost.durable_step) == (ProcessEnding.NO_NOTICE, 160.0, 30)


def test_a_world_that_another_one_replaced_for_no_reason_of_the_rehearsal_is_named() -> None:
    worlds = worlds_of([began(1.0, 1, "i-1", step=0), began(2.0, 2, "i-2", step=0)], ended_at=3.0)
    assert [world.ending for world in worlds] == [WorldEnding.UNKNOWN, WorldEnding.DONE]
    assert worlds_of([], ended_at=3.0) == []


def test_the_page_shows_the_worlds_as_a_rehearsal_draws_them() -> None:
    console = Console(file=io.StringIO(), width=80)
    console.print(view.worlds(WORLDS))
    assert isinstance(console.file, io.StringIO)
    drawn = [line.rstrip() for line in console.file.getvalue().splitlines()]
    page = (Path(__file__).parents[3] / "docs" / "rehearsals.md").read_text()
    assert page.partition("test_nodes_verdict.py -->\n```text\n")[2].partition("\n```")[0].splitlines() == drawn


def test_a_good_run_passes() -> None:
    assert failed(GOOD) == []
    assert GOOD.changed_size
    document = GOOD.to_document()
    assert document["world_sizes"] == [4, 2, 4, 4, 2, 4]
    assert (document["samples_doubled"], document["samples_missed"]) == (0, 0)
    assert json.loads(json.dumps(document))["checkpoints_compared"] == {"steps": [10], "differing": []}


def with_world(number: int, **changes: Any) -> Callable[[NodesEvidence], NodesEvidence]:
    def change(evidence: NodesEvidence) -> NodesEvidence:
        worlds: list[RehearsedWorld] = list(evidence.worlds)
        worlds[number] = replace(worlds[number], **changes)
        return replace(evidence, worlds=worlds)

    return change


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda good: replace(good, taken=[*TAKEN, TAKEN[0]]), "three nodes were taken"),
        (lambda good: replace(good, taken=[replace(TAKEN[0], held_lease=True), *TAKEN[1:]]), "three nodes were taken"),
        (with_world(2, nodes=("i-7", "i-3")), "that were not taken"),
        (with_world(3, fence=3), "a higher number than the one before"),
        (with_world(4, nodes=("i-3", "i-5")), "of 1 while there was no room"),
        (with_world(5, nodes=("i-3",)), "of 2 at last"),
        (lambda good: replace(good, compared=ComparedCheckpoints(steps=(10,), differing=(10,))), "bit for bit"),
        (lambda good: replace(good, samples=SampleCounts(doubled=1, missed=0)), "each sample"),
        (lambda good: replace(good, samples=SampleCounts(doubled=0, missed=1)), "each sample"),
        (lambda good: replace(good, after=replace(NOTHING, fleets={"fleet-1": "active"})), "the fleet is gone"),
        (lambda good: replace(good, after=replace(NOTHING, instances={"i-2": "running"})), "the fleet is gone"),
        (lambda good: replace(good, after=replace(NOTHING, volumes={"vol-1": "a"})), "the fleet is gone"),
        (lambda good: replace(good, after=replace(NOTHING, snapshots={"snap-1": "completed"})), "the fleet is gone"),
    ],
)
def test_each_check_fails_for_its_own_reason(change: Callable[[NodesEvidence], NodesEvidence], reason: str) -> None:
    (expected,) = failed(change(GOOD))
    assert reason in expected


@pytest.mark.parametrize("worlds", range(4))
def test_a_run_that_was_not_taken_three_times_is_reported(worlds: int) -> None:
    found = failed(replace(GOOD, worlds=WORLDS[:worlds], taken=TAKEN[: max(0, worlds - 1)]))
    assert [each for each in found if "three nodes were taken" in each or "no world" in each]
    assert [each for each in found if "worlds of 2 nodes at first" in each]


def test_nodes_that_need_all_wait_for_the_missing_one() -> None:
    events = [
        began(100.0, 1, "i-1", "i-2", step=0),
        began(130.0, 2, "i-1", "i-3", step=14),
        began(165.0, 3, "i-3", "i-4", step=30),
        began(200.0, 4, "i-3", "i-5", step=40),
    ]
    needs_all = replace(GOOD, at_least=2, worlds=worlds_of(events, taken=TAKEN, ended_at=211.0))
    assert failed(needs_all) == []
    assert not needs_all.changed_size
    (expected,) = failed(with_world(1, nodes=("i-1",))(needs_all))
    assert "all worlds have 2 nodes" in expected
    assert "all worlds have 2 nodes" in failed(replace(needs_all, worlds=needs_all.worlds[:3]))[0]


@pytest.mark.parametrize(
    "change",
    [{"content": "ffffffff"}, {"ranks": 2}, {"step": 11}],
    ids=["other bytes", "another number of ranks", "another step"],
)
def test_a_digest_is_that_of_the_values_and_not_of_the_moment(change: dict[str, Any]) -> None:
    first, second = stored(10, at=1.0), stored(10, at=2.0, fence=3)
    assert digest_of(first.manifest) == digest_of(second.manifest)
    assert digest_of(first.manifest) != digest_of(stored(**{"step": 10, "at": 1.0, **change}).manifest)


def test_checkpoints_are_compared_up_to_the_first_change_of_the_number_of_ranks() -> None:
    alone = [stored(step, at=float(step)) for step in (10, 20, 30)]
    run = [stored(10, at=1.0), stored(14, at=2.0), stored(20, at=3.0), stored(30, at=5.0, content="ffffffff")]
    assert compare_checkpoints(run, alone) == ComparedCheckpoints(steps=(10, 20, 30), differing=(30,))
    smaller = stored(16, at=2.5, ranks=2)
    assert compare_checkpoints([*run, smaller], alone) == ComparedCheckpoints(steps=(10,), differing=())
    # A step that was trained twice has to have the same bits twice.
    twice = [stored(10, at=1.0), stored(10, at=2.0, content="ffffffff")]
    assert compare_checkpoints(twice, alone).differing == (10,)
    assert compare_checkpoints([], alone) == ComparedCheckpoints(steps=(), differing=())


def test_checkpoints_that_differ_before_a_loss_say_nothing_about_losses() -> None:
    # Of a script that seeds torch alone, each process draws the state of Python's `random`.
    alone = [stored(step, at=float(step)) for step in (10, 20, 30)]
    unseeded = [stored(step, at=float(step), fence=1 + step // 20, content="ffffffff") for step in (10, 20, 30)]
    compared = compare_checkpoints(unseeded, alone)
    assert compared.differing == (10, 20, 30)
    assert compared.differ_from_the_start
    # Equal ones before the loss, or none, leave a later difference to the loss.
    assert not compare_checkpoints([alone[0], *unseeded[1:]], alone).differ_from_the_start
    assert not compare_checkpoints([stored(14, at=1.0), *unseeded[1:]], alone).differ_from_the_start
    evidence = replace(GOOD, compared=compared)
    assert not failed(evidence)
    equal = replace(DIFFERENT, reasons=(), identical_to_uninterrupted=True, equal_to_uninterrupted=True, other_model=())
    found = with_other_sums(equal, evidence)
    assert not found.reasons
    assert "random.seed" in found.remarks[0]


@pytest.mark.parametrize(
    "evidence",
    [GOOD, replace(GOOD, equal_on_any_world=False), replace(GOOD, equal_on_any_world=False, worlds=WORLDS[:1])],
    ids=["virtual ranks", "other sums", "one size"],
)
def test_a_loss_is_not_the_cause_of_a_difference_that_was_there_before_it(evidence: NodesEvidence) -> None:
    compared = ComparedCheckpoints(steps=(10,), differing=(10,), differ_from_the_start=True)
    found = with_other_sums(DIFFERENT, replace(evidence, compared=compared))
    assert found.other_model == ()
    assert [reason for reason in found.reasons if reason in found.not_shown] == [*found.reasons[1:]]
    assert found.reasons[0] == OTHER_REASON


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ((10,), "the one that both have, of step 10"),
        ((10, 20, 30), "all 3 that both have, of steps 10 to 30"),
    ],
)
def test_the_report_says_which_checkpoints_were_compared(steps: tuple[int, ...], found: str) -> None:
    checks = judge_nodes(replace(GOOD, compared=ComparedCheckpoints(steps=steps, differing=())))
    assert [check.found for check in checks if "bit for bit" in check.expected] == [found]


def test_a_remark_says_what_was_not_compared_of_a_model_of_several_numbers_of_ranks() -> None:
    other_sums = replace(GOOD, equal_on_any_world=False, compared=ComparedCheckpoints(steps=(10, 20), differing=()))
    (remark,) = with_other_sums(DIFFERENT, other_sums).remarks
    assert "the final model is not judged" in remark
    assert "after step 20 nothing is compared" in remark


def test_a_model_of_other_sums_shows_nothing_where_the_checkpoints_differ_before_a_loss() -> None:
    compared = ComparedCheckpoints(steps=(10,), differing=(10,), differ_from_the_start=True)
    unseeded = replace(GOOD, equal_on_any_world=False, compared=compared)
    found = with_other_sums(replace(DIFFERENT, reasons=(DIFFERS,)), unseeded)
    assert found.unproven
    assert "random.seed" in found.reasons[0]


def test_virtual_ranks_are_found_in_the_state_of_a_checkpoint() -> None:
    own = {"dict": [["count", 4], ["seed", 7], ["steps", 44], ["environment", {"dict": []}]]}
    manifest = stored(10, at=1.0).manifest
    assert has_virtual_ranks(replace(manifest, state={"dict": [["model", {"state_dict": {}}], ["ranks", own]]}))
    assert not has_virtual_ranks(replace(manifest, state={"dict": [["model", {"dict": [["count", 4]]}], ["n", 3]]}))
    assert not has_virtual_ranks(replace(manifest, state=[1]))


COUNTS = st.lists(st.integers(0, 9), min_size=1, max_size=20)


@given(counts=COUNTS, more=st.lists(st.integers(-9, 9), min_size=20, max_size=20))
def test_samples_are_counted_against_the_run_left_alone(counts: list[int], more: list[int]) -> None:
    taken = [count + other for count, other in zip(counts, more, strict=False)]
    found = sample_counts(json.dumps(taken).encode(), json.dumps(counts).encode())
    assert found is not None
    assert found.doubled - found.missed == sum(taken) - sum(counts)
    assert (found.doubled, found.missed) == (0, 0) or taken != counts


@pytest.mark.parametrize("content", [None, b"", b"{}", b"[1, 2]", b"[0.5]", b'["a"]', b"\xff"])
def test_what_is_no_list_of_as_many_counts_says_nothing_about_samples(content: bytes | None) -> None:
    assert sample_counts(content, b"[3]") is None
    assert sample_counts(b"[3]", content) is None


DIFFERS = "the final model differs"
OTHER_REASON = "the ending of nodes-1 was notified 2 times, not once"
DIFFERENT = Verdict(
    reasons=(DIFFERS, OTHER_REASON),
    interruptions=(),
    identical_to_uninterrupted=False,
    equal_to_uninterrupted=False,
    other_model=(DIFFERS,),
)


@pytest.mark.parametrize(
    ("evidence", "reasons", "remarks"),
    [
        (GOOD, [DIFFERS, OTHER_REASON], 0),
        (replace(GOOD, equal_on_any_world=False), [OTHER_REASON], 1),
        (replace(GOOD, equal_on_any_world=False, worlds=WORLDS[:1]), [DIFFERS, OTHER_REASON], 0),
    ],
    ids=["virtual ranks", "other sums", "one size"],
)
def test_a_model_of_several_numbers_of_ranks_may_differ_without_virtual_ranks(
    evidence: NodesEvidence, reasons: list[str], remarks: int
) -> None:
    found = with_other_sums(DIFFERENT, evidence)
    assert list(found.reasons) == reasons
    assert len(found.remarks) == remarks


def test_a_model_that_differs_shows_nothing_where_no_checkpoint_of_both_runs_is_there_to_compare() -> None:
    unseen = replace(GOOD, equal_on_any_world=False, compared=ComparedCheckpoints(steps=(), differing=()))
    found = with_other_sums(replace(DIFFERENT, reasons=(DIFFERS,)), unseen)
    assert found.unproven
    assert "every_steps" in found.reasons[0]
