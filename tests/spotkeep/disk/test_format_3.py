"""Checkpoints of format 3, kept as that format's library wrote them: they load bit for bit."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.inspection import InspectedCheckpoint
from spotkeep.ranks.rank_shares import view_for

KEPT = Path(__file__).parent / "format_3"


def one_state():
    return {
        "weights": np.arange(60, dtype="<f4").reshape(3, 4, 5),
        "columns": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        "channels_last": np.arange(48, dtype="<i2").reshape(2, 3, 2, 4).transpose(0, 3, 1, 2),
        "raw": bytes(range(256)),
        "empty": np.zeros((0, 3)),
        "loss": np.float32(0.25),
        "optimizer": {"state": {0: {"step": 3.0, "exp_avg": np.full(7, -0.0)}}, "groups": [{"lr": 0.1, "params": [0]}]},
        "random": random.Random(5).getstate(),  # noqa: S311
        "large": 2**80,
    }


def common_state(rank):
    return {"model": {"weight": np.arange(2000.0), "own": np.full(9, rank)}, "loss": [0.5, 0.25][: 1 + rank]}


def own_state(rank):
    return {"rng": np.arange(3) + rank, "seen": b"%d" % rank * 100}


def same(one, other):
    """Whether two values have the same types, the same bits, and the same order in memory."""
    if isinstance(one, np.ndarray):
        alike = isinstance(other, np.ndarray) and (one.dtype, one.strides) == (other.dtype, other.strides)
        return alike and one.tobytes("A") == other.tobytes("A")
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, (list, tuple)):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def test_what_one_process_wrote_in_several_files_comes_back():
    found = CheckpointDirectory(KEPT / "one").read(5)
    assert same(found.state, one_state())
    assert (found.epochs_completed, found.metrics) == (1, {"loss": 0.5})
    with InspectedCheckpoint(KEPT / "one", 5) as inspected:
        assert len(inspected.manifest.files) == 4
        assert list(inspected.damage()) == []
        weights = next(entry for entry in inspected.entries() if entry.name == "weights")
        assert b"".join(inspected.pieces(weights)) == one_state()["weights"].tobytes()


def test_what_two_ranks_wrote_comes_back_to_each_of_them():
    for rank in (0, 1):
        live = {**common_state(0), **own_state(0)}
        live["model"]["weight"][:] = -1
        found = CheckpointDirectory(KEPT / "two").open(
            7,
            live=live,
            view=lambda one, rank=rank: view_for(one, rank=rank, world_size=2, per_rank=["rng", "seen"]),
        )
        found.fill()
        assert same(found.state, {**common_state(rank), **own_state(rank)})
        assert found.state["model"]["weight"] is live["model"]["weight"], "filled in place"
    assert found.manifest.made_by == {"command line": "--lr 0.1"}


def test_a_tool_sees_what_both_ranks_wrote():
    state = CheckpointDirectory(KEPT / "two").read(7).state
    assert same(state["rank 1"], {"model": {"own": np.full(9, 1)}, "loss": [0.5, 0.25], **own_state(1)})
