"""The trials of nodes are drawn and judged as they should be, and one without an end is a problem of its number."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from tests.torture.checkpoint.interposition import EXCHANGE
from tests.torture.checkpoint.nodes import story
from tests.torture.checkpoint.nodes.story import Story, run_trial
from tests.torture.checkpoint.nodes.trials import COPIES_LOST, GROUPS, HANGS, NodeJudge, NodeTrial, plan
from tests.torture.checkpoint.ranks.world import KILLED, RankEnd
from tests.torture.checkpoint.trials import TrialFindings

RANKS = [["mkdir", "fsync", EXCHANGE, "open", "pwrite", EXCHANGE, "replace"], *[["open", "pwrite", EXCHANGE]] * 3]
CALLS = [*RANKS, [*["head_object"] * 9, "rename"], ["put_object", "listdir"]]


def drawn(trials: int, by_torchrun: int = 0, seed: int = 1) -> list[NodeTrial]:
    return plan(seed=seed, trials=trials, by_torchrun=by_torchrun, calls=CALLS)


def test_the_whole_form_strikes_each_rank_of_two_to_four_nodes_at_each_call_and_operation() -> None:
    trials = drawn(1000, 30)
    assert len(trials) == 1000
    assert sum(trial.by_torchrun for trial in trials) == 30
    assert {trial.group for trial in trials} == set(GROUPS)
    assert {trial.nodes for trial in trials} == {2, 3, 4}
    assert {trial.rank for trial in trials} == {*range(8)}
    assert {nodes for trial in trials for nodes in trial.then} == {1, 2, 3, 4}
    of_leader = [trial for trial in trials if trial.rank == 0]
    assert {trial.call for trial in of_leader if trial.kind == "kill"} == {*range(5)}
    assert {trial.name for trial in of_leader if trial.kind == "stop"} == {*RANKS[0]} - {EXCHANGE}
    assert {trial.call for trial in of_leader if trial.kind == "kill-message"} == {0, 1}
    assert {trial.call for trial in of_leader if trial.ruin == COPIES_LOST} == {*range(10)}
    assert {trial.name for trial in trials if trial.ruin == COPIES_LOST and trial.rank > 1} == {*CALLS[-1]}


def test_the_short_form_has_one_of_each_and_a_seed_brings_the_same_trials_back() -> None:
    assert {trial.group for trial in drawn(7, 1)} == set(GROUPS)
    assert drawn(40, 1) == drawn(40, 1)
    assert drawn(40, 1) != drawn(40, 1, seed=2)


def ends(*worlds: int, of_end: tuple[int, ...] = (), code: int | None = 0) -> list[RankEnd]:
    """The ends of two ranks that restore steps of these worlds, and end with those of others."""

    def facts(what: str, found: tuple[int, ...], rank: int) -> dict[str, Any]:
        step = len(found)
        return {
            "what": what,
            "step": step,
            "rank": rank,
            "tensors": {},
            "apart of": rank,
            "history": [*range(1, step + 1)],
            "worlds": list(found),
            "ranks": 2,
            "places": [{"rank": rank, "ranks": 2, "step": step}],
            "random": rank,
        }

    words = [
        (facts("restored", worlds, rank), *([facts("finished", of_end, rank)] if of_end else [])) for rank in range(2)
    ]
    return [RankEnd(exit_code=code, words=each, errors="the last word") for each in words]


def judged(found: list[RankEnd], *, fence: int = 3, durable: int = 2, is_struck: bool = True) -> NodeJudge:
    judge = NodeJudge(title="a trial", begun=3, worlds_of_steps=[1, 1, 1])
    judge.see_ends(found, fence=fence, durable=durable, total_steps=6, is_struck=is_struck)
    return judge


def test_a_restore_of_worlds_that_had_the_lease_is_no_problem() -> None:
    judge = judged(ends(1, 1, 1, of_end=(1, 1, 1, 3, 3, 3)), is_struck=False)
    assert judge.found == TrialFindings(trials=1, figures={"the newest restored": 1})
    judge = judged(ends(1, 1), is_struck=True)
    assert judge.found.problems == ()
    assert judge.worlds_of_steps == [1, 1, 3, 3, 3]


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (ends(1, 2), "world 3 restored steps of the worlds [1, 2], and with the lease were [1, 1]"),
        (ends(1, 1, of_end=(1, 1, 2)), "world 3 finished steps of the worlds [1, 1, 2]"),
        (ends(1), "step 1 was restored after 2 was durable"),
        (ends(1, 1, code=-11), "ended with -11: the last word"),
    ],
)
def test_what_a_world_without_the_lease_wrote_and_what_is_lost_is_a_problem(found: list[RankEnd], said: str) -> None:
    assert said in " ".join(judged(found).found.problems)


def test_a_world_that_nothing_struck_comes_to_its_end() -> None:
    assert judged(ends(1, 1, code=KILLED)).found.problems == ()
    assert judged(ends(1, 1, code=KILLED), is_struck=False).found.problems


def test_a_notice_that_leaves_enough_time_costs_at_most_one_step() -> None:
    for durable, lost in ((3, 0), (2, 0), (1, 1)):
        judge = NodeJudge(title="a trial", begun=3)
        judge.see_notice(ends(code=75), durable=durable)
        assert judge.found.lost == lost
    judge.see_notice(ends(code=1), durable=0)
    assert judge.found.lost == 1, "a world that also fails is judged by what was reported"


class Forge:
    """Counts how often all of its ranks are killed."""

    renewed = 0

    def renew(self) -> None:
        self.renewed += 1


def test_a_trial_without_an_end_is_a_problem_and_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [trial] = [trial for trial in drawn(6) if trial.ruin == HANGS]
    forge, over = Forge(), threading.Event()
    monkeypatch.setattr(story, "TRIAL_SECONDS", 0.01)
    monkeypatch.setattr(Story, "tell", lambda _: over.wait(60))
    found = run_trial(trial, forge, None, tmp_path)  # type: ignore[arg-type]
    over.set()
    assert "it has not ended in " in found.problems[0]
    assert "over.wait(60)" in found.problems[0]
    assert forge.renewed == 1


def test_a_trial_that_breaks_off_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: Story) -> None:
        raise ValueError("none of them can be used")

    forge = Forge()
    monkeypatch.setattr(Story, "tell", broken)
    found = run_trial(drawn(1)[0], forge, None, tmp_path)  # type: ignore[arg-type]
    assert "it broke off: ValueError('none of them can be used')" in found.problems[0]
    assert forge.renewed == 1
