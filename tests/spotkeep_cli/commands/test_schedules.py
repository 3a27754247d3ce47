"""Schedules on the command line: launched and not followed, listed with what came of them, removed."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from spotkeep_cli.errors import ExitCode
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.schedule import Schedule

SCHEDULE = {"expression": "cron(0 2 * * ? *)", "timezone": "Europe/Berlin"}
FIRST = {"schedule": "nightly", **SCHEDULE, "owner": "ada", "next_firing": "2026-11-22T01:00:00+00:00"}


@pytest.fixture
def nightly(deployment: Any, job_file: Path) -> Path:
    """A job file with a schedule, and a launcher that takes it."""
    job_file.write_text(f"{job_file.read_text()}run: nightly\nschedule: {json.dumps(SCHEDULE)}\n")
    request = {"name": "digits", "command": ["python", "train.py"], "instance_type": "ml.m5.xlarge", "max_run": 14_400}
    deployment.answers["validate"] = {
        "ok": True, "request": request, "warnings": [], "usd_per_hour": 0.23, "worst_case_usd": 0.92, "schedule": FIRST,
    }  # fmt: skip
    deployment.answers["launch"] = {"ok": True, "schedule": FIRST, "replayed": False, "warnings": [], "next": []}
    return job_file


@pytest.fixture
def recorded(deployment: Any, make: Any) -> None:
    """Three schedules: one that has launched, one that was refused, one that is new."""
    table = RunTable.of(client=deployment.dynamodb, table_name="runs")
    for minutes, (schedule, fields) in enumerate(
        {
            "cities": {**SCHEDULE, "last_launched": "cities-20261121-0100", "last_firing": make.now},
            "probe": {"expression": "rate(6 hours)", "last_refusal": "max_run: is too long", "last_firing": make.now},
            "new": {"expression": "cron(0 4 ? * MON-FRI *)", "owner": None},
        }.items()
    ):
        table.schedules.open(
            Schedule(
                schedule=schedule, name="digits", token="token", document={"name": "digits"},
                created_at=make.now - timedelta(minutes=minutes), begins_at=make.now + timedelta(hours=6),
                **{"owner": "ada", "timezone": "UTC", **fields},
            )
        )  # fmt: skip


def test_a_launch_with_a_schedule_says_when_it_fires_and_does_not_follow(
    spotkeep: Any, deployment: Any, nightly: Path, snapshot: SnapshotAssertion
) -> None:
    result = spotkeep("launch", str(nightly), "--yes")
    assert result.exit_code == ExitCode.DONE, result.output
    assert result.output == snapshot
    [key] = deployment.uploads
    assert key.startswith("sources/nightly/")
    assert deployment.invocations[-1]["source"].endswith(key)
    assert deployment.invocations[-1]["schedule"] == SCHEDULE
    assert "plan" not in deployment.invocations[-1]


def test_a_schedule_that_is_taken_away_launches_now(spotkeep: Any, deployment: Any, nightly: Path) -> None:
    spotkeep("launch", str(nightly), "--yes", "--detach", "--set", "schedule=null", "--set", "run=today")
    assert deployment.invocations
    assert all("schedule" not in invocation for invocation in deployment.invocations)


def test_a_launch_with_a_schedule_gives_programs_the_answer(spotkeep: Any, nightly: Path) -> None:
    result = spotkeep("launch", str(nightly), "--yes", "--json")
    assert json.loads(result.stdout)["schedule"] == FIRST


def test_without_a_deployment_the_schedule_is_judged_here(spotkeep: Any, nightly: Path) -> None:
    assert spotkeep("doctor", str(nightly), reachable=False).exit_code == ExitCode.DONE
    nightly.write_text(nightly.read_text().replace("cron(0 2 * * ? *)", "cron(0 2 * * *)"))
    result = spotkeep("doctor", str(nightly), reachable=False)
    assert result.exit_code == ExitCode.REFUSED
    assert "has 5 fields; there are six" in " ".join(result.output.split())


@pytest.mark.usefixtures("recorded")
@pytest.mark.parametrize("columns", [80, 120])
def test_the_list_says_when_each_fires_and_what_came_of_the_last_time(
    spotkeep: Any, snapshot: SnapshotAssertion, columns: int
) -> None:
    result = spotkeep("schedules", "ls", columns=columns)
    assert result.exit_code == ExitCode.DONE, result.output
    assert result.output == snapshot


@pytest.mark.usefixtures("recorded")
def test_the_list_for_programs_has_no_token(spotkeep: Any) -> None:
    listed = json.loads(spotkeep("schedules", "ls", "--json").stdout)
    assert [(each["schedule"], each["next_firing"]) for each in listed] == [
        ("cities", "2026-11-22T01:00:00+00:00"),
        ("probe", "2026-11-21T18:00:00+00:00"),
        ("new", "2026-11-23T04:00:00+00:00"),
    ]
    assert all("token" not in each for each in listed)


def test_an_empty_list_says_how_to_make_one(spotkeep: Any, snapshot: SnapshotAssertion) -> None:
    assert spotkeep("schedules", "ls").output == snapshot


def test_a_schedule_is_removed_by_the_launcher(spotkeep: Any, deployment: Any, snapshot: SnapshotAssertion) -> None:
    deployment.answers["remove-schedule"] = {"ok": True, "schedule": "nightly"}
    result = spotkeep("schedules", "rm", "nightly", "--yes")
    assert result.output == snapshot
    assert deployment.invocations == [{"action": "remove-schedule", "schedule": "nightly"}]


def test_one_that_is_not_the_callers_is_refused(spotkeep: Any, deployment: Any) -> None:
    problem = {"field": "run", "found": "'nightly'", "problem": "belongs to ada", "fix": "Ask its owner."}
    deployment.answers["remove-schedule"] = {"ok": False, "error": "refused", "problems": [problem]}
    result = spotkeep("schedules", "rm", "nightly", "--yes")
    assert result.exit_code == ExitCode.REFUSED
    assert "belongs to ada" in result.output
