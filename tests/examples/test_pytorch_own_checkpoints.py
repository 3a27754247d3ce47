"""A PyTorch script without Spotkeep: begun again on its own checkpoints, it ends with the same weights."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

SCRIPT = Path(__file__).parents[2] / "examples" / "pytorch-own-checkpoints" / "train.py"


@pytest.fixture(scope="module")
def run(make_runs):
    runs = make_runs("numpy", "sklearn.datasets", "torch", "torch._dynamo")

    def run(base, **interruption):
        options = ["--epochs", "6", "--checkpoint-dir", str(base / "checkpoints")]
        return runs.run(SCRIPT, base, *options, **interruption)

    return run


def test_nothing_of_spotkeep_is_in_it() -> None:
    assert "import spotkeep" not in SCRIPT.read_text()
    assert "from spotkeep" not in SCRIPT.read_text()


def test_killed_between_two_checkpoints_it_has_the_weights_of_a_run_that_was_left_alone(run, tmp_path: Path) -> None:
    code, output = run(tmp_path / "alone")
    assert code == 0
    assert "epoch 6: accuracy 0.9" in output
    code, _ = run(tmp_path / "cut", at_text="epoch 4")
    assert code == -signal.SIGKILL
    code, output = run(tmp_path / "cut")
    assert code == 0
    assert "loaded checkpoint-003.pt" in output
    ours, theirs = (torch.load(tmp_path / name / "model" / "model.pt", weights_only=True) for name in ("cut", "alone"))
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
