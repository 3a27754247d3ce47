"""I2 and I3, put to the test as `make torture-checkpoint` does, and proof that the torture would notice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.torture.checkpoint import trials
from tests.torture.checkpoint.attempt import Size, TrainingAttempt, run_here
from tests.torture.checkpoint.training import CHECKPOINTS, reference_digests
from tests.torture.checkpoint.trials import Recording, TrialFindings, TrialJudge

ROOT = Path(__file__).parents[3]
SIZE = Size(total_steps=6, every_steps=2, state_bytes=2048)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(tmp_path_factory.mktemp("recording"), size=SIZE)


@pytest.mark.long
def test_the_short_form_breaks_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    done = subprocess.run(
        [sys.executable, "-m", "tests.torture.checkpoint", "--quick", "--output", str(report)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(report.read_text())
    assert found["unbroken"]
    assert found["kills"] >= 2
    assert (found["corrupt"], found["lost"], found["wrong_ends"], found["unsaid"]) == (0, 0, 0, 0)


def test_a_library_that_believes_a_disk_it_did_not_sync_is_caught(recording: Recording) -> None:
    hasty = [call for call in recording.calls if call["call"] not in ("fsync", "fdatasync")]
    assert any(trials._lose_writes_once(hasty, SIZE, point, 0, 0).lost for point in range(len(hasty)))


def test_a_library_that_does_not_sync_where_it_made_a_directory_is_caught(recording: Recording) -> None:
    above = [call["fd"] for call in recording.calls if call["call"] == "open" and call["path"] in (".", "run")]
    assert len(above) == 2, "each of the two is synced once, when the one below it is made"
    found = [call for call in recording.calls if not (call["call"] == "fsync" and call["fd"] in above)]
    assert any(trials._lose_writes_once(found, SIZE, point, 0, 0).lost for point in range(len(found)))


def test_a_library_that_syncs_loses_nothing_that_was_durable(recording: Recording) -> None:
    found = sum(
        (trials._lose_writes_once(recording.calls, SIZE, point, 0, 0) for point in range(0, 40, 7)), TrialFindings()
    )
    assert found == TrialFindings(trials=6)


def test_a_flipped_bit_that_the_library_does_not_notice_is_caught(tmp_path: Path) -> None:
    run_here(tmp_path, size=SIZE)
    unread = {**trials.contents(tmp_path / CHECKPOINTS), "step-6/never-read": bytes(100)}
    found = trials._flip_once(unread, SIZE, "step-6/never-read", 8)
    assert found.unsaid == 2
    assert (found.corrupt, found.wrong_ends) == (0, 0)


def attempt(**changed: Any) -> TrainingAttempt:
    reference = reference_digests(total_steps=SIZE.total_steps, state_bytes=SIZE.state_bytes)
    facts = {
        "exit_code": 0,
        "restored": (4, reference[4]),
        "completed": 6,
        "durable": 6,
        "finished": (6, reference[6]),
        "fallbacks": (),
        "errors": "",
        **changed,
    }
    return TrainingAttempt(**facts)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, TrialFindings(trials=1)),
        ({"restored": (4, "another")}, TrialFindings(trials=1, corrupt=1)),
        ({"restored": (2, "another")}, TrialFindings(trials=1, corrupt=1, lost=2)),
        ({"finished": (6, "another")}, TrialFindings(trials=1, wrong_ends=1)),
        ({"finished": None}, TrialFindings(trials=1, wrong_ends=1)),
        ({"exit_code": 1, "errors": "Traceback\nKeyError: 1\n"}, TrialFindings(trials=1)),
    ],
    ids=["fine", "corrupt", "lost", "wrong end", "no end", "died"],
)
def test_the_judge(changed: dict[str, Any], expected: TrialFindings) -> None:
    judge = TrialJudge(SIZE, "a trial")
    judge.expect_durable(4)
    judge.see_the_end(attempt(**changed))
    found = judge.found
    assert (found.corrupt, found.lost, found.wrong_ends) == (expected.corrupt, expected.lost, expected.wrong_ends)
    assert bool(found.problems) == bool(changed)
