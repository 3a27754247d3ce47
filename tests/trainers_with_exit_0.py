"""Scripts whose trainer ends them with code 0 on SIGTERM: those of the real libraries, with checkpoints of their own.

Each saves to SPOTKEEP_CHECKPOINT_DIR, goes on from the newest checkpoint there, and writes its steps to
`model` in SM_MODEL_DIR. A start that finds no checkpoint of the third step waits in the fourth until SIGTERM comes.
"""

from __future__ import annotations

from typing import Final

LIGHTNING: Final = """
import os, pathlib, time
import torch
import lightning.pytorch as pl

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.began_at = None

    def training_step(self, batch, index):
        self.began_at = self.global_step if self.began_at is None else self.began_at
        if self.began_at == 0 and self.global_step == 3:
            print("waits", flush=True)
            while not self.trainer.received_sigterm:
                time.sleep(0.01)
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

folder = pathlib.Path(os.environ["SPOTKEEP_CHECKPOINT_DIR"])
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(6, 4)), batch_size=2)
trainer = pl.Trainer(
    max_epochs=2, accelerator="cpu", logger=False, enable_progress_bar=False, enable_model_summary=False,
    callbacks=[pl.callbacks.ModelCheckpoint(folder, every_n_epochs=1, save_top_k=-1)],
)
found = sorted(folder.glob("*.ckpt"))
trainer.fit(Model(), loader, ckpt_path=found[-1] if found else None, weights_only=False)
pathlib.Path(os.environ["SM_MODEL_DIR"], "model").write_text(str(trainer.global_step))
"""
"""SIGTERM ends it at the end of the step, and saves nothing: the checkpoint is that of the epoch before."""

TRANSFORMERS: Final = """
import os, pathlib, time
import torch
import transformers
from transformers.trainer_utils import get_last_checkpoint

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        return {"loss": self.layer(x).square().mean()}

class Waits(transformers.TrainerCallback):
    began_at = None

    def on_train_begin(self, args, state, control, **_):
        self.began_at = state.global_step

    def on_step_begin(self, args, state, control, **_):
        if self.began_at == 0 and state.global_step == 3:
            print("waits", flush=True)
            while not jit.is_checkpoint_requested:
                time.sleep(0.01)

folder = os.environ["SPOTKEEP_CHECKPOINT_DIR"]
trainer = transformers.Trainer(
    Model(),
    transformers.TrainingArguments(
        folder, max_steps=6, per_device_train_batch_size=2, save_strategy="no", report_to=[], use_cpu=True,
        disable_tqdm=True, enable_jit_checkpoint=True,
    ),
    train_dataset=[{"x": torch.ones(4), "labels": torch.ones(1)}] * 12,
    callbacks=[Waits],
)
callbacks = trainer.callback_handler.callbacks
jit = next(callback.jit_manager for callback in callbacks if hasattr(callback, "jit_manager"))
trainer.train(resume_from_checkpoint=get_last_checkpoint(folder))
pathlib.Path(os.environ["SM_MODEL_DIR"], "model").write_text(str(trainer.state.global_step))
"""
"""SIGTERM has it save three seconds later and end the training: what follows runs as if that were done."""
