"""A loop of one's own around accelerate, with DDP and FSDP2, interrupted, and gone on with on other ranks.

accelerate divides a model on accelerators alone, and trains on a CPU with whole copies without a word. So this script
names the ranks an accelerator's. All that follows is accelerate's and torch's own, on the CPU.
"""

from __future__ import annotations

from functools import partial

import accelerate
import torch
from accelerate.state import DistributedType, PartialState
from accelerate.utils import DataLoaderConfiguration, FullyShardedDataParallelPlugin

from spotkeep.loops.resumable_training import ResumableTraining
from tests.forking import do_each_kind, say
from tests.spotkeep.integrations.other_ranks import (
    EPOCHS,
    Rows,
    Watch,
    facts_of,
    go_on_with_as_many,
    go_on_with_others,
)


def made(kind, batch):
    """Make what accelerate's examples make."""
    torch.manual_seed(5)
    nn = torch.nn
    model = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Dropout(0.2), nn.Linear(7, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / 100)
    loader = torch.utils.data.DataLoader(Rows(), batch, shuffle=True)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="no_wrap") if kind == "fsdp" else None
    PartialState(cpu=True, backend="gloo")
    if kind == "fsdp":
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    accelerator = accelerate.Accelerator(
        cpu=True,
        fsdp_plugin=plugin,
        # Without it one rank in a process group fails: accelerate waits for a generator that it did not make.
        dataloader_config=DataLoaderConfiguration(use_seedable_sampler=True),
    )
    return accelerator, *accelerator.prepare(model, optimizer, schedule, loader)


def train(kind, folder, notice_at):
    watch = Watch(folder, notice_at)
    accelerator, model, optimizer, schedule, loader = made(kind, watch.share)
    state = {"model": accelerator.unwrap_model(model), "optimizer": optimizer, "schedule": schedule}
    training = ResumableTraining(state, directory=folder / "checkpoints", every_steps=100)
    loader = training.loader(loader)
    begun = False
    for epoch in training.epochs(EPOCHS):
        for inputs, labels in loader:
            if not begun:
                begun = True
                watch.begins(model, optimizer)
            watch.batch(epoch, labels.tolist())
            accelerator.backward(torch.nn.functional.cross_entropy(model(inputs), labels % 3))
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
            watch.step_is_done(training.checkpointer.step + 1, model, optimizer)
    facts = {"step": training.checkpointer.step, "rate": optimizer.param_groups[0]["lr"]}
    watch.ends(model, optimizer, divided=kind == "fsdp", **facts)


def main(folder, kind):
    go_on_with_as_many(partial(train, kind), folder)
    steps = go_on_with_others(partial(train, kind), folder)
    # accelerate's schedule goes on by one for each rank.
    rate = 0.01 * (1 - sum(count * ranks for count, ranks in zip(steps, (2, 3, 1), strict=True)) / 100)
    if facts_of(folder / "others") != {"step": sum(steps), "rate": rate}:
        say(f"on other ranks it ends with {facts_of(folder / 'others')}, and should at the rate {rate}")
    say(f"{kind} is through")


if __name__ == "__main__":
    do_each_kind(main)
