"""A checkpoint of n ranks is restored by m ranks to the bit: as DCP does it, and as the whole tensors were.

`make test-reshard` does this for all n and m up to 8 with each kind of training. Here are 24 pairs, drawn once.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.spotkeep.ranks.resharding.__main__ import KINDS, verdicts_of_save
from tests.spotkeep.ranks.resharding.pool import RankPool, WorldError
from tests.spotkeep.ranks.resharding.verdict import Pair, verdict_on

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

PAIRS = (
    ("fsdp", 2, 4),
    ("fsdp", 3, 4),
    ("fsdp", 6, 3),
    ("tensor parallel", 1, 8),
    ("tensor parallel", 4, 6),
    ("tensor parallel", 5, 6),
    ("hybrid", 3, 7),
    ("hybrid", 4, 2),
    ("hybrid", 6, 1),
    ("pipeline", 7, 3),
    ("pipeline", 7, 8),
    ("pipeline", 8, 1),
    ("older fsdp", 2, 1),
    ("older fsdp", 2, 8),
    ("older fsdp", 5, 3),
    ("ddp to fsdp", 3, 6),
    ("ddp to fsdp", 8, 2),
    ("ddp to fsdp", 8, 7),
    ("fsdp to ddp", 1, 2),
    ("fsdp to ddp", 5, 7),
    ("fsdp to ddp", 6, 4),
    ("wide", 1, 5),
    ("wide", 4, 5),
    ("wide", 7, 5),
)


@pytest.fixture(scope="module")
def pool() -> Iterator[RankPool]:
    with RankPool() as pool:
        yield pool


def test_the_drawn_pairs_have_each_number_of_ranks_and_each_kind() -> None:
    from tests.spotkeep.ranks.resharding import models

    assert len(set(PAIRS)) == 24
    assert {kind for kind, _, _ in PAIRS} == set(KINDS) == set(models.KINDS)
    for ranks in range(1, 9):
        assert sum(saved_by == ranks for _, saved_by, _ in PAIRS) == 3
        assert sum(restored_by == ranks for _, _, restored_by in PAIRS) == 3


@pytest.mark.parametrize(("kind", "saved_by", "restored_by"), PAIRS)
def test_a_checkpoint_is_restored_to_the_bit(
    pool: RankPool, tmp_path: Path, kind: str, saved_by: int, restored_by: int
) -> None:
    [verdict] = verdicts_of_save(pool, tmp_path, kind=kind, saved_by=saved_by, restored_by=[restored_by])
    assert verdict.problems == ()


def test_a_training_goes_on_through_many_numbers_of_ranks(pool: RankPool, tmp_path: Path) -> None:
    left = None
    for number, ranks in enumerate((3, 5, 1, 2, 4, 8, 6)):
        job = {"do": "go on", "seed": number, "ours": str(tmp_path / "ours")}
        answers = pool.run(job, ranks=ranks, folder=tmp_path)
        assert [answer["began"] for answer in answers] == [2 * number] * ranks
        if left is not None:
            assert answers[0]["found"] == left
        assert answers[0]["left"] != answers[0]["found"]
        left = answers[0]["left"]


def test_a_rank_that_fails_is_named_and_the_pool_goes_on(pool: RankPool, tmp_path: Path) -> None:
    job = {"kind": "ddp to fsdp", "seed": 1, "ours": str(tmp_path / "none"), "theirs": str(tmp_path / "none")}
    with pytest.raises(WorldError, match="rank 0: "):
        pool.run({**job, "do": "restore"}, ranks=2, folder=tmp_path)
    assert len(pool.run({**job, "do": "save"}, ranks=2, folder=tmp_path)) == 2


def test_the_verdict_names_each_difference() -> None:
    pair = Pair(kind="wide", saved_by=2, restored_by=3)
    saved = [{"written": 100, "random": f"r{rank}", "whole": {"w": "a"}} for rank in range(2)]
    equal = {"step": 3, "differing": [], "differing after a step": [], "whole": {"w": "a"}, "versions": [1]}
    equal |= {"versions by DCP": [2], "read": 100, "held": 100}
    restored = [{**equal, "random": f"r{rank}"} for rank in range(3)]
    verdict = verdict_on(pair, saved, restored)
    assert (verdict.problems, verdict.read_ratio, verdict.written_ratio) == ((), 1.0, 1.0)
    for rank, change, said in (
        (1, {"step": 0}, "rank 1 goes on after step 0 instead of 3"),
        (2, {"differing": ["w: x instead of y"]}, "rank 2 after the restore, 1 differences from DCP: w: x instead"),
        (0, {"differing after a step": ["w: x"]}, "rank 0 after one more step, 1 differences from DCP: w: x"),
        (0, {"whole": {"w": "b"}}, "w as a whole is b instead of a"),
        (2, {"versions": [None]}, "rank 2 gave its loader the versions [None] instead of 1"),
        (0, {"random": "x"}, "rank 0 did not get its own random state back"),
        (2, {"random": "r0"}, "rank 2 has the random state of another rank"),
        (1, {"read": 10**9}, "rank 1 read 1,000,000,000 bytes for 100"),
    ):
        changed = [dict(answer) for answer in restored]
        changed[rank] |= change
        [problem] = verdict_on(pair, saved, changed).problems
        assert problem.startswith(said)
    [problem] = verdict_on(pair, [{**saved[0], "written": 10**8}, saved[1]], restored).problems
    assert "not even" in problem
