"""Checkpoints of ranks, put to the test as `make torture-checkpoint` does, and proof that the torture would notice."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.torture.checkpoint.ranks import trials
from tests.torture.checkpoint.ranks.trials import RankJudge, RankRecording, RankTrial
from tests.torture.checkpoint.ranks.world import RankForge

pytest.importorskip("torch")
pytestmark = [pytest.mark.torch, pytest.mark.long]

ROOT = Path(__file__).parents[4]
POWER_CUT = RankTrial(kind="failed fsync", rank=0, call=0, name="any", then=(1,), seed=2)


@pytest.fixture(scope="module")
def forge() -> Iterator[RankForge]:
    with RankForge() as forge:
        yield forge


def test_the_short_form_breaks_nothing_and_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    report, journal = tmp_path / "report.json", tmp_path / "report.journal.jsonl"
    command = [sys.executable, "-m", "tests.torture.checkpoint.ranks", "--quick", "--output", str(report)]
    begun = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    while begun.poll() is None and not (journal.exists() and len(journal.read_text().splitlines()) > 3):
        time.sleep(0.05)
    begun.send_signal(signal.SIGTERM)
    said, _ = begun.communicate()
    assert begun.returncode == 130, said
    assert "Next: python -m tests.torture.checkpoint.ranks --trials 40" in said
    assert not report.exists()

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "trials were done before" in done.stdout
    found = json.loads(report.read_text())
    assert found["unbroken"]
    assert (found["trials"], found["lost"], found["mixed"], found["wrong_ends"]) == (40, 0, 0, 0)
    assert found["kills"] >= 20
    assert not journal.exists()


def test_a_rank_that_does_not_sync_its_files_is_caught(forge: RankForge, tmp_path: Path) -> None:
    recording = RankRecording(forge, tmp_path)
    [step] = {call["step"] for call in recording.calls if call["call"] == "announce" and call["step"] == trials.STEPS}

    def cut(hasty: int | None) -> RankJudge:
        calls = [call for call in recording.calls if not (call["call"] == "fsync" and call["rank"] == hasty)]
        judge = RankJudge(title="a power cut at the end")
        trials.restore_after_power_cut(calls, POWER_CUT, judge, forge, tmp_path)
        return judge

    assert cut(None).found.problems == ()
    assert cut(2).found.lost == step


def test_a_number_of_another_step_or_another_place_is_seen() -> None:
    import torch

    from tests.torture.checkpoint.ranks.training import RankTraining

    training = RankTraining(rank=0, ranks=1, divided=False)
    training.take_step()
    training.take_step()
    whole = training.look()
    assert len(whole["tensors"]) == 10
    assert all(facts["steps"] == [2] for facts in whole["tensors"].values())
    assert not any(facts["misplaced"] for facts in whole["tensors"].values())
    assert (whole["apart of"], whole["history"], whole["random"]) == (0, [1, 2], 0)
    with torch.no_grad():
        training.common[5] -= 2**32
        weight = training.model[0].weight
        weight[0, :2] = weight[0, :2].flip(0)
        training.apart[1:3] += 2**16
        training.rng.random()
    mixed = training.look()
    assert mixed["tensors"]["common"] == {"steps": [1, 2], "misplaced": 0}
    assert mixed["tensors"]["0.weight"] == {"steps": [2], "misplaced": 2}
    assert mixed["tensors"]["apart"] == {"steps": [2], "misplaced": 2}
    assert mixed["random"] is None
