"""A PyTorch script without Spotkeep: begun again on its own checkpoints, it ends with the same weights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

SCRIPT = Path(__file__).parents[2] / "examples" / "pytorch-own-checkpoints" / "train.py"


def started(base: Path, epochs: int = 6) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), "--epochs", str(epochs), "--checkpoint-dir", str(base / "checkpoints")],
        stdout=subprocess.PIPE, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "SM_MODEL_DIR": str(base / "model")},
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return output


def test_nothing_of_spotkeep_is_in_it() -> None:
    assert "import spotkeep" not in SCRIPT.read_text()
    assert "from spotkeep" not in SCRIPT.read_text()


def test_killed_between_two_checkpoints_it_has_the_weights_of_a_run_that_was_left_alone(tmp_path: Path) -> None:
    assert "epoch 6: accuracy 0.9" in ended(started(tmp_path / "alone"))
    process = started(tmp_path / "cut", epochs=1000)
    assert process.stdout is not None
    while not (line := process.stdout.readline()).startswith("epoch 4"):
        assert line, "it ended before it was killed"
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    for later in (tmp_path / "cut" / "checkpoints").iterdir():
        if later.name > "checkpoint-003.pt":
            later.unlink()  # It may have come this far before the signal did.
    assert "loaded checkpoint-003.pt" in ended(started(tmp_path / "cut"))
    ours, theirs = (torch.load(tmp_path / run / "model" / "model.pt", weights_only=True) for run in ("cut", "alone"))
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
