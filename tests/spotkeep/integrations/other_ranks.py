"""A training on some ranks, interrupted by notices to one of them, and gone on with on others.

It has two epochs of 48 rows. A step has twelve rows on one, two and three ranks, and five ranks cannot have as many.
The scripts beside this one say how a framework trains. They print what is not as promised.
"""

from __future__ import annotations

import json
import os
import signal
from functools import partial

import torch
import torch.distributed as dist
from torch.distributed.fsdp import (
    FullOptimStateDictConfig,
    FullStateDictConfig,
    FullyShardedDataParallel,
    StateDictType,
)
from torch.distributed.tensor import DTensor

from tests.forking import run_on_ranks, say

ROWS, STEP, EPOCHS = 48, 12, 2


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return torch.arange(6.0) * index / ROWS, torch.tensor(index)


class Watch:
    """Watches a training on a rank.

    Args:
        folder: Keeps what the ranks have done.
        notice_at: The step from which on the last rank gets a notice.
    """

    def __init__(self, folder, notice_at=None):
        self.folder, self.notice_at = folder, notice_at
        self.rank, self.ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.share = STEP // self.ranks
        folder.mkdir(parents=True, exist_ok=True)

    def batch(self, epoch, rows):
        """Note the rows of a batch that is trained on."""
        with (self.folder / f"rows of {self.rank}").open("a") as noted:
            print(json.dumps([epoch, *rows]), file=noted)

    def step_is_done(self, step, model, optimizer):
        """Keep what all ranks have together. The ranks may leave after this step, or after the next one."""
        if self.notice_at is not None and step >= self.notice_at:
            keep(self.folder / f"whole {step}", whole(model, optimizer))
            if step == self.notice_at and self.rank == self.ranks - 1:
                os.kill(os.getpid(), signal.SIGTERM)

    def begins(self, model, optimizer):
        """Compare what all ranks have together with what was kept, if a checkpoint was restored."""
        saved = saved_steps(self.folder)
        if not saved:
            return
        kept = torch.load(self.folder / f"whole {saved[-1]}", weights_only=True)
        differs = [name for name, value in whole(model, optimizer).items() if not torch.equal(kept.pop(name), value)]
        if differs or kept:
            say(f"rank {self.rank} of {self.ranks}: {differs[:3]} and {[*kept][:3]} are not what was saved")

    def ends(self, model, optimizer, *, divided, **facts):
        """Keep what all ranks end with."""
        if any(isinstance(value, DTensor) for value in model.state_dict().values()) != divided:
            say(f"the model is {'not ' * divided}divided")
        keep(self.folder / "ended", whole(model, optimizer))
        if self.rank == 0:
            (self.folder / "facts").write_text(json.dumps(facts))


def whole(model, optimizer):
    """Gather the state. A rank alone may have no part of it."""
    states = optimizer.state_dict()["state"]
    if isinstance(model, FullyShardedDataParallel):  # whose ranks have the states of different parameters
        # Offloaded to the CPU on a CPU, all tensors of a parameter's state would be views of one buffer.
        copies = (StateDictType.FULL_STATE_DICT, FullStateDictConfig(), FullOptimStateDictConfig(offload_to_cpu=False))
        with FullyShardedDataParallel.state_dict_type(model, *copies):
            states = FullyShardedDataParallel.optim_state_dict(model, optimizer)["state"]
    tensors = {name.removeprefix("module."): value for name, value in model.state_dict().items()}
    for index, state in states.items():
        tensors.update({f"{index} {name}": value for name, value in state.items()})
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value.clone() for name, value in tensors.items()
    }


def keep(path, tensors):
    if dist.get_rank() == 0:
        torch.save(tensors, path)


def ended(folder):
    return torch.load(folder / "ended", weights_only=True)


def facts_of(folder):
    return json.loads((folder / "facts").read_text())


def saved_steps(folder):
    return sorted(int(path.name.partition("-")[2]) for path in (folder / "checkpoints").glob("step-*"))


def rows_of_epochs(folder):
    rows = [[] for _ in range(EPOCHS)]
    for path in folder.glob("rows of *"):
        for line in path.read_text().splitlines():
            epoch, *labels = json.loads(line)
            rows[epoch] += labels
    return [sorted(row) for row in rows]


def interrupted(folder, *parts):
    """Train in parts, each with a function, a number of ranks, and the step of a notice, None for none."""
    for train, ranks, step in parts:
        codes = run_on_ranks(ranks, partial(train, folder, step))
        if set(codes) != {0 if step is None else 75}:
            say(f"{ranks} ranks up to step {step} ended with {codes}")


def go_on_with_as_many(train, folder):
    """Two ranks end as two ranks do that were left alone."""
    alone, again = folder / "alone", folder / "again"
    interrupted(alone, (train, 2, None))
    interrupted(again, (train, 2, 2), (train, 2, 5), (train, 2, None))
    if any(not torch.equal(value, ended(again)[name]) for name, value in ended(alone).items()):
        say("on as many ranks it ends with other values")
    if facts_of(again) != facts_of(alone):
        say(f"on as many ranks it ends with {facts_of(again)}, not {facts_of(alone)}")


def go_on_with_others(train, folder, *, last=None):
    """Three ranks go on where two were, and one where three were. Five are refused. Give the steps of each part."""
    others = folder / "others"
    interrupted(others, (train, 2, 2))
    if set(run_on_ranks(5, partial(train, others, None))) != {1} or len(saved_steps(others)) != 1:
        say("five ranks are not refused")
    interrupted(others, (train, 3, 5), (train if last is None else last, 1, None))
    rows = rows_of_epochs(others)
    if rows != [[*range(ROWS)]] * EPOCHS:
        say(f"on other ranks the epochs have the rows {rows}")
    first, second = (step for step in saved_steps(others) if step in (2, 3, 5, 6))
    return first, second - first, EPOCHS * ROWS // STEP - second
