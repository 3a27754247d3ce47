"""Writes the data of a sample (``python made_data.py NAME FOLDER``), small and the same each time.

It runs in the sample's own Python, so that it can write in a framework's own format. It imports nothing of ours.
"""

from __future__ import annotations

import gzip
import json
import pickle
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

METRIC = """
import datasets


class Accuracy(datasets.Metric):
    def _info(self):
        numbers = datasets.Features({"predictions": datasets.Value("int32"), "references": datasets.Value("int32")})
        return datasets.MetricInfo(description="", citation="", features=numbers)

    def _compute(self, predictions, references):
        return {"accuracy": sum(a == b for a, b in zip(predictions, references)) / len(references)}
"""
"""The metric that `load_metric` would take from the network."""

SYLLABLES = ("ba", "co", "di", "fu", "la", "me", "no", "pi", "ra", "su", "te", "vo")


def drawn_digits(count: int, *, seed: int) -> Any:
    """Return ``count`` pictures of 28 x 28 bytes and their labels. A label's picture is a bar at a place of its own."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 10, count)
    pictures = draw.integers(0, 60, (count, 28, 28))
    for picture, label in zip(pictures, labels, strict=True):
        picture[2 + 2 * label : 6 + 2 * label, 4:24] += 150
    return pictures.astype(np.uint8), labels.astype(np.uint8)


def write_idx(path: Path, values: Any) -> None:
    """Write an array of bytes as MNIST's own file format has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    header = struct.pack(">I", 0x0800 + values.ndim) + struct.pack(f">{values.ndim}I", *values.shape)
    path.write_bytes(header + values.tobytes())


def write_mnist(folder: Path, *, train: int, test: int) -> None:
    """Write the four files that torchvision's MNIST reads."""
    for split, count, seed in (("train", train, 0), ("t10k", test, 1)):
        pictures, labels = drawn_digits(count, seed=seed)
        write_idx(folder / f"{split}-images-idx3-ubyte", pictures)
        write_idx(folder / f"{split}-labels-idx1-ubyte", labels)


def words(count: int, *, seed: int) -> list[str]:
    """Return words of two to four syllables."""
    draw = np.random.default_rng(seed)
    return ["".join(draw.choice(SYLLABLES, int(draw.integers(2, 5)))) for _ in range(count)]


def write_pictures(folder: Path, *, classes: int, count: int, size: int, seed: int) -> None:
    """Write JPEGs, a folder a class, each class of one colour."""
    from PIL import Image

    draw = np.random.default_rng(seed)
    for label in range(classes):
        place = folder / f"class{label}"
        place.mkdir(parents=True, exist_ok=True)
        colour = np.random.default_rng(100 + label).integers(0, 255, 3)
        for number in range(count):
            noise = draw.integers(-40, 40, (size, size, 3))
            pixels = np.clip(colour + noise, 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / f"class{label}" / f"{number}.jpg")


def imagenet(folder: Path) -> None:
    """Write eighty pictures of four classes for training, sixteen for validation."""
    write_pictures(folder / "images" / "train", classes=4, count=20, size=240, seed=0)
    write_pictures(folder / "images" / "val", classes=4, count=4, size=240, seed=1)


def small_imagenet(folder: Path) -> None:
    """Write small pictures of four classes."""
    write_pictures(folder / "images" / "train", classes=4, count=32, size=40, seed=0)
    write_pictures(folder / "images" / "val", classes=4, count=8, size=40, seed=1)


def mnist(folder: Path) -> None:
    """Write 1,200 digits for training and 400 for tests into MNIST/raw."""
    write_mnist(folder / "MNIST" / "raw", train=1200, test=400)


def whole_mnist(folder: Path) -> None:
    """Write as many digits as MNIST has, where a script splits by fixed numbers."""
    write_mnist(folder / "datasets" / "MNIST" / "raw", train=60_000, test=10_000)


def template_mnist(folder: Path) -> None:
    """Write digits into data/MNIST/raw."""
    write_mnist(folder / "data" / "MNIST" / "raw", train=4000, test=1000)


def chainer_mnist(folder: Path) -> None:
    """Write the two files that Chainer keeps of MNIST."""
    place = folder / "datasets" / "pfnet" / "chainer" / "mnist"
    place.mkdir(parents=True, exist_ok=True)
    for name, count, seed in (("train", 6000, 0), ("test", 1000, 1)):
        pictures, labels = drawn_digits(count, seed=seed)
        np.savez_compressed(place / f"{name}.npz", x=pictures.reshape(count, 784), y=labels)


def keras_mnist(folder: Path) -> None:
    """Write the four arrays of the AWS sample."""
    place = folder / "digits"
    place.mkdir(parents=True, exist_ok=True)
    for name, count, seed in (("train", 2000, 0), ("eval", 500, 1)):
        pictures, labels = drawn_digits(count, seed=seed)
        np.save(place / f"{name}_data.npy", (pictures / 255).astype(np.float32))
        np.save(place / f"{name}_labels.npy", labels.astype(np.int64))


def names(folder: Path) -> None:
    """Write 1,500 words, one a line."""
    (folder / "names.txt").write_text("\n".join(words(1500, seed=0)) + "\n")


def tokens(folder: Path) -> None:
    """Write the two token files of nanoGPT, and a configuration that resumes where there is a checkpoint."""
    place = folder / "data" / "made"
    place.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for name, count in (("train", 20_000), ("val", 2_000)):
        steps = draw.integers(0, 3, count).cumsum() % 64
        steps.astype(np.uint16).tofile(place / f"{name}.bin")
    (place / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 64, "itos": {}, "stoi": {}}))
    (folder / "config" / "made.py").write_text(
        "out_dir = 'out'\n"
        "dataset = 'made'\n"
        "init_from = 'resume' if os.path.exists('out/ckpt.pt') else 'scratch'\n"
        "device, dtype, compile = 'cpu', 'float32', False\n"
        "n_layer, n_head, n_embd, block_size, batch_size = 2, 2, 32, 32, 4\n"
        "gradient_accumulation_steps, dropout = 1, 0.0\n"
        "eval_interval, eval_iters, always_save_checkpoint = 40, 5, True\n"
        "max_iters, lr_decay_iters, warmup_iters, log_interval = 400, 400, 20, 10\n"
    )


def story_tokens(folder: Path) -> None:
    """Write three shards of tokens of llama2.c."""
    place = folder / "data" / "tok64"
    place.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(0)
    for shard in range(3):
        steps = draw.integers(0, 3, 6000).cumsum() % 64
        steps.astype(np.uint16).tofile(place / f"data{shard:02}.bin")


def tiny_bert(folder: Path) -> None:
    """Write a text dataset of two splits and a small BERT with a tokenizer of its own."""
    import torch
    from datasets import ClassLabel, Dataset, Features, Sequence, Value
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    torch.manual_seed(0)
    model = folder / "tiny-bert"
    model.mkdir(parents=True, exist_ok=True)
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *SYLLABLES, *(f"##{part}" for part in SYLLABLES)]
    (model / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
    tokenizer = BertTokenizerFast(str(model / "vocab.txt"))
    tokenizer.save_pretrained(model)
    BertForSequenceClassification(
        BertConfig(
            vocab_size=len(vocabulary),
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
            max_position_embeddings=32,
        )
    ).save_pretrained(model)
    features = Features(
        {
            "labels": ClassLabel(names=["even", "odd"]),
            "input_ids": Sequence(Value("int64")),
            "attention_mask": Sequence(Value("int64")),
        }
    )
    for split, count, seed in (("train", 600, 0), ("test", 100, 1)):
        texts = words(count, seed=seed)
        encoded = tokenizer(texts, padding="max_length", max_length=12, truncation=True)
        rows = {
            "labels": [len(text) // 2 % 2 for text in texts],
            "input_ids": encoded["input_ids"],
            "attention_mask": encoded["attention_mask"],
        }
        Dataset.from_dict(rows, features=features).save_to_disk(str(folder / "text" / split))
    (folder / "accuracy").mkdir(exist_ok=True)
    (folder / "accuracy" / "accuracy.py").write_text(METRIC)


def tiny_gpt(folder: Path) -> None:
    """Write lines of text and the configuration and tokenizer of a small GPT-2."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, PreTrainedTokenizerFast

    for name, count, seed in (("train", 6000, 0), ("validation", 600, 1)):
        text = words(count, seed=seed)
        lines = [" ".join(text[start : start + 10]) for start in range(0, count, 10)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n")
    vocabulary = {
        token: number for number, token in enumerate(["<end>", "<unknown>", *sorted(set(words(6000, seed=0)))[:400]])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unknown>"))  # noqa: S106 - a token of text
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    place = folder / "tiny-gpt"
    special = {"unk_token": "<unknown>", "eos_token": "<end>", "bos_token": "<end>"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(place)
    GPT2Config(
        vocab_size=len(vocabulary), n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0
    ).save_pretrained(place)


def diffusion(folder: Path) -> None:
    """Write sixteen small pictures and the configuration of a small UNet."""
    write_pictures(folder / "pictures", classes=2, count=16, size=16, seed=0)
    (folder / "unet").mkdir(parents=True, exist_ok=True)
    (folder / "unet" / "config.json").write_text(
        json.dumps(
            {
                "_class_name": "UNet2DModel",
                "sample_size": 16,
                "in_channels": 3,
                "out_channels": 3,
                "layers_per_block": 1,
                "norm_num_groups": 8,
                "block_out_channels": [16, 32],
                "down_block_types": ["DownBlock2D", "AttnDownBlock2D"],
                "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
            }
        )
    )


def messages(folder: Path) -> None:
    """Write messages as a chat's export has them, and the cache of their embeddings, which needs no service then."""
    count = 12_000
    draw = np.random.default_rng(0)
    rows = [
        {
            "timestamp": f"2025-{1 + number % 12:02}-{1 + number % 28:02}T{number % 24:02}:00:00",
            "text": f"message {number}, long enough",
            "reactions_total": int(draw.integers(0, 50)),
        }
        for number in range(count)
    ]
    (folder / "messages.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    embeddings: dict[str, Any] = {
        name: draw.normal(size=(count, 12)).astype(np.float32) for name in ("X_title", "X_sum", "X_dom")
    }
    meta = draw.integers(0, 24, (count, 4)).astype(np.float32)
    labels = embeddings["X_title"][:, 0] + np.abs(embeddings["X_sum"][:, 1]) + draw.normal(size=count)
    np.savez_compressed(folder / "cache.npz", meta=meta, y=labels.astype(np.float32), **embeddings)


def elastic_imagenet(folder: Path) -> None:
    """Write pictures, and the script that each of two processes runs."""
    write_pictures(folder / "images" / "train", classes=4, count=12, size=240, seed=0)
    write_pictures(folder / "images" / "val", classes=4, count=4, size=240, seed=1)
    (folder / "rank.sh").write_text(
        "mkdir -p checkpoints/$RANK\n"
        "exec python imagenet.py -a shufflenet_v2_x0_5 --epochs 6 -b 8"
        " --checkpoint-file checkpoints/$RANK/checkpoint.pth.tar images\n"
    )


def dezero_mnist(folder: Path) -> None:
    """Write the gzipped files of MNIST that DeZero keeps in the home directory."""
    for split, count, seed in (("train", 6000, 0), ("t10k", 100, 1)):
        pictures, labels = drawn_digits(count, seed=seed)
        for path, values in (
            (folder / ".dezero" / f"{split}-images-idx3-ubyte", pictures),
            (folder / ".dezero" / f"{split}-labels-idx1-ubyte", labels),
        ):
            write_idx(path, values)
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()


def token_records(folder: Path) -> None:
    """Write tokens as records of TensorFlow."""
    import tensorflow as tf

    (folder / "data").mkdir(exist_ok=True)
    draw = np.random.default_rng(0)
    for name, count in (("train_00", 60), ("train_01", 60), ("val_00", 20)):
        with tf.io.TFRecordWriter(str(folder / "data" / f"{name}.tfrecord")) as writer:
            for _ in range(count):
                steps = (draw.integers(0, 3, 200).cumsum() % 64).astype(np.uint16)
                value = tf.train.Feature(bytes_list=tf.train.BytesList(value=[steps.tobytes()]))
                features = tf.train.Features(feature={"ids": value})
                writer.write(tf.train.Example(features=features).SerializeToString())


def language_text(folder: Path) -> None:
    """Write three files of text and a tokenizer of a thousand pieces at most."""
    import sentencepiece

    (folder / "data").mkdir(exist_ok=True)
    for name, count, seed in (("train", 4000, 0), ("valid", 400, 1), ("test", 400, 2)):
        text = words(count, seed=seed)
        lines = [" ".join(text[start : start + 10]) for start in range(0, count, 10)]
        (folder / "data" / f"{name}.txt").write_text("\n".join(lines) + "\n")
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "data" / "train.txt"),
        model_prefix=str(folder / "tokenizer"),
        vocab_size=200,
        hard_vocab_limit=False,
        minloglevel=2,
    )


WRITERS: dict[str, Callable[[Path], None]] = {
    writer.__name__: writer
    for writer in (
        imagenet,
        small_imagenet,
        mnist,
        whole_mnist,
        template_mnist,
        chainer_mnist,
        keras_mnist,
        names,
        tokens,
        story_tokens,
        tiny_bert,
        tiny_gpt,
        diffusion,
        messages,
        elastic_imagenet,
        dezero_mnist,
        token_records,
        language_text,
    )
}
"""Each writer of data, by name."""


if __name__ == "__main__":
    WRITERS[sys.argv[1]](Path(sys.argv[2]))
