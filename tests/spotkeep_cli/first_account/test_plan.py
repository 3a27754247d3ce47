"""The plan of the first paid hour: small jobs, their highest cost, and the ceiling."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from spotkeep_cli.first_account.plan import (
    ON_AWS,
    ON_LOCAL_AWS,
    Pace,
    PlannedJob,
    Wishes,
    passes_ceiling,
    planned_jobs,
    priced,
    sum_usd,
)
from spotkeep_jobs.judge import judge

WISHES = Wishes(session="1a2b3c", instance_type="ml.m5.large", queue="cpu", share="vision", fleets=True, drills=True)


@pytest.mark.parametrize("pace", [ON_AWS, ON_LOCAL_AWS])
def test_each_job_of_the_plan_is_a_valid_document(pace: Pace) -> None:
    for job in planned_jobs(WISHES, pace=pace):
        document = {
            **job.document,
            "token": "0123456789abcdef",
            "source": f"s3://checkpoints/sources/{job.run}/{'0' * 64}.tar.gz",
        }
        judged = judge(document, None, now=datetime(2026, 11, 29, tzinfo=UTC))
        assert judged.problems == ()
        assert job.run.startswith("first-account-")


def test_what_a_deployment_has_not_is_left_out_with_the_reason() -> None:
    few = Wishes(session="1a2b3c", instance_type="ml.m5.large", fleets=False, drills=False)
    left = {job.kind: job.left_out for job in planned_jobs(few, pace=ON_AWS) if job.left_out}
    assert left == {"queue": "no queue was named: --queue NAME", "fleet": "the deployment has no fleets"}


def test_no_other_job_fits_the_pool_that_expires() -> None:
    sizes: list[Any] = [job.document.get("volume_size_gb", 30) for job in planned_jobs(WISHES, pace=ON_AWS)]
    assert sizes.count(32) == 1
    assert sizes.count(31) == 1


def test_a_job_costs_its_worst_case_for_each_attempt_and_the_extension_of_its_pool() -> None:
    job = PlannedJob(kind="pool", shows="", attempts=2, extended_seconds=360)
    found = priced(job, worst_case_usd=0.5, usd_per_hour=1.0)
    assert sum_usd([found, PlannedJob(kind="queue", shows="", left_out="none")]) == pytest.approx(1.1)


@pytest.mark.parametrize(("worst_case_usd", "usd_per_hour"), [(None, None), (16.7, None), (None, 0.1)])
def test_a_job_without_a_known_price_is_left_out(worst_case_usd: float | None, usd_per_hour: float | None) -> None:
    """The launcher counts an unknown type at 100 USD an hour; the hour could not guard its ceiling."""
    job = PlannedJob(kind="spot", shows="")
    assert "prices" in priced(job, worst_case_usd=worst_case_usd, usd_per_hour=usd_per_hour).left_out


@pytest.mark.parametrize(("spent", "passes"), [(4.95, False), (4.97, True), (5.1, True)])
def test_the_ceiling_is_passed_before_it_is_reached(spent: float, *, passes: bool) -> None:
    assert passes_ceiling(spent_usd=spent, usd_per_hour=1.2, ceiling_usd=5.0) is passes
