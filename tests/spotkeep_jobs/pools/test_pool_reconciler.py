"""A pool's life, whatever function reads it and however often: notified once (I4), bounded (I6), on the bill (I8)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.backends.sagemaker.training_job import JobPlatform
from spotkeep_jobs.document.deployment_facts import PoolRules
from spotkeep_jobs.errors import AwsBusyError
from spotkeep_jobs.pools.pool_actions import PoolActions
from spotkeep_jobs.pools.warm_pool import PoolFiring
from spotkeep_jobs.record.record import Pool, Run
from spotkeep_jobs.record.states import NotificationKind, PoolEndReason, PoolState, RunState, TimelineKind
from tests.models.deployment import DEFAULTS, launcher_on
from tests.models.sagemaker import launch_marks

PLATFORM = JobPlatform(
    deployment="spotkeep",
    checkpoint_bucket="bucket",
    execution_role_arn="arn:aws:iam::123456789012:role/team-a",
    training_bundle_uri="s3://assets/spotkeep.pyz",
)
LIFE = (("Starting", 0.0), ("Downloading", 1.0), ("Training", 2.0), ("Uploading", 11.0))
ENDED_AFTER = 12.0
RUN = "digits-1a2b3c4d"


class PoolWorld:
    """A run that leaves a pool for half an hour, twelve minutes after noon, on the parts that follow it."""

    def __init__(self, make: Any, **rules: Any) -> None:
        self.make = make
        self.world = make.world()
        self.sagemaker = self.world.sagemaker
        self.asked = make.pool_request()
        self.clock, self.table, self.topic = self.world.clock, self.world.table, self.world.topic
        self.world.watch_pools(PoolRules(**{"reminder_lead_seconds": 600} | rules))
        self.run = self.launch()

    def launch(self, run: str = RUN, **fields: Any) -> Run:
        return self.world.launch(
            self.make.run(run, capacity="on-demand", created_at=self.clock(), **fields),
            self.make.attempt(run, capacity="on-demand"),
        )

    def ends(self, *, run: str = RUN, status: str = "Completed", **answer: Any) -> None:
        """The job ends, twelve minutes after noon, and leaves its pool."""
        self.sagemaker.has_job(
            f"{run}-1", *LIFE, (status, ENDED_AFTER), request=self.asked,
            **{"TrainingTimeInSeconds": 600, "BillableTimeInSeconds": 600} | answer,
        )  # fmt: skip
        self.at(ENDED_AFTER)

    def at(self, minutes: float) -> None:
        self.clock.time = max(self.clock.time, self.make.noon + timedelta(minutes=minutes))

    def is_taken(self, *, by: str = "next-1") -> None:
        """Another job takes the pool."""
        self.sagemaker.create_training_job(TrainingJobName=by, **self.asked, Environment=launch_marks(by))

    def is_kept(self, seconds: int) -> None:
        """A user who calls AWS changes how long the pool is kept; 0 ends it."""
        change = {"KeepAlivePeriodInSeconds": seconds}
        self.sagemaker.update_training_job(TrainingJobName=f"{RUN}-1", ResourceConfig=change)

    def reconcile_run(self, run: str = RUN) -> None:
        self.world.runs.reconcile(run)

    def reconcile_pool(self, run: str = RUN) -> Any:
        found = self.world.pools.reconcile(run=run, attempt=1)
        self.world.outbox.deliver_all()
        return found

    @property
    def firings(self) -> list[str]:
        """What the schedules that were made and have not fired are for."""
        return [name.split("-")[1] for name in self.world.schedules.made]

    @property
    def pool(self) -> Pool:
        pool = self.table.pools.get(RUN, 1)
        assert pool is not None
        return pool  # type: ignore[no-any-return]

    @property
    def notified(self) -> list[str]:
        return [notification.notification_id.partition("/")[2] for notification in self.topic.published]

    def actions(self, *, longest_seconds: int = 3600) -> PoolActions:
        return PoolActions(
            launcher_on(
                self.table,
                self.world.sagemaker,
                now=self.clock,
                platform=PLATFORM,
                defaults=replace(DEFAULTS, max_keep_alive_seconds=longest_seconds),
                policy=self.world.deployment,
            )
        )

    def kinds(self) -> list[TimelineKind]:
        return [entry.kind for entry in self.table.runs.timeline(RUN)]


@pytest.fixture
def stage(make: Any) -> PoolWorld:
    return PoolWorld(make)


@pytest.fixture
def left(stage: PoolWorld) -> PoolWorld:
    """Its job has ended, and the run's reconciliation has found the pool that it left."""
    stage.ends()
    stage.reconcile_run()
    return stage


class TestAPoolIsLeft:
    @pytest.mark.parametrize(
        ("status", "fields"),
        [
            ("Completed", {}),
            ("Stopped", {}),
            ("Failed", {"FailureReason": "AlgorithmError: exit code 1"}),
        ],
        ids=["success", "a user's stop", "a script's error"],
    )
    def test_after_every_ending_that_keeps_one(self, stage: PoolWorld, status: str, fields: dict[str, Any]) -> None:
        stage.ends(status=status, **fields)
        stage.reconcile_run()
        assert stage.pool.state is PoolState.AVAILABLE
        assert stage.pool.kept_until == stage.make.noon + timedelta(minutes=42)
        assert stage.firings == [PoolFiring.REMINDER, PoolFiring.EXPIRY]
        assert TimelineKind.POOL_KEPT in stage.kinds()

    def test_the_notification_says_until_when_what_it_costs_and_what_to_do(self, left: PoolWorld) -> None:
        left.reconcile_pool()
        [notification] = left.topic.published
        assert "until 2026-11-21 12:42 UTC" in notification.body.replace("\n  ", " ")
        assert "$0.46 an hour" in notification.body
        for command in (f"launch job.yaml --like {RUN}", f"pool extend {RUN} 30m", f"pool stop {RUN}"):
            assert f"spotkeep {command}" in notification.body

    @pytest.mark.parametrize(
        ("keep_alive", "end"),
        [(0, {}), (1800, {"status": "Failed", "FailureReason": "UnknownError: oh"})],
        ids=["it asked for none", "an error of the platform"],
    )
    def test_after_no_other_and_nothing_is_reported_of_one(
        self, stage: PoolWorld, keep_alive: int, end: dict[str, Any]
    ) -> None:
        stage.asked["ResourceConfig"]["KeepAlivePeriodInSeconds"] = keep_alive
        stage.ends(**end)
        stage.reconcile_run()
        assert stage.table.pools.get(RUN, 1) is None
        assert all("Warm pool" not in each.body for each in stage.table.notifications.of_run(RUN))

    @pytest.mark.parametrize("said", [None, "Terminated"])
    def test_without_quota_the_user_is_notified_at_once_with_what_to_request(
        self, stage: PoolWorld, said: str | None
    ) -> None:
        stage.sagemaker.pools_have_quota = said is not None
        stage.ends()
        if said is not None:
            stage.is_kept(0)
        stage.reconcile_run()
        stage.reconcile_pool()
        assert stage.pool.state is PoolState.NOT_KEPT
        assert stage.notified == ["completed/1", "pool-expired/1"]
        body = stage.topic.published[1].body
        assert "ml.m5.xlarge for training warm pool usage" in body
        assert "request-service-quota-increase" in body
        assert stage.world.schedules.made == {}

    def test_a_schedule_that_cannot_be_made_costs_minutes_not_the_pool(self, stage: PoolWorld) -> None:
        def refuse(operation: str) -> None:
            raise stage.make.error(operation, "ThrottlingException")

        stage.world.schedules.before_call = refuse
        stage.ends()
        stage.reconcile_run()
        assert stage.pool.state is PoolState.AVAILABLE
        stage.world.schedules.before_call = lambda _operation: None
        assert stage.reconcile_pool().problems == ()
        assert len(stage.world.schedules.made) == 2


class TestAFiringAsksFirst:
    def test_an_expiry_is_notified_once_with_what_the_waiting_cost(self, left: PoolWorld) -> None:
        left.at(42.1)
        for _ in range(3):
            left.reconcile_pool()
        assert (left.pool.state, left.pool.end_reason) == (PoolState.ENDED, PoolEndReason.EXPIRED)
        assert left.notified == ["completed/1", "pool-expired/1"]
        assert "$0.23" in left.topic.published[1].body

    def test_a_pool_that_was_taken_is_followed_and_no_user_is_notified_that_it_expired(self, left: PoolWorld) -> None:
        left.is_taken()
        left.at(42.1)
        found = left.reconcile_pool()
        assert (found.pool.state, found.pool.reused_by) == (PoolState.REUSED, "next-1")
        assert left.notified == ["completed/1"]
        assert left.table.pools.chain_of("next-1") == left.pool.chain_since

    def test_a_reminder_is_sent_once_and_of_an_extended_pool_once_again(self, left: PoolWorld) -> None:
        left.at(32)
        for _ in range(3):
            left.reconcile_pool()
        assert left.notified == ["completed/1", "pool-expiring/1-1"]
        body = " ".join(left.topic.published[1].body.split())
        assert "in 10 min" in body
        assert "$0.15" in body
        left.is_kept(3000)
        left.at(42.1)
        left.reconcile_pool()
        assert left.pool.kept_until == left.make.noon + timedelta(minutes=62)
        assert left.firings == ["reminder", "expiry"], "the two before have fired"
        left.at(52)
        left.reconcile_pool()
        assert left.notified == ["completed/1", "pool-expiring/1-1", "pool-expiring/1-2"]
        assert TimelineKind.POOL_EXTENDED in left.kinds()

    def test_a_pool_that_outstays_its_time_is_read_again_and_not_notified_as_gone(self, left: PoolWorld) -> None:
        left.sagemaker.pools_expire = lambda: None
        left.at(43)
        left.reconcile_pool()
        assert left.pool.state is PoolState.AVAILABLE
        assert "pool-expired/1" not in left.notified
        assert PoolFiring.AGAIN in left.firings

    def test_a_pool_that_ended_before_its_time_is_notified_so(self, left: PoolWorld) -> None:
        left.at(20)
        left.is_kept(0)
        left.reconcile_pool()
        assert left.pool.end_reason is PoolEndReason.ENDED_EARLY

    def test_a_deleted_job_takes_its_pool_out_of_sight(self, left: PoolWorld) -> None:
        left.sagemaker.is_deleted(left.sagemaker.jobs[f"{RUN}-1"])
        left.reconcile_pool()
        assert left.pool.state is PoolState.AVAILABLE, "an answer may be older than the job"
        left.sagemaker.has_job(f"{RUN}-1", *LIFE, request=left.asked)
        left.reconcile_pool()
        assert left.pool.state is PoolState.AVAILABLE, "an answer may be older than the job's end"
        left.sagemaker.is_deleted(left.sagemaker.jobs[f"{RUN}-1"])
        left.at(22.1)
        left.reconcile_pool()
        assert left.pool.end_reason is PoolEndReason.JOB_GONE


class TestTheBill:
    def test_i8_idle_time_is_on_the_bill_and_not_in_the_savings(self, left: PoolWorld) -> None:
        before = left.table.runs.get(RUN).cost
        left.at(42.1)
        left.reconcile_pool()
        after = left.table.runs.get(RUN).cost
        assert before.billed_seconds == 2 * 600
        assert (after.billed_seconds, after.idle_pool_seconds) == (2 * 2400, 2 * 1800)
        assert after.saved_seconds == before.saved_seconds - 2 * 1800
        assert after.aws_saved_percent == before.aws_saved_percent
        assert after.idle_pool_usd == pytest.approx(0.23)
        assert after.billed_usd == pytest.approx(before.billed_usd + 0.23)

    def test_i8_a_pool_that_is_over_before_the_controller_sees_its_job_end_is_on_the_same_bill(
        self, stage: PoolWorld
    ) -> None:
        stage.ends()
        stage.at(42.1)
        stage.reconcile_run()
        cost = stage.table.runs.get(RUN).cost
        assert (cost.billed_seconds, cost.idle_pool_seconds) == (2 * 2400, 2 * 1800)

    def test_a_run_that_goes_on_pays_when_it_ends(self, stage: PoolWorld, make: Any) -> None:
        stage.ends(status="Failed", FailureReason="AlgorithmError: x")
        stage.reconcile_run()
        run_item = stage.table.runs.get(RUN)
        stage.table.runs.begin_attempt(run=run_item, attempt=make.attempt(RUN, 2, capacity="on-demand"))
        stage.clock.pass_by(seconds=300)
        stage.is_taken(by=f"{RUN}-2")
        stage.reconcile_pool()
        assert stage.table.runs.get(RUN).state is RunState.LAUNCHING
        assert stage.table.runs.attempt(RUN, 1).usage.pool_idle_seconds == 300


class TestBounded:
    def test_i6_a_pool_that_is_idle_too_long_is_ended_and_notified(self, make: Any) -> None:
        stage = PoolWorld(make, idle_limit_seconds=600)
        stage.ends()
        stage.reconcile_run()
        stage.reconcile_pool()
        assert stage.pool.state is PoolState.AVAILABLE
        stage.at(22.5)
        stage.reconcile_pool()
        assert stage.sagemaker.jobs[f"{RUN}-1"].pool == "Terminated"
        assert stage.pool.end_reason is PoolEndReason.STOPPED_AT_LIMIT
        assert stage.notified == ["completed/1", "pool-expired/1"]
        assert "idle for longer than this deployment allows" in " ".join(stage.topic.published[1].body.split())

    def test_a_limit_that_meets_a_taken_pool_ends_nothing(self, make: Any) -> None:
        stage = PoolWorld(make, idle_limit_seconds=600)
        stage.sagemaker.before_call = lambda operation: operation == "UpdateTrainingJob" and stage.is_taken()
        stage.ends()
        stage.reconcile_run()
        stage.at(22.5)
        stage.reconcile_pool()
        assert stage.pool.state is PoolState.REUSED
        assert stage.notified == ["completed/1"]


class TestChains:
    def test_a_job_on_new_instances_begins_one_and_the_28_days_count_from_it(self, left: PoolWorld) -> None:
        first = left.pool.chain_since
        assert first == left.make.noon
        left.clock.pass_by(minutes=5)
        left.launch("second-1a2b3c4d")
        left.is_taken(by="second-1a2b3c4d-1")
        left.ends(run="second-1a2b3c4d", CreationTime=left.clock())
        left.clock.pass_by(minutes=10)
        left.reconcile_run("second-1a2b3c4d")
        assert left.pool.state is PoolState.REUSED
        assert left.table.pools.get("second-1a2b3c4d", 1).chain_since == first


class TestAnyOrder:
    @given(data=st.data())
    def test_i4_whatever_comes_and_dies_each_is_sent_exactly_once(self, make: Any, data: st.DataObject) -> None:
        """Events, firings and sweeps in any order and number; each function may die at any call."""
        stage = PoolWorld(make)
        stage.ends()
        stage.clock.pass_by(minutes=1)
        extended = False
        steps = data.draw(st.lists(st.sampled_from(["run", "pool", "extend", "expire", "taken", "time"]), max_size=24))
        for step in steps:
            deadly = data.draw(st.one_of(st.none(), st.integers(0, 12)))
            calls = iter(range(1000))

            def die(operation: str, calls: Any = calls, deadly: int | None = deadly) -> None:
                if next(calls) == deadly:
                    raise AwsBusyError(operation=operation, code="died", reason="here")

            for seam in (stage.world.dynamodb, stage.sagemaker, stage.world.schedules):
                seam.before_call = die
            try:
                if step == "run":
                    stage.reconcile_run()
                elif step == "pool":
                    stage.world.pools.reconcile(run=RUN, attempt=1)
            except AwsBusyError:
                pass
            for seam in (stage.world.dynamodb, stage.sagemaker, stage.world.schedules):
                seam.before_call = lambda _operation: None
            stage.world.outbox.deliver_all()
            if step == "time":
                stage.clock.pass_by(minutes=8)
            stage.sagemaker.pools_expire()
            if stage.sagemaker.jobs[f"{RUN}-1"].pool != "Available":
                continue
            if step == "extend":
                extended = True
                stage.is_kept(3000)
            elif step == "expire":
                stage.is_kept(0)
            elif step == "taken":
                stage.is_taken()
        # One quiet reconciliation, and the record equals reality.
        stage.clock.pass_by(minutes=16)
        stage.reconcile_run()
        stage.reconcile_pool()
        said = stage.world.jobs.observe(f"{RUN}-1")
        expected = {"Available": PoolState.AVAILABLE, "Reused": PoolState.REUSED, "Terminated": PoolState.ENDED}
        assert stage.pool.state is expected[said.warm_pool.status]
        if stage.pool.state is PoolState.AVAILABLE:
            assert stage.pool.keep_alive_seconds == said.keep_alive_seconds
        notified = stage.notified
        assert len(notified) == len(set(notified))
        assert notified.count("completed/1") == 1
        assert notified.count("pool-expired/1") == (stage.pool.state is PoolState.ENDED)
        reminders = [each for each in notified if each.startswith(NotificationKind.POOL_EXPIRING)]
        assert len(reminders) <= 1 + extended


class TestUsers:
    def test_extend_keeps_it_longer(self, left: PoolWorld) -> None:
        pool = left.actions().extend(run=RUN, seconds=900)
        assert left.sagemaker.jobs[f"{RUN}-1"].keep_alive == 2700
        assert pool.kept_until == left.make.noon + timedelta(minutes=57)

    @pytest.mark.parametrize(
        ("seconds", "longest", "words"),
        [
            (1801, 3600, "AWS documents 1h as the longest"),
            (301, 2100, r"this deployment allows 35m \(max_keep_alive_seconds\)"),
        ],
    )
    def test_beyond_a_limit_it_is_refused_with_the_limit(
        self, left: PoolWorld, seconds: int, longest: int, words: str
    ) -> None:
        with pytest.raises(Exception, match=words):
            left.actions(longest_seconds=longest).extend(run=RUN, seconds=seconds)
        assert "UpdateTrainingJob" not in left.world.faults.calls

    def test_beyond_28_days_of_one_chain_it_is_refused(self, stage: PoolWorld) -> None:
        stage.ends(CreationTime=stage.make.noon - timedelta(days=27, hours=23, minutes=30))
        stage.reconcile_run()
        with pytest.raises(Exception, match="28 days, which AWS documents as the longest"):
            stage.actions().extend(run=RUN, seconds=600)

    def test_what_sagemaker_refuses_is_said_in_its_words(self, left: PoolWorld) -> None:
        def refuse(operation: str) -> None:
            if operation == "UpdateTrainingJob":
                raise left.make.error(operation, "ValidationException", "not now")

        left.sagemaker.before_call = refuse
        with pytest.raises(Exception, match="not now"):
            left.actions().extend(run=RUN, seconds=60)

    def test_stop_is_recorded_ended_and_notified_as_the_users(self, left: PoolWorld) -> None:
        pool = left.actions().stop(run=RUN)
        assert (pool.state, pool.end_reason) == (PoolState.ENDED, PoolEndReason.STOPPED_BY_USER)
        left.reconcile_pool()
        assert left.notified == ["completed/1", "pool-expired/1"]

    @pytest.mark.parametrize("act", ["extend", "stop"])
    def test_a_pool_that_is_gone_is_said_to_be(self, stage: PoolWorld, act: str) -> None:
        actions = stage.actions()
        call = (lambda: actions.stop(run=RUN)) if act == "stop" else (lambda: actions.extend(run=RUN, seconds=60))
        with pytest.raises(Exception, match="has left no warm pool"):
            call()
        stage.ends()
        stage.reconcile_run()
        stage.is_taken()
        with pytest.raises(Exception, match="went to training job next-1"):
            call()

    def test_the_list_is_as_sagemaker_says_now(self, left: PoolWorld) -> None:
        assert [pool.run for pool in left.actions().pools(unreadable={})] == [RUN]
        left.is_kept(0)
        assert left.actions().pools(unreadable={}) == []
