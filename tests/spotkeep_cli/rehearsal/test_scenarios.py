"""What each scenario replaces in a job file before it is launched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.rehearsal.fleet import fleet_scenario
from spotkeep_cli.rehearsal.pool import pool_scenario
from spotkeep_cli.rehearsal.spot import spot_scenario
from spotkeep_local.isolation import Isolation


@pytest.mark.parametrize(
    "scenario",
    [spot_scenario(interruptions=()), pool_scenario(faster=60.0), fleet_scenario(isolation=Isolation.AUTO)],
    ids=["spot", "pool", "fleet"],
)
def test_the_whole_training_is_rehearsed_not_up_to_its_pause(scenario: Any, tmp_path: Path) -> None:
    job_file = tmp_path / "job.yaml"
    job_file.write_text("name: digits\ncommand: python train.py\npause_at_step: 100\n")
    fields = read_job_file(job_file).with_fields(scenario.job_fields).fields
    assert "pause_at_step" not in fields
    assert fields["name"] == "digits"
