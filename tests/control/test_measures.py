"""What `make bench-control` counts, in a short form: the targets that do not depend on size hold here, too."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.control import measures

ROOT = Path(__file__).parents[2]


def test_an_event_that_tells_nothing_new_costs_three_calls_and_one_after_the_end_one() -> None:
    with measures.quiet():
        calls = measures.calls()
    by_event = calls.figures["by_event"]
    assert calls.kept
    assert sum(by_event["an event that tells nothing new"].values()) == 3
    assert by_event["an event after the end"] == {"query": 1}
    assert calls.figures["sagemaker_calls_to_those_of_a_bare_handler"] == 1


def test_a_sweep_describes_only_what_may_have_changed() -> None:
    with measures.quiet():
        swept = measures.reconciled(runs=60, pools=2)
    first, *_, last = swept.figures["sweeps"]
    assert swept.kept
    # Of runs never seen a search says all there is; a warm pool is described each time.
    assert (first["calls"]["Search"], first["calls"]["DescribeTrainingJob"]) == (1, 2)
    assert last["looked_at"] == 60
    assert last["calls"].get("DescribeTrainingJob", 0) < 10


def test_notices_whose_sends_fail_are_neither_lost_nor_doubled() -> None:
    with measures.quiet():
        told = measures.told(notices=300, failing=0.2)
    assert (told.figures["lost"], told.figures["doubled"]) == (0, 0)
    assert told.figures["sends_that_failed"] > 30


def test_it_prints_its_verdict_and_writes_its_figures(tmp_path: Path) -> None:
    output = tmp_path / "control.json"
    command = [
        sys.executable,
        "-m",
        "benchmarks.control",
        "--runs",
        "25",
        "--pools",
        "3",
        "--notices",
        "50",
        "--output",
        output,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(output.read_text())["kept"] is True
    assert "50 notices" in done.stdout
