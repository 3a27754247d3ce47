#!/usr/bin/env bash
# transformers 5.23.0, with accelerate 1.15.0 and torch 2.13.0: a training with EarlyStoppingCallback that goes on from a checkpoint counts its
# patience from zero. The checkpoint holds the count (`stateful_callbacks` in trainer_state.json), and `resume_from_checkpoint` does not read it. So a training that is
# interrupted within its patience each time never stops early. A good guess is that a resumed training stops where the other one does. With
# `restore_callback_states_from_checkpoint=True` it does. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 accelerate==1.15.0 numpy
cat > "$folder/train.py" <<'PYTHON'
import tempfile

import torch
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments


class Net(torch.nn.Module):
    """A model that never gets better."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def forward(self, x, labels):
        return {"loss": (self.weight * 0).sum() + 1.0, "logits": x * self.weight}


class Interruption(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_save(self, arguments, state, control, **_):
        control.should_training_stop = state.global_step == self.step


def trained(folder, *, interrupted_at=None, checkpoint=None, **given):
    arguments = TrainingArguments(
        folder, max_steps=40, per_device_train_batch_size=4, eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2,
        load_best_model_at_end=True, metric_for_best_model="loss", greater_is_better=False, report_to=[], use_cpu=True, disable_tqdm=True, **given,
    )
    rows = [{"x": torch.ones(1), "labels": torch.ones(1)}] * 8
    callbacks = [EarlyStoppingCallback(early_stopping_patience=4), Interruption(interrupted_at)]
    trainer = Trainer(Net(), arguments, train_dataset=rows, eval_dataset=rows, callbacks=callbacks)
    trainer.train(resume_from_checkpoint=checkpoint)
    return trainer.state.global_step


for name, given in (("by default", {}), ("with the option", {"restore_callback_states_from_checkpoint": True})):
    with tempfile.TemporaryDirectory() as folder:
        alone = trained(f"{folder}/alone")
        trained(f"{folder}/other", interrupted_at=6)
        resumed = trained(f"{folder}/other", checkpoint=f"{folder}/other/checkpoint-6", **given)
    print(f"steps {name}: alone {alone}, interrupted and resumed {resumed}")
PYTHON
seen="$("$folder/venv/bin/python" -W ignore "$folder/train.py" 2>"$folder/errors" | grep '^steps')" || { cat "$folder/errors" >&2; exit 1; }
echo "$seen"
expected="steps by default: alone 10, interrupted and resumed 14
steps with the option: alone 10, interrupted and resumed 10"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was:" "$expected" >&2; exit 1; }
