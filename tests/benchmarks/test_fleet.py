"""The fleet benchmark runs, and writes what its targets ask for. Nothing is judged by time here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fleet.targets import MOST_CALLS

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_short_form_runs_and_writes_every_figure(tmp_path: Path) -> None:
    report = tmp_path / "fleet.json"
    command = [sys.executable, "-m", "benchmarks.fleet", "--rounds", "1", "--state-mib", "1", "--output", str(report)]
    done = subprocess.run([*command, "--directory", str(tmp_path / "work")], cwd=ROOT, capture_output=True, text=True)
    assert report.exists(), done.stdout + done.stderr
    document = json.loads(report.read_text())
    assert done.returncode == (0 if document["kept"] else 1)
    (size,) = document["sizes"]
    phases = ["boot", "identity", "volume", "supplies", "start", "restore", "first-step"]
    assert list(size["phases_s"]) == phases
    assert size["times_the_floor"] > 0
    assert sum(size["calls"].values()) <= MOST_CALLS, size["calls"]
    assert "ec2:CreateSnapshot" not in size["calls"]
    assert size["with_migration"]["calls"][0]["ec2:CreateSnapshot"] == 1
    for goodbye in size["goodbyes"]:
        assert goodbye["steps_lost"] <= 1, "a notice costs at most one step (I3)"
        assert goodbye["durable_s"] <= goodbye["left_s"]
    assert not (tmp_path / "work/fleet").exists(), "what was measured is removed"
