"""The launcher's start is measured on the launcher as it is: with all that its environment must hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import launcher

PROJECT = Path(__file__).parents[2]


@pytest.mark.long
def test_a_round_measures_the_launcher_and_a_bare_client() -> None:
    measured = launcher.measure_initialisation(project_dir=PROJECT, rounds=1, warmups=0)
    [ours], [bare] = (measured[what]["rounds_s"] for what in ("launcher", "bare_boto3_client"))
    assert measured["ratio"] == pytest.approx(ours / bare, abs=0.02)
