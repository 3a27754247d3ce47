"""What a notification says: the whole text of every kind is in the snapshot; read it there as its user would."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from spotkeep_jobs.cost.run_cost import bill
from spotkeep_jobs.document.capacity import Fallback, NextJob
from spotkeep_jobs.notifications.texts.composition import (
    COLUMNS,
    SUBJECT_CHARACTERS,
    Moment,
    spoken_duration,
    spoken_usd,
)
from spotkeep_jobs.notifications.texts.endings import ending_notification
from spotkeep_jobs.notifications.texts.on_the_way import (
    interruption_notification,
    long_quota_wait_notification,
    long_wait_notification,
    max_cost_near_notification,
    next_fallback_notification,
    queue_blocked_notification,
    resume_notification,
    stale_checkpoint_notification,
    stuck_notification,
)
from spotkeep_jobs.notifications.texts.pools import pool_expiring_notification, pool_over_notification
from spotkeep_jobs.progress.job_log import Hang
from spotkeep_jobs.progress.progress import Freshness
from spotkeep_jobs.record.record import Cost, JobUsage, Notification, QueuePlace, Run
from spotkeep_jobs.record.states import EndReason, PoolEndReason, PoolState, RunState
from spotkeep_jobs.runs.ending import state_after

COST = Cost(
    billed_seconds=2410, training_seconds=8040, waited_seconds=725, redone_steps=35, redone_seconds=248,
    restart_overhead_seconds=140, clean_on_demand_seconds=7652, saved_seconds=5242, saved_percent=68.5,
    aws_saved_percent=70.0, usd_per_hour=0.23, billed_usd=0.153972, clean_on_demand_usd=0.488878, saved_usd=0.334906,
)  # fmt: skip
NEVER_RAN = Cost(
    billed_seconds=0, training_seconds=0, waited_seconds=90_000, redone_steps=0, redone_seconds=0,
    restart_overhead_seconds=0, clean_on_demand_seconds=0, saved_seconds=0, saved_percent=None,
    aws_saved_percent=None, usd_per_hour=0.23, billed_usd=0, clean_on_demand_usd=0, saved_usd=0,
)  # fmt: skip


def ended_run(make: Any, reason: EndReason, **fields: Any) -> Run:
    facts = {"state": state_after(reason), "end_reason": reason, "ended_at": make.noon, "interruptions": 2}
    facts |= {"cost": COST}
    run: Run = make.run(**facts | fields)
    return run


def of_ending(run: Run, make: Any) -> Notification:
    notification = ending_notification(run=run, deployment="spotkeep", created_at=make.noon)
    assert notification is not None
    return notification


def test_what_the_log_does_not_show_is_not_denied(make: Any) -> None:
    none_seen = COST.model_copy(update={"redone_steps": 0, "redone_seconds": 0.0})
    body = of_ending(ended_run(make, EndReason.COMPLETED, cost=none_seen), make).body
    assert "2 times; its log shows no step that was trained twice" in " ".join(body.split())


def test_repeated_work_of_several_hosts_is_said_in_the_time_of_the_run(make: Any) -> None:
    """The bill has the seconds of all instances, and the mail says how long the run took."""

    def said(**fields: Any) -> str:
        return " ".join(of_ending(ended_run(make, EndReason.COMPLETED, **fields), make).body.split())

    of_four = said(instance_count=4)
    assert "Ran 34 min on 4 x" in of_four
    assert "35 steps were trained twice (1 min 2 s)" in of_four
    assert "35 steps were trained twice (4 min 8 s of node time)" in said(**nodes_of_a_run(2))


def test_a_run_resumed_with_fewer_hosts_ran_as_long_as_its_jobs_did(make: Any) -> None:
    """An hour of four hosts and half an hour of one are an hour and a half, whichever number came last."""
    four_hosts, one_host, two_hosts = (
        JobUsage(
            instance_count=count, billable_seconds=0.3 * seconds, training_seconds=seconds, waited_seconds=0.0,
            redone_steps=redone, redone_seconds=60.0 * redone, restart_overhead_seconds=0.0,
        )
        for count, seconds, redone in ((4, 3600.0, 5), (1, 1800.0, 0), (2, 1800.0, 0))
    )  # fmt: skip

    def said(*usages: JobUsage, now: int) -> str:
        attempts = [make.attempt(attempt=number, job_id="arn", usage=each) for number, each in enumerate(usages, 1)]
        run = ended_run(
            make, EndReason.COMPLETED, instance_count=now, attempt=len(usages), cost=bill(attempts, prices={})
        )
        return " ".join(of_ending(run, make).body.split())

    mail = said(four_hosts, one_host, now=1)
    assert "Ran 1 h 30 min, in 2 attempts, the last with 1 x" in mail
    assert "5 steps were trained twice (20 min of instance time)" in mail
    assert "Cost 1 h 21 min of instance time billed" in mail
    assert "Ran 1 h, in 2 attempts, the last with 1 x" in said(one_host, two_hosts, now=1)
    assert "Ran 2 h on 4 x" in said(four_hosts, four_hosts, now=4)
    assert "10 steps were trained twice (10 min)" in said(four_hosts, four_hosts, now=4)


def as_mail(notification: Notification) -> str:
    return f"Subject: {notification.subject}\n\n{notification.body}"


def test_the_mail_leads_to_the_training_job_in_the_console(make: Any) -> None:
    arn = "arn:aws:sagemaker:us-east-1:123456789012:training-job/first-1"
    run = ended_run(make, EndReason.COMPLETED, job_id=arn, job_name="first-1")
    page = "https://us-east-1.console.aws.amazon.com/sagemaker/home?region=us-east-1#/jobs/first-1"
    assert f"\nIn the AWS console\n  {page}\n\n-- \n" in of_ending(run, make).body
    assert "In the AWS console" not in of_ending(run.model_copy(update={"job_id": None}), make).body


MODEL = "s3://bucket/runs/digits-1a2b3c4d/output/digits-1a2b3c4d-1/output/model.tar.gz"
STORIES: dict[str, dict[str, Any]] = {
    "completed": {"reason": EndReason.COMPLETED, "output_uri": MODEL},
    "completed-left-alone": {
        "reason": EndReason.COMPLETED, "output_uri": MODEL, "interruptions": 0,
        "cost": COST.model_copy(update={"redone_steps": 0, "redone_seconds": 0.0, "saved_percent": 70.0}),
    },
    "completed-price-unknown-on-four-instances": {
        "reason": EndReason.COMPLETED, "instance_count": 4, "attempt": 3,
        "cost": COST.model_copy(
            update=dict.fromkeys(("usd_per_hour", "billed_usd", "clean_on_demand_usd", "saved_usd"))
        ),
    },
    "completed-with-a-loss": {
        "reason": EndReason.COMPLETED,
        "cost": COST.model_copy(update={"saved_seconds": -900, "saved_usd": -0.0575, "saved_percent": -11.8}),
    },
    "completed-silently": {
        "reason": EndReason.COMPLETED, "cost": COST.model_copy(update={"redone_steps": None, "redone_seconds": None}),
    },
    "completed-on-demand": {
        "reason": EndReason.COMPLETED, "capacity": "on-demand", "interruptions": 0,
        "cost": COST.model_copy(update={
            "billed_seconds": 8040, "clean_on_demand_seconds": 8040, "saved_seconds": 0, "saved_percent": 0.0,
            "aws_saved_percent": 0.0, "billed_usd": 0.513667, "saved_usd": 0.0, "redone_steps": 0,
        }),
    },
    "script-failed": {
        "reason": EndReason.SCRIPT_FAILED,
        "failure_reason": "AlgorithmError: ExecuteUserScriptError:\nValueError: could not convert string to float: "
        "'n/a' in column 12 of s3://bucket/data/train.csv, exit code: 1",
    },
    "script-failed-without-checkpoints": {
        "reason": EndReason.SCRIPT_FAILED, "failure_reason": "AlgorithmError: exit code: 1",
        "request": {"checkpoints": False},
    },
    "input-error": {
        "reason": EndReason.INPUT_ERROR, "interruptions": 0, "cost": NEVER_RAN,
        "failure_reason": "ClientError: Data download failed:NoSuchKey (404)",
    },
    "capacity": {"reason": EndReason.CAPACITY, "cost": NEVER_RAN, "interruptions": 0,
                 "failure_reason": "CapacityError: Unable to provision requested ML compute capacity"},
    "platform-error": {"reason": EndReason.PLATFORM_ERROR, "failure_reason": "InternalServerError: try again"},
    "job-vanished": {"reason": EndReason.JOB_VANISHED, "cost": None},
    "launch-refused": {
        "reason": EndReason.LAUNCH_REFUSED, "cost": NEVER_RAN.model_copy(update={"waited_seconds": 0}),
        "interruptions": 0,
        "failure_reason": "The account-level service limit 'ml.m5.xlarge for spot training job usage' is 0 Instances",
    },
    "quota": {
        "reason": EndReason.QUOTA, "cost": NEVER_RAN.model_copy(update={"waited_seconds": 0}), "interruptions": 0,
        "failure_reason": "The account-level service limit 'ml.m5.xlarge for spot training job usage' is 0 Instances",
        "no_more_jobs_because": "the ladder has no fallback below on-demand ml.m5.xlarge",
    },
    "never-fits": {
        "reason": EndReason.NEVER_FITS, "cost": NEVER_RAN, "interruptions": 0, "capacity": "on-demand",
        "queue": QueuePlace(queue="gpu", share="vision", priority=0),
        "failure_reason": "Terminated by JobStateTimeLimit action due to reason: "
        "MISCONFIGURATION:QUOTA_MANAGEMENT_LIMIT_EXCEEDED",
    },
    "stopped-by-user": {"reason": EndReason.STOPPED_BY_USER},
    "paused": {"reason": EndReason.PAUSED, "paused_at_step": 1000, "interruptions": 0},
    "max-runtime": {"reason": EndReason.MAX_RUNTIME_EXCEEDED},
    "max-wait": {"reason": EndReason.MAX_WAIT_EXCEEDED, "cost": NEVER_RAN, "interruptions": 0},
    "max-cost": {
        "reason": EndReason.MAX_COST,
        "no_more_jobs_because": "the run has cost 9.80 of the 10.00 USD it may",
    },
    "max-cost-without-checkpoints": {"reason": EndReason.MAX_COST, "request": {"checkpoints": False}},
    "deadline": {
        "reason": EndReason.DEADLINE,
        "no_more_jobs_because": "the run has cost 9.80 of the 10.00 USD it may",
    },
}  # fmt: skip


def moment(make: Any, **fields: Any) -> Moment:
    facts = {"run": make.run(), "attempt": 1, "deployment": "spotkeep", "nth": 1}
    return Moment(**facts | {"happened_at": make.noon, "created_at": make.noon} | fields)


def nodes_of_a_run(least: int) -> dict[str, Any]:
    request = {"name": "digits", "backend": "ec2", "nodes": {"min": least, "max": 4}}
    return {"backend": "ec2", "instance_type": "g5.xlarge", "instance_count": 4, "request": request}


class TestTheWords:
    @pytest.mark.parametrize("story", STORIES)
    def test_of_every_ending(self, make: Any, story: str, snapshot: SnapshotAssertion) -> None:
        assert {facts["reason"] for facts in STORIES.values()} == set(EndReason)
        facts = dict(STORIES[story])
        ending = of_ending(ended_run(make, facts.pop("reason"), **facts), make)
        assert as_mail(ending) == snapshot
        assert ending.body.isascii()
        assert [line for line in ending.body.splitlines() if len(line) > COLUMNS and "s3://" not in line] == []

    @pytest.mark.parametrize("checkpoints", [True, False])
    def test_of_an_interruption(self, make: Any, checkpoints: bool, snapshot: SnapshotAssertion) -> None:
        run = make.run(request={"checkpoints": checkpoints})
        assert as_mail(interruption_notification(moment(make, run=run, attempt=2))) == snapshot

    def test_of_an_interruption_by_an_error_of_sagemakers_own(self, make: Any, snapshot: SnapshotAssertion) -> None:
        assert as_mail(interruption_notification(moment(make), error_of_aws=True)) == snapshot

    @pytest.mark.parametrize("least", [1, 2, 4])
    def test_of_a_node_that_is_lost(self, make: Any, least: int, snapshot: SnapshotAssertion) -> None:
        lost = "i-0a1b2c3d4e5f60718, g5.xlarge in us-east-1a"
        run = make.run(**nodes_of_a_run(least))
        assert as_mail(interruption_notification(moment(make, run=run, nth=2), lost=lost)) == snapshot
        assert "capacity again" not in resume_notification(moment(make, run=run), away_seconds=40).body

    @pytest.mark.parametrize("least", [2, 4])
    def test_a_lost_node_is_said_to_cost_no_step_that_a_shared_folder_has(self, make: Any, least: int) -> None:
        fields = nodes_of_a_run(least)
        run = make.run(**fields | {"request": {**fields["request"], "checkpoint_channel": "shared"}})
        said = " ".join(interruption_notification(moment(make, run=run, nth=2)).body.split())
        assert "from the newest step in its folder of the channel shared" in said
        assert "in S3 as a whole" not in said

    def test_of_the_end_of_a_run_with_nodes(self, make: Any, snapshot: SnapshotAssertion) -> None:
        cost = COST.model_copy(
            update={"aws_saved_percent": None, "root_volume_gb_hours": 80.0, "root_volume_usd": 0.01}
        )
        run = ended_run(make, EndReason.COMPLETED, output_uri=MODEL, cost=cost, **nodes_of_a_run(2))
        assert as_mail(of_ending(run, make)) == snapshot

    def test_nodes_that_only_waited_are_billed(self, make: Any) -> None:
        cost = NEVER_RAN.model_copy(update={"billed_usd": 0.2})
        said = of_ending(ended_run(make, EndReason.MAX_WAIT_EXCEEDED, cost=cost, **nodes_of_a_run(2)), make).body
        assert "never: it had too few nodes (2 to 4 x g5.xlarge, spot)" in said
        assert "$0.20 for" in said

    @pytest.mark.parametrize("least", [1, 2, 4])
    def test_a_wait_for_nodes_is_not_said_to_be_free(self, make: Any, least: int) -> None:
        run = make.run(**nodes_of_a_run(least))
        waits = long_wait_notification(moment(make, run=run), waited_seconds=7200, because=None)
        said = " ".join(waits.body.split())
        assert "Nodes that wait for others are billed." in said
        assert f"waiting for {run.instances} x spot g5.xlarge, all in one zone" in said

    def test_of_a_queue_that_it_blocks(self, make: Any, snapshot: SnapshotAssertion) -> None:
        run = make.run(queue=QueuePlace(queue="gpu", share="vision", priority=0), capacity="on-demand")
        because = "MISCONFIGURATION:QUOTA_MANAGEMENT_LIMIT_EXCEEDED - The quota share cannot meet the requirement."
        assert as_mail(queue_blocked_notification(moment(make, run=run, nth=0), because=because)) == snapshot

    def test_of_a_resume(self, make: Any, snapshot: SnapshotAssertion) -> None:
        assert as_mail(resume_notification(moment(make, nth=3), away_seconds=1840)) == snapshot

    @pytest.mark.parametrize("capacity", ["spot", "on-demand"])
    def test_of_the_next_fallback(self, make: Any, capacity: Any, snapshot: SnapshotAssertion) -> None:
        notification = next_fallback_notification(
            moment(make, attempt=2, nth=0), left=make.attempt(),
            job=NextJob(
                position=1, max_run_seconds=3600, because="there was no capacity in time for spot ml.m5.xlarge",
                fallback=Fallback(capacity=capacity, instance_types=("ml.g5.xlarge",), longest_wait_seconds=1800),
            ),
        )  # fmt: skip
        assert as_mail(notification) == snapshot

    @pytest.mark.parametrize("saved", ["never", "before it was interrupted", "an hour ago", "not sent to S3"])
    def test_of_a_stale_checkpoint(self, make: Any, saved: str, snapshot: SnapshotAssertion) -> None:
        now = make.noon + timedelta(hours=2)
        newest = {"never": None, "before it was interrupted": make.noon - timedelta(hours=5)}.get(
            saved, make.noon + timedelta(hours=1)
        )
        freshness = Freshness(
            newest_at=newest,
            counted_from=max(newest or make.noon, make.noon),
            stale_at=now,
            interval_s=None if newest is None else 600.0,
            stuck_on_its_way=saved == "not sent to S3",
            read_at=now,
        )
        notification = stale_checkpoint_notification(moment(make, happened_at=now, created_at=now), freshness=freshness)
        assert as_mail(notification) == snapshot

    @pytest.mark.parametrize("restarts", [None, 0, 3])
    def test_of_a_training_that_hangs(self, make: Any, restarts: int | None, snapshot: SnapshotAssertion) -> None:
        hang = Hang(at=0.0, silent_seconds=1800.0, restarts=restarts, at_most=None if restarts is None else 3)
        assert as_mail(stuck_notification(moment(make, nth=1), hang=hang)) == snapshot

    @pytest.mark.parametrize("about", [True, False])
    def test_of_a_max_cost_that_is_near(self, make: Any, about: bool, snapshot: SnapshotAssertion) -> None:
        notification = max_cost_near_notification(moment(make, nth=0), spent_usd=20.5, about=about, max_cost_usd=25)
        assert as_mail(notification) == snapshot


class TestOfSeveralHosts:
    """A mail does not speak of one machine, and advises nothing that is refused with several."""

    @pytest.fixture
    def of_four(self, make: Any) -> Moment:
        return moment(make, run=make.run(instance_count=4), nth=1)

    def test_their_number_is_named(self, of_four: Moment) -> None:
        lost = " ".join(interruption_notification(of_four).body.split())
        assert "lost its 4 x ml.m5.xlarge at" in lost
        waits = long_wait_notification(of_four, waited_seconds=7_200, because=None)
        assert "waiting for 4 x spot ml.m5.xlarge for 2 h" in " ".join(waits.body.split())
        quota = long_quota_wait_notification(of_four, waited_seconds=7_200, reason="limit is 2")
        assert "quota for spot ml.m5.xlarge, of which it needs 4. When" in " ".join(quota.body.split())

    def test_none_is_advised_to_start_again_alone(self, make: Any, of_four: Moment) -> None:
        hang = Hang(at=0.0, silent_seconds=1800.0, restarts=None, at_most=None)
        assert "restart: true" in stuck_notification(moment(make), hang=hang).body
        assert "restart: true" not in stuck_notification(of_four, hang=hang).body


class TestTheForm:
    @given(name=st.text(max_size=63), run=st.text(min_size=1, max_size=52), deployment=st.text(min_size=1, max_size=20))
    def test_the_subject_is_one_sns_takes(self, make: Any, name: str, run: str, deployment: str) -> None:
        ended = ended_run(make, EndReason.COMPLETED).model_copy(update={"run": run, "name": name})
        notification = ending_notification(run=ended, deployment=deployment, created_at=make.noon)
        assert 0 < len(notification.subject) <= SUBJECT_CHARACTERS
        assert notification.subject.isascii()
        assert notification.subject.isprintable()

    def test_attributes_let_a_subscriber_choose(self, make: Any) -> None:
        notification = of_ending(ended_run(make, EndReason.CAPACITY, owner=None), make)
        assert notification.attributes == {
            "deployment": "spotkeep",
            "run": "digits-1a2b3c4d",
            "name": "digits",
            "owner": "unknown",
            "status": "failed",
            "capacity": "spot",
            "reason": "CAPACITY",
        }

    def test_one_ending_has_one_id_and_each_interruption_its_own(self, make: Any) -> None:
        assert of_ending(ended_run(make, EndReason.COMPLETED), make).notification_id == "digits-1a2b3c4d/completed/1"
        ids = {
            interruption_notification(
                moment(make, nth=nth, happened_at=make.noon + timedelta(hours=nth))
            ).notification_id
            for nth in (1, 2)
        }
        assert ids == {"digits-1a2b3c4d/interrupted/1-1", "digits-1a2b3c4d/interrupted/1-2"}

    def test_a_very_long_reason_is_cut(self, make: Any) -> None:
        body = of_ending(ended_run(make, EndReason.SCRIPT_FAILED, failure_reason="word " * 5000), make).body
        assert len(body) < 3000
        assert " ..." in body


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"), (-3, "0 s"), (0.4, "0 s"), (59, "59 s"), (60, "1 min"), (250, "4 min 10 s"), (600, "10 min"),
        (3599, "1 h"), (3600, "1 h"), (8040, "2 h 14 min"), (86_399, "1 d"), (90_000, "1 d 1 h"),
        (180_000, "2 d 2 h"), (2_419_200, "28 d"),
    ],
)  # fmt: skip
def test_durations_are_said_as_a_person_says_them(seconds: float, words: str) -> None:
    assert spoken_duration(seconds) == words


@pytest.mark.parametrize(
    ("amount", "words"), [(0, "$0.00"), (0.0042, "$0.0042"), (0.31, "$0.31"), (1234.5, "$1,234.50"), (-2, "-$2.00")]
)
def test_money_keeps_what_cents_would_hide(amount: float, words: str) -> None:
    assert spoken_usd(amount) == words


class TestOfAWarmPool:
    def launched(self, make: Any, **fields: Any) -> Run:
        return make.run(state=RunState.COMPLETED, end_reason=EndReason.COMPLETED, capacity="on-demand", **fields)  # type: ignore[no-any-return]

    @pytest.mark.parametrize("usd_per_hour", [0.23, None], ids=["with its price", "without"])
    def test_the_end_says_until_when_and_what_it_costs(
        self, make: Any, usd_per_hour: float | None, snapshot: SnapshotAssertion
    ) -> None:
        run = self.launched(make, ended_at=make.noon)
        pool = make.pool(run=run.run, usd_per_hour=usd_per_hour)
        notification = ending_notification(run=run, deployment="spotkeep", created_at=make.noon, pool=pool)
        assert notification.body == snapshot

    def test_a_reminder(self, make: Any, snapshot: SnapshotAssertion) -> None:
        pool = make.pool(run="digits-1a2b3c4d", usd_per_hour=0.23)
        notification = pool_expiring_notification(
            run=self.launched(make), pool=pool, idle_usd=0.15, deployment="spotkeep",
            created_at=make.noon + timedelta(minutes=20),
        )  # fmt: skip
        assert (notification.subject, notification.body) == snapshot
        assert notification.attributes["status"] == "pool-expiring"

    @pytest.mark.parametrize("reason", [*PoolEndReason, None])
    def test_its_end(self, make: Any, reason: PoolEndReason | None, snapshot: SnapshotAssertion) -> None:
        state = PoolState.NOT_KEPT if reason is None else PoolState.ENDED
        pool = make.pool(run="digits-1a2b3c4d", usd_per_hour=0.23, state=state, end_reason=reason, idle_seconds=1800)
        notification = pool_over_notification(
            run=self.launched(make), pool=pool, deployment="spotkeep", created_at=make.noon + timedelta(minutes=30)
        )
        assert (notification.subject, notification.body) == snapshot
        assert notification.attributes["reason"] == (reason or "NOT_KEPT")
        assert all(len(line) <= COLUMNS or "service-quotas" in line or "Quotas[" in line
                   for line in notification.body.splitlines())  # fmt: skip
