"""Ids that sweeps and schedules reserve: what is made is recognized, and nothing else is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.record.ids import MAX_TRIALS, firing_around, id_of_firing, run_of_trial, sweep_around

names = st.from_regex(r"[a-z0-9]{1,12}(-[a-z0-9]{1,12}){0,4}", fullmatch=True)
times = st.datetimes(min_value=datetime(2020, 1, 1), max_value=datetime(2099, 12, 31), timezones=st.just(UTC)).map(  # noqa: DTZ001
    lambda at: at.replace(second=0, microsecond=0)
)
numbers = st.integers(1, MAX_TRIALS)


@given(sweep=names, number=numbers)
def test_the_run_of_a_trial_lies_in_its_sweep_and_in_no_other(sweep: str, number: int) -> None:
    assert sweep_around(run_of_trial(sweep, number)) == sweep


@given(schedule=names, at=times, number=st.none() | numbers)
def test_what_a_schedule_launches_and_the_trials_of_it_lie_in_its_schedule(
    schedule: str, at: datetime, number: int | None
) -> None:
    launched = id_of_firing(schedule, at)
    found = firing_around(launched if number is None else run_of_trial(launched, number))
    assert found is not None
    assert (found.schedule, found.over_at) == (schedule, at + timedelta(minutes=1))
    assert found.id == (launched if number is None else run_of_trial(launched, number))


@given(schedule=names, at=times, trial=numbers)
def test_a_sweep_whose_trials_may_be_called_like_a_firing_is_known_by_its_own_id(
    schedule: str, at: datetime, trial: int
) -> None:
    sweep = f"{schedule}-{at:%Y%m%d}"
    found = firing_around(sweep, is_sweep=True)
    assert found is not None
    assert (found.schedule, found.firing) == (schedule, f"{at:%Y%m%d}")
    assert found.over_at == at.replace(hour=0, minute=0) + timedelta(days=1)
    of_trial = firing_around(run_of_trial(sweep, trial))
    assert of_trial is None or of_trial.schedule == schedule


@pytest.mark.parametrize(
    "name", ["exp", "exp-", "-1", "exp-0", "exp-01", "exp-10001", "exp-99999", "exp-1a", "exp-1234abcd"]
)
def test_other_ids_lie_in_no_sweep(name: str) -> None:
    assert sweep_around(name) is None


def test_an_id_that_is_made_of_a_name_and_a_token_lies_in_no_sweep_even_where_its_digits_are_all_decimal() -> None:
    assert sweep_around("digits-12345678") is None


@pytest.mark.parametrize(
    "name",
    [
        "nightly",
        "nightly-20261122",
        "nightly-20261322-0200",
        "nightly-20261122-2400",
        "nightly-20261122-02",
        "nightly-20261122-0200-0",
        "nightly-20261122-0200-x",
        "20261122-0200",
    ],
)
def test_other_ids_lie_in_no_schedule(name: str) -> None:
    assert firing_around(name) is None


def test_the_time_in_an_id_is_utc() -> None:
    at = datetime(2026, 11, 26, 2, 0, tzinfo=timezone(timedelta(hours=1)))
    assert id_of_firing("nightly", at) == "nightly-20261126-0100"
