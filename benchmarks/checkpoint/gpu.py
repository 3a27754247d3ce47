"""Measures what saves cost a training on a GPU, and restores the last one (`python -m benchmarks.checkpoint.gpu`).

A round trains without saves, and then with a save every ten steps, in turn. The steps are made so long that the disk
keeps up, from the first saves, because a save waits for the one before. It takes ten minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
import time
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.paired import paired_ratio
from benchmarks.report import STATE
from spotkeep import Checkpointer
from spotkeep.disk.late_copy import LateCopy
from spotkeep.schedule.late_copying import COMPARED_SAVES, TRIED_SAVES

_TARGET = 1.01
"""The time with saves, as a ratio to that without."""
_EVERY_STEPS = 10
_FLOATS_OF_A_PARAMETER = 3
_WIDTH = 4096
_SPARE = 1.5
"""Ten steps take so many times as long as a save until it is durable."""


class Training:
    """A model of square layers with AdamW, and steps of a chosen length.

    Args:
        device: The device, as torch names it.
        state_bytes: The size of parameters and moments.
        width: The width of the layers.
    """

    def __init__(self, *, device: str, state_bytes: int, width: int) -> None:
        self._torch: Any = import_module("torch")
        self._torch.manual_seed(0)
        layers = max(state_bytes // (4 * _FLOATS_OF_A_PARAMETER * width * width), 1)
        self.model = self._torch.nn.Sequential(*(self._torch.nn.Linear(width, width) for _ in range(layers))).to(device)
        self.optimizer = self._torch.optim.AdamW(self.model.parameters(), 1e-5)
        self.batches = 1
        self._batch = self._torch.rand(256, width, device=device)
        self._on_gpu = device.startswith("cuda")

    @property
    def state(self) -> dict[str, Any]:
        """The state for a Checkpointer."""
        return {"model": self.model, "optimizer": self.optimizer}

    def step(self) -> None:
        """Train on some batches, and do a step of the optimizer."""
        self.optimizer.zero_grad()
        for _ in range(self.batches):
            self.model(self._batch).square().mean().backward()
        self.optimizer.step()

    def digest(self) -> list[float]:
        """Give sums that differ for another state."""
        values = [value for of_one in self.optimizer.state.values() for value in of_one.values()]
        return [float(tensor.detach().double().sum()) for tensor in [*self.model.parameters(), *values]]

    def seconds(self, steps: Any) -> float:
        """Train for some steps, to the end of the last one on the GPU."""
        self._wait()
        began = time.perf_counter()
        for _ in steps:
            self.step()
        self._wait()
        return time.perf_counter() - began

    def _wait(self) -> None:
        if self._on_gpu:
            self._torch.cuda.synchronize()


def main() -> int:
    """Measure, print and write JSON. Return 0 with any figures, 1 for a wrong restore, and 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint.gpu", description=__doc__)
    parser.add_argument("--state-gib", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--saves", type=int, default=3, help="saves of a round (default %(default)s)")
    parser.add_argument("--device", default="cuda", help="as torch names it; cpu shows that it runs")
    parser.add_argument("--quick", action="store_true", help="a small state, two rounds: shows that it runs")
    parser.add_argument("--directory", type=Path, default=STATE / "bench" / "gpu-checkpoints")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "gpu.json")
    options = parser.parse_args()
    torch: Any = import_module("torch")
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.stderr.write("This benchmark needs a GPU, and torch finds none: run it on a machine that has one.\n")
        return 2
    width = _WIDTH
    if options.quick:
        options.state_gib, options.rounds, options.saves, width = 1 / 64, 2, 1, 512
    shutil.rmtree(options.directory, ignore_errors=True)
    try:
        found = measure(options, width=width)
    finally:
        shutil.rmtree(options.directory, ignore_errors=True)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(found, indent=1))
    ratio = found["ratio"]
    print(f"{options.state_gib:g} GiB, a save every {_EVERY_STEPS} steps of {found['step_seconds']:.3f} s")
    low, high = ("?" if ratio[end] is None else f"{ratio[end]:.4f}" for end in ("low", "high"))
    print(f"with saves / without: {ratio['median']:.4f}, 95% {low} to {high}")
    print(f"at most {_TARGET}: {found['verdict']}. Late copies: {found['late_copies']} of {found['saves']} saves")
    print(f"the last checkpoint came back {'to the bit' if found['restored'] else 'WRONG'}. All: {options.output}")
    return 0 if found["restored"] else 1


def measure(options: argparse.Namespace, *, width: int) -> dict[str, Any]:
    """Train round by round. Returns the figures as JSON."""
    training = Training(device=options.device, state_bytes=int(options.state_gib * 2**30), width=width)
    late: list[LateCopy] = []
    saves = 0
    without, with_saves = [], []
    steps = options.saves * _EVERY_STEPS
    first = (COMPARED_SAVES + 2 * TRIED_SAVES + 2) * _EVERY_STEPS
    with Checkpointer(training.state, options.directory, every_steps=_EVERY_STEPS, keep_last=2) as checkpointer:
        row = checkpointer.steps(first + options.rounds * steps)
        training.seconds(next(row) for _ in range(first))
        began = time.perf_counter()
        checkpointer.save(checkpointer.step)
        durable = time.perf_counter() - began
        step_seconds = training.seconds(range(_EVERY_STEPS)) / _EVERY_STEPS
        if not options.quick:
            training.batches = max(round(_SPARE * durable / _EVERY_STEPS / step_seconds), 1)
        really_copy = LateCopy.copy

        def note(copy: LateCopy) -> None:
            late.append(copy)
            really_copy(copy)

        LateCopy.copy = note  # type: ignore[assignment, method-assign]
        try:
            for number in range(options.rounds):
                sys.stderr.write(f"round {number + 1} of {options.rounds}\n")
                # No save is running: the last one of a round has ended.
                checkpointer.wait()
                without.append(training.seconds(range(steps)))
                with_saves.append(training.seconds(next(row) for _ in range(steps)))
                saves += options.saves
        finally:
            LateCopy.copy = really_copy  # type: ignore[method-assign]
        for _ in row:
            raise AssertionError("a step is left")
    expected = training.digest()
    for parameter in training.model.parameters():
        parameter.data.zero_()
    Checkpointer(training.state, options.directory).restore()
    ratio = paired_ratio(with_saves, without)
    return {
        "device": options.device,
        "state_gib": options.state_gib,
        "step_seconds": without[-1] / steps,
        "ratio": {name: end if math.isfinite(end) else None for name, end in asdict(ratio).items()},
        "target": _TARGET,
        "verdict": ratio.verdict(_TARGET),
        "without_s": without,
        "with_saves_s": with_saves,
        "saves": saves,
        "late_copies": sum(not copy._compares for copy in late),
        "restored": training.digest() == expected,
    }


if __name__ == "__main__":
    raise SystemExit(main())
