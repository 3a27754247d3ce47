"""The images to learn from. They are CIFAR-10 where the job has it, else scikit-learn's handwritten digits.

CIFAR-10 is read in its binary version (`cifar-10-binary.tar.gz` from its home page). A file has 10,000 records of one
byte of label and 3,072 bytes of image. The Python version is refused. It is a pickle, which could run code.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

RECORD_BYTES = 1 + 3 * 32 * 32
TRAIN_FILES = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
TEST_FILE = "test_batch.bin"
TEST_DIGITS = 360


@dataclass(frozen=True)
class Images:
    """Images as float32 of shape (count, 3, 32, 32), labels as int64."""

    name: str
    train_images: torch.Tensor
    train_labels: torch.Tensor
    test_images: torch.Tensor
    test_labels: torch.Tensor


def load_images(channel: Path | None) -> Images:
    """Load CIFAR-10 from the channel's directory, or the digits when there is no such channel."""
    if channel is None:
        return load_digits_as_images()
    folders = [channel, *sorted(path for path in channel.rglob("*") if path.is_dir())]
    found = next((folder for folder in folders if (folder / TEST_FILE).is_file()), None)
    if found is None:
        raise SystemExit(
            f"no {TEST_FILE} below {channel}: the channel must hold CIFAR-10's binary version, unpacked "
            "(cifar-10-batches-bin); the Python version is a pickle and is not read"
        )
    train = [read_batch(found / name) for name in TRAIN_FILES]
    test_images, test_labels = read_batch(found / TEST_FILE)
    return Images(
        name="CIFAR-10",
        train_images=torch.cat([images for images, _ in train]),
        train_labels=torch.cat([labels for _, labels in train]),
        test_images=test_images,
        test_labels=test_labels,
    )


def read_batch(path: Path) -> tuple[torch.Tensor, torch.Tensor]:
    raw = np.fromfile(path, dtype=np.uint8)
    if raw.size == 0 or raw.size % RECORD_BYTES:
        raise SystemExit(f"{path} is not CIFAR-10's binary version: {raw.size} bytes, no multiple of {RECORD_BYTES}")
    records = raw.reshape(-1, RECORD_BYTES)
    images = records[:, 1:].reshape(-1, 3, 32, 32).astype(np.float32) / 255.0
    return torch.from_numpy(images), torch.from_numpy(records[:, 0].astype(np.int64))


def load_digits_as_images() -> Images:
    """Return digits of 8x8 grey values, each pixel four times as large, the same in red, green and blue."""
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]

    grey, labels = load_digits(return_X_y=True)
    small = (grey.reshape(-1, 1, 8, 8) / 16.0).astype(np.float32)
    images = torch.from_numpy(small).repeat_interleave(4, dim=2).repeat_interleave(4, dim=3).repeat(1, 3, 1, 1)
    targets = torch.from_numpy(labels.astype(np.int64))
    return Images(
        name="scikit-learn's digits",
        train_images=images[:-TEST_DIGITS],
        train_labels=targets[:-TEST_DIGITS],
        test_images=images[-TEST_DIGITS:],
        test_labels=targets[-TEST_DIGITS:],
    )
