"""The XGBoost example: ended by a notice and by a kill, it has the model of a run that was left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("xgboost")

pytestmark = [pytest.mark.boosters, pytest.mark.long]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "xgboost-digits" / "train.py"


def started(base: Path, *options: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), "--num_round", "40", "--rounds_per_step", "4", *options],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=base.parent,
        env={
            **os.environ, "PYTHONPATH": str(ROOT / "training"), "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1",
            "SPOTKEEP_EVENTS": "stdout", "SPOTKEEP_CHECKPOINT_DIR": str(base / "checkpoints"),
            "SM_MODEL_DIR": str(base / "model"), **environment,
        },
    )  # fmt: skip


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, _ = process.communicate(timeout=300)
    return process.returncode, output


def interrupted(process: subprocess.Popen[str], *, after: int, signal_number: int) -> int:
    """Send a signal once so many checkpoints are saved; return the exit code."""
    assert process.stdout is not None
    saved = 0
    while saved < after:
        line = process.stdout.readline()
        assert line, "it ended before it was interrupted"
        saved += '"event":"saved"' in line
    process.send_signal(signal_number)
    return ended(process)[0]


def model(base: Path) -> bytes:
    return (base / "model" / "xgboost-model.json").read_bytes()


def test_it_has_the_model_of_a_run_that_was_left_alone(tmp_path: Path) -> None:
    code, output = ended(started(tmp_path / "alone"))
    assert code == 0, output
    assert "done: 40 rounds, accuracy 0.9" in output
    base = tmp_path / "cut"
    assert interrupted(started(base), after=2, signal_number=signal.SIGTERM) == 75
    assert interrupted(started(base), after=2, signal_number=signal.SIGKILL) == -signal.SIGKILL
    code, output = ended(started(base))
    assert code == 0, output
    assert '"event":"resume"' in output
    assert model(base) == model(tmp_path / "alone")


def test_it_reads_the_channels_of_a_job(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for channel, rows in (("train", 300), ("validation", 50)):
        folder = tmp_path / channel
        folder.mkdir()
        labels = np.arange(rows) % 10
        pixels = labels[:, None] + random.normal(scale=0.05, size=(rows, 3))
        np.savetxt(folder / "rows.csv", np.column_stack([labels, pixels]), delimiter=",")
    channels = {f"SM_CHANNEL_{name.upper()}": str(tmp_path / name) for name in ("train", "validation")}
    code, output = ended(started(tmp_path / "run", **channels))
    assert code == 0, output
    assert float(output.rpartition("accuracy ")[2]) > 0.9
