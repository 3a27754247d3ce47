"""Checkpoints of format 3, kept as that format's library wrote them: they load bit for bit."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np

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
