"""I6: what is to end is ended although DynamoDB takes no record of it, and the refusal is raised afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from controller.full_pass import FullPass
from launcher import handler as launcher_handler
from launcher.actions import ActionContext
from spotkeep_jobs.record.deployment_records import StackRequest
from spotkeep_jobs.record.states import RunState
from spotkeep_jobs.record.table_client import RecordRefusedError
from spotkeep_jobs.sweeps.advance import Sweeps
from tests.models.control_plane import ControlPlane
from tests.models.faults import client_error

QUEUED = {"queue": "gpu", "share": "vision"}
REFUSALS = {
    "an item that is too large": (
        client_error("PutItem", "ValidationException", "Item size has exceeded the maximum allowed size"),
        client_error(
            "TransactWriteItems", "TransactionCanceledException",
            CancellationReasons=[{"Code": "ValidationError", "Message": "Item size has exceeded the maximum"}],
        ),
    ),
    "a permission that is gone": (
        client_error("PutItem", "AccessDeniedException"), client_error("TransactWriteItems", "AccessDeniedException"),
    ),
    "a table that is gone": (
        client_error("PutItem", "ResourceNotFoundException"),
        client_error("TransactWriteItems", "ResourceNotFoundException"),
    ),
}  # fmt: skip


class Site(ControlPlane):
    """A deployment whose table takes no write from some moment on."""

    def asks(self, document: dict[str, Any]) -> Any:
        return launcher_handler.answer_to(document, ActionContext(deployment=self.launcher, request_id="request"))

    def launches(self, **fields: Any) -> None:
        common = {"name": "first", "run": "first", "token": "t", "command": "x", "capacity": "on-demand"}
        self.asks(common | fields)

    def trains(self, minutes: float = 0) -> None:
        """Every job has its turn and instances, and trains."""
        for waiting in [job for job in self.service.batch.jobs.values() if job.waits]:
            self.service.batch.has_its_turn(waiting)
        for job in self.service.launched:
            if not job.on_instances and job.status == "InProgress":
                self.service.gets_capacity(job)
        self.service.seconds += minutes * 60
        FullPass(self.controller).run()

    def refuses(self, why: str) -> None:
        put, transaction = REFUSALS[why]
        self.service.dynamodb.refuse(put, operation="PutItem")
        self.service.dynamodb.refuse(transaction, operation="TransactWriteItems")

    @property
    def alive(self) -> list[str]:
        """The jobs that go on."""
        training = [job.name for job in self.service.launched if job.status == "InProgress"]
        return training + [job.name for job in self.service.batch.unfinished if not job.terminated]


class NoStacks:
    """CloudFormation, which is not asked here."""

    def is_being_deleted(self, stack_id: str, /) -> bool:
        raise AssertionError(stack_id)

    def answer(self, request: StackRequest, /, *, failed: str | None = None) -> None:
        raise AssertionError(failed)


def user_stops(site: Site) -> None:
    with pytest.raises(RecordRefusedError):
        site.asks({"action": "stop", "run": "first"})


def passes(site: Site) -> None:
    failures = FullPass(site.controller).run().failures
    assert failures
    assert all(why.startswith("RecordRefusedError") for why in failures.values()), failures


@pytest.mark.parametrize("why", REFUSALS)
@pytest.mark.parametrize(
    ("fields", "minutes", "ends"),
    [
        pytest.param({"capacity": "spot"}, 0, user_stops, id="a user stops it"),
        pytest.param(QUEUED, 0, user_stops, id="a user stops it in a queue"),
        pytest.param({"max_cost": 0.23, "max_run": "2h"}, 65, passes, id="its max_cost is spent"),
    ],
)
def test_a_run_that_is_to_end_ends(
    fields: dict[str, Any], minutes: float, ends: Callable[[Site], None], why: str
) -> None:
    site = Site()
    site.launches(**fields)
    site.trains()
    assert site.alive
    site.refuses(why)
    site.service.seconds += minutes * 60
    ends(site)
    assert not site.alive
    recorded = site.record.runs.get("first")
    assert recorded is not None
    assert recorded.state is RunState.TRAINING, "it says what it said"


@pytest.mark.parametrize("why", REFUSALS)
def test_a_run_in_a_queue_that_has_trained_its_max_run_ends(why: str) -> None:
    site = Site()
    site.launches(**QUEUED, max_run="30m")
    site.trains(minutes=20)
    job = site.service.batch.jobs["00000000-0000-4000-8000-000000000000"]
    site.service.batch.preempts(job)
    site.service.ends(site.service.launched[-1], "Stopped")
    site.trains()
    site.trains(minutes=5)
    site.refuses(why)
    site.service.seconds += 6 * 60
    passes(site)
    assert not site.alive


@pytest.mark.parametrize("why", REFUSALS)
@pytest.mark.parametrize("action", ["stop", "pause"])
def test_a_sweep_that_a_user_ends_has_no_trial_that_trains(action: str, why: str) -> None:
    site = Site()
    site.launches(run="swp", sweep={"trials": [{"lr": 1}, {"lr": 2}, {"lr": 3}], "parallel": 3})
    Sweeps(site.launcher).advance("swp")
    site.trains()
    assert len(site.alive) == 3
    site.refuses(why)
    with pytest.raises(RecordRefusedError):
        site.asks({"action": action, "sweep": "swp"})
    assert not site.alive


@pytest.mark.parametrize("key", [("run#swp-1", "item"), ("sweep#swp", "trial#000001")])
def test_a_sweep_that_a_user_ends_has_the_others_stopped_where_one_trial_cannot_be_read(key: tuple[str, str]) -> None:
    site = Site()
    site.launches(run="swp", sweep={"trials": [{"lr": 1}, {"lr": 2}, {"lr": 3}], "parallel": 3})
    Sweeps(site.launcher).advance("swp")
    site.trains()
    site.refuses("a permission that is gone")
    site.service.is_written_by_a_newer_version(key, {"form": {"N": "2"}}, may_write=[])
    with pytest.raises(RecordRefusedError) as refused:
        site.asks({"action": "stop", "sweep": "swp"})
    assert site.alive == ["swp-1-1"]
    assert any("newer version" in note for note in refused.value.__notes__)


@pytest.mark.parametrize("why", REFUSALS)
def test_a_deployment_that_is_deleted_has_no_job_that_trains(why: str) -> None:
    site = Site()
    site.launches(capacity="spot")
    site.launches(run="second", token="u", **QUEUED)
    site.trains()
    shutdown = site.shutdown(NoStacks())  # type: ignore[arg-type]
    site.refuses(why)
    failures = shutdown.stop_everything().failures
    assert sorted(failures) == ["run first", "run second"]
    assert not site.alive
