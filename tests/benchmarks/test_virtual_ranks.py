"""The benchmark of virtual ranks counts the bytes that a process has sent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.forking import environment_of_script

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

ROOT = Path(__file__).parents[2]


def test_virtual_ranks_send_no_more_than_data_parallel_training_does(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.checkpoint.virtual_ranks", "--quick", "--output", tmp_path / "json"]
    subprocess.run(command, cwd=ROOT, env=environment_of_script(), check=True, stdout=subprocess.DEVNULL)
    figures = json.loads((tmp_path / "json").read_text())["figures"]
    sent = {(one["virtual ranks"], one["wrapper"], one["contender"]): one["bytes"] for one in figures}
    gradients = 4 * 4 * (256 * 256 + 256)
    for count in (2, 4):
        assert sent[count, "DDP", "plain"] == pytest.approx(gradients, rel=0.02)
        assert sent[count, "DDP", "virtual ranks"] == pytest.approx(gradients, rel=0.02)
