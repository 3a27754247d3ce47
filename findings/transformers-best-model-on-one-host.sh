#!/usr/bin/env bash
# transformers 5.23.0, with accelerate 1.15.0 and torch 2.13.0: two ranks of a Trainer on hosts with a disk each, with
# `load_best_model_at_end=True`. At the end the first host's ranks have the best model. Those of the other host have the last one, because rank 0
# alone has written checkpoints, and a warning is all that says so. An evaluation or a prediction after `train` is then of two models. A good guess
# is that all ranks of a training end with one model. With `save_on_each_node=True` they do. Seen on 2026-11-30.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/python" -m pip install --quiet --disable-pip-version-check torch==2.13.0 transformers==5.23.0 accelerate==1.15.0 numpy
cat > "$folder/train.py" <<'PYTHON'
import os
import sys

import torch
from transformers import Trainer, TrainingArguments

os.environ["LOCAL_RANK"] = "0"  # As on a host of its own.


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)

    def forward(self, x, labels):
        found = self.linear(x).squeeze(1)
        return {"loss": torch.nn.functional.mse_loss(found, labels), "logits": found}


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 32

    def __getitem__(self, index):
        drawn = torch.Generator().manual_seed(index)
        return {"x": torch.randn(4, generator=drawn), "labels": torch.randn((), generator=drawn)}


evaluations = []


def worse_each_time(_):
    evaluations.append(1)
    return {"score": -len(evaluations)}


# Each rank has a folder of its own, as on a host with a disk of its own.
arguments = TrainingArguments(
    output_dir=f"{sys.argv[1]}/host-{os.environ['RANK']}", num_train_epochs=3, per_device_train_batch_size=4, learning_rate=0.1,
    eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="score", use_cpu=True,
    report_to=[], disable_tqdm=True, seed=1, save_on_each_node=sys.argv[2] == "each",
)
trainer = Trainer(Net(), arguments, train_dataset=Rows(), eval_dataset=Rows(), compute_metrics=worse_each_time)
trainer.train()
weights = [torch.zeros(4) for _ in range(2)]
torch.distributed.all_gather(weights, trainer.model.linear.weight.detach().flatten())
if os.environ["RANK"] == "0":
    print(sys.argv[2], "host saves:", "both ranks have one model" if torch.equal(*weights) else "each rank has another model", flush=True)
torch.distributed.destroy_process_group()
PYTHON
seen="$(for saves in first each; do
    OMP_NUM_THREADS=1 "$folder/venv/bin/python" -W ignore -m torch.distributed.run --standalone --nproc-per-node 2 "$folder/train.py" \
        "$folder/$saves" "$saves" 2>/dev/null | grep "host saves"
done)"
echo "$seen"
expected="first host saves: each rank has another model
each host saves: both ranks have one model"
[ "$seen" = "$expected" ] || { echo "changed; on 2026-11-30 it was: $expected" >&2; exit 1; }
