"""What each scenario replaces in a job file before it is launched, and what that of a sweep draws."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.rehearsal.evidence import RunEvidence
from spotkeep_cli.rehearsal.fleet import fleet_scenario
from spotkeep_cli.rehearsal.pool import pool_scenario
from spotkeep_cli.rehearsal.spot import spot_scenario, what_hosts_do_not_show
from spotkeep_cli.rehearsal.sweep import planned_interruptions, sweep_scenario
from spotkeep_jobs.sweeps.document import read_sweep
from spotkeep_local.hosts.isolation import Isolation


@pytest.mark.parametrize(
    "scenario",
    [
        spot_scenario(interruptions=()),
        pool_scenario(faster=60.0),
        fleet_scenario(isolation=Isolation.AUTO),
        sweep_scenario(seed=1),
    ],
    ids=["spot", "pool", "fleet", "sweep"],
)
def test_the_whole_training_is_rehearsed_not_up_to_its_pause(scenario: Any, tmp_path: Path) -> None:
    job_file = tmp_path / "job.yaml"
    job_file.write_text("name: digits\ncommand: python train.py\npause_at_step: 100\n")
    fields = read_job_file(job_file).with_fields(scenario.job_fields).fields
    assert "pause_at_step" not in fields
    assert fields["name"] == "digits"


def test_hosts_on_one_network_leave_a_question_open_which_names_the_reason() -> None:
    run = RunEvidence(run="two-1", state="COMPLETED", failure=None, attempts=1, lives=())
    assert what_hosts_do_not_show(run) is None
    remark = what_hosts_do_not_show(replace(run, shared_network="ip is not installed (package iproute2)"))
    assert remark is not None
    assert "shared the network of this machine (ip is not installed" in remark


SWEEP = {
    "parameters": {"lr": {"log_uniform": [0.001, 1.0]}},
    "objective": {"metric": "loss", "goal": "minimize"},
    "trials": 27,
}
ASHA = {**SWEEP, "search": "asha", "asha": {"min_steps": 9, "max_steps": 81}}


@pytest.mark.parametrize("sweep", [ASHA, {**SWEEP, "search": "random"}, {**ASHA, "trials": 2}], ids=str)
def test_the_same_seed_takes_the_same_capacity_away_with_notice_and_without(sweep: dict[str, Any]) -> None:
    request, problems = read_sweep({"sweep": sweep}, tpe=False)
    assert request is not None, problems
    planned = [planned_interruptions(request, seed=7) for _ in range(2)]
    assert planned[0] == planned[1] != planned_interruptions(request, seed=8)
    assert len(planned[0]) == max(2, sweep["trials"] // 4)
    assert set(planned[0]) <= set(range(1, sweep["trials"] + 1))
    assert {each.notice for each in planned[0].values()} == {True, False}
    if sweep["search"] == "asha":
        # Before the trial pauses for the first time.
        assert all(1 <= (each.at_step or 0) <= 6 for each in planned[0].values())
