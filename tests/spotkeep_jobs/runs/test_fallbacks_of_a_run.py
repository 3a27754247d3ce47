"""A run and its fallbacks: launcher and controller on one table, in an account that has no capacity.

I1 holds at every fallback: the job before is over, by SageMaker's own word, before the next one is created.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from controller.full_pass import FullPass
from spotkeep_jobs.document.deployment_facts import DeploymentDefaults, DeploymentPolicy, PoolRules
from spotkeep_jobs.errors import AwsBusyError, RequestRefusedError
from spotkeep_jobs.record.record import Attempt, Plan, Run, Spread
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState, TimelineKind
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.rules import LAUNCH_SETTLES
from spotkeep_jobs.runs.run_actions import RunActions
from spotkeep_jobs.runs.run_reconciler import MOST_UNFINISHED_READINGS
from tests.models.deployment import launcher_on
from tests.models.faults import Fault

PRICES = {"ml.g5.xlarge": 1.408, "ml.g5.2xlarge": 1.515}
DEFAULTS = DeploymentDefaults(image="i.dkr.ecr.x/y:1", checkpoint_bucket="checkpoints", prices=PRICES)
DOCUMENT = {
    "name": "first", "run": "first", "token": "token-1", "command": "python train.py", "max_run": "4h",
    "capacity": "auto", "instance_types": ["ml.g5.xlarge", "ml.g5.2xlarge"], "longest_wait": "30m",
    "notify": ["completed", "failed", "stopped", "next-fallback"],
}  # fmt: skip


class Story:
    """Everything that acts on the run, on one clock."""

    def __init__(self, world: Any) -> None:
        self.clock, self.table, self.topic, self.logs = world.clock, world.table, world.topic, world.logs
        self.faults, self.account = world.faults, world.sagemaker
        self.faults.before_call = self.one_job_at_a_time
        self.prices_of_the_controller = dict(PRICES)
        self.launcher = launcher_on(self.table, self.account, defaults=DEFAULTS, prices=PRICES)
        world.deployment = DeploymentPolicy(name="spotkeep", prices=self.prices_of_the_controller)
        world.watch_pools(PoolRules())
        self.runs, self.full_pass = world.runs, FullPass(world.controller)

    def one_job_at_a_time(self, operation: str) -> None:
        live = [job.name for job in self.account.jobs.values() if job.live]
        assert operation != "CreateTrainingJob" or not live, f"{live} is live when another job of its run is created"

    def launched(self, **fields: Any) -> Run:
        return Launcher(self.launcher).launch(DOCUMENT | fields, default_token="token-1").run

    def passes(self, *, every: int = 5, **delta: float) -> None:
        """Let time go by, with a pass over everything every five minutes, as in a deployment, or as a test says."""
        end = self.clock.time + timedelta(**delta)
        while self.clock.time < end:
            self.clock.time = min(self.clock.time + timedelta(minutes=every), end)
            self.reconcile()

    def reconcile(self) -> None:
        assert self.full_pass.run().failures == {}

    @property
    def run(self) -> Run:
        return self.table.runs.get("first")  # type: ignore[return-value]

    @property
    def attempts(self) -> list[Attempt]:
        return self.table.runs.attempts("first")

    @property
    def places(self) -> list[str]:
        return [f"{attempt.place.capacity} {attempt.place.instance_type}" for attempt in self.attempts]


@pytest.fixture
def story(world: Any) -> Story:
    return Story(world)


def test_a_fallback_is_left_when_it_has_waited_long_enough_and_the_next_begins_when_its_job_is_over(
    story: Story,
) -> None:
    story.launched()
    story.passes(minutes=25)
    assert story.account.jobs["first-1"].status == "InProgress"
    story.passes(minutes=5)
    assert story.account.jobs["first-1"].status == "Stopping"
    assert (story.run.state, story.run.attempt) == (RunState.WAITING, 1)
    story.account.becomes("first-1", "Stopped")
    story.reconcile()
    assert (story.run.state, story.run.attempt, story.run.job_name) == (RunState.LAUNCHING, 2, "first-2")
    assert story.attempts[0].end_reason is EndReason.MAX_WAIT_EXCEEDED
    assert story.places == ["spot ml.g5.xlarge", "spot ml.g5.2xlarge"]
    first, second = (story.account.jobs[name].request for name in ("first-1", "first-2"))
    assert second["CheckpointConfig"] == first["CheckpointConfig"]
    assert second["AlgorithmSpecification"] == first["AlgorithmSpecification"]
    assert second["Environment"]["SPOTKEEP_ATTEMPT"] == "2"
    assert {"Key": "spotkeep:attempt", "Value": "2"} in second["Tags"]
    texts = {entry.kind: entry.text for entry in story.table.runs.timeline("first")}
    assert texts[TimelineKind.FALLBACK_LEFT] == "Has waited long enough for spot ml.g5.xlarge: its job is asked to end"
    assert texts[TimelineKind.ATTEMPT_ENDED] == "Ended: waited for capacity longer than it may"
    assert texts[TimelineKind.ATTEMPT_BEGUN] == (
        "Attempt 2 looks for spot ml.g5.2xlarge: there was no capacity in time for spot ml.g5.xlarge"
    )


def test_it_comes_to_on_demand_and_completes_there(story: Story) -> None:
    story.launched()
    for number in (1, 2):
        story.account.becomes(f"first-{number}", "Failed", failure="CapacityError: none to be had")
        story.reconcile()
    assert story.places[-1] == "on-demand ml.g5.xlarge"
    last = story.account.jobs["first-3"].request
    assert "EnableManagedSpotTraining" not in last  # Its first jobs were on spot: it is taken out again.
    assert last["ResourceConfig"]["InstancePreferences"] == [
        {"InstanceType": "ml.g5.xlarge"},
        {"InstanceType": "ml.g5.2xlarge"},
    ]
    assert "MaxWaitTimeInSeconds" not in last["StoppingCondition"]
    story.account.jobs["first-3"].chosen = "ml.g5.2xlarge"
    story.account.moves("first-3", "Training")
    story.clock.pass_by(hours=1)
    story.account.jobs["first-3"].trained_seconds = 3600
    story.account.becomes("first-3", "Completed")
    story.reconcile()
    assert story.run.state is RunState.COMPLETED
    assert story.places[-1] == "on-demand ml.g5.2xlarge"
    assert story.run.cost.billed_usd == pytest.approx(1.515)
    subjects = [notification.subject for notification in story.topic.published]
    assert [subject.partition("first ")[2] for subject in subjects] == [
        "looks elsewhere for capacity",
        "goes on demand",
        "completed",
    ]


def test_a_wait_after_an_interruption_counts_from_the_interruption(story: Story) -> None:
    story.launched()
    story.clock.pass_by(minutes=20)
    story.account.moves("first-1", "Training")
    story.passes(hours=1)
    story.account.moves("first-1", "Interrupted")
    story.account.moves("first-1", "Starting")
    story.passes(minutes=25)
    assert story.account.jobs["first-1"].status == "InProgress"
    story.passes(minutes=5)
    assert story.account.jobs["first-1"].status == "Stopping"


def test_a_quota_of_nothing_is_passed_over_in_one_call(story: Story) -> None:
    story.account.without_quota = {("ml.g5.xlarge", True), ("ml.g5.2xlarge", True)}
    run = story.launched()
    assert (run.attempt, run.place.capacity) == (3, "on-demand")
    assert [attempt.end_reason for attempt in story.attempts] == [EndReason.QUOTA, EndReason.QUOTA, None]
    assert set(story.account.jobs) == {"first-3"}


def test_a_quota_of_nothing_everywhere_refuses_the_launch(story: Story) -> None:
    story.account.without_quota = {("ml.g5.xlarge", True), ("ml.g5.2xlarge", True), ("several", False)}
    with pytest.raises(RequestRefusedError, match="'several for training job usage' is 0 Instances"):
        story.launched()
    assert (story.run.state, story.run.end_reason) == (RunState.FAILED, EndReason.QUOTA)
    assert story.table.claims.checkpoint_lock_owner(story.run.checkpoint_uri) is None


def test_i1_the_checkpoint_prefix_is_never_let_go_between_fallbacks(story: Story) -> None:
    run = story.launched()
    story.account.becomes("first-1", "Failed", failure="CapacityError: none")
    story.reconcile()
    assert story.table.claims.checkpoint_lock_owner(run.checkpoint_uri) == "first"


def test_a_throttled_next_fallback_is_launched_by_the_sweep(story: Story) -> None:
    story.launched()
    story.account.becomes("first-1", "Failed", failure="CapacityError: none")
    story.faults.strike(Fault.REFUSED, operation="CreateTrainingJob")
    with pytest.raises(AwsBusyError):
        story.runs.reconcile("first")
    assert (story.run.attempt, story.run.job_id) == (2, None)
    assert "first-2" not in story.account.jobs
    story.passes(minutes=10)
    assert "first-2" in story.account.jobs
    assert len(story.attempts) == 2


def test_a_stop_that_was_lost_is_sent_again(story: Story) -> None:
    story.launched()
    story.passes(minutes=30)
    story.account.becomes("first-1", "InProgress", "Starting")
    story.passes(minutes=5)
    assert story.account.jobs["first-1"].status == "Stopping"
    assert [entry.kind for entry in story.table.runs.timeline("first")].count(TimelineKind.FALLBACK_LEFT) == 1


def test_a_user_who_stops_while_the_fallback_is_left_is_obeyed(story: Story) -> None:
    story.launched()
    story.passes(minutes=30)
    RunActions(story.launcher).stop("first")
    story.account.becomes("first-1", "Stopped")
    story.reconcile()
    assert (story.run.state, story.run.end_reason, len(story.attempts)) == (
        RunState.STOPPED, EndReason.STOPPED_BY_USER, 1,
    )  # fmt: skip


def test_a_failed_script_is_started_again_on_its_fallback_and_then_notified(story: Story) -> None:
    story.launched(script_retries=1)
    for number in (1, 2):
        story.account.moves(f"first-{number}", "Training")
        story.account.jobs[f"first-{number}"].trained_seconds = 60
        story.account.becomes(f"first-{number}", "Failed", failure="AlgorithmError: exit code 1")
        story.reconcile()
    assert story.places == ["spot ml.g5.xlarge"] * 2
    assert (story.run.state, story.run.ending.no_more_jobs_because) == (
        RunState.FAILED, "the script has failed 2 times (script_retries)",
    )  # fmt: skip
    [notification] = story.topic.published
    assert notification.kind is NotificationKind.FAILED
    assert "the script has failed 2 times" in " ".join(notification.body.split())


@pytest.mark.parametrize("capacity", ["spot", "on-demand"])
def test_sagemaker_restarts_a_job_after_an_error_of_its_own_as_after_an_interruption(
    story: Story, capacity: str
) -> None:
    """I1 and I8: the same job, the same lock, and what it repeats is on the bill."""
    story.launched(capacity=capacity, instance_types=["ml.g5.xlarge"], longest_wait=None, notify=["interrupted"])
    job = story.account.jobs["first-1"]
    assert job.may_restart
    story.account.gets_capacity(job)
    story.account.trains(job, 8)
    story.account.has_an_error(job)
    story.passes(minutes=1, every=1)
    assert (story.run.state, story.run.interruptions) == (RunState.INTERRUPTED, 1)
    assert story.table.claims.checkpoint_lock_owner(story.run.checkpoint_uri) == "first"
    story.account.gets_capacity(job)
    story.account.trains(job, 8)
    story.account.ends(job, "Completed")
    story.passes(minutes=1, every=1)
    ended = story.run
    assert (ended.state, ended.attempt, len(story.account.jobs)) == (RunState.COMPLETED, 1, 1)
    assert ended.cost is not None
    assert ended.cost.billed_seconds == job.billable_seconds
    assert ended.cost.redone_steps == story.account.redone["first"] == 3
    assert ended.cost.clean_on_demand_seconds < job.trained_seconds
    (sent,) = [each for each in story.table.notifications.of_run("first") if each.kind is NotificationKind.INTERRUPTED]
    assert "SageMaker had an error of its own" in " ".join(sent.body.split())
    (entry,) = [each for each in story.table.runs.timeline("first") if each.kind is TimelineKind.INTERRUPTED]
    assert entry.error_of_aws, "what plans spot does not take it for capacity that was taken"


def test_another_job_follows_one_that_sagemaker_gave_up_and_the_run_ends_when_it_has_had_all_its_jobs(
    story: Story,
) -> None:
    story.launched(max_attempts=3)
    for number in (1, 2, 3):
        job = story.account.jobs[f"first-{number}"]
        story.account.gets_capacity(job)
        while job.live:
            story.account.has_an_error(job)
        story.passes(minutes=20)
    assert story.places == ["spot ml.g5.xlarge"] * 3
    ended = story.run
    assert (ended.state, ended.end_reason) == (RunState.FAILED, EndReason.PLATFORM_ERROR)
    assert ended.ending.no_more_jobs_because == "the run has had its 3 jobs (max_attempts)"
    assert [each.notification_id for each in story.table.notifications.of_run("first")] == ["first/failed/3"]
    assert story.table.claims.checkpoint_lock_owner(ended.checkpoint_uri) is None


def test_an_error_before_it_had_instances_is_no_interruption(story: Story) -> None:
    story.launched(notify=["interrupted", "resumed"])
    job = story.account.jobs["first-1"]
    story.account.has_an_error(job)
    story.passes(minutes=1, every=1)
    assert (story.run.state, story.run.interruptions) == (RunState.WAITING, 0)
    story.account.gets_capacity(job)
    story.passes(minutes=1, every=1)
    assert (story.run.state, list(story.table.notifications.of_run("first"))) == (RunState.TRAINING, [])


def test_the_next_jobs_log_is_read_though_functions_ended_while_they_read_the_last_ones(story: Story) -> None:
    story.launched(script_retries=1)
    story.account.moves("first-1", "Training")
    for _ in range(MOST_UNFINISHED_READINGS):
        story.table.runs.begin_log_reading(story.run, now=story.clock.time)
    story.clock.time += LAUNCH_SETTLES
    story.account.becomes("first-1", "Failed", failure="AlgorithmError: exit code 1")
    story.reconcile()
    assert (story.run.job_name, story.run.log_reading) == ("first-2", None)
    assert story.run.log_warning is not None, "that of the first was given up"


DEADLINE = {"max_run": "10h", "deadline": "20h", "longest_wait": None, "instance_types": ["ml.g5.xlarge"]}
GIVES_UP_AFTER_AN_HOUR = Plan(
    made_at=datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
    table={
        "version": 1, "age_edges_s": [3600], "work_step_s": 3600, "from_nothing_s": [[0], [10**9], [0], [0]],
        "from_on_demand_s": [[0]] * 4, "zones": ["any"], "horizons_s": [3600], "lasting_s": [[[3600], [3600]]],
        "slack_step_s": 3600, "restart_usd": [[0]],
    },
    finish_seconds=Spread(p10=1, p50=2, p90=3), chance_of_on_demand=0.5,
)  # fmt: skip


def decisions(story: Story) -> list[str]:
    return [entry.text for entry in story.table.runs.timeline("first") if entry.kind is TimelineKind.STEERED]


def test_i1_a_run_with_a_deadline_goes_on_demand_when_the_job_on_spot_is_over(story: Story) -> None:
    story.launched(**DEADLINE)
    assert story.run.deadline_at == story.clock.time + timedelta(hours=20)
    story.passes(minutes=5)
    story.passes(hours=9, minutes=15, every=60)
    assert story.account.jobs["first-1"].status == "InProgress"
    story.passes(minutes=15)
    assert (story.account.jobs["first-1"].status, story.run.attempt) == ("Stopping", 1)
    story.account.becomes("first-1", "Stopped")
    story.reconcile()
    assert story.places == ["spot ml.g5.xlarge", "on-demand ml.g5.xlarge"]
    assert story.attempts[0].end_reason is EndReason.DEADLINE
    waits, leaves = decisions(story)
    assert waits.startswith("Waits for spot: 9.9 h to spare; launched without a plan")
    assert leaves.startswith("Leaves spot for on-demand: the last safe moment for on-demand: 25 min to spare")
    [notification] = [
        notification for notification in story.topic.published if notification.kind is NotificationKind.NEXT_FALLBACK
    ]
    assert "the last safe moment for on-demand" in " ".join(notification.body.split())
    story.passes(hours=1)
    assert len(decisions(story)) == 2


def test_the_policy_a_run_was_launched_with_decides_and_each_change_is_recorded_once(story: Story) -> None:
    Launcher(story.launcher).launch(DOCUMENT | DEADLINE, default_token="token-1", plan=GIVES_UP_AFTER_AN_HOUR)
    story.passes(minutes=10)
    story.account.moves("first-1", "Training")
    story.passes(hours=3, every=30)
    story.account.moves("first-1", "Interrupted")
    story.passes(minutes=50)
    assert story.account.jobs["first-1"].status == "InProgress"
    story.passes(minutes=15)
    assert story.account.jobs["first-1"].status == "Stopping"
    assert [text.split(":")[0] for text in decisions(story)] == [
        "Waits for spot", "Stays on spot", "Waits for spot", "Leaves spot for on-demand",
    ]  # fmt: skip
    assert "on-demand pays whatever is to spare" in decisions(story)[-1]


def test_what_a_job_reports_makes_time_to_wait(story: Story) -> None:
    story.launched(**DEADLINE)
    story.account.moves("first-1", "Training")
    at = story.clock.time.timestamp()
    line = f'spotkeep-event: {{"event": "%s", "time": {at + 18_000}, "step": 50, "total_steps": 100}}'
    story.logs.lines["first-1"] = [line % "progress", line % "uploaded"]
    story.passes(hours=5, minutes=30, every=30)
    story.account.moves("first-1", "Interrupted")
    story.passes(hours=5, every=30)
    assert story.account.jobs["first-1"].status == "InProgress"
    progress = story.run.progress
    assert (progress.step, progress.durable_step, progress.total_steps) == (50, 50, 100)


def test_a_launch_without_time_for_spot_is_on_demand_and_says_why(story: Story) -> None:
    story.launched(**DEADLINE | {"deadline": "10h20m"})
    assert story.places == ["on-demand ml.g5.xlarge"]
    assert decisions(story) == ["On demand from the start: the deadline leaves no time to try spot: 20 min to spare"]
    story.passes(minutes=30)
    assert len(decisions(story)) == 1


def test_a_resumed_run_has_its_time_again(story: Story) -> None:
    story.launched(**DEADLINE)
    story.passes(hours=9, minutes=40, every=60)
    RunActions(story.launcher).stop("first")
    story.account.becomes("first-1", "Stopped")
    story.reconcile()
    RunActions(story.launcher).resume("first")
    assert story.run.deadline_at == story.clock.time + timedelta(hours=20)
    assert (story.run.steered, story.places[-1]) == (None, "spot ml.g5.xlarge")


def test_the_same_launch_again_is_answered_though_its_deadline_has_come_closer(story: Story) -> None:
    launched = story.launched(**DEADLINE | {"deadline": "2026-11-22T00:00:00Z"})
    story.clock.pass_by(hours=5)
    again = Launcher(story.launcher).launch(
        DOCUMENT | DEADLINE | {"deadline": "2026-11-22T00:00:00Z"}, default_token="token-1"
    )
    assert (again.replayed, again.run.run) == (True, launched.run)
    with pytest.raises(RequestRefusedError, match="cannot be kept even on demand"):
        Launcher(story.launcher).launch(
            DOCUMENT | DEADLINE | {"deadline": "2026-11-22T00:00:00Z", "run": "other", "token": "token-2"},
            default_token="token-2",
        )


TWO_HOURS_ON_DEMAND = {
    "capacity": "on-demand", "instance_types": ["ml.g5.xlarge"], "longest_wait": None, "max_cost": 2.816,
    "notify": ["stopped", "max-cost-near"],
}  # fmt: skip


def of_the_cost(story: Story) -> list[str]:
    return [entry.text for entry in story.table.runs.timeline("first") if entry.kind is TimelineKind.MAX_COST]


def test_max_cost_is_notified_when_it_is_near_and_stops_the_job_when_it_is_spent(story: Story) -> None:
    story.launched(**TWO_HOURS_ON_DEMAND)
    story.account.moves("first-1", "Training")
    story.passes(hours=1, minutes=35, every=19)
    assert of_the_cost(story) == []
    story.passes(minutes=5)
    assert of_the_cost(story) == ["About 2.35 USD are spent, 83% of max_cost (2.82 USD)"]
    assert story.account.jobs["first-1"].status == "InProgress"
    story.passes(minutes=20)
    assert of_the_cost(story)[1:] == ["max_cost (2.82 USD) is spent: its job is asked to end, and saves first"]
    assert story.account.jobs["first-1"].status == "Stopping"
    assert (story.run.state, story.run.asked_to_end) == (RunState.TRAINING, None)

    story.account.jobs["first-1"].trained_seconds = 7_260
    story.account.becomes("first-1", "Stopped")
    story.reconcile()
    assert (story.run.state, story.run.end_reason) == (RunState.STOPPED, EndReason.MAX_COST)
    assert [attempt.end_reason for attempt in story.attempts] == [EndReason.MAX_COST]
    assert [(each.notification_id, each.subject) for each in story.topic.published] == [
        ("first/max-cost-near/1", "[spotkeep] first has spent most of its max_cost"),
        ("first/stopped/1", "[spotkeep] first has spent its max_cost"),
    ]
    # The checkpoints stay for a new run; there is nothing left to resume this one with.
    body = story.topic.published[-1].body
    assert story.run.checkpoint_uri in body
    assert "spotkeep resume" not in body
    with pytest.raises(RequestRefusedError, match=r"max_cost.* is spent: the run has cost 2\.84 USD"):
        RunActions(story.launcher).resume("first")


@pytest.mark.parametrize(("max_cost", "notified"), [(5.0, 2), (2.9, 1), (2.816, 1)])
def test_a_max_cost_that_a_resume_raised_is_notified_of_again_when_it_is_near(
    story: Story, max_cost: float, notified: int
) -> None:
    """Not at once, of a raise that is spent by most already."""
    story.launched(**TWO_HOURS_ON_DEMAND)
    story.account.moves("first-1", "Training")
    story.passes(hours=1, minutes=40, every=20)
    story.account.jobs["first-1"].trained_seconds = 6_000
    story.account.becomes("first-1", "Failed")
    story.reconcile()
    RunActions(story.launcher).resume("first", changes={"max_cost": max_cost, "max_run": "5h"})
    story.account.moves("first-2", "Training")
    story.passes(minutes=5)
    assert len(of_the_cost(story)) == 1
    story.passes(hours=1, minutes=20, every=10)
    sent = [each.notification_id for each in story.topic.published if "max-cost-near" in each.notification_id]
    assert sent == ["first/max-cost-near/1", "first/max-cost-near/2"][:notified]


def test_a_run_whose_cost_is_not_known_does_not_get_its_max_cost_a_second_time(story: Story) -> None:
    story.launched(**TWO_HOURS_ON_DEMAND)
    story.account.moves("first-1", "Training")
    story.prices_of_the_controller.clear()
    story.account.jobs["first-1"].trained_seconds = 600
    story.account.becomes("first-1", "Failed")
    story.reconcile()
    assert story.run.state is RunState.FAILED
    assert story.run.cost.billed_usd is None
    with pytest.raises(RequestRefusedError, match=r"max_cost.*what the run has cost is not known"):
        RunActions(story.launcher).resume("first")
    assert len(story.attempts) == 1


def test_a_job_that_sagemaker_ends_at_the_rest_of_max_cost_ends_the_run_for_the_same_reason(story: Story) -> None:
    story.launched(**TWO_HOURS_ON_DEMAND)
    assert story.account.jobs["first-1"].request["StoppingCondition"]["MaxRuntimeInSeconds"] == 7_200
    story.account.moves("first-1", "Training")
    story.clock.pass_by(hours=2)
    story.account.jobs["first-1"].trained_seconds = 7_200
    story.account.becomes("first-1", "Stopped", "MaxRuntimeExceeded")
    story.reconcile()
    assert (story.run.state, story.run.end_reason) == (RunState.STOPPED, EndReason.MAX_COST)
    assert story.run.ending.no_more_jobs_because == "the run has cost 2.82 of the 2.82 USD it may"


def test_a_job_that_uploads_its_model_is_not_stopped_for_max_cost(story: Story) -> None:
    story.launched(**TWO_HOURS_ON_DEMAND)
    story.account.moves("first-1", "Training")
    story.passes(hours=1, minutes=55, every=23)
    story.account.moves("first-1", "Uploading")
    story.passes(minutes=10)
    assert story.account.jobs["first-1"].status == "InProgress"


def test_the_pool_that_a_job_may_leave_is_paid_from_its_max_cost(story: Story) -> None:
    story.launched(**TWO_HOURS_ON_DEMAND, keep_alive="30m")
    story.account.moves("first-1", "Training")
    story.passes(hours=1, minutes=25, every=17)
    assert story.account.jobs["first-1"].status == "InProgress"
    story.passes(minutes=5)
    assert story.account.jobs["first-1"].status == "Stopping"


def test_what_a_spot_job_costs_is_known_when_it_has_ended(story: Story) -> None:
    """Its bill is below the on-demand price: a run whose money is counted at that price would end too early."""
    story.launched(max_cost=1.408, notify=["max-cost-near"], max_total_run="10h")
    story.account.moves("first-1", "Training")
    story.passes(minutes=55, every=11)
    assert of_the_cost(story) == []
    cuts = []
    for number in range(1, 6):
        job = story.account.jobs[f"first-{number}"]
        cuts.append(job.request["StoppingCondition"]["MaxRuntimeInSeconds"])
        story.account.moves(job.name, "Training")
        job.trained_seconds = cuts[-1]
        story.account.becomes(job.name, "Stopped", "MaxRuntimeExceeded")
        story.reconcile()
    assert cuts == pytest.approx([3_600, 2_520, 1_764, 1_234, 864], abs=2)  # 70% of what is left, each time
    assert of_the_cost(story) == ["1.17 USD are spent, 83% of max_cost (1.41 USD)"]
    assert [each.notification_id for each in story.table.notifications.of_run("first")] == ["first/max-cost-near/5"]
    assert story.run.state is RunState.LAUNCHING


def test_a_planned_spot_price_counts_while_the_job_trains(story: Story) -> None:
    planned = GIVES_UP_AFTER_AN_HOUR.model_copy(update={"spot_usd_per_hour": 0.7})
    document = DOCUMENT | DEADLINE | {"max_cost": 1.408, "notify": ["max-cost-near"]}
    Launcher(story.launcher).launch(document, default_token="token-1", plan=planned)
    story.account.moves("first-1", "Training")
    story.passes(hours=1, minutes=40, every=20)
    assert of_the_cost(story) == ["About 1.17 USD are spent, 83% of max_cost (1.41 USD)"]
    story.passes(minutes=25)
    assert story.account.jobs["first-1"].status == "Stopping"


def test_a_user_who_stops_the_run_ends_its_fallbacks_and_a_resume_begins_on_the_first_one_again(story: Story) -> None:
    story.launched()
    story.account.becomes("first-1", "Failed", failure="CapacityError: none")
    story.reconcile()
    RunActions(story.launcher).stop("first")
    story.account.becomes("first-2", "Stopped")
    story.reconcile()
    assert (story.run.state, story.run.end_reason, len(story.attempts)) == (
        RunState.STOPPED, EndReason.STOPPED_BY_USER, 2,
    )  # fmt: skip
    RunActions(story.launcher).resume("first")
    assert story.places == ["spot ml.g5.xlarge", "spot ml.g5.2xlarge", "spot ml.g5.xlarge"]
