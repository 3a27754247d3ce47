"""Trainer with DDP and with FSDP2, interrupted, and gone on with on as many ranks and on others.

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

import torch
import torch.distributed as dist
import transformers
from accelerate.state import DistributedType, PartialState
from torch.distributed.tensor import DTensor

from spotkeep.integrations.transformers import train_resumably
from tests.forking import run_on_ranks, say

ROWS, BATCH, EPOCHS = 48, 4, 2
FSDP = {"version": 2, "transformer_layer_cls_to_wrap": "BertLayer"}
OPTIONS = {"ddp": {}, "fsdp": {"fsdp": True, "fsdp_config": FSDP}}


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return {"input_ids": (torch.arange(12) * (index + 1)) % 15, "labels": torch.tensor(index)}


class Trainer(transformers.Trainer):
    """Notes the rows that it trains on."""

    def training_step(self, model, inputs, *others):
        with self.noted.open("a") as rows:
            print(json.dumps([int(self.state.epoch), *inputs["labels"].tolist()]), file=rows)
        return super().training_step(model, inputs, *others)


class Notice(transformers.TrainerCallback):
    """Gives a notice to the last rank after a step, and keeps what all ranks together have then."""

    def __init__(self, folder, step):
        self.folder, self.step = folder, step

    def on_step_end(self, args, state, control, model, optimizer, **_):
        if state.global_step == self.step:
            keep(self.folder / "whole.pt", whole(model, optimizer))
            if args.process_index == args.world_size - 1:
                os.kill(os.getpid(), signal.SIGTERM)


class Compares(transformers.TrainerCallback):
    """Compares what all ranks together have at the begin with what was kept."""

    def __init__(self, folder):
        self.folder = folder

    def on_train_begin(self, args, state, control, model, optimizer, **_):
        kept = torch.load(self.folder / "whole.pt", weights_only=True)
        differs = [name for name, value in whole(model, optimizer).items() if not torch.equal(kept.pop(name), value)]
        if differs or kept:
            say(f"rank {args.process_index} of {args.world_size}: {differs} and {[*kept]} are not what was saved")


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


def train(kind, folder, *callbacks):
    transformers.set_seed(5)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=18, num_hidden_layers=2, num_attention_heads=2, intermediate_size=10, num_labels=ROWS
    )
    args = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"), per_device_train_batch_size=BATCH, num_train_epochs=EPOCHS,
        learning_rate=0.01, save_strategy="no", logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True,
        seed=5, ddp_backend="gloo", **OPTIONS[kind],
    )  # fmt: skip
    if kind == "fsdp":
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    trainer = Trainer(
        model=transformers.BertForSequenceClassification(config),
        args=args,
        train_dataset=Rows(),
        callbacks=[*callbacks],
    )
    folder.mkdir(parents=True, exist_ok=True)
    trainer.noted = folder / f"rows of {args.process_index}"
    train_resumably(trainer, directory=folder / "checkpoints", every_steps=100)
    divided = any(isinstance(value, DTensor) for value in trainer.model.state_dict().values())
    if divided != (kind == "fsdp"):
        say(f"the model is {'divided' if divided else 'whole'}")
    ended = whole(trainer.model, trainer.optimizer)
    state, (group, *_) = trainer.state, trainer.optimizer.param_groups
    facts = {"step": state.global_step, "of": state.max_steps, "lr": group["lr"]}
    keep(folder / "ended.pt", {**ended, **{name: torch.tensor(float(value)) for name, value in facts.items()}})


def ended(folder):
    return torch.load(folder / "ended.pt", weights_only=True)


def rows_of_epochs(folder):
    rows = [[] for _ in range(EPOCHS)]
    for path in folder.glob("rows of *"):
        for line in path.read_text().splitlines():
            epoch, *labels = json.loads(line)
            rows[epoch] += labels
    return [sorted(row) for row in rows]


def interrupted(folder, *parts):
    """Train with so many ranks up to a notice after a step, and so on, and to the end where there is none."""
    for number, (kind, ranks, step) in enumerate(parts):
        callbacks = [*([Compares(folder)] if number else []), *([] if step is None else [Notice(folder, step)])]
        codes = run_on_ranks(ranks, partial(train, kind, folder, *callbacks))
        if set(codes) != {0 if step is None else 75}:
            say(f"{ranks} ranks up to step {step} ended with {codes}")


def main(folder, kind):
    alone, again, others = (folder / name for name in ("alone", "again", "others"))
    run_on_ranks(2, partial(train, kind, alone))
    # An epoch has six steps on two ranks.
    interrupted(again, (kind, 2, 3), (kind, 2, 7), (kind, 2, None))
    if any(not torch.equal(value, ended(again)[name]) for name, value in ended(alone).items()):
        say("on as many ranks it ends differently")
    # 24 rows of the first epoch are two steps of three ranks. Two more end it, and the sixth is in the next one.
    # The last rank divides the model where the others do not, and the other way around.
    other = "ddp" if kind == "fsdp" else "fsdp"
    interrupted(others, (kind, 2, 3), (kind, 3, 6), (other, 1, None))
    if rows_of_epochs(others) != [[*range(ROWS)]] * EPOCHS:
        say(f"on other ranks the epochs have {rows_of_epochs(others)}")
    facts = {name: float(ended(others)[name]) for name in ("step", "of", "lr")}
    if facts != {"step": 15, "of": 15, "lr": 0}:
        say(f"on other ranks it ends with {facts}")
    say(f"{kind} is through")


if __name__ == "__main__":
    assert transformers.BertForSequenceClassification  # transformers imports it when it is asked for
    main(Path(sys.argv[1]), sys.argv[2])
