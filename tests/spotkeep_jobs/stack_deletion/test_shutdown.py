"""A deployment that is deleted ends what its runs have running, and CloudFormation waits for it (I6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from spotkeep_jobs.record.deployment_records import StackRequest
from spotkeep_jobs.record.states import PoolState, SweepState
from spotkeep_jobs.record.sweep import Sweep
from spotkeep_jobs.stack_deletion import shutdown
from spotkeep_jobs.stack_deletion.shutdown import WAITS, Shutdown
from spotkeep_jobs.stack_deletion.stack_requests import stack_request
from tests.spotkeep_jobs.pools.test_pool_reconciler import PoolWorld

STACK = "arn:aws:cloudformation:us-east-1:123456789012:stack/Spotkeep-Events/0123"


@dataclass
class FakeStacks:
    deleting: bool = True
    answers: list[str | None] = field(default_factory=list)
    out_of_reach: bool = False
    has_failed: bool = False

    def is_being_deleted(self, stack_id: str, /, *, still: bool = False) -> bool:
        assert stack_id == STACK
        if self.out_of_reach:
            raise ConnectionError("no answer")
        return self.deleting and not (still and self.has_failed)

    def answer(self, request: StackRequest, /, *, failed: str | None = None) -> None:
        self.answers.append(failed)


@dataclass
class Deletion:
    world: Any
    stacks: FakeStacks = field(default_factory=FakeStacks)
    asked_to_stop: list[str] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)

    def stop(self, run: str, /) -> Any:
        if run in self.refuses:
            raise ConnectionError("slow down")
        self.world.table.runs.request_stop(run=run, now=self.world.clock())
        self.asked_to_stop.append(run)
        return self.world.table.runs.get(run)

    @property
    def shutdown(self) -> Shutdown:
        return Shutdown(self.world.controller, self.stacks)  # type: ignore[arg-type]

    def request(self, kind: str = "Delete") -> StackRequest:
        event = {
            "RequestType": kind,
            "RequestId": "r-1",
            "StackId": STACK,
            "LogicalResourceId": "ShutdownResource",
            "ResponseURL": "https://answers.example.com/1?signature=x",
            **({} if kind == "Create" else {"PhysicalResourceId": "ShutdownResource"}),
        }
        found = stack_request(event, now=self.world.clock())
        assert found is not None
        return found


@pytest.fixture
def deletion(world: Any, monkeypatch: pytest.MonkeyPatch) -> Deletion:
    deletion = Deletion(world)
    monkeypatch.setattr(shutdown, "LaunchCompletion", lambda _deployment: deletion)
    return deletion


def test_the_schedules_event_is_no_request(make: Any) -> None:
    for event in ({}, None, "x", {"version": "0", "detail-type": "Scheduled Event"}):
        assert stack_request(event, now=make.noon) is None


@pytest.mark.parametrize(
    ("kind", "deleting"),
    # Renaming a construct deletes its resource in an update, and must not stop anybody's training.
    [("Create", True), ("Update", True), ("Delete", False)],
)
def test_making_changing_and_renaming_the_resource_stop_nothing(
    deletion: Deletion, make: Any, kind: str, deleting: bool
) -> None:
    deletion.world.launch(make.run("a"), make.attempt("a"))
    deletion.stacks.deleting = deleting
    request = deletion.request(kind)
    assert request.physical_resource_id == "ShutdownResource", "its id stays the same"
    assert deletion.shutdown.begin(request) is False
    assert deletion.stacks.answers == [None]
    assert deletion.shutdown.pending() is None


def test_what_runs_is_asked_to_stop_and_cloudformation_waits_until_it_has(deletion: Deletion, make: Any) -> None:
    world = deletion.world
    for name in ("a", "b"):
        run = world.launch(make.run(name), make.attempt(name))
        world.sagemaker.has_job(run.job_name, ("Training", 1.0))
    assert deletion.shutdown.begin(deletion.request())
    assert sorted(deletion.shutdown.stop_everything().runs) == ["a", "b"]
    assert sorted(deletion.asked_to_stop) == ["a", "b"]
    request = deletion.shutdown.pending()
    assert request is not None
    assert deletion.shutdown.answer_if_over(request).runs
    assert deletion.stacks.answers == []
    for name in ("a", "b"):
        world.sagemaker.has_job(f"{name}-1", ("Training", 1.0), ("Stopped", 5.0))
        world.runs.reconcile(name)
    assert not deletion.shutdown.answer_if_over(request).anything
    assert deletion.stacks.answers == [None]
    assert deletion.shutdown.pending() is None


def test_a_run_that_no_index_shows_yet_is_not_missed(deletion: Deletion, make: Any) -> None:
    """A launch of the last second: the answer waits for it, and the last look has asked it to stop."""
    world = deletion.world
    world.dynamodb.let_indexes_lag()
    world.launch(make.run("late"), make.attempt("late"))
    request = deletion.request()
    assert deletion.shutdown.begin(request)
    assert not deletion.shutdown.stop_everything().anything
    assert deletion.shutdown.answer_if_over(request).runs == ["late"]
    assert (deletion.stacks.answers, deletion.asked_to_stop) == ([], ["late"])
    assert world.table.runs.get("late").asked_to_end is not None


def test_the_runs_of_other_clients_are_left_alone_readable_or_not(deletion: Deletion, make: Any) -> None:
    world = deletion.world
    for name in ("theirs", "unreadable"):
        world.launch(make.run(name, adopted=True), make.attempt(name))
    world.dynamodb.items["run#unreadable", "item"]["state"] = {"S": "BEWITCHED"}
    request = deletion.request()
    deletion.shutdown.begin(request)
    assert not deletion.shutdown.stop_everything().anything
    assert not deletion.shutdown.answer_if_over(request).anything
    assert deletion.stacks.answers == [None]


@pytest.mark.parametrize("damage", [{"state": {"S": "BEWITCHED"}}, {"form": {"N": "2"}}, {"request": {"S": "{"}}])
def test_a_run_that_cannot_be_read_counts_as_alive_and_spares_no_other(
    deletion: Deletion, make: Any, damage: dict[str, Any]
) -> None:
    world = deletion.world
    for name in ("a", "b", "c"):
        world.launch(make.run(name), make.attempt(name))
    world.dynamodb.items["run#b", "item"] |= damage
    request = deletion.request()
    assert deletion.shutdown.begin(request)
    alive = deletion.shutdown.stop_everything()
    assert (alive.runs, alive.unreadable, deletion.asked_to_stop) == (["a", "c"], ["run b"], ["a", "c"])
    assert "It counts as alive, and `spotkeep help runbook destroy`" in alive.failures["run b"]
    for name in ("a", "c"):
        world.sagemaker.has_job(f"{name}-1", ("Training", 1.0), ("Stopped", 5.0))
        world.runs.reconcile(name)
    assert deletion.shutdown.answer_if_over(request).unreadable == ["run b"]
    assert deletion.stacks.answers == []


def test_it_stays_recorded_after_the_answer_and_asks_nothing_more(deletion: Deletion) -> None:
    request = deletion.request()
    deletion.shutdown.begin(request)
    deletion.shutdown.answer_if_over(request)
    assert deletion.stacks.answers == [None]
    recorded = deletion.world.table.deployment.deletion()
    assert recorded is not None
    assert recorded.answered_at is not None
    assert deletion.shutdown.pending() is None
    deletion.world.clock.pass_by(hours=2)
    assert deletion.shutdown.pending() is None
    assert deletion.world.table.deployment.deletion() is not None


@pytest.mark.parametrize("kind", ["Create", "Update"])
def test_the_next_deployment_clears_it(deletion: Deletion, kind: str) -> None:
    request = deletion.request()
    deletion.shutdown.begin(request)
    deletion.shutdown.answer_if_over(request)
    assert not deletion.shutdown.begin(deletion.request(kind))
    assert deletion.world.table.deployment.deletion() is None


def test_who_runs_the_deployment_clears_one_that_failed_and_none_that_is_under_way(deletion: Deletion) -> None:
    assert deletion.shutdown.clear() == "no deletion of the deployment is recorded"
    deletion.shutdown.begin(deletion.request())
    assert "wait until it has ended or failed" in deletion.shutdown.clear()
    assert deletion.world.table.deployment.deletion() is not None
    deletion.stacks.has_failed = True
    assert "is cleared: work may begin again" in deletion.shutdown.clear()
    assert deletion.world.table.deployment.deletion() is None


def test_an_answer_that_comes_late_brings_back_no_deletion_that_was_cleared(deletion: Deletion) -> None:
    request = deletion.request()
    deletion.shutdown.begin(request)
    deletion.world.table.deployment.forget_deletion()
    deletion.shutdown.answer_if_over(request)
    assert deletion.world.table.deployment.deletion() is None


def test_it_is_recorded_although_a_launch_is_at_it_in_that_moment(deletion: Deletion, make: Any) -> None:
    """DynamoDB refuses one of two transactions that name one item."""
    conflicts = iter([make.error("TransactWriteItems", "TransactionCanceledException"), None])

    def meet(operation: str) -> None:
        error = next(conflicts, None) if operation == "TransactWriteItems" else None
        if error is not None:
            raise error

    deletion.world.dynamodb.before_call = meet
    assert deletion.shutdown.begin(deletion.request())
    assert deletion.world.table.deployment.deletion() is not None


def test_with_nothing_alive_it_is_answered_at_once(deletion: Deletion) -> None:
    request = deletion.request()
    assert deletion.shutdown.begin(request)
    assert not deletion.shutdown.stop_everything().anything
    deletion.shutdown.answer_if_over(request)
    assert deletion.stacks.answers == [None]


def test_one_run_that_cannot_be_asked_does_not_spare_the_others(deletion: Deletion, make: Any) -> None:
    for name in ("a", "b", "c"):
        deletion.world.launch(make.run(name), make.attempt(name))
    deletion.refuses = {"b"}
    alive = deletion.shutdown.stop_everything()
    assert alive.failures == {"run b": "ConnectionError: slow down"}
    assert sorted(deletion.asked_to_stop) == ["a", "c"]
    deletion.refuses = set()
    assert not deletion.shutdown.stop_everything().failures
    assert "b" in deletion.asked_to_stop


def test_a_request_that_cannot_be_kept_is_answered_with_the_reason(deletion: Deletion) -> None:
    deletion.stacks.out_of_reach = True
    with pytest.raises(ConnectionError):
        deletion.shutdown.begin(deletion.request())
    assert deletion.stacks.answers == ["ConnectionError: no answer. Destroy the stack again"]


def test_a_request_that_cloudformation_no_longer_waits_for_stops_nothing(deletion: Deletion) -> None:
    deletion.shutdown.begin(deletion.request())
    deletion.world.clock.pass_by(seconds=(WAITS + timedelta(seconds=1)).total_seconds())
    assert deletion.shutdown.pending() is None
    assert deletion.world.table.deployment.deletion() is None


def test_a_pool_that_is_over_stays_so_although_the_index_still_shows_it(make: Any) -> None:
    left = PoolWorld(make)
    left.ends()
    left.reconcile_run()
    left.world.dynamodb.let_indexes_lag()
    left.sagemaker.jobs[left.pool.job_name].pool = "Terminated"
    left.reconcile_pool()
    ended = left.pool
    assert ended.state is PoolState.ENDED
    assert Deletion(left.world).shutdown.stop_everything().pools == [ended.job_name]
    assert left.pool == ended


def test_warm_pools_are_ended_too(make: Any) -> None:
    left = PoolWorld(make)
    left.ends()
    left.reconcile_run()
    deletion = Deletion(left.world)
    assert deletion.shutdown.stop_everything().pools == [left.pool.job_name]
    assert left.sagemaker.jobs[left.pool.job_name].pool == "Terminated"
    left.reconcile_pool()
    deletion.shutdown.answer_if_over(deletion.request())
    assert deletion.stacks.answers == [None]


def test_a_sweep_that_is_over_and_awaits_the_bill_of_a_pool_keeps_no_deployment(deletion: Deletion) -> None:
    world, now = deletion.world, deletion.world.clock()
    over = {"state": SweepState.COMPLETED, "ended_at": now, "awaits_pools": True}
    world.table.sweeps.open(
        Sweep(sweep="s", name="s", created_at=now, updated_at=now, token="t", document={"sweep": {}}, **over)
    )
    assert list(world.table.sweeps.in_flight()) == ["s"]
    assert deletion.shutdown.stop_everything().sweeps == []
    deletion.shutdown.answer_if_over(deletion.request())
    assert deletion.stacks.answers == [None]
