"""The default rehearsal: interrupted anywhere, it ends with the same bytes as a run that was left alone."""

from __future__ import annotations

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits"
STEPS = 120


def start(base: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(EXAMPLE / "train.py"), "--steps", str(STEPS), "--checkpoint-every", "20", *options],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "training"),
            "OPENBLAS_NUM_THREADS": "1",
            "SPOTKEEP_EVENTS": "stdout",
            "SPOTKEEP_PROGRESS_SECONDS": "0",
            "SPOTKEEP_CHECKPOINT_DIR": str(base / "checkpoints"),
            "SM_MODEL_DIR": str(base / "model"),
        },
        stdout=subprocess.PIPE,
        text=True,
    )


def interrupt(process: subprocess.Popen[str], signum: int, *, at_step: int) -> int:
    """Sends a signal once this step is reported; gives the step the process had begun with."""
    assert process.stdout is not None
    resumed = 0
    for line in process.stdout:
        event = json.loads(line.split(": ", 1)[1]) if line.startswith("spotkeep-event: ") else {}
        if event.get("event") == "resume":
            resumed = event["step"]
        if event.get("event") == "progress" and event["step"] >= at_step:
            process.send_signal(signum)
            break
    process.communicate()
    return resumed


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate()
    assert process.returncode == 0
    return output


def model(base: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted((base / "model").iterdir())}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("undisturbed")
    told = re.search(r"done: 120 steps, accuracy (\S+)", finish(start(base)))
    assert told is not None
    assert float(told[1]) > 0.85, "it has learned to read"
    return base


def test_it_leaves_weights_that_any_numpy_can_load(undisturbed):
    assert set(model(undisturbed)) == {
        *("hidden_weights.npy", "hidden_bias.npy", "output_weights.npy", "output_bias.npy"),
    }
    assert np.load(undisturbed / "model" / "hidden_weights.npy").shape == (64, 32)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(undisturbed, tmp_path):
    finish(start(tmp_path / "again"))
    finish(start(tmp_path / "other", "--seed", "1"))
    assert model(tmp_path / "again") == model(undisturbed)
    assert model(tmp_path / "other") != model(undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_steps_it_ends_with_the_same_bytes(undisturbed, tmp_path, seed):
    steps = sorted(random.Random(seed).sample(range(1, STEPS), 2))  # noqa: S311 - any steps will do
    reached = 0
    for step in steps:
        process = start(tmp_path, "--seconds-per-step", "0.01")
        resumed = interrupt(process, signal.SIGKILL, at_step=step)
        assert process.returncode == -signal.SIGKILL
        assert resumed >= reached - 20, "at most one interval is done again"
        reached = step
    finish(start(tmp_path))
    assert model(tmp_path) == model(undisturbed), f"killed at the steps {steps}"


def test_after_a_notice_it_goes_on_at_the_very_step(undisturbed, tmp_path):
    process = start(tmp_path, "--seconds-per-step", "0.02")
    interrupt(process, signal.SIGTERM, at_step=33)
    assert process.returncode == 75
    saved = {int(path.name.split("-")[1]) for path in (tmp_path / "checkpoints").iterdir()}
    assert max(saved) >= 33
    output = finish(start(tmp_path))
    assert f'"step":{max(saved)},"checkpoint":"step-{max(saved)}"' in output
    assert model(tmp_path) == model(undisturbed)


def test_its_job_file_names_options_the_script_has():
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    assert job["command"] == "python train.py"
    options = subprocess.run(
        [sys.executable, str(EXAMPLE / "train.py"), "--help"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "training")},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert all(f"--{name} " in options for name in job["hyperparameters"])
    assert 200 <= job["hyperparameters"]["steps"] <= 400
