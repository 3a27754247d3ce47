"""Compares the library with an earlier commit of it, in turn on one machine.

`python -m benchmarks.checkpoint.before COMMIT`. Each round is a process of one and a process of the other, so that a
machine that slows down slows both. A figure is a median of the rounds' ratios with its 95% interval. A save is that of
a model of 100 parameters and AdamW. A step is one of
`ResumableTraining` with a small model, a few milliseconds long. With a larger one the library's share would be smaller.
A saved step is one of the first model, in a loop with a save every ten steps.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.paired import paired_ratio

_ROOT = Path(__file__).parents[2]
_BOUNDS = {"save call": 1.05, "save durable": 1.05, "restore": math.inf, "step": 1.01, "saved step": 1.01}
"""The most that each may take, as a ratio to before. A restore happens once in a start, so it has no bound."""
_SAVES, _STEPS_PER_EPOCH, _EPOCHS = 9, 200, 4
_STEPS_PER_SAVE, _FIRST_STEPS, _COUNTED_STEPS = 10, 160, 50
"""The library has chosen its way to copy after its first saves."""
_EARLIER_WAIT = "wait_until_durable"
"""The name of `wait` in earlier builds."""


def main() -> int:
    """Measure and print a table. Return 1 when a figure is beyond its bound with all of its interval."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", help="what to compare with, as git names it")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--output", type=Path, default=_ROOT / ".spotkeep/bench/before.json")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        sys.stdout.write(json.dumps(measure()))
        return 0
    if options.commit is None:
        parser.error("name the commit to compare with, for example HEAD~1")
    with tempfile.TemporaryDirectory(prefix="spotkeep-before-") as scratch:
        before = library_of(options.commit, Path(scratch))
        rounds: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
        for number in range(options.rounds):
            for name, library in (("before", before), ("now", _ROOT / "training")):
                sys.stderr.write(f"round {number + 1} of {options.rounds}: {name}\n")
                rounds[name].append(_measured_with(library))
    figures = compared(rounds["before"], rounds["now"])
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"commit": options.commit, "figures": figures, "rounds": rounds}, indent=1))
    print(f"{'figure':14}{'before':>12}{'now':>12}{'ratio':>8}{'95%':>17}{'at most':>9}")
    for name, figure in figures.items():
        times = f"{figure['before_ms']:>9.3f} ms{figure['now_ms']:>9.3f} ms"
        bound = "-" if math.isinf(_BOUNDS[name]) else _BOUNDS[name]
        interval = " to ".join("?" if figure[end] is None else f"{figure[end]:.3f}" for end in ("low", "high"))
        print(f"{name:14}{times}{figure['ratio']:>8.3f}{interval:>17}{bound:>9}  {figure['verdict']}")
    print(f"All rounds: {options.output}")
    return int(any(figure["verdict"] == "not met" for figure in figures.values()))


def compared(before: list[dict[str, float]], now: list[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Return each figure of both in milliseconds, medians of the rounds, and the judged ratio of the rounds."""
    figures = {}
    for name, bound in _BOUNDS.items():
        ratio = paired_ratio([one[name] for one in now], [one[name] for one in before])
        figures[name] = {
            "before_ms": round(1000 * statistics.median(one[name] for one in before), 4),
            "now_ms": round(1000 * statistics.median(one[name] for one in now), 4),
            "ratio": round(ratio.median, 4),
            "low": round(ratio.low, 4) if math.isfinite(ratio.low) else None,
            "high": round(ratio.high, 4) if math.isfinite(ratio.high) else None,
            "verdict": ratio.verdict(bound),
        }
    return figures


def measure() -> dict[str, float]:
    """Measure the library that is imported, in seconds. The least of several, which the neighbours disturb least."""
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(prefix="spotkeep-before-") as scratch:
        return {
            **_saves(torch, Path(scratch) / "saves"),
            "step": _step(torch, Path(scratch) / "steps"),
            "saved step": _saved_step(torch, Path(scratch) / "saved-steps"),
        }


def _model(torch: Any) -> tuple[Any, Any]:
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(50)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 512)).sum().backward()
    optimizer.step()
    return model, optimizer


def _saved_step(torch: Any, directory: Path) -> float:
    spotkeep: Any = import_module("spotkeep")
    model, optimizer = _model(torch)
    state = {"model": model, "optimizer": optimizer}
    began = 0.0
    with spotkeep.Checkpointer(state, directory, every_steps=_STEPS_PER_SAVE) as checkpointer:
        for step in checkpointer.steps(_FIRST_STEPS + _COUNTED_STEPS + 1):
            if step == _FIRST_STEPS:
                began = time.perf_counter()
            if step == _FIRST_STEPS + _COUNTED_STEPS:
                return (time.perf_counter() - began) / _COUNTED_STEPS
            optimizer.zero_grad()
            model(torch.randn(64, 512)).square().mean().backward()
            optimizer.step()
    raise AssertionError("the loop ended before its last step")


def _saves(torch: Any, directory: Path) -> dict[str, float]:
    spotkeep: Any = import_module("spotkeep")
    model, optimizer = _model(torch)
    state = {"model": model, "optimizer": optimizer}
    calls, durable = [], []
    with spotkeep.Checkpointer(state, directory, every_steps=10**9) as checkpointer:
        for step in range(1, _SAVES + 1):
            began = time.perf_counter()
            checkpointer.save(step, wait=False)
            calls.append(time.perf_counter() - began)
            getattr(checkpointer, "wait" if hasattr(checkpointer, "wait") else _EARLIER_WAIT)()
            durable.append(time.perf_counter() - began)

    def restore() -> None:
        spotkeep.Checkpointer(state, directory).restore()

    return {"save call": min(calls[2:]), "save durable": min(durable[2:]), "restore": _least(restore, rounds=5)}


def _step(torch: Any, directory: Path) -> float:
    spotkeep: Any = import_module("spotkeep")
    data: Any = import_module("torch.utils.data")
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(256, 256) for _ in range(6)))
    optimizer = torch.optim.AdamW(model.parameters())
    training = spotkeep.ResumableTraining({"model": model, "optimizer": optimizer}, directory=directory)
    rows = torch.randn(_STEPS_PER_EPOCH * 64, 256)
    loader = training.loader(data.DataLoader(data.TensorDataset(rows), 64, shuffle=True))
    epochs = []
    for _ in training.epochs(_EPOCHS):
        began = time.perf_counter()
        for (batch,) in loader:
            optimizer.zero_grad()
            (model(batch) - batch).pow(2).mean().backward()
            optimizer.step()
        epochs.append(time.perf_counter() - began)
    return min(epochs) / _STEPS_PER_EPOCH


def _least(act: Callable[[], None], *, rounds: int) -> float:
    durations = []
    for _ in range(rounds):
        began = time.perf_counter()
        act()
        durations.append(time.perf_counter() - began)
    return min(durations)


def library_of(commit: str, scratch: Path) -> Path:
    """Unpack the library of a commit, with the compiled routine of this one, since git does not keep the routine."""
    archive = scratch / "library.zip"
    subprocess.run(["git", "archive", "--output", str(archive), commit, "training"], cwd=_ROOT, check=True)
    # Python 3.11 unpacks no tar archive by a filter before 3.11.4, and Debian 12 has 3.11.2.
    shutil.unpack_archive(archive, scratch)
    for compiled in (_ROOT / "training/spotkeep/native").glob("*.so"):
        shutil.copy(compiled, scratch / "training/spotkeep/native")
    return scratch / "training"


def _measured_with(library: Path) -> dict[str, float]:
    environment = {
        **os.environ,
        "PYTHONPATH": str(library),
        "SPOTKEEP_EVENTS": "",
        "OMP_NUM_THREADS": "1",
        # glibc moves these bounds when a large block is freed, and a step takes 7% more where it has not moved them.
        "MALLOC_MMAP_THRESHOLD_": str(2**29),
        "MALLOC_TRIM_THRESHOLD_": str(2**32),
    }
    command = [sys.executable, "-m", "benchmarks.checkpoint.before", "--measure"]
    done = subprocess.run(command, cwd=_ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
