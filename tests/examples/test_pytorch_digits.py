"""Six lines make a plain PyTorch script resumable: killed at any step, it ends as one that was left alone."""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "pytorch-digits"

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.slow]

EPOCHS, STEPS_AN_EPOCH = 2, 5
STEPS = EPOCHS * STEPS_AN_EPOCH

# Importing torch takes seconds, so one process does it, and each run is a child of it: with a death or a signal of its
# own, right after a step is done and before it is saved.
RUNS = """
import json, os, runpy, signal, sys
import numpy, sklearn.datasets, torch, torch._dynamo
torch.set_num_threads(1)
from spotkeep import Checkpointer, events
from spotkeep.loops import resumable_training

def run(script, options, environment, signal_name, at_step):
    os.environ.update(environment)
    sys.argv = [script, *options]
    def progress(*, step, **others):
        if step == at_step:
            os.kill(os.getpid(), getattr(signal, signal_name))
    events.report_progress = progress
    # The script saves as often as pays, which for so short a run is never.
    resumable_training.Checkpointer = lambda state, every_seconds, **more: Checkpointer(state, every_steps=2, **more)
    runpy.run_path(script, run_name="__main__")

for line in sys.stdin:
    sys.stdout.flush()
    child = os.fork()
    if not child:
        code = 1
        try:
            run(*json.loads(line))
            code = 0
        except SystemExit as leaving:
            code = leaving.code
        finally:
            sys.stdout.flush()
            os._exit(code)
    print("\\nended", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Runs:
    """Runs scripts of the example, one after another."""

    def __init__(self, process):
        self._process = process

    def run(self, base, *, script="train.py", workers=0, kill="SIGKILL", at_step=None):
        options = ["--epochs", str(EPOCHS), "--limit", "300", "--workers", str(workers)]
        environment = {"SM_MODEL_DIR": str(base / "model"), "SPOTKEEP_CHECKPOINT_DIR": str(base / "checkpoints")}
        request = [str(EXAMPLE / script), options, environment, kill, at_step]
        print(json.dumps(request), file=self._process.stdin, flush=True)
        output = []
        for line in self._process.stdout:
            if line.startswith("ended "):
                return int(line.split()[1]), "".join(output)
            output.append(line)
        pytest.fail("the runs have ended")


@pytest.fixture(scope="module")
def runs():
    with subprocess.Popen(
        [sys.executable, "-c", RUNS],
        env={**os.environ, "PYTHONPATH": str(ROOT / "training"), "SPOTKEEP_EVENTS": "stdout", "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield Runs(process)
        process.stdin.close()


def weights(base):
    state = torch.load(base / "model" / "model.pt", weights_only=True)
    return {name: value.numpy().tobytes() for name, value in state.items()}


@pytest.fixture(scope="module")
def undisturbed(runs, tmp_path_factory):
    base = tmp_path_factory.mktemp("undisturbed")
    code, output = runs.run(base)
    assert code == 0
    assert output.count("test set: accuracy") == EPOCHS
    return weights(base)


def test_six_lines_are_changed_or_added_and_none_of_them_in_the_model():
    plain, resumable = (
        (EXAMPLE / name).read_text().split('"""', 2)[2].splitlines() for name in ("plain.py", "train.py")
    )
    changes = [line for line in difflib.ndiff(plain, resumable) if line[0] in "+-" and line[2:].strip()]
    assert len([line for line in changes if line[0] == "+"]) == 6
    assert len([line for line in changes if line[0] == "-"]) == 2
    assert not any("nn." in line or "forward" in line for line in changes)


def test_the_lines_change_nothing_of_what_is_learned(runs, undisturbed, tmp_path):
    for workers in (0, 2):
        code, _ = runs.run(tmp_path, script="plain.py", workers=workers)
        assert code == 0
        assert weights(tmp_path) == undisturbed


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kill", ["SIGKILL", "SIGTERM"])
def test_interrupted_at_every_step_in_turn_it_ends_with_the_same_bits(runs, undisturbed, tmp_path, kill, workers):
    for at_step in range(1, STEPS + 1):
        base = tmp_path / str(at_step)
        code, _ = runs.run(base, workers=workers, kill=kill, at_step=at_step)
        assert code == (-9 if kill == "SIGKILL" else 75)
        code, output = runs.run(base, workers=workers)
        assert code == 0
        if kill == "SIGTERM":
            assert f'"step":{at_step},"checkpoint":"step-{at_step}"' in output, "no step is done twice"
        elif at_step > 4:
            assert '"checkpoint":null' not in output, "it did not start over"
        assert weights(base) == undisturbed, f"interrupted after step {at_step}"


def test_killed_after_each_step_again_and_again_it_ends_with_the_same_bits(runs, undisturbed, tmp_path):
    for at_step in range(2, STEPS + 1):
        code, _ = runs.run(tmp_path, at_step=at_step, kill="SIGTERM" if at_step % 3 == 0 else "SIGKILL")
        assert code in (75, -9)
    code, _ = runs.run(tmp_path)
    assert code == 0
    assert weights(tmp_path) == undisturbed
