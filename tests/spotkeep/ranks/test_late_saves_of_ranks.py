"""Ranks that save while they train on: replicated and divided models, and one rank whose tensors change by hand."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from spotkeep.native.written_pages import WrittenPages
from tests.spotkeep.ranks.late_ranks import COMPARED_SAVES, FIRST_LATE, STEPS

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[3]
ALL = list(range(1, STEPS + 1))
LATE = [False] * COMPARED_SAVES + [True] * (STEPS - COMPARED_SAVES - 1)


@pytest.fixture(autouse=True)
def _watched():
    try:
        WrittenPages()
    except OSError as error:
        pytest.skip(f"this system notes no written pages, so nothing is copied late: {error}")


def trained(tmp_path, kind, changing, *, at_once=-1):
    command = [
        sys.executable,
        "-m",
        "tests.spotkeep.ranks.late_ranks",
        str(tmp_path / "checkpoints"),
        kind,
        str(changing),
        str(at_once),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return sorted(found, key=lambda one: one["rank"]), done.stderr


@pytest.mark.parametrize("kind", ["replicated", "divided"])
def test_ranks_save_late_and_each_checkpoint_is_the_state_of_its_step(tmp_path, kind):
    found, _ = trained(tmp_path, kind, -1)
    assert [one["saved"] for one in found] == [ALL, ALL]
    assert [one["late"] for one in found] == [LATE, LATE]
    assert [one["equal"] for one in found] == [[True] * STEPS] * 2


@pytest.mark.parametrize("changing", [0, 1])
def test_a_change_on_one_rank_leaves_no_checkpoint_on_any_and_all_copy_at_once_from_then_on(tmp_path, changing):
    found, log = trained(tmp_path, "divided", changing)
    expected = [step for step in ALL if step != FIRST_LATE]
    for one in found:
        assert set(one["saved"]) <= set(expected)
        assert one["saved"][-1] == STEPS
        assert one["late"] == LATE[:FIRST_LATE], "none after it"
        assert all(one["equal"])
    assert found[0]["saved"] == found[1]["saved"]
    assert f"no checkpoint of step {FIRST_LATE}" in log


def test_a_change_on_one_rank_costs_no_older_checkpoint_where_the_first_rank_copies_at_once(tmp_path):
    """A full disk needs room, and a change does not."""
    found, _ = trained(tmp_path, "divided", 1, at_once=0)
    assert [one["saved"] for one in found] == [[step for step in ALL if step != FIRST_LATE]] * 2
    assert [any(one["late"]) for one in found] == [False, True]
