"""A loop around accelerate goes on with as many ranks, and with others, with DDP and with FSDP2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.forking import environment_of_script

pytest.importorskip("accelerate")

pytestmark = [pytest.mark.torch, pytest.mark.long]


@pytest.mark.parametrize("kind", ["ddp", "fsdp"])
def test_it_goes_on_with_as_many_ranks_and_with_others(tmp_path, kind):
    """From two ranks to three and to one, with the saved state and the rows that are left."""
    script = Path(__file__).with_name("accelerate_on_other_ranks.py")
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path), kind],
        env=environment_of_script(), capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert "other settings" not in done.stderr
    said = [line for line in done.stdout.splitlines() if line and not line.startswith("spotkeep-event")]
    assert said == [f"{kind} is through"], done.stderr[-3000:]
