"""`savings` with pools and storage: columns only where there is something in them, and why AWS differs."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from spotkeep_cli.commands.savings import parse_since
from spotkeep_cli.errors import UsageError
from spotkeep_jobs.record.deployment_records import PriceBook, StoragePrices
from tests.models.clock import NOON
from tests.models.faults import client_error


@pytest.fixture
def dear_week(deployment: Any, make: Any) -> Any:
    idle = make.cost(
        billed_seconds=840, idle_pool_seconds=600, billed_usd=0.0536, idle_pool_usd=0.0383,
        saved_seconds=-180, saved_usd=-0.0115, saved_percent=-27.3,
    )  # fmt: skip
    deployment.dynamodb.add(make.completed("digits-1a2b3c4d"))
    deployment.dynamodb.add(make.completed("pool-00000001", cost=idle, owner="grace"))
    deployment.s3.replaced = [
        ("runs/digits-1a2b3c4d/checkpoints/a", 40 * 2**30, make.now - timedelta(hours=3)),
        ("runs/digits-1a2b3c4d/checkpoints/a", 40 * 2**30, make.now - timedelta(hours=1)),
        ("runs/gone/checkpoints/a", 2**40, make.now - timedelta(days=90)),
    ]
    storage = StoragePrices(s3_standard=0.0245)
    deployment.table.deployment.keep_price_book(PriceBook(region="eu-central-1", fetched_at=make.now, storage=storage))
    return deployment


@pytest.mark.parametrize("columns", [120, 80])
@pytest.mark.parametrize("command", ["savings", "savings --by owner"])
def test_pools_and_storage_have_columns(
    dear_week: Any, spotkeep: Any, snapshot: SnapshotAssertion, command: str, columns: int
) -> None:
    assert spotkeep(*command.split(), columns=columns).output == snapshot


def test_json_has_them_by_run_and_in_the_sum(dear_week: Any, spotkeep: Any) -> None:
    report = json.loads(spotkeep("savings", "--json").stdout)
    stored = {run["run"]: run["storage_usd"] for run in report["runs"]}
    assert stored["digits-1a2b3c4d"] == pytest.approx(40 * 4 * 0.0245 / 730)
    assert report["total"]["storage_usd"] == pytest.approx(sum(stored.values()))
    assert report["total"]["idle_pool_usd"] == pytest.approx(0.0383)
    assert report["total"]["saved_seconds"] == sum(run["saved_seconds"] for run in report["runs"]) == 220


def test_a_saving_that_is_a_ceiling_is_marked(deployment: Any, spotkeep: Any, make: Any) -> None:
    silent = make.cost(redone_steps=None, redone_seconds=None)
    for run in (make.completed("silent-1", cost=silent), make.completed("told-1")):
        deployment.dynamodb.add(run)
    percent = round(silent.saved_percent)
    table = spotkeep("savings", columns=120).output
    (row,) = [line for line in table.splitlines() if line.startswith("silent-1")]
    assert f"≤{percent}%" in row
    assert "≤ means at most." in table
    assert f"≤{percent}%" in spotkeep("ps", "--all", columns=120).stdout
    shown = {run["run"]: run["saved_at_most"] for run in json.loads(spotkeep("savings", "--json").stdout)["runs"]}
    assert shown == {"silent-1": True, "told-1": False}


def test_an_unknown_price_of_storage_is_said(dear_week: Any, spotkeep: Any, make: Any) -> None:
    dear_week.table.deployment.keep_price_book(PriceBook(region="eu-central-1", fetched_at=make.now))
    said = " ".join(spotkeep("savings", columns=120).output.split())
    assert "85.9 GB" in said
    assert "versions included; its price is not known." in said


def test_a_bucket_that_may_not_be_listed_keeps_no_user_from_the_rest(dear_week: Any, spotkeep: Any) -> None:
    dear_week.s3.refuse(client_error("ListObjectVersions", "AccessDenied", "no"))
    result = spotkeep("savings")
    assert result.exit_code == 0
    assert "Storage is not counted: listing" in result.stderr
    assert "STORAGE" not in result.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7d", NOON - timedelta(days=7)),
        ("1h30m", NOON - timedelta(minutes=90)),
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T08:00:00", datetime(2026, 11, 1, 8, tzinfo=UTC)),
        ("2026-11-01T08:00:00+02:00", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ],
)
def test_since_takes_a_duration_or_a_date(text: str, expected: datetime) -> None:
    assert parse_since(text, now=NOON) == expected


@pytest.mark.parametrize("text", ["yesterday", "7 fortnights", "99999999999999d", ""])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse_since(text, now=NOON)
    assert "--since 7d" in refusal.value.hint
