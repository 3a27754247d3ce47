"""The sweep finds what events did not tell, and one broken run does not stop it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import pytest

from spotkeep_jobs.backends.job_view import WarmPool
from spotkeep_jobs.backends.pool_traits import traits_of
from spotkeep_jobs.document.deployment import DEFAULT_LONG_WAIT
from spotkeep_jobs.document.pool_rules import PoolRules
from spotkeep_jobs.errors import AwsBusyError
from spotkeep_jobs.notifications.notification_topic import NotificationNotSentError
from spotkeep_jobs.record.states import RunState
from spotkeep_jobs.runs.launch_completion import LAUNCH_SETTLES
from spotkeep_jobs.runs.metric_log import MetricLog
from spotkeep_jobs.runs.reconciliation import SEARCH_FROM, Reconciler, SweepFailedError


@dataclass
class Sweeping:
    world: Any
    completed: list[str] = field(default_factory=list)

    def complete(self, run: str, /) -> Any:
        self.completed.append(run)
        return self.world.table.get(run)

    @property
    def reconciler(self) -> Reconciler:
        world = self.world
        return Reconciler(
            deployment="spotkeep",
            table=world.table,
            observer=world.runs,
            pools=world.pools,
            jobs=world.jobs,
            outbox=world.outbox,
            complete_launch=self.complete,
            clock=world.clock,
            metric_log=MetricLog(deployment="spotkeep"),
        )


@pytest.fixture
def sweeping(world: Any) -> Sweeping:
    return Sweeping(world)


def launch(world: Any, make: Any, name: str, *story: tuple[str, float], **fields: Any) -> None:
    run = world.launch(make.run(name), make.attempt(name))
    world.jobs.known[run.job_name] = make.job(*story, name=run.job_name, **fields)


def test_with_many_runs_only_those_are_described_to_which_something_may_have_happened(
    sweeping: Sweeping, make: Any
) -> None:
    world = sweeping.world
    for number in range(SEARCH_FROM):
        launch(world, make, f"r{number}", ("Training", 1.0))
    described: list[str] = []
    describe = world.jobs.observe

    def counted(job_name: str, /) -> Any:
        described.append(job_name)
        return describe(job_name)

    world.jobs.observe = counted
    # One search says all there is to record of runs that were never seen.
    sweep = sweeping.reconciler.sweep()
    assert (sweep.unchanged, sweep.changes, described) == (0, SEARCH_FROM, [])
    assert (sweeping.reconciler.sweep().unchanged, described) == (SEARCH_FROM, [])
    world.jobs.known["r3-1"] = make.job(("Training", 1.0), ("Interrupted", 5.0), name="r3-1")
    world.jobs.known["r5-1"] = make.job(("Training", 1.0), ("Completed", 5.0), name="r5-1", status="Completed")
    world.table.request_stop(run="r7", now=make.noon)
    sweep = sweeping.reconciler.sweep()
    assert sorted(described) == ["r5-1", "r7-1"]
    assert (sweep.runs, sweep.notifications_sent, world.jobs.stopped) == (SEARCH_FROM, 1, ["r7-1"])
    assert world.table.get("r3").state is RunState.INTERRUPTED


def test_before_a_user_is_notified_or_a_job_asked_to_end_because_of_a_search_the_job_is_described(
    sweeping: Sweeping, make: Any
) -> None:
    world = sweeping.world
    for number in range(SEARCH_FROM):
        run = world.launch(make.run(f"w{number}", notify=("waiting-too-long",)), make.attempt(f"w{number}"))
        world.jobs.known[run.job_name] = make.job(("Starting", 0.0), ("Training", 9.0), name=run.job_name)
        world.jobs.indexed[run.job_name] = make.job(("Starting", 0.0), name=run.job_name)
    world.clock.pass_by(seconds=DEFAULT_LONG_WAIT.total_seconds())
    sweep = sweeping.reconciler.sweep()
    assert (sweep.changes, sweep.notifications_sent) == (SEARCH_FROM, 0)
    assert world.table.get("w0").state is RunState.TRAINING


def test_a_wait_that_gets_too_long_is_seen_although_nothing_happens(sweeping: Sweeping, make: Any) -> None:
    world = sweeping.world
    for number in range(SEARCH_FROM):
        run = world.launch(make.run(f"w{number}", notify=("waiting-too-long",)), make.attempt(f"w{number}"))
        world.jobs.known[run.job_name] = make.job(("Starting", 0.0), name=run.job_name)
    sweeping.reconciler.sweep()
    assert sweeping.reconciler.sweep().unchanged == SEARCH_FROM
    world.clock.pass_by(seconds=DEFAULT_LONG_WAIT.total_seconds())
    assert sweeping.reconciler.sweep().notifications_sent == SEARCH_FROM
    assert sweeping.reconciler.sweep().unchanged == SEARCH_FROM


def test_without_the_search_every_run_is_described(sweeping: Sweeping, make: Any) -> None:
    for number in range(SEARCH_FROM):
        launch(sweeping.world, make, f"r{number}", ("Training", 1.0))

    def refuse(deployment: str) -> Any:
        raise AwsBusyError(operation="Search", code="ThrottlingException", reason="slow down")

    sweeping.world.jobs.search_in_progress = refuse
    sweep = sweeping.reconciler.sweep()
    assert (sweep.changes, list(sweep.failures)) == (SEARCH_FROM, ["search of jobs"])


def test_i4_an_ending_whose_events_never_came_is_notified(sweeping: Sweeping, make: Any) -> None:
    launch(sweeping.world, make, "lost", ("Training", 1.0), ("Completed", 2.0), status="Completed")
    sweep = sweeping.reconciler.sweep()
    assert (sweep.runs, sweep.changes, sweep.notifications_sent, sweep.failures) == (1, 1, 1, {})
    assert [notification.notification_id for notification in sweeping.world.topic.published] == ["lost/completed/1"]
    assert sweeping.reconciler.sweep().runs == 0


def test_one_broken_run_does_not_stop_the_others_and_is_reported_at_the_end(sweeping: Sweeping, make: Any) -> None:
    for name in ("a", "broken", "c"):
        launch(sweeping.world, make, name, ("Training", 1.0))
    describe = sweeping.world.jobs.observe

    def describe_or_break(job_name: str, /) -> Any:
        if job_name == "broken-1":
            raise AwsBusyError(operation="DescribeTrainingJob", code="ThrottlingException", reason="slow down")
        return describe(job_name)

    sweeping.world.jobs.observe = describe_or_break
    sweep = sweeping.reconciler.sweep()
    assert (sweep.runs, sweep.changes) == (3, 2)
    assert list(sweep.failures) == ["run broken"]
    assert "slow down" in str(SweepFailedError(sweep.failures))


def test_a_record_that_cannot_be_read_stops_no_other_run(sweeping: Sweeping, make: Any) -> None:
    for name in ("a", "b"):
        launch(sweeping.world, make, name, ("Training", 1.0))
    sweeping.world.dynamodb.items["run#a", "head"]["state"] = {"S": "BEWITCHED"}
    sweep = sweeping.reconciler.sweep()
    assert list(sweep.failures) == ["run a"]
    assert sweeping.world.table.get("b").state is RunState.TRAINING


def test_a_launch_that_was_cut_short_is_completed_but_not_while_its_launcher_may_live(
    sweeping: Sweeping, make: Any
) -> None:
    sweeping.world.table.open_run(run=make.run("half"), attempt=make.attempt("half"))
    sweeping.reconciler.sweep()
    assert sweeping.completed == []
    sweeping.world.clock.pass_by(seconds=LAUNCH_SETTLES.total_seconds())
    sweep = sweeping.reconciler.sweep()
    assert (sweeping.completed, sweep.completed) == (["half"], 1)


def test_a_stop_that_never_reached_sagemaker_is_asked_again_whatever_else_has_changed(
    sweeping: Sweeping, make: Any
) -> None:
    launch(sweeping.world, make, "a", ("Training", 1.0))
    sweeping.world.table.request_stop(run="a", now=make.noon)
    sweeping.world.jobs.known["a-1"] = make.job(("Training", 1.0), ("Interrupted", 2.0), name="a-1")
    assert sweeping.reconciler.sweep().changes == 1
    assert sweeping.world.jobs.stopped == ["a-1"]
    sweeping.world.jobs.known["a-1"] = make.job(("Training", 1.0), name="a-1", status="Stopping")
    sweeping.world.clock.pass_by(hours=1)
    sweeping.reconciler.sweep()
    assert sweeping.world.jobs.stopped == ["a-1"]


def test_without_time_it_stops_reconciling_and_still_sends(sweeping: Sweeping, make: Any) -> None:
    launch(sweeping.world, make, "done", ("Completed", 2.0), status="Completed")
    sweeping.world.runs.observe("done")
    for name in ("a", "b", "c"):
        launch(sweeping.world, make, name, ("Training", 1.0))
    answers = iter([True, False, False])
    sweep = sweeping.reconciler.sweep(has_time=lambda: next(answers))
    assert (sweep.runs, sweep.left, sweep.notifications_sent) == (1, 2, 1)


def test_a_notification_that_does_not_go_out_is_a_failure_of_the_sweep(sweeping: Sweeping, make: Any) -> None:
    launch(sweeping.world, make, "a", ("Completed", 2.0), status="Completed")

    def refuse(operation: str) -> None:
        raise NotificationNotSentError(notification_id="a/completed/1", reason="AuthorizationError")

    sweeping.world.topic.before_call = refuse
    assert "AuthorizationError" in sweeping.reconciler.sweep().failures["notification 1"]


def leave_pools(world: Any, make: Any, pools: int) -> None:
    for number in range(pools):
        name = f"p{number}"
        world.launch(make.run(name, capacity="on-demand"), make.attempt(name, capacity="on-demand"))
        world.jobs.known[f"{name}-1"] = make.job(
            *(("Training", 1.0), ("Completed", 12.0)), name=f"{name}-1", status="Completed", training_seconds=600,
            billable_seconds=600, training_ended_at=make.noon + timedelta(minutes=12), keep_alive_seconds=1800,
            warm_pool=WarmPool(status="Available"), pool_traits=traits_of(make.pool_request()),
            created_at=make.noon + timedelta(minutes=number / 100),
        )  # fmt: skip
    world.clock.time = make.noon + timedelta(minutes=12)
    for number in range(pools):
        world.runs.observe(f"p{number}")


def test_of_many_pools_only_those_are_described_to_which_something_may_have_happened(
    sweeping: Sweeping, make: Any
) -> None:
    world = sweeping.world
    leave_pools(world, make, SEARCH_FROM)
    world.clock.pass_by(minutes=5)
    called: list[str] = []
    describe = world.jobs.observe

    def counted(job_name: str, /) -> Any:
        called.append(job_name)
        return describe(job_name)

    world.jobs.observe = counted
    world.jobs.before_call = lambda operation: called.append(operation) if operation == "ListTrainingJobs" else None
    sweep = sweeping.reconciler.sweep()
    assert (sweep.pools, len(sweep.kept), sweep.failures) == (SEARCH_FROM, SEARCH_FROM, {})
    assert called == ["ListTrainingJobs"]

    reused, ended, extended = (world.jobs.known[f"p{number}-1"] for number in range(3))
    now = world.clock()
    world.jobs.known |= {
        reused.name: replace(reused, warm_pool=WarmPool(status="Reused", idle_seconds=60, reused_by="next-1")),
        ended.name: replace(ended, warm_pool=WarmPool(status="Terminated", idle_seconds=90)),
        extended.name: replace(extended, keep_alive_seconds=3600, last_modified_at=now),
    }
    called.clear()
    sweep = sweeping.reconciler.sweep()
    assert sorted(called) == ["ListTrainingJobs", "p0-1", "p1-1", "p2-1"]
    assert [world.table.pool(f"p{number}", 1).state for number in range(3)] == ["REUSED", "ENDED", "AVAILABLE"]
    assert world.table.pool("p2", 1).keep_alive_seconds == 3600
    assert len(sweep.kept) == SEARCH_FROM - 2


@pytest.mark.parametrize("minutes", [25, 29.5], ids=["a reminder is due", "its time is nearly over"])
def test_a_pool_of_which_something_is_to_be_notified_is_described_before(
    sweeping: Sweeping, make: Any, minutes: float
) -> None:
    world = sweeping.world
    leave_pools(world, make, SEARCH_FROM)
    world.watch_pools(PoolRules(reminder_lead_seconds=600))
    world.clock.pass_by(minutes=minutes)
    described: list[str] = []
    world.jobs.before_call = lambda operation: described.append(operation)
    sweeping.reconciler.sweep()
    assert described.count("DescribeTrainingJob") == SEARCH_FROM


def test_pools_that_cannot_be_listed_are_described_and_the_failure_is_reported(sweeping: Sweeping, make: Any) -> None:
    world = sweeping.world
    leave_pools(world, make, SEARCH_FROM)
    described: list[str] = []

    def refuse(operation: str) -> None:
        described.append(operation)
        if operation == "ListTrainingJobs":
            raise AwsBusyError(operation=operation, code="ThrottlingException", reason="slow down")

    world.jobs.before_call = refuse
    sweep = sweeping.reconciler.sweep()
    assert list(sweep.failures) == ["list of warm pools"]
    assert described.count("DescribeTrainingJob") == SEARCH_FROM
