"""Measures restores beside bare reads, also on a busy machine (`python -m benchmarks.checkpoint.restores`).

`python -m benchmarks.checkpoint.restores COMMIT` measures an earlier commit too, in turn. A round is a process of each.
What is timed has real-time priority for some tenths of a second, so that other work takes no processor from it. Memory
and disk are shared all the same. Only root may ask for that priority. Others measure on a quiet machine.

Warm is a restore whose files the page cache has, against a read of as many bytes out of it by one thread. Cold is one
past the page cache, against a direct read. `bytes` is the part of a warm restore that reads and compares arrays.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.checkpoint.before import library_of
from benchmarks.paired import paired_ratio
from benchmarks.report import STATE

_ROOT = Path(__file__).parents[2]
_TARGETS = {"warm": 1.2, "cold": 1.1}
_RESTORES = 5
"""Restores of a process, and one more that does not count."""


def main() -> int:
    """Measure, print a table and write JSON. Return 0 with any figures, since a benchmark does not judge."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint.restores", description=__doc__)
    parser.add_argument("commit", nargs="?", help="what to compare with, as git names it (default nothing)")
    parser.add_argument("--state-gib", type=float, default=0.25)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="one small state, one round: shows that it runs")
    parser.add_argument("--directory", type=Path, default=STATE / "bench", help="a place on the disk to measure")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "restores.json")
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.state_gib, options.rounds = 1 / 64, 1
    options.directory.mkdir(parents=True, exist_ok=True)
    if options.measure:
        sys.stdout.write(json.dumps(measure(int(options.state_gib * 2**30), options.directory)))
        return 0
    with tempfile.TemporaryDirectory(prefix="spotkeep-restores-") as scratch:
        libraries = {"now": _ROOT / "training"}
        if options.commit is not None:
            libraries["before"] = library_of(options.commit, Path(scratch))
        rounds: dict[str, list[dict[str, float]]] = {name: [] for name in libraries}
        for number in range(options.rounds):
            for name in sorted(libraries, reverse=bool(number % 2)):
                sys.stderr.write(f"round {number + 1} of {options.rounds}: {name}\n")
                rounds[name].append(_measured_with(libraries[name], options))
    figures = compared(rounds)
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"state_gib": options.state_gib, "figures": figures, "rounds": rounds}))
    print(f"{options.state_gib:g} GiB{'':16}{'median':>9}{'95%':>17}")
    for name, figure in figures.items():
        interval = " to ".join("?" if figure[end] is None else f"{figure[end]:.3f}" for end in ("low", "high"))
        print(f"{name:24}{figure['median']:>9.3f}{interval:>17}  {figure['verdict']}")
    if not all(one["real_time"] for of_one in rounds.values() for one in of_one):
        print("without real-time priority: run it as root, or on a quiet machine")
    print(f"All rounds: {options.output}")
    return 0


def compared(rounds: dict[str, list[dict[str, float]]]) -> dict[str, dict[str, Any]]:
    """Return the ratios to bare reads of each build, and those of this build to the earlier one."""
    ratios = {}
    for name, of_one in rounds.items():
        for kind, target in _TARGETS.items():
            ratio = paired_ratio([one[kind] for one in of_one], [one[f"read {kind}"] for one in of_one])
            ratios[f"{name}: {kind} / read"] = (ratio, f"at most {target:g}: {ratio.verdict(target)}")
    if "before" in rounds:
        for kind in (*_TARGETS, "bytes"):
            now, before = ([one[kind] for one in rounds[name]] for name in ("now", "before"))
            ratios[f"{kind}: now / before"] = (paired_ratio(now, before), "")
    return {
        name: {
            **{part: end if math.isfinite(end) else None for part, end in asdict(ratio).items()},
            "verdict": verdict,
        }
        for name, (ratio, verdict) in ratios.items()
    }


def measure(state_bytes: int, directory: Path) -> dict[str, float]:
    """Measure the library that is imported. Return medians in seconds, and 1 where it had real-time priority."""
    from benchmarks.checkpoint.machine import Machine, drop_from_cache, read_into_cache
    from benchmarks.checkpoint.workload import Workload
    from spotkeep import Checkpointer
    from spotkeep.disk.checkpoint_directory import OpenCheckpoint

    workload = Workload(state_bytes=state_bytes)
    found: dict[str, list[float]] = {}
    of_bytes = _Clock(OpenCheckpoint, ("fill", "altered"))
    with tempfile.TemporaryDirectory(prefix="restores-", dir=directory) as scratch:
        checkpoints = Path(scratch) / "checkpoints"
        # With an older one beside it, the newest is read once.
        with Checkpointer(workload.live, checkpoints, keep_last=2) as checkpointer:
            for step in (1, 2):
                checkpointer.save(step, wait=True)
        files = [path for path in (checkpoints / "step-2").iterdir() if path.is_file()]
        machine = Machine(Path(scratch), size_bytes=workload.state_bytes)
        machine.write()
        bare = Path(scratch) / "machine.bin"

        def restore() -> float:
            checkpointer = Checkpointer(workload.live, checkpoints)
            began = time.perf_counter()
            checkpointer.restore()
            return time.perf_counter() - began

        for number in range(_RESTORES + 1):
            for prepare, kind, read in (
                (read_into_cache, "warm", machine.read_warm),
                (drop_from_cache, "cold", machine.read_direct),
            ):
                for act, name, paths in ((restore, kind, files), (read, f"read {kind}", [bare])):
                    for path in paths:
                        prepare(path)
                    of_bytes.seconds = 0.0
                    with _real_time() as real_time:
                        seconds = act()
                    if number:
                        found.setdefault(name, []).append(seconds)
                        found.setdefault("real_time", []).append(real_time)
                    if number and name == "warm":
                        found.setdefault("bytes", []).append(of_bytes.seconds)
    return {name: statistics.median(values) for name, values in found.items()}


class _Clock:
    """Takes the time of methods."""

    def __init__(self, owner: type, names: tuple[str, ...]) -> None:
        self.seconds = 0.0
        for name in names:
            setattr(owner, name, self._timed(getattr(owner, name)))

    def _timed(self, act: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return act(*arguments)
            finally:
                self.seconds += time.perf_counter() - began

        return timed


@contextlib.contextmanager
def _real_time() -> Iterator[bool]:
    """Let this thread, and the threads that it starts, come before all other work of the machine. Gives if they do."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except (OSError, AttributeError):
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def _measured_with(library: Path, options: argparse.Namespace) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(library), "SPOTKEEP_EVENTS": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.checkpoint.restores", "--measure"]
    command += ["--state-gib", str(options.state_gib), "--directory", str(options.directory.absolute())]
    done = subprocess.run(command, cwd=_ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
