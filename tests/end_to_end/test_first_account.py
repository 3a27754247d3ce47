"""`spotkeep first-account` on the local AWS: each kind of job runs, all is removed, and nothing is said of AWS."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_cli.first_account.questions import NOT_ABOUT_AWS, QUESTIONS
from spotkeep_fleet.run_prefixes import PREFIXES
from spotkeep_jobs.record.states import PoolState

from .conftest import QUEUED_TYPE

if TYPE_CHECKING:
    from conftest import DeployedApp

pytestmark = pytest.mark.long


def first_account(app: DeployedApp, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.prefix) / "bin" / "spotkeep"), "--local", "first-account", "--yes", *arguments],
        cwd=folder,
        env={**os.environ, "SPOTKEEP_LOCAL_STATE": str(app.state_dir), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )


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
    assert states == dict.fromkeys(("pool", "spot", "stop", "queue", "fleet"), "COMPLETED") | {"hosts": "FAILED"}
    assert [answer["id"] for answer in report["answers"]] == [question.id for question in QUESTIONS]
    assert all(answer["verdict"] == "not answered" for answer in report["answers"])
    assert all(answer["seen"].startswith(NOT_ABOUT_AWS) for answer in report["answers"])
    assert QUEUED_TYPE in str(report["jobs"])

    assert report["left"] == []
    for job in report["jobs"]:
        assert stored_of(own_app, job["run"]) == []
        assert all(pool.state is not PoolState.AVAILABLE for pool in own_app.table.pools.of_run(job["run"]))
    assert own_app.local.account_id not in done.stdout
