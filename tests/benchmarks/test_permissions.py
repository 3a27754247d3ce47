"""The benchmark of permissions runs, and writes what its target asks for. Nothing is judged by time here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.models.aws_requests import CALLS

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_the_short_form_runs_and_writes_every_figure(tmp_path: Path) -> None:
    report = tmp_path / "permissions.json"
    command = [sys.executable, "-m", "benchmarks.permissions", "--rounds", "2", "--output", str(report)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert report.exists(), done.stdout + done.stderr
    document = json.loads(report.read_text())
    assert done.returncode == (0 if document["kept"] else 1)
    calls = document["calls"]
    assert calls["operations"] == len(calls["slowest"]) == sum(map(len, CALLS.values())) - len(["a function's URL"])
    assert 0 < calls["median_ms"] <= calls["p99_ms"]
    for figures in calls["slowest"]:
        assert 0 < figures["median_ms"] <= figures["p99_ms"], figures["operation"]
        assert figures["of_making_it"] > 0, figures["operation"]
    for role, figures in document["roles"].items():
        assert figures["statements"] > 0, role
        assert figures["authorizations"] > 0, role
        assert 0 < figures["median_ms"] <= figures["p99_ms"], role
