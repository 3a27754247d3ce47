"""The training that is tortured: small, fast, and different in every bit after every step.

``python -m tests.torture.checkpoint.training DIRECTORY`` is one attempt of it. Everything in the state changes in
place in each step, so a checkpoint that mixes two steps, or holds another one than it says, has another digest than
the reference has for that step.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from spotkeep import Checkpointer
from tests.torture.checkpoint import interposition

LINE_PREFIX = "torture: "
_SEED = 20260
_FENCE = 2**10


def mark_of(worlds: Sequence[int]) -> int:
    """Give the number that each tensor shows in the place of its step, after steps of the worlds with these fences."""
    return sum(1 + _FENCE * fence for fence in worlds)


class Training:
    """Weights, moments, a random generator and a history, like a real training's state.

    Args:
        state_bytes: About how large the state is.
    """

    def __init__(self, *, state_bytes: int) -> None:
        count = max(state_bytes // (3 * 4 * 4), 1)
        self.arrays = {
            f"{kind}-{layer}": np.linspace(layer, layer + 1, count + layer, dtype=np.float32)
            for kind in ("weights", "first moment", "second moment")
            for layer in range(4)
        }
        self.rng = np.random.default_rng(_SEED)
        self.history: dict[str, Any] = {"losses": []}

    @property
    def state(self) -> dict[str, Any]:
        """What a checkpoint holds."""
        return {"arrays": self.arrays, "rng": self.rng, "history": self.history}

    def take_step(self) -> None:
        """Change every element of the state in place."""
        noise = self.rng.random(len(self.arrays), dtype=np.float32)
        for array, amount in zip(self.arrays.values(), noise, strict=True):
            np.multiply(array, np.float32(0.999), out=array)
            np.add(array, amount, out=array)
        self.history["losses"].append(float(noise.sum()))

    def digest(self) -> str:
        """Name the exact state: equal digests, equal bits."""
        digest = hashlib.sha256()
        for name in sorted(self.arrays):
            digest.update(name.encode())
            digest.update(np.ascontiguousarray(self.arrays[name]).tobytes())
        digest.update(repr(self.rng.bit_generator.state).encode())
        digest.update(repr(self.history).encode())
        return digest.hexdigest()


def reference_digests(*, total_steps: int, state_bytes: int) -> list[str]:
    """Train without any checkpoint. Gives the digest after each number of completed steps, from 0 on."""
    training = Training(state_bytes=state_bytes)
    digests = [training.digest()]
    for _ in range(total_steps):
        training.take_step()
        digests.append(training.digest())
    return digests


CHECKPOINTS = "run/checkpoints"
"""Where a training's checkpoints are in its directory: the library makes that, and what is above it."""


def train(directory: Path, *, total_steps: int, every_steps: int, state_bytes: int) -> None:
    """Resume, trains to the end, and print what was restored and what came out.

    Raises:
        SystemExit: With the library's code, after a notice.
    """
    training = Training(state_bytes=state_bytes)
    checkpoints = directory / CHECKPOINTS
    with Checkpointer(training.state, directory=checkpoints, every_steps=every_steps, keep_last=2) as checkpointer:
        _say("restored", step=checkpointer.step, digest=training.digest())
        for _ in checkpointer.steps(total_steps):
            training.take_step()
        step = checkpointer.step
    _say("finished", step=step, digest=training.digest())


def main() -> int:
    """Make one attempt, with the fault that the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.torture.checkpoint.training")
    parser.add_argument("directory", type=Path)
    parser.add_argument("--total-steps", type=int, required=True)
    parser.add_argument("--every-steps", type=int, required=True)
    parser.add_argument("--state-bytes", type=int, required=True)
    parser.add_argument("--fault", type=interposition.parse_fault, help="KIND:CALL, for example kill:17")
    parser.add_argument("--record", type=Path, help="write down every call that changes the directory")
    options = parser.parse_args()
    if options.fault is not None or options.record is not None:
        interposition.install(options.directory, fault=options.fault, record=options.record)
    train(
        options.directory,
        total_steps=options.total_steps,
        every_steps=options.every_steps,
        state_bytes=options.state_bytes,
    )
    return 0


def _say(what: str, **fields: Any) -> None:
    sys.stdout.write(LINE_PREFIX + json.dumps({"what": what, **fields}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    os.environ["SPOTKEEP_EVENTS"] = "stdout"
    sys.exit(main())
