"""Measures the cost of virtual ranks, beside DDP and `fully_shard` with the same global batch.

`make bench-virtual-ranks`, with `BENCH=--quick` for a few seconds. The contenders take their steps in turn in the same
processes, so that a machine that slows down slows all. The ranks are processes of this machine over gloo, of one thread
each. The bytes are those that TCP has sent, by the kernel's count. `plain` computes the batch of a rank at once, and
`micro-batches` in as many parts as virtual ranks do.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.checkpoint.ranks import forked

_ROOT = Path(__file__).parents[2]
_WORLDS = ((2, 2), (2, 8), (4, 4))
_QUICK_WORLDS = ((2, 2), (2, 4))
_WRAPPERS = ("DDP", "fully_shard")
_CONTENDERS = ("plain", "micro-batches", "virtual ranks")
_LAYERS = 4
_BYTES_SENT_AT = 200  # tcpi_bytes_sent, in the kernel's tcp_info
_TCP_INFO_BYTES = 256


def main() -> int:
    """Measure and print a table. Return 0 with any figures, since a benchmark does not judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a small model, few steps and few worlds")
    parser.add_argument("--samples", type=int, default=128, help="samples in a micro-batch")
    parser.add_argument("--output", type=Path, default=_ROOT / ".spotkeep/bench/virtual-ranks.json")
    options = parser.parse_args()
    width, rounds = (256, 5) if options.quick else (1024, 10)
    _import_what_ranks_take()
    figures = []
    print(f"ranks  virtual  {'wrapper':13}{'contender':15} ms a step  ratio  MB sent  ratio")
    for ranks, count in _QUICK_WORLDS if options.quick else _WORLDS:
        for wrapper in _WRAPPERS:
            measured = measure(ranks, count, wrapper, samples=options.samples, width=width, rounds=rounds)
            plain = measured[_CONTENDERS[0]]
            for name, found in measured.items():
                world = {"ranks": ranks, "virtual ranks": count, "wrapper": wrapper, "contender": name}
                figures.append({**world, **found})
                time_ratio, bytes_ratio = (found[figure] / plain[figure] for figure in ("seconds", "bytes"))
                print(
                    f"{ranks:>5}{count:>9}  {wrapper:13}{name:15}{found['seconds'] * 1e3:>10.1f}{time_ratio:>7.2f}"
                    f"{found['bytes'] / 1e6:>9.2f}{bytes_ratio:>7.2f}"
                )
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(
        json.dumps({"width": width, "samples": options.samples, "rounds": rounds, "figures": figures}, indent=1)
    )
    print(f"All figures: {options.output}")
    return 0


def measure(
    ranks: int, count: int, wrapper: str, *, samples: int, width: int, rounds: int
) -> dict[str, dict[str, float]]:
    """Measure the contenders in one world. Return the median seconds of a step, and the bytes a rank sends in it."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="spotkeep-virtual-ranks-") as scratch:
        batch = (count // ranks, samples, width)
        act = partial(_rank, ranks=ranks, count=count, wrapper=wrapper, batch=batch, rounds=rounds, port=port)
        pids = [forked(partial(act, rank, Path(scratch))) for rank in range(ranks)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        if any(codes):
            raise SystemExit("a rank has failed")
        found = [json.loads((Path(scratch) / f"{rank}.json").read_text()) for rank in range(ranks)]
    return {
        name: {figure: statistics.fmean(one[name][figure] for one in found) for figure in ("seconds", "bytes")}
        for name in _CONTENDERS
    }


def _import_what_ranks_take() -> None:
    import_module("torch").set_num_threads(1)
    for name in ("torch.distributed.fsdp", "torch.optim", "spotkeep.integrations.virtual_ranks"):
        import_module(name)


def _rank(
    rank: int, scratch: Path, *, ranks: int, count: int, wrapper: str, batch: tuple[int, ...], rounds: int, port: int
) -> None:
    torch: Any = import_module("torch")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.use_deterministic_algorithms(True)
    torch.distributed.init_process_group("gloo", rank=rank, world_size=ranks)
    steps = {name: _step_of(torch, name, wrapper, count=count, shape=batch) for name in _CONTENDERS}
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    sent: dict[str, list[int]] = {name: [] for name in steps}
    for number in range(-2, rounds):
        for name, step in steps.items():
            torch.distributed.barrier()
            before, started = _bytes_sent(), time.perf_counter()
            step()
            torch.distributed.barrier()
            if number >= 0:
                seconds[name].append(time.perf_counter() - started)
                sent[name].append(_bytes_sent() - before)
    figures = {
        name: {"seconds": statistics.median(seconds[name]), "bytes": statistics.median(sent[name])} for name in steps
    }
    (scratch / f"{rank}.json").write_text(json.dumps(figures))
    torch.distributed.destroy_process_group()


def _step_of(torch: Any, contender: str, wrapper: str, *, count: int, shape: tuple[int, ...]) -> Callable[[], None]:
    """Make a model, its optimizer, and one step of a contender."""
    torch.manual_seed(0)
    width = shape[-1]
    layers = [torch.nn.Sequential(torch.nn.Linear(width, width), torch.nn.GELU()) for _ in range(_LAYERS)]
    model = torch.nn.Sequential(*layers)
    if wrapper == "fully_shard":
        for layer in (*layers, model):
            torch.distributed.fsdp.fully_shard(layer)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randn(shape)
    if contender == "virtual ranks":
        virtual: Any = import_module("spotkeep.integrations.virtual_ranks")
        ranks = virtual.VirtualRanks(count, model, optimizer)
        ranks.state_dict()  # as a Checkpointer asks for it
    parts = batch.unbind() if contender != "plain" else [batch.flatten(0, 1)]

    def plain_micro_batches() -> Iterator[int]:
        for index in range(len(parts)):
            last = index == len(parts) - 1
            with nullcontext() if last or wrapper == "fully_shard" else model.no_sync():
                yield index

    def step() -> None:
        optimizer.zero_grad()
        for index, _ in enumerate(ranks.micro_batches() if contender == "virtual ranks" else plain_micro_batches()):
            model(parts[index]).square().mean().backward()
        if contender == "virtual ranks":
            ranks.clip_grad_norm_(1.0)
        else:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def _bytes_sent() -> int:
    """Give the bytes that the TCP connections of this process have sent."""
    sent = 0
    for entry in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if not str(entry.readlink()).startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(entry.name))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
                    information = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
                    sent += struct.unpack_from("=Q", information, _BYTES_SENT_AT)[0]
    return sent


if __name__ == "__main__":
    sys.exit(main())
