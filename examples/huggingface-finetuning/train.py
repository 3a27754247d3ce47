"""Fine-tune a small text classifier with Hugging Face's Trainer.

Two lines make it resumable. One imports `train_resumably`. The other calls it in place of `trainer.train()`.
"""

import argparse
import json
import os
import random
from pathlib import Path

import torch
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
    set_seed,
)

from spotkeep.integrations.transformers import train_resumably

WORDS = {
    0: ["slow", "broken", "late", "poor", "noisy", "cold", "sad", "dull", "torn", "empty"],
    1: ["quick", "solid", "early", "rich", "quiet", "warm", "glad", "bright", "whole", "full"],
}
NEITHER = [
    "the",
    "a",
    "room",
    "bed",
    "food",
    "train",
    "seat",
    "staff",
    "price",
    "morning",
    "evening",
    "was",
    "is",
    "very",
    "quite",
]
VOCABULARY = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *NEITHER, *WORDS[0], *WORDS[1]])}
LONGEST = 16


def parsed():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--train_batch_size", type=int, default=16)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    # A model of your own: a folder that `save_pretrained` wrote. Without one a tiny model begins at nothing.
    parser.add_argument("--model", default=os.environ.get("SM_CHANNEL_MODEL"))
    parser.add_argument("--train", default=os.environ.get("SM_CHANNEL_TRAIN"))
    parser.add_argument("--model-dir", default=os.environ.get("SM_MODEL_DIR", "model"))
    return parser.parse_args()


def reviews(count, seed):
    """Return made-up reviews in the form of a file of the channel `train`.

    Each line is an object with a `text` and a `label` of 0 or 1.
    """
    chance = random.Random(seed)
    made = []
    for _ in range(count):
        label = chance.randrange(2)
        words = [
            chance.choice(WORDS[label] if chance.random() < 0.4 else NEITHER) for _ in range(chance.randint(6, 14))
        ]
        made.append({"text": " ".join(words), "label": label})
    return made


def loaded(folder, seed):
    """Return the rows of every JSON lines file of a channel."""
    if folder is None:
        return reviews(400, seed)
    lines = [line for path in sorted(Path(folder).glob("*.jsonl")) for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines if line]


class Reviews(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        row = self.rows[index]
        tokens = [VOCABULARY.get(word, VOCABULARY["[UNK]"]) for word in row["text"].split()][:LONGEST]
        mask = [1] * len(tokens) + [0] * (LONGEST - len(tokens))
        return {"input_ids": tokens + [0] * (LONGEST - len(tokens)), "attention_mask": mask, "labels": row["label"]}


def model_of(options):
    if options.model is not None:
        return AutoModelForSequenceClassification.from_pretrained(options.model)
    config = BertConfig(
        vocab_size=len(VOCABULARY),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        num_labels=2,
    )
    return BertForSequenceClassification(config)


def accuracy(prediction):
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def main():
    options = parsed()
    set_seed(options.seed)
    trainer = Trainer(
        model=model_of(options),
        args=TrainingArguments(
            output_dir="trainer",
            num_train_epochs=options.epochs,
            per_device_train_batch_size=options.train_batch_size,
            learning_rate=options.learning_rate,
            lr_scheduler_type="cosine",
            eval_strategy="epoch",
            save_strategy="no",
            logging_steps=10,
            report_to=[],
            disable_tqdm=True,
            seed=options.seed,
        ),
        train_dataset=Reviews(loaded(options.train, options.seed)),
        eval_dataset=Reviews(reviews(100, options.seed + 1)),
        compute_metrics=accuracy,
    )
    train_resumably(trainer, every_seconds="auto")
    print(f"done: {trainer.state.global_step} steps, accuracy {trainer.evaluate()['eval_accuracy']:.3f}", flush=True)
    trainer.save_model(options.model_dir)


if __name__ == "__main__":
    main()
