"""Saves or loads a checkpoint of DCP on several ranks, or saves one of ours.

`dcp_on_ranks.py N save|load|ours FOLDER`
"""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as multiprocessing
from torch.distributed.tensor import Replicate, Shard, distribute_tensor, init_device_mesh

from spotkeep import Checkpointer


def state_on(mesh: Any, *, divided_otherwise: bool) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Give a state with uneven parts, and the whole tensors."""
    torch.manual_seed(0)
    rows, columns = torch.randn(7, 5), torch.randn(6, 9)
    one, other = (Shard(1), Shard(0)) if divided_otherwise else (Shard(0), Shard(1))
    state = {
        "rows": distribute_tensor(rows, mesh, [one]),
        "columns": distribute_tensor(columns, mesh, [other]),
        "copied": distribute_tensor(rows, mesh, [Replicate()]),
        "few": distribute_tensor(rows[:1], mesh, [Shard(0)]),
        "plain": rows.clone(),
    }
    return state, [rows, columns, rows, rows[:1], rows]


def work(rank: int, count: int, verb: str, folder: str, store: str) -> None:
    """Do the part of one rank."""
    warnings.simplefilter("ignore")
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), LOCAL_WORLD_SIZE=str(count))
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=count)
    mesh = init_device_mesh("cpu", (count,))
    state, whole = state_on(mesh, divided_otherwise=verb == "load")
    if verb == "save":
        dcp.save({"model": state}, checkpoint_id=folder)
    elif verb == "ours":
        with Checkpointer({"model": state}, directory=folder) as checkpointer:
            checkpointer.save(1)
    else:
        for tensor in state.values():
            tensor.zero_()
        dcp.load({"model": state}, checkpoint_id=folder)
        for tensor, expected in zip(state.values(), whole, strict=True):
            found = tensor if type(tensor) is torch.Tensor else tensor.full_tensor()
            assert torch.equal(found, expected), (found, expected)
    dist.barrier()  # A rank that leaves while another one still talks to it ends gloo's threads in the middle.
    dist.destroy_process_group()


if __name__ == "__main__":
    count, verb, folder = int(sys.argv[1]), sys.argv[2], sys.argv[3]
    with tempfile.TemporaryDirectory() as store:
        multiprocessing.spawn(work, (count, verb, folder, str(Path(store) / "store")), nprocs=count)
