"""Trainer on two ranks, interrupted again and again, and left alone.

The ranks are forked from this process, which has imported what takes seconds. Prints what differs; nothing when the
weights and the log are the same on both.
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
import transformers

from spotkeep.integrations.transformers import train_resumably
from tests.forking import end_with_two_ranks, say

ROWS, BATCH, EPOCHS = 48, 4, 2


class Rows(torch.utils.data.Dataset):
    """Sequences, with noise that is drawn while they are loaded."""

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        tokens = (torch.arange(12) * (index + 1)) % 15
        return {"input_ids": tokens + torch.randint(0, 2, tokens.shape), "labels": torch.tensor(index)}


class Stream(torch.utils.data.IterableDataset):
    """Rows in an order that is drawn little by little in each pass."""

    def __iter__(self):
        left = list(range(20))
        while left:
            yield Rows()[left.pop(int(torch.randint(len(left), ())))]


class Collates:
    """Draws other random numbers on each rank, and notes what it was given."""

    def __init__(self):
        self.rows = []

    def __call__(self, items):
        torch.rand(1 + dist.get_rank())
        self.rows += [int(item["labels"]) for item in items]
        return {name: torch.stack([item[name] for item in items]) for name in items[0]}


class Ends(transformers.TrainerCallback):
    """Ends the training on every rank, or gives a notice to one of them."""

    def __init__(self, step, how):
        self.step, self.how = step, how

    def on_step_end(self, args, state, control, **_):
        # On a notice rank 0 may have begun one more step, and the next attempt begins behind that.
        if self.step is not None and state.global_step >= self.step:
            self.step = None
            if self.how == "kill":
                raise KeyboardInterrupt
            if args.process_index == 1:
                os.kill(os.getpid(), signal.SIGTERM)


def trained(folder, *callbacks, data=Rows, collate=None, **options):
    transformers.set_seed(5)
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, num_labels=ROWS
    )
    trainer = transformers.Trainer(
        model=transformers.BertForSequenceClassification(config),
        args=transformers.TrainingArguments(
            output_dir=str(folder / "trainer"), per_device_train_batch_size=BATCH, num_train_epochs=EPOCHS,
            learning_rate=0.01, save_strategy="no", logging_steps=5, report_to=[], use_cpu=True, disable_tqdm=True,
            seed=5, ddp_backend="gloo", **options,
        ),
        train_dataset=data(), data_collator=collate, callbacks=list(callbacks),
    )  # fmt: skip
    train_resumably(trainer, directory=folder / "checkpoints", every_steps=4)
    weights = {name: value.numpy().tobytes() for name, value in trainer.model.state_dict().items()}
    return weights, [entry.get("loss") for entry in trainer.state.log_history]


def compare(folder, ends, **options):
    alone = trained(folder / "alone", **options)
    assert dist.get_world_size() == 2
    for how, step in ends:
        try:
            trained(folder, Ends(step, how), **options)
        except (KeyboardInterrupt, SystemExit) as ended:
            if how == "notice" and getattr(ended, "code", None) != 75:
                say(f"a notice at step {step} ended it with {ended!r}")
        else:
            say(f"{how} at step {step} did not end it")
    if trained(folder, **options) != alone:
        say(f"{folder.name}: it ends differently on rank {dist.get_rank()}")


def main(folder):
    # An epoch has six steps.
    compare(folder / "rows", (("kill", 5), ("notice", 6), ("notice", 7)))
    # A pass has three. Rank 0 makes the batches of both, or each rank goes through the stream and takes its part.
    compare(folder / "stream", (("kill", 5), ("notice", 8)), data=Stream, max_steps=10)
    parts = {"data": Stream, "max_steps": 7, "accelerator_config": {"dispatch_batches": False}}
    compare(folder / "parts of a stream", (("notice", 5),), **parts)
    collate, rows = Collates(), [None, None]
    trained(folder / "rows of each", collate=collate, **parts)
    dist.all_gather_object(rows, collate.rows[: 2 * BATCH])
    if len({*rows[0], *rows[1]}) != 4 * BATCH:
        say(f"of a stream the ranks got {rows}, some twice")
    say(f"rank {dist.get_rank()} is through")
    dist.destroy_process_group()


if __name__ == "__main__":
    assert transformers.Trainer  # transformers imports it when it is asked for
    assert transformers.BertForSequenceClassification
    end_with_two_ranks(partial(main, Path(sys.argv[1])))
