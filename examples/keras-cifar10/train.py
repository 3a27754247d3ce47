"""Classify small colour images with Keras, in a script as people wrote them for SageMaker's containers.

Nothing in it is Spotkeep's. It writes a checkpoint of the whole model after each epoch, with the epoch's number in the
name. It begins with the newest checkpoint that it finds.
"""

import argparse
import os
import re
from pathlib import Path

import numpy as np
from tensorflow import keras

CHECKPOINT = re.compile(r"checkpoint-(\d+)\.keras$")
CLASSES = 10


def load_model_from_checkpoints(checkpoint_path):
    """Return the newest model of the checkpoints and the epochs that it has behind it."""
    epochs = [int(match[1]) for match in (CHECKPOINT.match(path.name) for path in checkpoint_path.iterdir()) if match]
    if not epochs:
        return None, 0
    print(f"found checkpoints of the epochs {sorted(epochs)}", flush=True)
    return keras.models.load_model(checkpoint_path / f"checkpoint-{max(epochs):03d}.keras"), max(epochs)


def new_model(learning_rate):
    model = keras.Sequential(
        [
            keras.layers.Input((32, 32, 3)),
            keras.layers.Rescaling(1 / 255),
            keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            keras.layers.MaxPooling2D(),
            keras.layers.Conv2D(32, 3, padding="same"),
            keras.layers.BatchNormalization(),
            keras.layers.Activation("relu"),
            keras.layers.MaxPooling2D(4),
            keras.layers.Flatten(),
            keras.layers.Dense(CLASSES, activation="softmax"),
        ]
    )
    model.compile(
        optimizer=keras.optimizers.Adam(learning_rate),
        loss="sparse_categorical_crossentropy",
        metrics=["accuracy"],
    )
    return model


def load_data(folder, seed):
    """Return images and labels from a channel, else drawn ones."""
    if folder is None:
        return drawn(1200, seed)
    with np.load(Path(folder) / "train.npz") as file:
        return file["images"], file["labels"]


def drawn(count, seed):
    """Return noisy images of ten classes. Each has a bright bar, upright or level, at one of five places."""
    chance = np.random.default_rng(seed)
    images = chance.integers(0, 160, (count, 32, 32, 3), dtype=np.uint8)
    labels = chance.integers(0, CLASSES, count)
    for index, label in enumerate(labels):
        image = images[index]
        start = 2 + 6 * (label % 5)
        bar = image[:, start : start + 4] if label < 5 else image[start : start + 4]
        bar[..., label % 3] = np.maximum(bar[..., label % 3], 150)
    return images, labels


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", default=os.environ.get("SM_CHANNEL_TRAIN"))
    parser.add_argument("--model-dir", type=Path, default=os.environ.get("SM_MODEL_DIR", "model"))
    parser.add_argument("--checkpoint-path", type=Path, default="/opt/ml/checkpoints")
    return parser.parse_args()


def main():
    args = parse_args()
    keras.utils.set_random_seed(args.seed)
    images, labels = load_data(args.train, args.seed)
    # Mixed once, from the seed: so the order of an epoch does not depend on the epochs before it.
    order = np.random.default_rng(args.seed).permutation(len(images))
    images, labels = images[order], labels[order]

    args.checkpoint_path.mkdir(parents=True, exist_ok=True)
    model, initial_epoch = load_model_from_checkpoints(args.checkpoint_path)
    if model is None:
        model = new_model(args.learning_rate)
    print(f"starting with epoch {initial_epoch + 1}", flush=True)
    model.fit(
        images,
        labels,
        batch_size=args.batch_size,
        epochs=args.epochs,
        initial_epoch=initial_epoch,
        shuffle=False,
        verbose=2,
        validation_split=0.2,
        callbacks=[keras.callbacks.ModelCheckpoint(str(args.checkpoint_path / "checkpoint-{epoch:03d}.keras"))],
    )
    _, accuracy = model.evaluate(images, labels, verbose=0)
    print(f"done: {args.epochs} epochs, accuracy {accuracy:.3f}", flush=True)
    args.model_dir.mkdir(parents=True, exist_ok=True)
    model.save(args.model_dir / "model.keras")


if __name__ == "__main__":
    main()
