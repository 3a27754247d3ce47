"""A deployment that is deleted ends what its runs have running, and CloudFormation waits for it (I6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from spotkeep_jobs.record.deployment_records import StackRequest
from spotkeep_jobs.stack_deletion.shutdown import WAITS, Shutdown
from spotkeep_jobs.stack_deletion.stack_requests import stack_request
from tests.spotkeep_jobs.pools.test_pool_reconciler import PoolWorld

STACK = "arn:aws:cloudformation:us-east-1:123456789012:stack/Spotkeep-Events/0123"


@dataclass
class FakeStacks:
    deleting: bool = True
    answers: list[str | None] = field(default_factory=list)
    out_of_reach: bool = False

    def is_being_deleted(self, stack_id: str, /) -> bool:
        assert stack_id == STACK
        if self.out_of_reach:
            raise ConnectionError("no answer")
        return self.deleting

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
        self.world.table.request_stop(run=run, now=self.world.clock())
        self.asked_to_stop.append(run)
        return self.world.table.get(run)

    @property
    def shutdown(self) -> Shutdown:
        world = self.world
        return Shutdown(
            table=world.table,
            pools=world.pools,
            completion=self,
            stacks=self.stacks,
            clock=world.clock,
        )

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
def deletion(world: Any) -> Deletion:
    return Deletion(world)


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
    assert deletion.world.table.deletion() is None


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
