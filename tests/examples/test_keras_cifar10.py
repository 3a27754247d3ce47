"""The Keras example knows nothing of Spotkeep: begun again on its own checkpoints, it ends with the same model."""

from __future__ import annotations

import ast
import signal
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.long]

EXAMPLE = Path(__file__).parents[2] / "examples" / "keras-cifar10"
EPOCHS = 4


@pytest.fixture(scope="module")
def run(make_runs):
    runs = make_runs("numpy", "tensorflow.keras")

    def run(base, *, epochs=EPOCHS, **others):
        options = ["--epochs", str(epochs), "--checkpoint-path", str(base / "checkpoints")]
        threads = {"TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1"}
        return runs.run(EXAMPLE / "train.py", base, *options, **threads, **others)

    return run


def weights(base: Path) -> list[np.ndarray]:
    import keras

    return list(keras.models.load_model(base / "model" / "model.keras").get_weights())


def test_nothing_of_spotkeep_is_in_it() -> None:
    tree = ast.parse((EXAMPLE / "train.py").read_text())
    imported = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names])
    }
    assert imported == {"argparse", "os", "pathlib", "re", "numpy", "tensorflow"}


def test_killed_in_an_epoch_it_begins_with_its_newest_checkpoint_and_has_the_same_model(run, tmp_path: Path) -> None:
    code, output = run(tmp_path / "alone")
    assert code == 0
    assert "starting with epoch 1\n" in output
    assert float(output.rpartition("accuracy ")[2].split()[0]) > 0.9

    code, _ = run(tmp_path / "cut", at_text=f"Epoch 3/{EPOCHS}")
    assert code == -signal.SIGKILL
    code, output = run(tmp_path / "cut")
    assert code == 0
    assert "starting with epoch 3\n" in output
    for ours, theirs in zip(weights(tmp_path / "cut"), weights(tmp_path / "alone"), strict=True):
        assert np.array_equal(ours, theirs)


def test_it_trains_on_a_channel(run, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    np.savez(tmp_path / "train.npz", images=random.integers(0, 255, (64, 32, 32, 3)), labels=np.arange(64) % 10)
    code, output = run(tmp_path / "run", epochs=1, SM_CHANNEL_TRAIN=str(tmp_path))
    assert code == 0
    assert "done: 1 epochs" in output
