"""When the controller reads a pool: one plan for one pool, whatever makes it, and nothing in the past."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.document.deployment_facts import PoolRules
from spotkeep_jobs.pools.warm_pool import SETTLES, PoolFiring, plan_schedules
from spotkeep_jobs.record.states import PoolState

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
RULES = PoolRules(reminder_lead_seconds=600)


def planned(pool: Any, *, minutes: float = 0, rules: PoolRules = RULES) -> list[tuple[str, Any]]:
    now = NOON + timedelta(minutes=minutes)
    return [
        (schedule.payload["firing"], schedule.at)
        for schedule in plan_schedules(pool, rules=rules, deployment="spotkeep", now=now)
    ]


def test_a_reminder_before_the_expiry_and_the_expiry(make: Any) -> None:
    until = NOON + timedelta(minutes=30)
    assert planned(make.pool()) == [
        (PoolFiring.REMINDER, NOON + timedelta(minutes=20)),
        (PoolFiring.EXPIRY, until + SETTLES),
    ]


@pytest.mark.parametrize(
    ("fields", "minutes", "rules"),
    [
        ({}, 21, RULES),
        ({"reminded_for": NOON + timedelta(minutes=30)}, 5, RULES),
        ({}, 0, PoolRules(reminder_lead_seconds=0)),
        ({}, 0, PoolRules(reminder_lead_seconds=1800)),
    ],
    ids=["past", "notified already", "not wanted", "not before its own beginning"],
)
def test_no_reminder_where_there_is_none_to_give(
    make: Any, fields: dict[str, Any], minutes: float, rules: PoolRules
) -> None:
    assert [firing for firing, _ in planned(make.pool(**fields), minutes=minutes, rules=rules)] == [PoolFiring.EXPIRY]


def test_a_pool_that_outstays_its_time_is_reconciled_again(make: Any) -> None:
    assert [firing for firing, _ in planned(make.pool(), minutes=31)] == [PoolFiring.AGAIN]


def test_functions_that_reconcile_at_nearly_the_same_time_plan_one_schedule(make: Any) -> None:
    now = NOON + timedelta(minutes=31)
    names = {
        schedule.name
        for milliseconds in (1, 500, 9_000)
        for schedule in plan_schedules(
            make.pool(), rules=RULES, deployment="spotkeep", now=now + timedelta(milliseconds=milliseconds)
        )
    }
    assert len(names) == 1


@pytest.mark.parametrize("state", [state for state in PoolState if state is not PoolState.AVAILABLE])
def test_a_pool_that_is_over_needs_no_schedule(make: Any, state: PoolState) -> None:
    assert planned(make.pool(state=state)) == []


def test_an_extended_pool_has_new_schedules_beside_the_old(make: Any) -> None:
    before = plan_schedules(make.pool(), rules=RULES, deployment="spotkeep", now=NOON)
    extended = make.pool(keep_alive_seconds=3600, kept_until=NOON + timedelta(hours=1))
    after = plan_schedules(extended, rules=RULES, deployment="spotkeep", now=NOON)
    assert {schedule.name for schedule in before}.isdisjoint(schedule.name for schedule in after)


@given(
    deployment=st.from_regex(r"[a-z][a-z0-9-]{0,19}", fullmatch=True),
    job_name=st.from_regex(r"[a-zA-Z0-9]{1,63}", fullmatch=True),
    seconds=st.floats(0, 3600),
    microseconds=st.integers(0, 999_999),
)
def test_names_times_and_payloads_are_what_scheduler_takes(
    make: Any, deployment: str, job_name: str, seconds: float, microseconds: int
) -> None:
    now = NOON + timedelta(seconds=seconds, microseconds=microseconds)
    pool = make.pool(job_name=job_name, kept_until=NOON + timedelta(minutes=30, microseconds=microseconds))
    for schedule in plan_schedules(pool, rules=RULES, deployment=deployment, now=now):
        assert re.fullmatch(r"[0-9a-zA-Z\-_.]{1,64}", schedule.name)
        assert re.fullmatch(r"at\(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\)", schedule.expression)
        assert schedule.at > now
        assert schedule.payload["run"] == "first"
        again = plan_schedules(pool, rules=RULES, deployment=deployment, now=now)
        assert schedule in again
