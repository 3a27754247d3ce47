"""A loop of one's own around accelerate, with DDP and FSDP2, interrupted, and gone on with on other ranks.

The ranks are forked from this process, which has imported what takes seconds. It prints what is not as promised.

accelerate divides a model on accelerators alone, and trains on a CPU with whole copies without a word. So this script
names the ranks an accelerator's. All that follows is accelerate's and torch's own, on the CPU.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import accelerate
import torch
import torch.distributed as dist
from accelerate.state import DistributedType, PartialState
from accelerate.utils import FullyShardedDataParallelPlugin
from torch.distributed.tensor import DTensor

from spotkeep.loops.resumable_training import ResumableTraining
from tests.forking import run_on_ranks, say

ROWS, BATCH, EPOCHS = 48, 4, 2


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return torch.arange(6.0) * index / ROWS, torch.tensor(index)


def made(kind):
    """Make what accelerate's examples make."""
    torch.manual_seed(5)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Dropout(0.2), nn.Linear(7, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0, 1 - step / 24))
    loader = torch.utils.data.DataLoader(Rows(), BATCH, shuffle=True)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap") if kind == "fsdp" else None
    PartialState(cpu=True, backend="gloo")
    if kind == "fsdp":
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    accelerator = accelerate.Accelerator(cpu=True, fsdp_plugin=plugin)
    return accelerator, *accelerator.prepare(model, optimizer, schedule, loader)


def train(kind, folder, *, notice_at=None, compares=False):
    accelerator, model, optimizer, schedule, loader = made(kind)
    state = {"model": model, "optimizer": optimizer, "schedule": schedule}
    training = ResumableTraining(state, directory=folder / "checkpoints", every_steps=100)
    loader = training.loader(loader)
    folder.mkdir(parents=True, exist_ok=True)
    rank, ranks = accelerator.process_index, accelerator.num_processes
    step = 0
    for epoch in training.epochs(EPOCHS):
        for inputs, labels in loader:
            if compares:
                compares = False
                kept = torch.load(folder / "whole.pt", weights_only=True)
                here = whole(model, optimizer)
                differs = [name for name, value in here.items() if not torch.equal(kept.pop(name), value)]
                if differs or kept:
                    say(f"rank {rank} of {ranks}: {differs} and {[*kept]} are not what was saved")
            with (folder / f"rows of {rank}").open("a") as rows:
                print(json.dumps([epoch, *labels.tolist()]), file=rows)
            accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), labels % 3))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            step = training.checkpointer.step + 1
            if step == notice_at:
                keep(folder / "whole.pt", whole(model, optimizer))
                if rank == ranks - 1:
                    os.kill(os.getpid(), signal.SIGTERM)
    if any(isinstance(value, DTensor) for value in model.state_dict().values()) != (kind == "fsdp"):
        say("the model is not divided as it should be")
    facts = {"step": step, "lr": optimizer.param_groups[0]["lr"]}
    keep(folder / "ended.pt", {**whole(model, optimizer), **{name: torch.tensor(one) for name, one in facts.items()}})


def whole(model, optimizer):
    """Gather the state. A rank alone may have no part of it."""
    tensors = {name.removeprefix("module."): value for name, value in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors.update({f"{index} {name}": value for name, value in state.items()})
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value.clone() for name, value in tensors.items()
    }


def keep(path, tensors):
    if dist.get_rank() == 0:
        torch.save(tensors, path)


def ended(folder):
    return torch.load(folder / "ended.pt", weights_only=True)


def rows_of_epochs(folder):
    rows = [[] for _ in range(EPOCHS)]
    for path in folder.glob("rows of *"):
        for line in path.read_text().splitlines():
            epoch, *labels = json.loads(line)
            rows[epoch] += labels
    return [sorted(row) for row in rows]


def interrupted(kind, folder, *parts):
    """Train with so many ranks up to a notice after a step, and so on, and to the end where there is none."""
    for number, (ranks, step) in enumerate(parts):
        codes = run_on_ranks(ranks, partial(train, kind, folder, notice_at=step, compares=number > 0))
        if set(codes) != {0 if step is None else 75}:
            say(f"{ranks} ranks up to step {step} ended with {codes}")


def main(folder, kind):
    alone, again, others = (folder / name for name in ("alone", "again", "others"))
    run_on_ranks(2, partial(train, kind, alone))
    # An epoch has six steps on two ranks.
    interrupted(kind, again, (2, 3), (2, 7), (2, None))
    if any(not torch.equal(value, ended(again)[name]) for name, value in ended(alone).items()):
        say("on as many ranks it ends differently")
    # 24 rows of the first epoch are two steps of three ranks. Two more end it, and the seventh is in the middle of the
    # next one, which has three more of two ranks.
    interrupted(kind, others, (2, 3), (3, 7), (2, None))
    if rows_of_epochs(others) != [[*range(ROWS)]] * EPOCHS:
        say(f"on other ranks the epochs have {rows_of_epochs(others)}")
    # accelerate's schedule goes on by one for each rank, so it ends with the data.
    if {name: float(ended(others)[name]) for name in ("step", "lr")} != {"step": 10, "lr": 0}:
        say(f"on other ranks it ends with {ended(others)}")
    say(f"{kind} is through")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
