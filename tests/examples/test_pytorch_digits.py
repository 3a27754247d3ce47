"""Six lines make a plain PyTorch script resumable: interrupted again and again, it ends as one that was left alone."""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "pytorch-digits"

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

EPOCHS = 2

# The script saves as often as pays, which for so short a run is never.
SAVES_OFTEN = """
from spotkeep import Checkpointer
from spotkeep.loops import resumable_training
resumable_training.Checkpointer = lambda state, every_seconds, **more: Checkpointer(state, every_steps=2, **more)
"""
OPTIONS = ["--epochs", str(EPOCHS), "--limit", "300"]


@pytest.fixture(scope="module")
def run(make_runs):
    runs = make_runs("numpy", "sklearn.datasets", "torch", "torch._dynamo", before=SAVES_OFTEN)

    def run(base, *, script="train.py", workers=0, **interruption):
        return runs.run(EXAMPLE / script, base, *OPTIONS, "--workers", str(workers), **interruption)

    return run


def weights(base):
    state = torch.load(base / "model" / "model.pt", weights_only=True)
    return {name: value.numpy().tobytes() for name, value in state.items()}


@pytest.fixture(scope="module")
def undisturbed(run, tmp_path_factory):
    base = tmp_path_factory.mktemp("undisturbed")
    code, output = run(base)
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


def test_the_lines_change_nothing_of_what_is_learned(run, undisturbed, tmp_path):
    assert run(tmp_path, script="plain.py")[0] == 0
    assert weights(tmp_path) == undisturbed


@pytest.mark.parametrize("workers", [0, 2])
def test_interrupted_again_and_again_it_ends_with_the_same_bits(run, undisturbed, tmp_path, workers):
    # Before anything is saved, at the end of an epoch, and within one. The library's tests interrupt after any batch.
    for at_step in (1, 5, 8):
        code, _ = run(tmp_path, workers=workers, kill="SIGKILL", at_step=at_step)
        assert code == -9
        code, _ = run(tmp_path, workers=workers, kill="SIGTERM", at_step=at_step)
        assert code == 75
        assert (tmp_path / "checkpoints" / f"step-{at_step}").is_dir(), "no step is done twice"
    code, output = run(tmp_path, workers=workers)
    assert code == 0
    assert '"step":8,"checkpoint":"step-8"' in output
    assert weights(tmp_path) == undisturbed
