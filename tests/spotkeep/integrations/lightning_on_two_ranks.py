"""Lightning on two ranks: `fit`, interrupted again and again, ends with what one that was left alone ends with.

At first Lightning starts rank 1 itself, and rank 0 gets a notice. Then both are forked from this process, which has
imported what takes seconds, and find in their environment what torchrun would put there. What differs is printed.

`pytorch_lightning` is there alone, as where a requirements.txt asks for that; in test_lightning it is `lightning`.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from functools import partial
from pathlib import Path

sys.modules["lightning"] = None

import pytorch_lightning as pl  # noqa: E402
import torch  # noqa: E402

from spotkeep.integrations.lightning import fit_resumably  # noqa: E402 - it looks for the package that is there
from tests.forking import end_with_two_ranks, exit_code_of, fork, say  # noqa: E402

ROWS, BATCH, EPOCHS = 40, 4, 2


class Rows(torch.utils.data.Dataset):
    """Numbers, with noise that is drawn while they are loaded."""

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return torch.arange(6.0) * index / ROWS + 0.1 * torch.randn(6), torch.tensor(index % 3)


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))
        self.register_buffer("rows_here", torch.zeros(1))

    def loss(self, batch):
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def training_step(self, batch, batch_idx):
        self.rows_here += batch[0].sum()
        return self.loss(batch)

    def validation_step(self, batch, batch_idx):
        # Not brought together: what EarlyStopping keeps is another on each rank.
        self.log("val_loss", self.loss(batch), sync_dist=False)

    def configure_optimizers(self):
        optimizer = torch.optim.AdamW(self.parameters(), lr=0.01)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)}


class OwnData(pl.LightningDataModule):
    """Loaders whose script divides the data itself, with workers."""

    def train_dataloader(self):
        sampler = torch.utils.data.DistributedSampler(Rows(), seed=3)
        return torch.utils.data.DataLoader(Rows(), BATCH, sampler=sampler, num_workers=1)

    def val_dataloader(self):
        return loader(shuffle=False)


class Seen(pl.Callback):
    """A digest of all that a rank has trained on, kept through interruptions by Lightning's own means."""

    def __init__(self):
        self.digest = ""

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        self.digest = hashlib.sha256(self.digest.encode() + batch[0].numpy().tobytes()).hexdigest()

    def state_dict(self):
        return {"digest": self.digest}

    def load_state_dict(self, state):
        self.digest = state["digest"]


class KilledError(Exception):
    """The process is gone."""


class Ends(pl.Callback):
    """Ends the training after a batch, of all that were trained on: on every rank, or by a notice to one of them.

    The other rank may have begun one more batch than the one with the notice, and the next attempt begins behind that.
    """

    def __init__(self, at, how):
        self.at, self.how = at, how

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if self.at is not None and trainer.fit_loop.epoch_loop.batch_progress.total.ready >= self.at:
            self.at = None
            if self.how == "error":
                raise KilledError
            if self.how == f"notice to rank {trainer.global_rank}":
                os.kill(os.getpid(), signal.SIGTERM)


def loader(*, shuffle):
    return torch.utils.data.DataLoader(Rows(), BATCH, shuffle=shuffle)


def trained(folder, *callbacks, own_data=False, broadcast_buffers=True, **options):
    """Train to the end, or to an interruption. Gives all that a rank ends with."""
    pl.seed_everything(5, verbose=False)
    model, seen, stopping = Net(), Seen(), pl.callbacks.EarlyStopping("val_loss", patience=50)
    trainer = pl.Trainer(
        devices=2, accelerator="cpu", strategy=pl.strategies.DDPStrategy(broadcast_buffers=broadcast_buffers),
        max_epochs=EPOCHS, default_root_dir=str(folder), logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=[*callbacks, seen, stopping], **options,
    )  # fmt: skip
    data = {"datamodule": OwnData()} if own_data else {
        "train_dataloaders": loader(shuffle=True), "val_dataloaders": loader(shuffle=False)
    }  # fmt: skip
    fit_resumably(trainer, model, **data, directory=folder / "checkpoints", every_steps=3)
    tensors = {**model.state_dict(), **{f"{index} {name}": value for index, kept in
               trainer.optimizers[0].state_dict()["state"].items() for name, value in kept.items()}}  # fmt: skip
    return {
        "tensors": {name: tensor.numpy().tobytes() for name, tensor in tensors.items()},
        "data": seen.digest,
        "callbacks": float(stopping.best_score),
        "loops": (trainer.global_step, trainer.current_epoch),
        "random numbers": torch.random.get_rng_state().numpy().tobytes(),
    }


# An epoch has five batches. What goes on on each rank alone, batch by batch, is in test_lightning.
CASES = {
    "as it comes": ({}, [("error", 5), ("notice to rank 1", 5)]),
    "own data and own buffers": (
        {"own_data": True, "broadcast_buffers": False},
        [("error", 4), ("notice to rank 1", 7)],
    ),
}


def started_by_lightning(folder):
    # Lightning starts rank 1 with these words.
    sys.argv[1:] = [str(folder)]
    trained(folder / "as it comes", Ends(4, "notice to rank 0"))


def main(folder):
    for name, (options, interruptions) in CASES.items():
        alone = trained(folder / name / "alone", **options)
        rank = torch.distributed.get_rank()
        for how, step in interruptions:
            try:
                trained(folder / name, Ends(step, how), **options)
            except (KilledError, SystemExit) as ended:
                if how != "error" and getattr(ended, "code", None) != 75:
                    say(f"{name}: {how} at step {step} ended it with {ended!r}")
            else:
                say(f"{name}: {how} at step {step} did not end it")
        interrupted = trained(folder / name, **options)
        for what in alone:
            if interrupted[what] != alone[what]:
                say(f"{name}: the {what} of rank {rank} changed")
    say(f"rank {rank} is through")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    if "LOCAL_RANK" in os.environ:
        started_by_lightning(folder)
    else:
        code = exit_code_of(fork(partial(started_by_lightning, folder)))
        saved = any((folder / "as it comes" / "checkpoints" / f"step-{step}").is_dir() for step in (4, 5))
        say(f"the notice ended rank 0 with {code}, and its last step is {'saved' if saved else 'lost'}")
        end_with_two_ranks(partial(main, folder))
