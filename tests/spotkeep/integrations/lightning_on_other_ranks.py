"""Lightning with DDP and with FSDP2 by ModelParallelStrategy, interrupted, and gone on with on other ranks."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial

import lightning.pytorch as pl
import torch
import torchmetrics
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard

from spotkeep.integrations.lightning import fit_resumably
from tests.forking import do_each_kind, run_on_ranks, say
from tests.spotkeep.integrations.other_ranks import (
    EPOCHS,
    ROWS,
    Rows,
    Watch,
    facts_of,
    go_on_with_as_many,
    go_on_with_others,
    interrupted,
)

BATCH = 2


class Net(pl.LightningModule):
    def __init__(self, watch):
        super().__init__()
        nn = torch.nn
        self.layers = nn.Sequential(nn.Linear(6, 7), nn.ReLU(), nn.Linear(7, 3))
        self.seen = torchmetrics.SumMetric()
        self.watch = watch

    def configure_model(self):
        if isinstance(self.trainer.strategy, pl.strategies.ModelParallelStrategy):
            mesh = self.device_mesh["data_parallel"]
            for layer in (self.layers[0], self.layers[2], self.layers):
                fully_shard(layer, mesh=mesh)

    def training_step(self, batch, batch_idx):
        self.watch.batch(self.current_epoch, batch[1].tolist())
        self.seen.update(batch[1].float().sum())
        self.log("mean row", batch[1].float().mean(), on_step=False, on_epoch=True, sync_dist=True)
        self.log("seen", self.seen, on_step=False, on_epoch=True)
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1] % 3)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}


class Watches(pl.Callback):
    def __init__(self, watch):
        self.watch, self.begun = watch, False

    def on_train_batch_start(self, trainer, module, batch, batch_idx):
        if not self.begun:
            self.begun = True
            self.watch.begins(trainer.strategy.model, trainer.optimizers[0])

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if (batch_idx + 1) % trainer.accumulate_grad_batches:
            return
        self.watch.step_is_done(trainer.global_step, trainer.strategy.model, trainer.optimizers[0])


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


class OlderFSDP(pl.strategies.FSDPStrategy):
    """Lightning's own, but for the device: Lightning gives its index, and a CPU has none."""

    def _setup_model(self, model):
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), **self.kwargs)

    def model_sharded_context(self):
        return nullcontext()


def train(kind, folder, notice_at):
    pl.seed_everything(5, verbose=False)
    watch, measured = Watch(folder, notice_at), Measured()
    strategies = {
        "ddp": pl.strategies.DDPStrategy,
        "one device": lambda: "auto",
        "fsdp": OlderFSDP,
        "model parallel": partial(
            pl.strategies.ModelParallelStrategy, data_parallel_size=watch.ranks, tensor_parallel_size=1
        ),
    }
    model = Net(watch)
    trainer = pl.Trainer(
        devices=watch.ranks, accelerator="cpu", strategy=strategies[kind](), max_epochs=EPOCHS,
        accumulate_grad_batches=watch.share // BATCH,
        default_root_dir=str(folder), logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, callbacks=[Watches(watch), measured],
    )  # fmt: skip
    data = torch.utils.data.DataLoader(Rows(), BATCH, shuffle=True)  # Lightning keeps the size of a rank's batches
    fit_resumably(trainer, model, data, directory=folder / "checkpoints", every_steps=100)
    facts = {"step": trainer.global_step, "measured": measured.values}
    watch.ends(trainer.strategy.model, trainer.optimizers[0], divided=kind == "model parallel", **facts)


def main(folder, kind):
    go_on_with_as_many(partial(train, kind), folder)
    steps = sum(go_on_with_others(partial(train, kind), folder))
    facts, sum_of_rows = facts_of(folder / "others"), sum(range(ROWS))
    if facts != {"step": steps, "measured": [{"mean row": sum_of_rows / ROWS, "seen": sum_of_rows}] * EPOCHS}:
        say(f"on other ranks it ends with {facts}, and should after {steps} steps")
    if kind == "ddp":
        # Lightning deals out one order with this strategy, and lets torch shuffle by itself without one.
        interrupted(folder / "shuffled", (partial(train, kind), 2, 2))
        if run_on_ranks(1, partial(train, "one device", folder / "shuffled", None)) != [1]:
            say("another order on one device is not refused")
    say(f"{kind} is through")


if __name__ == "__main__":
    do_each_kind(main)
