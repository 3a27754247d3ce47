"""The ranks of the training that is tortured, as real processes over gloo on this machine.

`python -m tests.torture.checkpoint.rank_training --serve` imports torch once and forks the ranks of one training after
another. One line of JSON in, which says what to run. One line out, which says how each rank ended. With a job in
place of `--serve` it is one rank, under torchrun.

All ranks hold a `Training`. A `DividedTable` is divided among them by rows. Each has a random generator of its own and
a count of its steps.
"""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import os
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from spotkeep import Checkpointer
from tests.forking import fork
from tests.torture.checkpoint import interposition
from tests.torture.checkpoint.training import LINE_PREFIX, Training

ROWS, COLUMNS = 37, 4096


def main() -> int:
    """Serve trainings, or be one rank of one."""
    torch: Any = importlib.import_module("torch")
    for name in ("torch.distributed.tensor", "spotkeep.ranks.shared_directory"):
        importlib.import_module(name)
    torch.set_num_threads(1)
    if sys.argv[1] != "--serve":
        job = json.loads(sys.argv[1])
        _run_rank(int(os.environ["RANK"]), {**job, "world_size": int(os.environ["WORLD_SIZE"])})
        return 0
    # A rank that looks for garbage in what is imported would copy the memory that it shares with the others.
    gc.freeze()
    for line in sys.stdin:
        job = json.loads(line)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free.getsockname()[1]))
        pids = [fork(partial(_run_rank, rank, job)) for rank in range(job["world_size"])]
        sys.stdout.write(json.dumps(_ends_of(pids, limit_seconds=job["limit_seconds"])) + "\n")
        sys.stdout.flush()
    return 0


class DividedTable:
    """A table whose rows are divided among the ranks, as torch divides a tensor by its first dimension.

    Args:
        rank: The number of this rank.
        world_size: The number of ranks. The table of a single one is a plain tensor.
    """

    def __init__(self, *, rank: int, world_size: int) -> None:
        torch: Any = importlib.import_module("torch")
        rows = -(-ROWS // world_size)
        self.begin, self.end = min(rank * rows, ROWS), min((rank + 1) * rows, ROWS)
        local = torch.from_numpy(table_at(0)[self.begin : self.end].copy())
        self.tensor = local
        if world_size > 1:
            mesh = importlib.import_module("torch.distributed.device_mesh").init_device_mesh("cpu", (world_size,))
            tensors: Any = importlib.import_module("torch.distributed.tensor")
            self.tensor = tensors.DTensor.from_local(
                local, mesh, [tensors.Shard(0)], run_check=False, shape=torch.Size((ROWS, COLUMNS)), stride=(COLUMNS, 1)
            )

    @property
    def here(self) -> np.ndarray[Any, Any]:
        """The rows of this rank, which a restore changes in place."""
        local = self.tensor.to_local() if hasattr(self.tensor, "to_local") else self.tensor
        rows: np.ndarray[Any, Any] = local.detach().numpy()
        return rows


def change_table(rows: np.ndarray[Any, Any], step: int) -> None:
    """Take one step of any rows of the table, in place."""
    np.multiply(rows, np.float32(0.999), out=rows)
    np.add(rows, np.float32(0.125 * step), out=rows)


def table_at(step: int) -> np.ndarray[Any, Any]:
    """Give the whole table after a number of steps."""
    table = np.linspace(0, 1, ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    for number in range(step):
        change_table(table, number)
    return table


def generator_digest(rank: int, step: int) -> str:
    """Name the state of a rank's own generator after a number of steps."""
    generator = np.random.default_rng(rank)
    generator.random(step)
    return _digest(repr(generator.bit_generator.state).encode())


def rows_digest(rows: np.ndarray[Any, Any]) -> str:
    """Name the exact content of rows."""
    return _digest(np.ascontiguousarray(rows).tobytes())


def _digest(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _run_rank(rank: int, job: dict[str, Any]) -> None:
    output = os.open(f"{job['output']}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.update(SPOTKEEP_EVENTS="stdout", SPOTKEEP_PROGRESS_SECONDS="0")
    distributed: Any = importlib.import_module("torch.distributed")
    distributed.init_process_group("gloo", rank=rank, world_size=job["world_size"])
    fault = job.get("fault")
    record = job.get("record")
    if record is not None or (fault is not None and fault[0] == rank):
        interposition.install(
            Path(job["directory"]),
            fault=None if fault is None else interposition.parse_fault(fault[1]),
            record=None if record is None else Path(f"{record}.{rank}"),
        )
    _train(rank, job)
    distributed.destroy_process_group()


def _train(rank: int, job: dict[str, Any]) -> None:
    training = Training(state_bytes=job["state_bytes"])
    table = DividedTable(rank=rank, world_size=job["world_size"])
    generator = np.random.default_rng(rank)
    place = {"step": 0}

    def say(what: str) -> None:
        facts = {
            "what": what, "step": checkpointer.step, "common": training.digest(), "rows": [table.begin, table.end],
            "table": rows_digest(table.here), "own": _digest(repr(generator.bit_generator.state).encode()),
            "place": place["step"],
        }  # fmt: skip
        sys.stdout.write(LINE_PREFIX + json.dumps(facts) + "\n")
        sys.stdout.flush()

    state = {**training.state, "table": table.tensor}
    own = {"generator": generator, "place": place}
    with Checkpointer(
        state, directory=job["directory"], every_steps=job["every_steps"], keep_last=2, per_rank=own
    ) as checkpointer:
        say("restored")
        for step in checkpointer.steps(job["total_steps"]):
            training.take_step()
            change_table(table.here, step)
            generator.random()
            place["step"] = step + 1
    say("finished")


def _ends_of(pids: list[int], *, limit_seconds: float) -> list[int | None]:
    """Give the exit codes. None for a rank that did not end."""
    ends: dict[int, int | None] = {}
    limit = time.monotonic() + limit_seconds
    while len(ends) < len(pids):
        for pid in pids:
            if pid in ends:
                continue
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                ends[pid] = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > limit:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                ends[pid] = None
        time.sleep(0.005)
    return [ends[pid] for pid in pids]


if __name__ == "__main__":
    sys.exit(main())
