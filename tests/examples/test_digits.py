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

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "digits"
STEPS = 120


OPTIONS = ["--steps", str(STEPS), "--checkpoint-every", "20"]


@pytest.fixture(scope="module")
def run(make_runs):
    runs = make_runs("numpy", "sklearn.datasets")

    def run(base, *options, **interruption):
        return runs.run(EXAMPLE / "train.py", base, *OPTIONS, *options, **interruption)

    return run


def steps_of(event: str, output: str) -> list[int]:
    """The steps of the events of one name that a run has printed."""
    events = [json.loads(line.split(": ", 1)[1]) for line in output.splitlines() if line.startswith("spotkeep-event: ")]
    return [each["step"] for each in events if each["event"] == event]


def model(base: Path) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted((base / "model").iterdir())}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A process of its own, as a person starts it."""
    base = tmp_path_factory.mktemp("undisturbed")
    output = subprocess.run(
        [sys.executable, str(EXAMPLE / "train.py"), *OPTIONS],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT / "training"),
            "OPENBLAS_NUM_THREADS": "1",
            "SPOTKEEP_CHECKPOINT_DIR": str(base / "checkpoints"),
            "SM_MODEL_DIR": str(base / "model"),
        },
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    printed = re.search(r"done: 120 steps, accuracy (\S+)", output)
    assert printed is not None
    assert float(printed[1]) > 0.85, "it has learned to read"
    return base


def test_it_leaves_weights_that_any_numpy_can_load(undisturbed):
    assert set(model(undisturbed)) == {
        *("hidden_weights.npy", "hidden_bias.npy", "output_weights.npy", "output_bias.npy"),
    }
    assert np.load(undisturbed / "model" / "hidden_weights.npy").shape == (64, 32)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(run, undisturbed, tmp_path):
    assert run(tmp_path / "again")[0] == 0
    assert run(tmp_path / "other", "--seed", "1")[0] == 0
    assert model(tmp_path / "again") == model(undisturbed)
    assert model(tmp_path / "other") != model(undisturbed)


def test_killed_at_random_steps_it_ends_with_the_same_bytes(run, undisturbed, tmp_path):
    steps = sorted(random.Random(0).sample(range(1, STEPS), 3))  # noqa: S311 - any steps will do
    saved = 0
    for step in steps:
        code, output = run(tmp_path, "--seconds-per-step", "0.03", kill="SIGKILL", at_step=step)
        assert code == -signal.SIGKILL
        [resumed] = steps_of("resume", output)
        assert resumed >= saved, "nothing that was durable is lost"
        saved = max([saved, *steps_of("saved", output)])
    assert saved, "it was saved between two of the kills"
    assert run(tmp_path)[0] == 0
    assert model(tmp_path) == model(undisturbed), f"killed at the steps {steps}"


def test_after_a_notice_it_goes_on_at_the_very_step(run, undisturbed, tmp_path):
    code, _ = run(tmp_path, kill="SIGTERM", at_step=33)
    assert code == 75
    saved = {int(path.name.split("-")[1]) for path in (tmp_path / "checkpoints").iterdir()}
    assert max(saved) == 33
    code, output = run(tmp_path)
    assert code == 0
    assert '"step":33,"checkpoint":"step-33"' in output
    assert model(tmp_path) == model(undisturbed)


def test_its_job_file_names_options_the_script_has(run, tmp_path):
    job = yaml.safe_load((EXAMPLE / "job.yaml").read_text())
    assert job["command"] == "python train.py"
    code, options = run(tmp_path, "--help")
    assert code == 0
    assert all(f"--{name} " in options for name in job["hyperparameters"])
    assert 200 <= job["hyperparameters"]["steps"] <= 400
