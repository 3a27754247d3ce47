"""Lightning with DDP and with FSDP2 by ModelParallelStrategy, interrupted, and gone on with on other ranks.

The ranks are forked from this process, which has imported what takes seconds. It prints what is not as promised.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from functools import partial
from pathlib import Path

import lightning.pytorch as pl
import torch
import torch.distributed as dist
import torchmetrics
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from spotkeep.integrations.lightning import fit_resumably
from tests.forking import run_on_ranks, say

ROWS, BATCH, EPOCHS = 48, 4, 2


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return torch.arange(6.0) * index / ROWS, torch.tensor(index)


class Net(pl.LightningModule):
    def __init__(self, noted):
        super().__init__()
        nn = torch.nn
        self.layers = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3))
        self.seen = torchmetrics.SumMetric()
        self.noted = noted

    def configure_model(self):
        if isinstance(self.trainer.strategy, pl.strategies.ModelParallelStrategy):
            mesh = self.device_mesh["data_parallel"]
            for layer in (self.layers[0], self.layers[2], self.layers):
                fully_shard(layer, mesh=mesh)

    def training_step(self, batch, batch_idx):
        with self.noted.open("a") as rows:
            print(json.dumps([self.current_epoch, *batch[1].tolist()]), file=rows)
        self.seen.update(batch[1].float().sum())
        self.log("mean row", batch[1].float().mean(), on_step=False, on_epoch=True, sync_dist=True)
        self.log("seen", self.seen, on_step=False, on_epoch=True)
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1] % 3)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}


class Notice(pl.Callback):
    """Gives a notice to the last rank after a step, and keeps what all ranks together have then."""

    def __init__(self, folder, step):
        self.folder, self.step = folder, step

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.global_step == self.step:
            keep(self.folder / "whole.pt", whole(trainer))
            if trainer.global_rank == trainer.world_size - 1:
                os.kill(os.getpid(), signal.SIGTERM)


class Compares(pl.Callback):
    """Compares what all ranks together have before the first batch with what was kept."""

    def __init__(self, folder):
        self.folder, self.done = folder, False

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if not self.done:
            self.done = True
            kept = torch.load(self.folder / "whole.pt", weights_only=True)
            differs = [name for name, value in whole(trainer).items() if not torch.equal(kept.pop(name), value)]
            if differs or kept:
                say(f"rank {trainer.global_rank} of {trainer.world_size}: {differs} and {[*kept]} are not as saved")


class Measured(pl.Callback):
    """Keeps what was measured in each epoch."""

    def __init__(self):
        self.values = []

    def on_train_epoch_end(self, trainer, module):
        self.values.append({name: float(value) for name, value in trainer.callback_metrics.items()})

    def state_dict(self):
        return {"values": self.values}

    def load_state_dict(self, state):
        self.values = state["values"]


def whole(trainer):
    """Gather the state. A rank alone may have no part of it."""
    (optimizer,) = trainer.optimizers
    tensors = dict(trainer.lightning_module.state_dict())
    for index, state in optimizer.state_dict()["state"].items():
        tensors.update({f"{index} {name}": value for name, value in state.items()})
    return {
        name: value.full_tensor() if isinstance(value, DTensor) else value.clone() for name, value in tensors.items()
    }


def keep(path, tensors):
    if dist.get_rank() == 0:
        torch.save(tensors, path)


def train(kind, ranks, folder, *callbacks):
    pl.seed_everything(5, verbose=False)
    strategy = (
        pl.strategies.ModelParallelStrategy(data_parallel_size=ranks, tensor_parallel_size=1)
        if kind == "fsdp"
        else pl.strategies.DDPStrategy()
    )
    folder.mkdir(parents=True, exist_ok=True)
    model, measured = Net(folder / f"rows of {os.environ['RANK']}"), Measured()
    trainer = pl.Trainer(
        devices=ranks, accelerator="cpu", strategy=strategy, max_epochs=EPOCHS, default_root_dir=str(folder),
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        callbacks=[*callbacks, measured],
    )  # fmt: skip
    data = torch.utils.data.DataLoader(Rows(), BATCH, shuffle=True)
    fit_resumably(trainer, model, data, directory=folder / "checkpoints", every_steps=100)
    if any(isinstance(value, DTensor) for value in model.state_dict().values()) != (kind == "fsdp"):
        say("the model is not divided as it should be")
    keep(folder / "ended.pt", whole(trainer))
    if dist.get_rank() == 0:
        (folder / "measured").write_text(json.dumps([*measured.values, trainer.global_step]))


def ended(folder):
    return torch.load(folder / "ended.pt", weights_only=True), json.loads((folder / "measured").read_text())


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
        callbacks = [*([Compares(folder)] if number else []), *([] if step is None else [Notice(folder, step)])]
        codes = run_on_ranks(ranks, partial(train, kind, ranks, folder, *callbacks))
        if set(codes) != {0 if step is None else 75}:
            say(f"{ranks} ranks up to step {step} ended with {codes}")


def main(folder, kind):
    alone, again, others = (folder / name for name in ("alone", "again", "others"))
    run_on_ranks(2, partial(train, kind, 2, alone))
    # An epoch has six steps on two ranks.
    interrupted(kind, again, (2, 3), (2, 7), (2, None))
    (tensors, measured), (tensors_again, measured_again) = ended(alone), ended(again)
    if any(not torch.equal(value, tensors_again[name]) for name, value in tensors.items()):
        say("on as many ranks it ends differently")
    if measured_again != measured:
        say(f"on as many ranks it has measured {measured_again}, not {measured}")
    # 24 rows of the first epoch are two steps of three ranks. Two more end it, and the sixth is in the next one.
    interrupted(kind, others, (2, 3), (3, 6), (1, None))
    if rows_of_epochs(others) != [[*range(ROWS)]] * EPOCHS:
        say(f"on other ranks the epochs have {rows_of_epochs(others)}")
    expected = {"mean row": sum(range(ROWS)) / ROWS, "seen": sum(range(ROWS))}
    if ended(others)[1] != [expected, expected, 15]:
        say(f"on other ranks it has measured {ended(others)[1]}, not {expected}")
    say(f"{kind} is through")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
