"""`spotkeep first-account` on the local AWS: each kind of job runs, all is removed, and nothing is said of AWS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_cli.first_account.plan import NAME
from spotkeep_cli.first_account.questions import NOT_ABOUT_AWS, QUESTIONS
from spotkeep_fleet.run_prefixes import PREFIXES
from spotkeep_jobs.record.states import PoolState, RunState

from .conftest import QUEUED_TYPE, until

if TYPE_CHECKING:
    from conftest import DeployedApp

pytestmark = pytest.mark.long


def command(*arguments: str) -> list[str]:
    return [str(Path(sys.prefix) / "bin" / "spotkeep"), "--local", "first-account", "--yes", *arguments]


def environment(app: DeployedApp) -> dict[str, str]:
    return {**os.environ, "SPOTKEEP_LOCAL_STATE": str(app.state_dir), "COLUMNS": "100"}


def first_account(app: DeployedApp, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*arguments), cwd=folder, env=environment(app), capture_output=True, text=True, check=False
    )


def runs_at_work(app: DeployedApp) -> list[str]:
    return [run.run for run in app.table.runs.list() if run.name == NAME and run.state is RunState.TRAINING]


def stored_of(app: DeployedApp, run: str) -> list[str]:
    bucket = app.connection["checkpoint_bucket"]
    found = [
        app.client("s3").list_object_versions(Bucket=bucket, Prefix=f"{prefix}{run}/").get("Versions", [])
        for prefix in PREFIXES
    ]
    return [each["Key"] for versions in found for each in versions]


def test_each_kind_of_job_runs_and_nothing_of_it_is_left(own_app: DeployedApp, tmp_path: Path) -> None:
    done = first_account(own_app, tmp_path, "--queue", "cpu", "--share", "vision", "--json", "--report", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)

    states = {job["kind"]: job["state"] for job in report["jobs"]}
    assert states == dict.fromkeys(("pool", "spot", "hosts", "stop", "queue", "fleet"), "COMPLETED")
    assert [answer["id"] for answer in report["answers"]] == [question.id for question in QUESTIONS]
    assert all(answer["verdict"] == "not answered" for answer in report["answers"])
    assert all(answer["seen"].startswith(NOT_ABOUT_AWS) for answer in report["answers"])
    assert QUEUED_TYPE in str(report["jobs"])

    assert report["left"] == []
    for job in report["jobs"]:
        assert stored_of(own_app, job["run"]) == []
        assert all(pool.state is not PoolState.AVAILABLE for pool in own_app.table.pools.of_run(job["run"]))
    assert own_app.local.account_id not in done.stdout


def test_an_hour_that_is_killed_is_removed_by_another_command(deployed_app: DeployedApp, tmp_path: Path) -> None:
    killed = subprocess.Popen(command("--report", str(tmp_path)), env=environment(deployed_app), cwd=tmp_path)
    try:
        until(lambda: runs_at_work(deployed_app), lambda: "a run")
    finally:
        killed.kill()
        killed.wait()
    (run,) = runs_at_work(deployed_app)
    assert stored_of(deployed_app, run)

    done = first_account(deployed_app, tmp_path, "--clean-up", "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{run} was stopped" in json.loads(done.stdout)["removed"]
    assert deployed_app.run(run).state.ended
    assert stored_of(deployed_app, run) == []
    assert json.loads(first_account(deployed_app, tmp_path, "--clean-up", "--json").stdout)["removed"] == []
