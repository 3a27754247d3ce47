"""What is a finding, by which rule, and when its rule may be applied: every kind, and what must be left alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.orphans.decisions import (
    Context,
    judge_ended_job,
    judge_job,
    judge_lost_schedule,
    judge_pool,
    judge_prefix,
    judge_recorded_pool,
    judge_schedule,
)
from spotkeep_jobs.orphans.facts import EndedJob, KeptPool, LiveJob, MadeSchedule, StoredPrefix
from spotkeep_jobs.record.orphan_findings import GRACE, Kind, Rule
from spotkeep_jobs.record.states import PoolState, RunState

ENDED = {"state": RunState.COMPLETED}


@pytest.fixture
def context(make: Any) -> Context:
    return Context(
        deployment="spotkeep",
        now=make.noon + timedelta(hours=10),
        prices={"ml.m5.xlarge": 0.23},
        s3_usd_per_gigabyte_month=0.023,
        schedule_group="spotkeep-pools",
    )


@pytest.fixture
def job(context: Context) -> LiveJob:
    return LiveJob(
        name="digits-1a2b3c4d-1",
        created_at=context.now - timedelta(hours=2),
        launched=True,
        instance_type="ml.m5.xlarge",
        instance_count=2,
    )


class TestJobs:
    def test_one_that_no_run_knows_is_stopped_after_an_hour(self, job: LiveJob, context: Context) -> None:
        found = judge_job(job, context=context)
        assert found is not None
        assert (found.kind, found.rule, found.due) == (Kind.UNRECORDED_JOB, Rule.REMOVE, True)
        assert found.usd_per_hour == pytest.approx(0.46)
        assert found.mend == "aws sagemaker stop-training-job --training-job-name digits-1a2b3c4d-1"
        young = judge_job(replace(job, created_at=context.now - timedelta(minutes=59)), context=context)
        assert young is not None
        assert not young.due

    def test_a_tuning_jobs_training_job_has_the_tag_of_its_tuning_job_and_is_left_alone(
        self, job: LiveJob, context: Context
    ) -> None:
        assert judge_job(replace(job, of_tuning_job=True, launched=False), context=context) is None

    def test_one_that_was_tagged_by_hand_is_only_reported(self, job: LiveJob, context: Context) -> None:
        found = judge_job(replace(job, launched=False), context=context)
        assert found is not None
        assert found.rule is Rule.REPORT

    def test_its_runs_current_job_is_as_it_should_be(self, job: LiveJob, context: Context, make: Any) -> None:
        assert judge_job(replace(job, run=make.run(state=RunState.TRAINING)), context=context) is None

    def test_one_that_outlives_its_run_is_stopped(self, job: LiveJob, context: Context, make: Any) -> None:
        run = make.run(**ENDED, ended_at=context.now - timedelta(minutes=20))
        found = judge_job(replace(job, run=run), context=context)
        assert found is not None
        assert (found.kind, found.rule, found.due) == (Kind.OUTLIVING_JOB, Rule.REMOVE, True)
        assert "its run has ended (COMPLETED)" in found.says

    def test_one_whose_run_works_with_another_job_is_stopped(self, job: LiveJob, context: Context, make: Any) -> None:
        run = make.run(state=RunState.TRAINING, attempt=2, job_name="digits-1a2b3c4d-2")
        found = judge_job(replace(job, run=run), context=context)
        assert found is not None
        assert found.kind is Kind.OUTLIVING_JOB
        assert "works with digits-1a2b3c4d-2" in found.says

    @given(minutes=st.floats(0, 14.9), state=st.sampled_from(sorted(RunState)))
    def test_a_run_that_moved_a_moment_ago_may_have_moved_on_since_the_jobs_were_listed(
        self, minutes: float, state: RunState, make: Any
    ) -> None:
        now = make.noon + timedelta(hours=10)
        around = Context(deployment="spotkeep", now=now, prices={}, schedule_group="spotkeep-pools")
        moved = now - timedelta(minutes=minutes)
        run = make.run(
            state=state, job_name="digits-1a2b3c4d-2", updated_at=moved, ended_at=moved if state.ended else None
        )
        live = LiveJob(name="digits-1a2b3c4d-1", created_at=make.noon, launched=True, run=run)
        assert judge_job(live, context=around) is None

    def test_an_unknown_price_is_none(self, job: LiveJob, context: Context) -> None:
        found = judge_job(replace(job, instance_type="ml.p5.48xlarge"), context=context)
        assert found is not None
        assert found.usd_per_hour is None


class TestRecords:
    @pytest.mark.parametrize(("hours", "words"), [(1, "its job is over"), (None, "knows its job no more")])
    def test_a_run_that_missed_the_end_of_its_job_waits_for_the_next_sweep(
        self, context: Context, make: Any, hours: int | None, words: str
    ) -> None:
        ended_at = None if hours is None else context.now - timedelta(hours=hours)
        run = make.run(state=RunState.TRAINING, job_arn="arn")
        found = judge_ended_job(EndedJob(run=run, ended_at=ended_at), context=context)
        assert found is not None
        assert (found.kind, found.rule, found.due) == (Kind.STALE_RECORD, Rule.SWEEP, False)
        assert words in found.says
        assert found.mend == "aws lambda invoke --function-name spotkeep-controller /dev/stdout"

    def test_an_end_of_a_moment_ago_is_about_to_be_seen(self, context: Context, make: Any) -> None:
        run = make.run(state=RunState.TRAINING, job_arn="arn")
        assert judge_ended_job(EndedJob(run=run, ended_at=context.now - timedelta(minutes=3)), context=context) is None

    def test_a_launch_that_is_not_confirmed_is_the_sweeps_business(self, context: Context, make: Any) -> None:
        assert judge_ended_job(EndedJob(run=make.run(), ended_at=None), context=context) is None

    def test_a_pool_that_is_recorded_as_waiting_long_after_its_time(self, context: Context, make: Any) -> None:
        found = judge_recorded_pool(make.pool(), context=context)
        assert found is not None
        assert (found.kind, found.rule) == (Kind.STALE_RECORD, Rule.SWEEP)
        waiting = make.pool(kept_until=context.now - timedelta(minutes=5))
        assert judge_recorded_pool(waiting, context=context) is None


class TestPools:
    def kept(self, context: Context, **fields: Any) -> KeptPool:
        facts = {"job_name": "first-1", "kept_since": context.now - timedelta(minutes=20)}
        return KeptPool(**facts | {"instance_type": "ml.m5.xlarge", "instance_count": 2} | fields)

    def test_one_that_no_run_knows_is_ended(self, context: Context) -> None:
        found = judge_pool(self.kept(context), context=context)
        assert found is not None
        assert (found.kind, found.rule, found.due) == (Kind.UNRECORDED_POOL, Rule.REMOVE, True)
        assert found.usd_per_hour == pytest.approx(0.46)

    def test_one_of_a_job_that_has_just_ended_is_about_to_be_recorded(self, context: Context) -> None:
        assert judge_pool(self.kept(context, kept_since=context.now), context=context) is None

    def test_one_of_a_run_whose_end_could_not_be_recorded_is_the_runs(self, context: Context, make: Any) -> None:
        assert judge_pool(self.kept(context, run=make.run("first", job_name="first-1")), context=context) is None
        over = make.run("first", job_name="first-1", state=RunState.FAILED)
        assert judge_pool(self.kept(context, run=over), context=context) is not None
        assert judge_pool(self.kept(context, run=make.run("first", job_name="first-2")), context=context) is not None

    def test_one_that_a_run_left_is_reported_with_what_it_costs_and_is_not_wrong(
        self, context: Context, make: Any
    ) -> None:
        found = judge_pool(self.kept(context, recorded=make.pool()), context=context)
        assert found is not None
        assert (found.kind, found.rule, found.wrong) == (Kind.IDLE_POOL, Rule.REPORT, False)
        assert found.mend == "spotkeep pool stop first"


class TestSchedules:
    def made(self, context: Context, **fields: Any) -> MadeSchedule:
        facts = {"name": "spotkeep-expiry-1", "made_at": context.now - timedelta(hours=1), "pool": None}
        return MadeSchedule(**facts | fields)

    @pytest.mark.parametrize("state", [None, PoolState.ENDED, PoolState.REUSED, PoolState.NOT_KEPT])
    def test_one_for_a_pool_that_is_over_or_unknown_is_deleted(
        self, context: Context, make: Any, state: PoolState | None
    ) -> None:
        pool = None if state is None else make.pool(state=state)
        found = judge_schedule(self.made(context, pool=pool), context=context)
        assert found is not None
        assert (found.kind, found.rule, found.due) == (Kind.SPENT_SCHEDULE, Rule.REMOVE, True)
        assert found.mend.endswith("--group-name spotkeep-pools --name spotkeep-expiry-1")

    def test_one_for_a_pool_that_waits_stays_whatever_its_time(self, context: Context, make: Any) -> None:
        assert judge_schedule(self.made(context, pool=make.pool()), context=context) is None

    def test_one_that_was_just_made_stays(self, context: Context) -> None:
        assert judge_schedule(self.made(context, made_at=context.now), context=context) is None

    def test_a_pool_without_one_is_reported(self, context: Context, make: Any) -> None:
        pool = make.pool(kept_since=context.now - timedelta(minutes=20), kept_until=context.now + timedelta(minutes=10))
        found = judge_lost_schedule(pool, context=context)
        assert found is not None
        assert (found.kind, found.rule) == (Kind.LOST_SCHEDULE, Rule.SWEEP)
        young = make.pool(kept_since=context.now, kept_until=context.now + timedelta(minutes=30))
        assert judge_lost_schedule(young, context=context) is None


class TestCheckpoints:
    def stored(self, context: Context, *, days: float = 30, **fields: Any) -> StoredPrefix:
        facts = {"uri": "s3://bucket/runs/gone/", "stored_bytes": 10 * 2**30, "objects": 4}
        return StoredPrefix(**facts | {"newest_at": context.now - timedelta(days=days)} | fields)

    def test_those_of_no_run_are_reported_with_what_they_cost(self, context: Context) -> None:
        found = judge_prefix(self.stored(context), context=context)
        assert found is not None
        assert (found.kind, found.rule, found.due) == (Kind.ORPHANED_CHECKPOINTS, Rule.REPORT, False)
        assert found.usd_per_hour is not None
        assert found.usd_per_hour * 730 == pytest.approx(0.23)

    def test_those_that_a_run_in_the_table_uses_are_never_a_finding(self, context: Context) -> None:
        assert judge_prefix(self.stored(context, used_by="other"), context=context) is None

    def test_a_source_that_was_uploaded_for_a_launch_to_come_is_left_alone(self, context: Context) -> None:
        assert judge_prefix(self.stored(context, days=0.5), context=context) is None


def test_every_kind_has_a_rule_and_a_grace() -> None:
    from spotkeep_jobs.record.orphan_findings import RULES

    assert set(RULES) == set(GRACE) == set(Kind)
