"""The XGBoost example: ended by a notice and by a kill, it has the model of a run that was left alone."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("xgboost")

pytestmark = [pytest.mark.boosters, pytest.mark.long]

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "xgboost-digits" / "train.py"


@pytest.fixture(scope="module")
def run(make_runs):
    runs = make_runs("numpy", "sklearn.datasets", "xgboost")

    def run(base, **others):
        return runs.run(SCRIPT, base, "--num_round", "40", "--rounds_per_step", "4", **others)

    return run


def model(base: Path) -> bytes:
    return (base / "model" / "xgboost-model.json").read_bytes()


def test_it_has_the_model_of_a_run_that_was_left_alone(run, tmp_path: Path) -> None:
    code, output = run(tmp_path / "alone")
    assert code == 0, output
    assert "done: 40 rounds, accuracy 0.9" in output
    base = tmp_path / "cut"
    assert run(base, kill="SIGTERM", at_step=3)[0] == 75
    assert run(base, kill="SIGKILL", at_step=6)[0] == -signal.SIGKILL
    code, output = run(base)
    assert code == 0, output
    assert '"event":"resume"' in output
    assert model(base) == model(tmp_path / "alone")


def test_it_reads_the_channels_of_a_job(run, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for channel, rows in (("train", 300), ("validation", 50)):
        folder = tmp_path / channel
        folder.mkdir()
        labels = np.arange(rows) % 10
        pixels = labels[:, None] + random.normal(scale=0.05, size=(rows, 3))
        np.savetxt(folder / "rows.csv", np.column_stack([labels, pixels]), delimiter=",")
    channels = {f"SM_CHANNEL_{name.upper()}": str(tmp_path / name) for name in ("train", "validation")}
    code, output = run(tmp_path / "run", **channels)
    assert code == 0, output
    assert float(output.rpartition("accuracy ")[2]) > 0.9
