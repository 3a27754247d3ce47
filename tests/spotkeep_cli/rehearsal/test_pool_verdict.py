"""What speaks against a rehearsed pool: each check fails for its own reason and no other."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spotkeep_cli.rehearsal.evidence import ReceivedNotification
from spotkeep_cli.rehearsal.pool_verdict import JobStart, PoolEvidence, judge_pool
from spotkeep_jobs.record.record import Pool, PoolTraits
from spotkeep_jobs.record.states import PoolEndReason, PoolState
from tests.spotkeep_cli.conftest import make_completed, make_cost

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def a_pool(run: str, **fields: Any) -> Pool:
    traits = PoolTraits(role_arn="role", instance_type="ml.m5.large", instance_count=1, volume_size_gb=30)
    facts: dict[str, Any] = {
        "run": run, "attempt": 1, "name": "digits", "job_name": f"{run}-1", "traits": traits, "kept_since": NOON,
        "keep_alive_seconds": 30, "kept_until": NOON + timedelta(seconds=30), "chain_since": NOON,
    }  # fmt: skip
    return Pool(**facts | fields)


def a_notification(run: str, status: str, body: str = "") -> ReceivedNotification:
    return ReceivedNotification(run=run, status=status, subject=status, body=body, received_at="")


COMPLETED = a_notification("first", "completed", "Warm pool\n spotkeep launch job.yaml --like first")
REMINDER = a_notification("next", "pool-expiring")
EXPIRY = a_notification("next", "pool-expired")
GOOD = PoolEvidence(
    first=JobStart(run="first", job_name="first-1", took_over=None, seconds=4.0),
    second=JobStart(run="next", job_name="next-1", took_over="first-1", seconds=2.0),
    first_pool=a_pool("first", state=PoolState.REUSED, reused_by="next-1"),
    second_pool=a_pool("next", state=PoolState.ENDED, end_reason=PoolEndReason.EXPIRED),
    first_run=make_completed("first", cost=make_cost(idle_pool_seconds=5)),
    second_run=make_completed("next", cost=make_cost(idle_pool_seconds=5)),
    extended_seconds=10.0,
    asked_seconds=10.0,
    notifications=[COMPLETED, a_notification("next", "completed"), REMINDER, EXPIRY],
)


@pytest.mark.parametrize(
    ("changes", "failing"),
    [
        ({"notifications": [a_notification("first", "completed"), REMINDER, EXPIRY]}, {0}),
        ({"notifications": [COMPLETED, COMPLETED, REMINDER, EXPIRY]}, {0}),
        ({"first_pool": a_pool("first", state=PoolState.REUSED, reused_by="stranger")}, {1}),
        ({"second": JobStart(run="next", job_name="next-1", took_over=None, seconds=2.0)}, {1}),
        ({"second": JobStart(run="next", job_name="next-1", took_over="first-1", seconds=4.0)}, {2}),
        ({"extended_seconds": 0.0}, {3}),
        ({"notifications": [COMPLETED, EXPIRY]}, {4}),
        ({"notifications": [COMPLETED, EXPIRY, REMINDER]}, {4}),
        ({"notifications": [COMPLETED, REMINDER, REMINDER, EXPIRY]}, {4}),
        ({"notifications": [COMPLETED, REMINDER, EXPIRY, EXPIRY]}, {5}),
        ({"notifications": [COMPLETED, REMINDER]}, {5}),
        ({"notifications": [COMPLETED, REMINDER, EXPIRY, a_notification("first", "pool-expired")]}, {5}),
        ({"first_run": make_completed("first", cost=make_cost(idle_pool_seconds=0))}, {6}),
    ],
)
def test_what_did_not_hold_is_named(changes: dict[str, Any], failing: set[int]) -> None:
    checks = judge_pool(replace(GOOD, **changes))
    assert {number for number, check in enumerate(checks) if not check.passed} == failing
