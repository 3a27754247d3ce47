"""The fleet benchmark runs, and writes what its targets ask for. Nothing is judged by time here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.fleet.recoveries import Goodbye, Recovery
from benchmarks.fleet.targets import MOST_CALLS, Figures

ROOT = Path(__file__).parents[2]
CALLS = {"dynamodb:GetItem": 1, "dynamodb:PutItem": 2, "ec2:AttachVolume": 1}
GOODBYE = Goodbye(heard_s=1.0, durable_s=1.5, uploaded_s=None, left_s=3.0, steps_lost=0)


def recovery(seconds: float, **calls: int) -> Recovery:
    return Recovery(migrated=False, phases_s={"boot": seconds / 2, "volume": seconds / 2}, calls={**CALLS, **calls})


def figures(*recoveries: Recovery) -> Figures:
    return Figures(
        state_mib=64, floor_s=[1.0, 9.0, 1.0], recoveries=recoveries, noticed=[], migrated=[], goodbyes=[GOODBYE]
    )


def test_the_median_recovery_is_held_against_the_median_floor() -> None:
    found = figures(recovery(1.5), recovery(1.9), recovery(50.0))
    assert found.times_the_floor == pytest.approx(1.9)
    assert found.of_minima == pytest.approx(1.5)
    assert found.kept
    assert found.phases_s(found.recoveries) == {"boot": 0.95, "volume": 0.95}
    assert not figures(recovery(2.1)).kept


def test_the_recovery_that_called_most_is_counted_with_what_it_sent_afterwards() -> None:
    found = figures(recovery(1.0), recovery(1.0, **{"ec2:DescribeVolumes": 8}))
    assert found.calls == {**CALLS, "ec2:DescribeVolumes": 8, "logs:PutLogEvents": 1}
    assert sum(found.calls.values()) == MOST_CALLS
    assert found.kept
    assert not figures(recovery(1.0, **{"ec2:DescribeVolumes": 9})).kept


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
