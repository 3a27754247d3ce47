"""The worlds on models of AWS. Some are fixtures of the command line's tests, for the pages that show the same."""

# ruff: noqa: F401, F811 - fixtures
from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.account.check import AccountCheck, in_order
from spotkeep_jobs.record.deployment_records import OrphanKind, OrphanReport
from spotkeep_jobs.record.states import EndReason, RunState
from tests.spotkeep_cli.commands.test_checkpoints import flip, saved, written
from tests.spotkeep_cli.commands.test_job_files_doctor import a_finding
from tests.spotkeep_cli.commands.test_notifications import notified
from tests.spotkeep_cli.commands.test_pool import pools
from tests.spotkeep_cli.commands.test_schedules import nightly, recorded
from tests.spotkeep_cli.commands.test_steering_priority import queued
from tests.spotkeep_cli.conftest import deployment, ec2, job_file, make, market, spot_market, spotkeep
from tests.spotkeep_cli.sweeps.test_sweep_commands import with_sweep

RUN = "digits-1a2b3c4d"


@pytest.fixture
def account(deployment: Any, make: Any) -> None:
    """A training job of no run, and a pool that waits as it was asked to."""
    job = a_finding(make, OrphanKind.UNRECORDED_JOB, usd_per_hour=0.23)
    pool = a_finding(
        make, OrphanKind.IDLE_POOL, usd_per_hour=0.12, since=make.now - timedelta(minutes=12),
        says=f"the warm pool of {RUN} waits for a next job until 12:18 UTC", risk="is billed while it waits",
        mend=f"spotkeep pool stop {RUN}",
    )  # fmt: skip
    report = OrphanReport(begun_at=make.now - timedelta(minutes=47), removes=True, handled=())
    deployment.account = AccountCheck(findings=in_order([pool, job]), unreadable={}, last_report=report)


@pytest.fixture
def damaged(saved: Path) -> Path:
    """Of three checkpoints the newest has an altered byte, and the file of the one before is too short."""
    flip(saved / "step-300" / "data-00000.bin", 700_000)
    short = saved / "step-200" / "data-00000.bin"
    short.write_bytes(short.read_bytes()[:1_000_000])
    return saved


@pytest.fixture
def failed(deployment: Any, make: Any, job_file: Path) -> None:
    """A run whose script failed, and a launcher that resumes it."""
    deployment.dynamodb.add(
        make.run(
            state=RunState.FAILED, end_reason=EndReason.SCRIPT_FAILED, ended_at=make.now, cost=make.cost(),
            failure_reason="AlgorithmError: ValueError: no column 12",
        )
    )  # fmt: skip
    deployment.answers["resume"] = {"ok": True, "run": RUN, "job_name": f"{RUN}-2", "attempt": 2, "warnings": []}
