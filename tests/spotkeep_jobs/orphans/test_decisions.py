"""What is a finding, by which rule, and when its rule may be applied: every kind, and what must be left alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.backends.backend import JobView
from spotkeep_jobs.backends.batch.service_job import ServiceJob
from spotkeep_jobs.backends.ec2.facts import Fleet, Orphan, TaggedStorage
from spotkeep_jobs.orphans.decisions import (
    Context,
    Stored,
    judge_checkpoints,
    judge_fleet_orphan,
    judge_job,
    judge_recorded_pool,
    judge_service_job,
    judge_unrecorded_pool,
)
from spotkeep_jobs.record.deployment_records import GRACE, RULES, Finding, OrphanKind, OrphanRule
from spotkeep_jobs.record.states import RunState

ENDED = {"state": RunState.COMPLETED}


@pytest.fixture
def context(make: Any) -> Context:
    return Context(
        now=make.noon + timedelta(hours=10),
        prices={"ml.m5.xlarge": 0.23},
        s3_usd_per_gigabyte_month=0.023,
    )


@pytest.fixture
def job(context: Context, make: Any) -> JobView:
    return make.job(CreationTime=context.now - timedelta(hours=2), request=make.pool_request())  # type: ignore[no-any-return]


def is_found(finding: Finding | None) -> Finding:
    assert finding is not None
    return finding


class TestJobs:
    def test_one_that_no_run_knows_is_stopped_after_an_hour(self, job: JobView, context: Context) -> None:
        found = is_found(judge_job(job, None, context=context))
        assert (found.kind, found.rule, found.due) == (OrphanKind.UNRECORDED_JOB, OrphanRule.REMOVE, True)
        assert found.usd_per_hour == pytest.approx(0.46)
        assert found.mend == "aws sagemaker stop-training-job --training-job-name digits-1a2b3c4d-1"
        young = is_found(judge_job(replace(job, created_at=context.now - timedelta(minutes=59)), None, context=context))
        assert not young.due
        of_no_price = is_found(judge_job(replace(job, instance_type="ml.p5.48xlarge"), None, context=context))
        assert of_no_price.usd_per_hour is None

    def test_its_runs_current_job_a_tuning_jobs_and_another_clients_are_left_alone(
        self, job: JobView, context: Context, make: Any
    ) -> None:
        """A tuning job's training job has the tag of its tuning job, one of another client is a run of its own."""
        assert judge_job(job, make.run(state=RunState.TRAINING), context=context) is None
        assert judge_job(replace(job, tuning_job_arn="arn:tuning", environment={}), None, context=context) is None
        assert judge_job(replace(job, environment={}), None, context=context) is None

    def test_one_that_outlives_its_run_is_stopped(self, job: JobView, context: Context, make: Any) -> None:
        run = make.run(**ENDED, ended_at=context.now - timedelta(minutes=20))
        found = is_found(judge_job(job, run, context=context))
        assert (found.kind, found.rule, found.due) == (OrphanKind.OUTLIVING_JOB, OrphanRule.REMOVE, True)
        assert "its run has ended (COMPLETED)" in found.says
        assert found.since == run.ended_at
        assert found.usd_per_hour == pytest.approx(0.46)
        assert found.mend == "aws sagemaker stop-training-job --training-job-name digits-1a2b3c4d-1"

    def test_one_that_outlives_its_run_is_found_as_soon_as_its_grace_is_over(
        self, job: JobView, context: Context, make: Any
    ) -> None:
        a_moment = timedelta(seconds=1)
        over = make.run(**ENDED, ended_at=context.now - GRACE[OrphanKind.OUTLIVING_JOB], updated_at=context.now)
        assert judge_job(job, over, context=context) is not None
        later = make.run(**ENDED, ended_at=over.ended_at + a_moment, updated_at=context.now)
        assert judge_job(job, later, context=context) is None

    def test_one_whose_run_works_with_another_job_is_stopped(self, job: JobView, context: Context, make: Any) -> None:
        run = make.run(state=RunState.TRAINING, attempt=2, job_name="digits-1a2b3c4d-2")
        found = is_found(judge_job(job, run, context=context))
        assert found.kind is OrphanKind.OUTLIVING_JOB
        assert "works with digits-1a2b3c4d-2" in found.says

    @given(minutes=st.floats(0, 14.9), state=st.sampled_from(sorted(RunState)))
    def test_a_run_that_moved_a_moment_ago_may_have_moved_on_since_the_jobs_were_listed(
        self, minutes: float, state: RunState, make: Any
    ) -> None:
        now = make.noon + timedelta(hours=10)
        moved = now - timedelta(minutes=minutes)
        run = make.run(
            state=state, job_name="digits-1a2b3c4d-2", updated_at=moved, ended_at=moved if state.ended else None
        )
        assert judge_job(make.job(), run, context=Context(now=now, prices={})) is None


class TestServiceJobs:
    @pytest.fixture
    def waiting(self, context: Context) -> ServiceJob:
        asked_at = context.now - timedelta(hours=2)
        return ServiceJob(
            job_id="5f2c",
            arn="arn:job",
            name="digits-1",
            status="RUNNABLE",
            created_at=asked_at,
            environment={"SPOTKEEP_RUN": "digits"},
        )

    def test_one_that_no_run_knows_is_terminated(self, waiting: ServiceJob, context: Context) -> None:
        found = is_found(judge_service_job(waiting, None, context=context))
        assert (found.kind, found.rule, found.due) == (OrphanKind.UNRECORDED_JOB, OrphanRule.REMOVE, True)
        assert found.says == "service job digits-1 is RUNNABLE in its queue although no run knows it"
        assert found.mend == "aws batch terminate-service-job --reason orphan --job-id 5f2c"

    def test_one_whose_run_has_ended_or_works_with_another_job_is_terminated(
        self, waiting: ServiceJob, context: Context, make: Any
    ) -> None:
        ended = make.run(**ENDED, ended_at=context.now - timedelta(minutes=20), updated_at=context.now)
        found = is_found(judge_service_job(waiting, ended, context=context))
        assert (found.kind, found.since) == (OrphanKind.OUTLIVING_JOB, ended.ended_at)
        assert found.says.endswith("although its run has ended")
        works = is_found(
            judge_service_job(waiting, make.run(state=RunState.TRAINING, job_name="digits-2"), context=context)
        )
        assert works.says.endswith("although its run works with digits-2")


class TestPools:
    def judged(self, context: Context, make: Any, *, run: Any = None, minutes: float = 20) -> Finding | None:
        job = make.job(name="first-1", request=make.pool_request())
        return judge_unrecorded_pool(job, run, kept_since=context.now - timedelta(minutes=minutes), context=context)

    def test_one_that_no_run_knows_is_ended(self, context: Context, make: Any) -> None:
        found = is_found(self.judged(context, make))
        assert (found.kind, found.rule, found.due) == (OrphanKind.UNRECORDED_POOL, OrphanRule.REMOVE, True)
        assert found.usd_per_hour == pytest.approx(0.46)
        assert found.mend.startswith("aws sagemaker update-training-job --training-job-name first-1 --resource-config")

    def test_one_of_a_job_that_has_just_ended_is_about_to_be_recorded(self, context: Context, make: Any) -> None:
        assert self.judged(context, make, minutes=0) is None

    def test_one_of_a_run_whose_end_could_not_be_recorded_is_the_runs(self, context: Context, make: Any) -> None:
        assert self.judged(context, make, run=make.run("first", job_name="first-1")) is None
        over = make.run("first", job_name="first-1", state=RunState.FAILED)
        assert self.judged(context, make, run=over) is not None
        assert self.judged(context, make, run=make.run("first", job_name="first-2")) is not None

    def test_one_that_a_run_left_is_reported_with_what_it_costs_and_is_not_wrong(
        self, context: Context, make: Any
    ) -> None:
        found = judge_recorded_pool(make.pool(), context=context)
        assert (found.kind, found.rule, found.wrong) == (OrphanKind.IDLE_POOL, OrphanRule.REPORT, False)
        assert found.mend == "spotkeep pool stop first"
        assert found.usd_per_hour == pytest.approx(0.23 * make.pool().traits.instance_count)


class TestCheckpoints:
    URI = "s3://bucket/runs/gone/"

    def judged(self, context: Context, *, days: float) -> Finding | None:
        stored = Stored(stored_bytes=10 * 2**30, objects=4, newest_at=context.now - timedelta(days=days))
        return judge_checkpoints(self.URI, stored, context=context)

    def test_those_of_no_run_are_reported_with_what_they_cost(self, context: Context) -> None:
        found = is_found(self.judged(context, days=30))
        assert (found.kind, found.rule) == (OrphanKind.ORPHANED_CHECKPOINTS, OrphanRule.REPORT)
        assert found.usd_per_hour is not None
        assert found.usd_per_hour * 730 == pytest.approx(0.23)
        assert found.mend == "aws s3 rm --recursive s3://bucket/runs/gone/"
        of_no_price = is_found(self.judged(replace(context, s3_usd_per_gigabyte_month=None), days=30))
        assert of_no_price.usd_per_hour is None

    def test_a_source_that_was_uploaded_for_a_launch_to_come_is_left_alone(self, context: Context) -> None:
        assert self.judged(context, days=0.5) is None


class TestFleets:
    @pytest.mark.parametrize(
        ("thing", "kind", "mend"),
        [
            (
                Fleet(id="fleet-1", state="active", tags={}),
                OrphanKind.UNUSED_FLEET,
                "aws ec2 delete-fleets --terminate-instances --fleet-ids fleet-1",
            ),
            (
                TaggedStorage(kind="volume", id="vol-1", attached=False, tags={}),
                OrphanKind.UNUSED_STORAGE,
                "aws ec2 delete-volume --volume-id vol-1",
            ),
            (
                TaggedStorage(kind="snapshot", id="snap-1", attached=False, tags={}),
                OrphanKind.UNUSED_STORAGE,
                "aws ec2 delete-snapshot --snapshot-id snap-1",
            ),
        ],
    )
    def test_each_is_found_after_its_grace_with_the_command_that_deletes_it(
        self, thing: Fleet | TaggedStorage, kind: OrphanKind, mend: str, context: Context
    ) -> None:
        since = context.now - GRACE[kind]
        found = is_found(judge_fleet_orphan(Orphan(thing=thing, run="digits", since=since), context=context))
        assert (found.kind, found.rule, found.since, found.due) == (kind, OrphanRule.RECONCILE, since, True)
        assert found.mend == mend
        young = Orphan(thing=thing, run="digits", since=since + timedelta(seconds=1))
        assert judge_fleet_orphan(young, context=context) is None

    def test_storage_that_a_crash_left_has_no_date_and_is_found_at_once(self, context: Context) -> None:
        left = TaggedStorage(kind="volume", id="vol-1", attached=False, tags={})
        found = is_found(judge_fleet_orphan(Orphan(thing=left, run="digits", since=None), context=context))
        assert (found.since, found.due) == (context.now, True)


def test_every_kind_has_a_rule_and_a_grace() -> None:
    assert set(RULES) == set(GRACE) == set(OrphanKind)
