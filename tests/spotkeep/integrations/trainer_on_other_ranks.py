"""Trainer with DDP and with FSDP2, interrupted, and gone on with on as many ranks and on others.

accelerate divides a model on accelerators alone, and trains on a CPU with whole copies without a word. So this script
names the ranks an accelerator's. All that follows is accelerate's and torch's own, on the CPU.
"""

from __future__ import annotations

from functools import partial

import torch
import transformers
from accelerate.state import DistributedType, PartialState

from spotkeep.integrations.transformers import train_resumably
from tests.forking import do_each_kind, say
from tests.spotkeep.integrations.other_ranks import (
    EPOCHS,
    ROWS,
    Watch,
    facts_of,
    go_on_with_as_many,
    go_on_with_others,
)

FSDP = {"version": 2, "transformer_layer_cls_to_wrap": "BertLayer"}
OPTIONS = {"ddp": {}, "fsdp": {"fsdp": True, "fsdp_config": FSDP}}


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return {"input_ids": (torch.arange(12) * (index + 1)) % 15, "labels": torch.tensor(index)}


class Trainer(transformers.Trainer):
    def training_step(self, model, inputs, *others):
        self.watch.batch(int(self.state.epoch), inputs["labels"].tolist())
        return super().training_step(model, inputs, *others)


class Watches(transformers.TrainerCallback):
    def __init__(self, watch):
        self.watch = watch

    def on_train_begin(self, args, state, control, model, optimizer, **_):
        self.watch.begins(model, optimizer)

    def on_step_end(self, args, state, control, model, optimizer, **_):
        self.watch.step_is_done(state.global_step, model, optimizer)


def train(kind, folder, notice_at):
    watch = Watch(folder, notice_at)
    transformers.set_seed(5)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=18, num_hidden_layers=2, num_attention_heads=2, intermediate_size=10, num_labels=ROWS
    )
    args = transformers.TrainingArguments(
        output_dir=str(folder / "trainer"), per_device_train_batch_size=watch.share, num_train_epochs=EPOCHS,
        learning_rate=0.01, save_strategy="no", logging_steps=1, report_to=[], use_cpu=True, disable_tqdm=True,
        seed=5, ddp_backend="gloo", **OPTIONS[kind],
    )  # fmt: skip
    if kind == "fsdp":
        PartialState._shared_state["distributed_type"] = DistributedType.MULTI_GPU
    trainer = Trainer(
        model=transformers.BertForSequenceClassification(config),
        args=args,
        train_dataset=Rows(),
        callbacks=[Watches(watch)],
    )
    trainer.watch = watch
    train_resumably(trainer, directory=folder / "checkpoints", every_steps=100)
    state, (group, *_) = trainer.state, trainer.optimizer.param_groups
    facts = {"step": state.global_step, "of": state.max_steps, "rate": group["lr"]}
    watch.ends(trainer.model, trainer.optimizer, divided=kind == "fsdp", **facts)


def main(folder, kind):
    go_on_with_as_many(partial(train, kind), folder)
    # The last rank divides the model where the others do not, and the other way around.
    other = "ddp" if kind == "fsdp" else "fsdp"
    steps = sum(go_on_with_others(partial(train, kind), folder, last=partial(train, other)))
    if facts_of(folder / "others") != {"step": steps, "of": steps, "rate": 0}:
        say(f"on other ranks it ends with {facts_of(folder / 'others')}, and should after {steps} steps")
    say(f"{kind} is through")


if __name__ == "__main__":
    assert transformers.BertForSequenceClassification  # transformers imports it when it is asked for
    do_each_kind(main)
