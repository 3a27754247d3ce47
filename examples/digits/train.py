"""Learn to read handwritten digits, in a way that an interruption cannot undo.

A network with one hidden layer, in plain NumPy, on the digits that scikit-learn ships. The same seed gives the same
weights, byte for byte, however often the training was interrupted. Only the lines that mention `checkpointer` are there
for Spotkeep.
"""

from __future__ import annotations

import argparse
import os
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from spotkeep import Checkpointer

TEST_IMAGES = 360


def main() -> None:
    options = parse_options()
    images, labels = load_digits()
    train_images, train_labels = images[:-TEST_IMAGES], labels[:-TEST_IMAGES]
    test_images, test_labels = images[-TEST_IMAGES:], labels[-TEST_IMAGES:]

    rng = np.random.default_rng(options.seed)
    weights = initial_weights(rng, hidden=options.hidden)
    velocity = {name: np.zeros_like(value) for name, value in weights.items()}
    steps_per_epoch = len(train_images) // options.batch

    state = {"weights": weights, "velocity": velocity, "rng": rng}
    with Checkpointer(state, every_steps=options.checkpoint_every) as checkpointer:
        for step in checkpointer.steps(options.steps):
            epoch, index = divmod(step, steps_per_epoch)
            batch = batch_of(len(train_images), epoch, index, size=options.batch, seed=options.seed)
            noisy = train_images[batch] + rng.normal(0.0, 0.05, (options.batch, images.shape[1]))
            loss = train_one_batch(weights, velocity, noisy, train_labels[batch], rate=options.learning_rate)
            checkpointer.log(loss=loss, epoch=epoch)
            if index == steps_per_epoch - 1:
                print(f"epoch {epoch}: accuracy {accuracy(weights, test_images, test_labels):.3f}", flush=True)
            time.sleep(options.seconds_per_step)

    save_model(weights, Path(os.environ.get("SM_MODEL_DIR", "model")))
    print(f"done: {options.steps} steps, accuracy {accuracy(weights, test_images, test_labels):.3f}", flush=True)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--hidden", type=int, default=32)
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--checkpoint-every", type=int, default=25, metavar="STEPS")
    parser.add_argument("--seconds-per-step", type=float, default=0.0, help="slow down, to watch or to interrupt")
    return parser.parse_args()


def load_digits() -> tuple[np.ndarray, np.ndarray]:
    """Read the digits from scikit-learn's own file, as 64 pixels from 0 to 1 and the label.

    The import of scikit-learn takes longer than most trainings here.
    """
    sklearn = find_spec("sklearn")
    if sklearn is None or not sklearn.submodule_search_locations:
        raise SystemExit("the digits come with scikit-learn, which is not installed: pip install scikit-learn")
    file = Path(sklearn.submodule_search_locations[0], "datasets", "data", "digits.csv.gz")
    digits = np.loadtxt(file, delimiter=",")
    return digits[:, :-1] / 16.0, digits[:, -1].astype(int)


def initial_weights(rng: np.random.Generator, *, hidden: int) -> dict[str, np.ndarray]:
    return {
        "hidden_weights": rng.normal(0.0, 64**-0.5, (64, hidden)),
        "hidden_bias": np.zeros(hidden),
        "output_weights": rng.normal(0.0, hidden**-0.5, (hidden, 10)),
        "output_bias": np.zeros(10),
    }


def batch_of(count: int, epoch: int, index: int, *, size: int, seed: int) -> np.ndarray:
    """Return the order of an epoch's images. Each epoch has its own order, which depends only on its number."""
    order = np.random.default_rng([seed, epoch]).permutation(count)
    return order[index * size : (index + 1) * size]


def forward(weights: dict[str, np.ndarray], images: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    hidden = np.maximum(images @ weights["hidden_weights"] + weights["hidden_bias"], 0.0)
    scores = hidden @ weights["output_weights"] + weights["output_bias"]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def train_one_batch(
    weights: dict[str, np.ndarray],
    velocity: dict[str, np.ndarray],
    images: np.ndarray,
    labels: np.ndarray,
    *,
    rate: float,
) -> float:
    """Return one step of gradient descent with momentum, in place. Gives the loss before it."""
    hidden, probabilities = forward(weights, images)
    rows = np.arange(len(labels))
    loss = -np.log(probabilities[rows, labels]).mean()
    error = probabilities.copy()
    error[rows, labels] -= 1.0
    error /= len(labels)
    hidden_error = (error @ weights["output_weights"].T) * (hidden > 0.0)
    gradients = {
        "hidden_weights": images.T @ hidden_error,
        "hidden_bias": hidden_error.sum(axis=0),
        "output_weights": hidden.T @ error,
        "output_bias": error.sum(axis=0),
    }
    for name, gradient in gradients.items():
        velocity[name] *= 0.9
        velocity[name] -= rate * gradient
        weights[name] += velocity[name]
    return float(loss)


def accuracy(weights: dict[str, np.ndarray], images: np.ndarray, labels: np.ndarray) -> float:
    return float((forward(weights, images)[1].argmax(axis=1) == labels).mean())


def save_model(weights: dict[str, np.ndarray], directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, value in sorted(weights.items()):
        np.save(directory / f"{name}.npy", value)


if __name__ == "__main__":
    main()
