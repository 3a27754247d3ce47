"""Times saves of one state by one rank and by eight of which each has a part, per byte."""

from __future__ import annotations

import json
import os
import socket
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from benchmarks.checkpoint.ranks import forked
from benchmarks.paired import PairedRatio, paired_ratio

RANKS: Final = 8
TARGET: Final = 1.1
_EVENT: Final = "spotkeep-event: "
_SAVES: Final = 4
"""The first save of a process makes its buffers, and does not count."""


def measure(*, mib: int, rounds: int) -> dict[str, Any]:
    """Measure rounds of both in turn.

    Args:
        mib: The size of the state in MiB.
        rounds: Number of rounds.
    """
    _import_what_ranks_take()
    found: dict[int, list[float]] = {1: [], RANKS: []}
    for _ in range(rounds):
        for ranks, seconds in found.items():
            seconds.append(_seconds_a_byte(ranks, mib=mib))
    ratio: PairedRatio = paired_ratio(found[RANKS], found[1])
    return {
        "mib": mib,
        "ranks": RANKS,
        "ns_a_byte": {str(ranks): [round(each * 1e9, 4) for each in seconds] for ranks, seconds in found.items()},
        "ratio": round(ratio.median, 3),
        "target": TARGET,
        "verdict": ratio.verdict(TARGET),
    }


def _import_what_ranks_take() -> None:
    import_module("torch").set_num_threads(1)
    for name in ("torch.distributed", "spotkeep.checkpointer", "spotkeep.ranks.shared_directory"):
        import_module(name)


def _seconds_a_byte(ranks: int, *, mib: int) -> float:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = int(free.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="spotkeep-saves-") as scratch:
        act = partial(_rank, ranks=ranks, port=port, mib=mib, scratch=Path(scratch))
        pids = [forked(partial(act, rank)) for rank in range(ranks)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        if any(codes):
            raise SystemExit("a rank has failed")
        return statistics.median(_saves(Path(scratch, "events").read_text().splitlines())[1:])


def _saves(lines: Sequence[str]) -> list[float]:
    events = [json.loads(line[len(_EVENT) :]) for line in lines if line.startswith(_EVENT)]
    return [event["seconds"] / event["bytes"] for event in events if event["event"] == "saved"]


def _rank(rank: int, *, ranks: int, port: int, mib: int, scratch: Path) -> None:
    torch: Any = import_module("torch")
    spotkeep: Any = import_module("spotkeep")
    os.environ["SPOTKEEP_EVENTS"] = "stdout"
    if ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    # Each rank has its part, as a divided model has it.
    weights = {f"layer {number}": torch.full((1 << 18,), float(number)) for number in range(rank, mib, ranks)}
    with (scratch / ("events" if rank == 0 else f"events-{rank}")).open("w") as events, redirect_stdout(events):
        own = {"weights": weights}
        with spotkeep.Checkpointer({}, scratch / "checkpoints", per_rank=own, every_steps=1) as checkpointer:
            for _ in checkpointer.steps(_SAVES):
                for weight in weights.values():
                    weight += 1.0
        sys.stdout.flush()
