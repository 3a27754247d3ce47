"""The judge of the trials with several ranks, and a short form of them."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.torture.checkpoint import rank_trials
from tests.torture.checkpoint.rank_training import ROWS, generator_digest, rows_digest, table_at
from tests.torture.checkpoint.rank_trials import SIZE, RankAttempt, RankJudge, kill_ranks
from tests.torture.checkpoint.training import reference_digests
from tests.torture.checkpoint.trials import TrialFindings

REFERENCES = reference_digests(total_steps=SIZE.total_steps, state_bytes=SIZE.state_bytes)


def words(rank: int, step: int, **changed: Any) -> dict[str, Any]:
    rows = [0, 19] if rank == 0 else [19, ROWS]
    return {
        "step": step, "common": REFERENCES[step], "rows": rows, "table": rows_digest(table_at(step)[slice(*rows)]),
        "own": generator_digest(rank, step), "place": step, **changed,
    }  # fmt: skip


ATTEMPT = RankAttempt(
    world_size=2,
    exit_codes=(0, 0),
    said=tuple({"restored": words(rank, 4), "finished": words(rank, 6)} for rank in (0, 1)),
    durable=6,
    errors=("", ""),
)


def said_by_rank_1(**restored: Any) -> tuple[dict[str, Any], ...]:
    return (ATTEMPT.said[0], {**ATTEMPT.said[1], "restored": words(1, 4, **restored)})


@pytest.mark.parametrize(
    ("changed", "expected", "problem"),
    [
        ({}, (0, 0, 0), None),
        ({"exit_codes": (0, None)}, (0, 0, 0), "rank 1 did not end"),
        (
            {"said": ({"restored": words(0, 2)}, {"restored": words(1, 4)})},
            (1, 2, 2),
            "the ranks restored the steps [2, 4]",
        ),
        ({"said": said_by_rank_1(table="another")}, (1, 0, 0), "on rank 1 of 2, step 4 has other values: table"),
        ({"said": said_by_rank_1(place=2, own="another")}, (1, 0, 0), "other values: place, own"),
        ({"said": (ATTEMPT.said[0], {"restored": words(1, 4)})}, (0, 0, 1), "rank 1 did not come to the end"),
    ],
    ids=["fine", "hangs", "two steps", "another table", "another place", "no end"],
)
def test_the_judge_of_ranks(changed: dict[str, Any], expected: tuple[int, int, int], problem: str | None) -> None:
    judge = RankJudge("a trial")
    judge.see(replace(ATTEMPT, durable=4, said=({}, {}), exit_codes=(-9, 1)), killed=0)
    judge.see(replace(ATTEMPT, **changed), killed=None)
    found = judge.found
    assert found.kills == 1
    assert (found.mixed, found.lost, found.wrong_ends) == expected
    assert bool(found.problems) == (problem is not None)
    assert problem is None or any(problem in one for one in found.problems)


@pytest.mark.parametrize(("ranks", "mixed"), [(1, 0), (2, 1)])
def test_a_generator_is_compared_on_ranks_that_every_attempt_had(ranks: int, mixed: int) -> None:
    judge = RankJudge("a trial")
    first = replace(ATTEMPT, world_size=ranks, exit_codes=(-9, 1)[:ranks], said=({},) * ranks, durable=0)
    judge.see(first, killed=0)
    judge.see(replace(ATTEMPT, said=said_by_rank_1(own="another")), killed=None)
    assert judge.found.mixed == mixed


@pytest.mark.torch
@pytest.mark.long
def test_a_run_that_was_stopped_goes_on_with_the_trials_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The trials are real ones, and find nothing."""
    pytest.importorskip("torch")
    kept = tmp_path / "kept.jsonl"
    monkeypatch.setattr(rank_trials, "RANKS", (2, 3))
    monkeypatch.setattr(rank_trials, "FIRST_RANKS", 2)
    names = ["mkdir", "open", "pwrite", "fsync"] * 4
    monkeypatch.setattr(rank_trials, "_record_calls", lambda free: {"2": [names] * 2, "3": [names] * 3})
    really, begun = rank_trials._trial, []

    def stopped_at_the_second(name: str, *arguments: Any, **options: Any) -> TrialFindings:
        begun.append(name)
        if begun == ["forked 0", "forked 1"]:
            raise KeyboardInterrupt
        return really(name, *arguments, **options)

    monkeypatch.setattr(rank_trials, "_trial", stopped_at_the_second)
    options: dict[str, Any] = {"count": 2, "torchrun": 0, "seed": 5, "pools": 1, "kept": kept}
    with pytest.raises(KeyboardInterrupt):
        kill_ranks(lambda done: None, **options)
    key, calls, first = map(json.loads, kept.read_text().splitlines())
    assert first["trial"] == "forked 0"
    found = kill_ranks(lambda done: None, **options)
    assert begun == ["forked 0", "forked 1", "forked 1"]
    assert found.trials == 2
    assert found.problems == ()
    assert not kept.exists()
    nothing = asdict(TrialFindings(trials=1, kills=first["found"]["kills"]))
    assert first["found"] == json.loads(json.dumps(nothing))
    kept.write_text(json.dumps(key) + "\n" + json.dumps(calls) + '\n{"trial": "forked 0", "fou')
    assert list(rank_trials._finished_trials(kept, seed=5)) == ["calls"]
    assert kept.read_text().count("\n") == 2
    assert rank_trials._finished_trials(kept, seed=6) == {}
