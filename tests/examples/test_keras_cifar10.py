"""The Keras example knows nothing of Spotkeep: begun again on its own checkpoints, it ends with the same model."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytestmark = [pytest.mark.tensorflow, pytest.mark.long]

EXAMPLE = Path(__file__).parents[2] / "examples" / "keras-cifar10"
EPOCHS = 4


def started(base: Path, **environment: str) -> subprocess.Popen[str]:
    options = ["--epochs", str(EPOCHS), "--checkpoint-path", str(base / "checkpoints")]
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE / "train.py"), *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={
            **os.environ, "TF_NUM_INTRAOP_THREADS": "1", "TF_NUM_INTEROP_THREADS": "1",
            "SM_MODEL_DIR": str(base / "model"), **environment,
        },
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output


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


def test_killed_in_an_epoch_it_begins_with_its_newest_checkpoint_and_has_the_same_model(tmp_path: Path) -> None:
    output = ended(started(tmp_path / "alone"))
    assert "starting with epoch 1\n" in output
    assert float(output.rpartition("accuracy ")[2].split()[0]) > 0.9

    process = started(tmp_path / "cut")
    assert process.stdout is not None
    while f"Epoch 3/{EPOCHS}" not in (line := process.stdout.readline()):
        assert line, "it ended before it was killed"
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert "starting with epoch 3\n" in ended(started(tmp_path / "cut"))
    for ours, theirs in zip(weights(tmp_path / "cut"), weights(tmp_path / "alone"), strict=True):
        assert np.array_equal(ours, theirs)


def test_it_trains_on_a_channel(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    np.savez(tmp_path / "train.npz", images=random.integers(0, 255, (64, 32, 32, 3)), labels=np.arange(64) % 10)
    output = ended(started(tmp_path / "run", SM_CHANNEL_TRAIN=str(tmp_path)))
    assert f"done: {EPOCHS} epochs" in output
