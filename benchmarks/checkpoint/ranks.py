"""Measures the library's share of a step with several ranks, beside an earlier commit.

`python -m benchmarks.checkpoint.ranks COMMIT`. Each round is a process of one commit and a process of the other, so
that a machine that slows down slows both. The ranks are processes of this machine over gloo. A step sleeps, as a rank
does that waits for its GPU. No save is due. The share is the time from the end of a step to the begin of the next one.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.checkpoint.before import library_of

_ROOT = Path(__file__).parents[2]
_RANKS = (1, 2, 4, 8)
_STEPS = {0.001: 1000, 0.01: 200}
"""Steps of a round by their seconds."""
_IDLE_SECONDS = 3.0


def main() -> int:
    """Measure and print a table. Return 0 with any figures, since a benchmark does not judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", help="what to compare with, as git names it")
    parser.add_argument("--ranks", type=int, nargs="+", default=_RANKS)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--output", type=Path, default=_ROOT / ".spotkeep/bench/ranks.json")
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        sys.stdout.write(json.dumps(measure(options.measure)))
        return 0
    if options.commit is None:
        parser.error("name the commit to compare with, for example HEAD~1")
    figures = {}
    with tempfile.TemporaryDirectory(prefix="spotkeep-ranks-") as scratch:
        before = library_of(options.commit, Path(scratch))
        for ranks in options.ranks:
            rounds: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
            for number in range(options.rounds):
                for name, library in (("before", before), ("now", _ROOT / "training")):
                    sys.stderr.write(f"{ranks} ranks, round {number + 1} of {options.rounds}: {name}\n")
                    rounds[name].append(_measured_with(library, ranks))
            figures[ranks] = {name: _medians(found) for name, found in rounds.items()}
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps({"commit": options.commit, "figures": figures}, indent=1))
    print(f"{'ranks':>5}  {'figure':32}{'before':>10}{'now':>10}{'ratio':>8}")
    for ranks, figure in figures.items():
        for name, now in figure["now"].items():
            earlier = figure["before"][name]
            print(f"{ranks:>5}  {name:32}{earlier:>10.1f}{now:>10.1f}{now / earlier if earlier else 0:>8.3f}")
    print(f"All figures: {options.output}")
    return 0


def measure(ranks: int) -> dict[str, float]:
    """Measure the library that is imported. The mean of the ranks counts."""
    _import_what_ranks_take()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="spotkeep-ranks-") as scratch:
        forked = [forked(partial(_rank, rank, ranks, port, Path(scratch))) for rank in range(ranks)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in forked]
        if any(codes):
            raise SystemExit("a rank has failed")
        found = [json.loads((Path(scratch) / f"{rank}.json").read_text()) for rank in range(ranks)]
    return {name: statistics.fmean(one[name] for one in found) for name in found[0]}


def _import_what_ranks_take() -> None:
    import_module("torch").set_num_threads(1)
    for name in ("torch.distributed", "spotkeep.checkpointer", "spotkeep.ranks.shared_directory"):
        import_module(name)


def _rank(rank: int, ranks: int, port: int, scratch: Path) -> None:
    torch: Any = import_module("torch")
    spotkeep: Any = import_module("spotkeep")
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    figures = {}
    for seconds, steps in _STEPS.items():
        name = f"{seconds * 1000:g} ms"
        weights = {"weights": torch.zeros(1)}
        with spotkeep.Checkpointer(weights, scratch, every_steps=10**9, name=name.replace(" ", "-")) as checkpointer:
            shares = []
            ended: float | None = None
            for _ in checkpointer.steps(steps):
                if ended is not None:
                    shares.append(time.perf_counter() - ended)
                time.sleep(seconds)
                ended = time.perf_counter()
        figures[f"share of a step of {name}, mean us"] = statistics.fmean(shares) * 1e6
        figures[f"share of a step of {name}, median us"] = statistics.median(shares) * 1e6
    with spotkeep.Checkpointer(weights, scratch, every_steps=10**9, name="idle") as checkpointer:
        for _ in checkpointer.steps(1):
            before = time.process_time()
            time.sleep(_IDLE_SECONDS)
            figures["processor of a long step, us/s"] = (time.process_time() - before) / _IDLE_SECONDS * 1e6
    (scratch / f"{rank}.json").write_text(json.dumps(figures))


def forked(act: partial[None]) -> int:
    """Do something in a process of its own. Return its number."""
    pid = os.fork()
    if pid:
        return pid
    try:
        act()
    except BaseException as error:  # noqa: BLE001 - a process ends here
        sys.stderr.write(f"{error!r}\n")
        os._exit(1)
    os._exit(0)


def _medians(found: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(one[name] for one in found), 2) for name in found[0]}


def _measured_with(library: Path, ranks: int) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(library), "SPOTKEEP_EVENTS": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "benchmarks.checkpoint.ranks", "--measure", str(ranks)]
    done = subprocess.run(command, cwd=_ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


if __name__ == "__main__":
    raise SystemExit(main())
