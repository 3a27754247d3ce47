"""The trials of ranks are drawn, judged and taken up again as they should be."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.torture.checkpoint.interposition import EXCHANGE
from tests.torture.checkpoint.ranks.__main__ import TrialJournal
from tests.torture.checkpoint.ranks.trials import GROUPS, RankJudge, RankTrial, plan
from tests.torture.checkpoint.ranks.world import DID_NOT_END, KILLED, RankEnd, understand
from tests.torture.checkpoint.trials import TrialFindings

CALLS = [["mkdir", "fsync", EXCHANGE, "open", "pwrite", "fsync", EXCHANGE, "replace"], *[["open", "pwrite"]] * 3]


def drawn(trials: int, by_torchrun: int = 0, seed: int = 1) -> list[RankTrial]:
    return plan(seed=seed, trials=trials, by_torchrun=by_torchrun, calls=CALLS)


def test_the_whole_form_kills_each_rank_at_each_file_operation_and_message() -> None:
    trials = drawn(1000, 30)
    assert len(trials) == 1000
    assert sum(trial.by_torchrun for trial in trials) == 30
    kills = {(trial.rank, trial.call, trial.name) for trial in trials if trial.kind == "kill"}
    operations = ["mkdir", "fsync", "open", "pwrite", "fsync", "replace"]
    assert kills == {
        *((0, number, name) for number, name in enumerate(operations)),
        *((rank, number, name) for rank in (1, 2, 3) for number, name in enumerate(("open", "pwrite"))),
    }
    messages = {(trial.rank, trial.call) for trial in trials if trial.kind == "kill-message"}
    assert messages == {(0, 0), (0, 1)}
    assert {trial.group for trial in trials} == set(GROUPS)
    assert {ranks for trial in trials for ranks in trial.then} == {1, 2, 3, 4}
    assert any(trial.second is not None for trial in trials)


def test_the_short_form_has_some_of_each_and_a_seed_brings_the_same_trials_back() -> None:
    assert len(drawn(40, 1)) == 40
    assert min(Counter(trial.group for trial in drawn(40, 1)).values()) == 1
    assert {trial.group for trial in drawn(40, 1)} == set(GROUPS)
    assert drawn(40, 1) == drawn(40, 1)
    assert drawn(40, 1) != drawn(40, 1, seed=2)


def facts(step: int, *, rank: int, saved_by: int, ranks: int, **changed: Any) -> dict[str, Any]:
    places = [{"rank": number, "ranks": saved_by, "step": step} for number in range(saved_by)]
    return {
        "what": "restored",
        "step": step,
        "rank": rank,
        "tensors": {"common": {"steps": [step], "misplaced": 0}},
        "apart of": rank if ranks == saved_by else 0,
        "history": [*range(1, step + 1)],
        "worlds": [0] * step,
        "ranks": saved_by,
        "places": [places[rank]] if ranks == saved_by else places,
        "random": rank if rank < saved_by else None,
        **changed,
    }


def ends(*changes: dict[str, Any], saved_by: int = 4, code: int | str = 0) -> list[RankEnd]:
    """Give the ends of ranks that restore step 2 and train to step 4, each with other facts or an own exit code."""
    found = []
    for rank, changed in enumerate(changes):
        restored = facts(**{"step": 2, "rank": rank, "saved_by": saved_by, "ranks": len(changes), **changed})
        last = {**facts(4, rank=rank, saved_by=saved_by, ranks=len(changes)), "what": "finished"}
        words = (restored, {"what": "begun", "step": 3}, {"what": "durable", "step": 3}, last)
        found.append(RankEnd(exit_code=code if rank == 0 else 0, words=words, errors="a word\nthe last one\n"))
    return found


def judged(found: list[RankEnd], **options: Any) -> RankJudge:
    judge = RankJudge(title="a trial", durable=1, begun=3)
    judge.see(found, total_steps=4, **options)
    return judge


@pytest.mark.parametrize("ranks", [1, 2, 4, 5])
def test_a_whole_restore_by_any_number_of_ranks_is_no_problem(ranks: int) -> None:
    judge = judged(ends(*[{}] * ranks))
    assert judge.found == TrialFindings(trials=1, figures={"an older one restored": 1})
    assert (judge.durable, judge.begun) == (3, 3)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tensors": {"common": {"steps": [1, 2], "misplaced": 0}}}, "numbers of the steps [1, 2]"),
        ({"tensors": {"common": {"steps": [2], "misplaced": 7}}}, "7 of them from elsewhere"),
        ({"tensors": {"common": {"steps": [1], "misplaced": 0}}}, "numbers of the steps [1]"),
        ({"history": [1]}, "the history [1] of step 2"),
        ({"apart of": 1}, "the common part that differs 1 and not 0"),
        ({"places": []}, "the place [] and not"),
        ({"random": 1}, "the random state 1 and not 0"),
        ({"step": 3}, "restored different steps: [2, 3]"),
    ],
)
def test_a_mixed_state_is_a_problem(changed: dict[str, Any], said: str) -> None:
    judge = judged(ends(changed, {}))
    assert judge.found.corrupt >= 1
    assert said in " ".join(judge.found.problems)


def test_what_was_durable_may_not_be_lost_nor_what_was_never_begun_appear() -> None:
    judge = RankJudge(title="a trial", durable=3, begun=3)
    judge.see(ends({}, {}), total_steps=4)
    assert judge.found.lost == 1
    judge = RankJudge(title="a trial", durable=0, begun=1)
    judge.see(ends({}, {}), total_steps=4)
    assert "step 2 was restored, and 1 is the newest that was begun" in judge.found.problems[0]


@pytest.mark.parametrize("code", [1, -6, DID_NOT_END, KILLED])
def test_an_attempt_that_is_left_alone_ends_with_code_0(code: int | str) -> None:
    [problem] = judged(ends({}, {}, code=code)).found.problems
    assert problem.startswith("a trial: rank 0 ")
    assert problem.endswith(": the last one")


def test_after_a_kill_the_others_end_with_an_error_and_do_not_hang() -> None:
    def rank(code: int | str) -> RankEnd:
        return RankEnd(exit_code=code, words=(), errors="")

    assert judged([rank(1), rank(KILLED), rank(1)], victim=1).found == TrialFindings(trials=1, kills=1)
    assert judged([rank(1), rank(KILLED), rank(DID_NOT_END)], victim=1).found.problems
    assert judged([rank(KILLED), rank(KILLED), rank(1)], victim=1).found.problems
    assert not judged([rank(KILLED), rank(KILLED), rank(1)], victim=1, all_die=True).found.problems
    # Nothing struck, so all must come to the end.
    assert len(judged([rank(0), rank(0)], victim=1).found.problems) == 2


def test_a_line_that_a_kill_cut_short_is_no_word() -> None:
    end = understand('torture: {"what": "durable", "step": 1}\nan error\ntorture: {"what": "dur', KILLED)
    assert end == RankEnd(exit_code=KILLED, words=({"what": "durable", "step": 1},), errors="an error\n")


def test_a_journal_goes_on_with_its_own_run_alone(tmp_path: Path) -> None:
    path = tmp_path / "torture" / "journal.jsonl"
    run = {"seed": 1, "trials": 9, "torchrun": 0}
    journal = TrialJournal(path)
    assert journal.take_up(run) is None
    journal.begin(run, CALLS)
    journal.add(3, TrialFindings(trials=1, problems=("a problem",), figures={"kill": 1}))
    with path.open("a") as file:
        file.write('{"trial": 4, "fou')

    again = TrialJournal(path)
    assert again.take_up({**run, "seed": 2}) is None
    assert again.take_up(run) == CALLS
    assert again.done == journal.done
    again.add(5, TrialFindings(trials=1))
    assert [json.loads(line).get("trial") for line in path.read_text().splitlines()] == [None, 3, 5]
    other = TrialJournal(path)
    other.sources = "other sources"
    assert other.take_up(run) is None
    assert other.take_up(run, of_any_sources=True) == CALLS, "one trial is done again after its cause is mended"
