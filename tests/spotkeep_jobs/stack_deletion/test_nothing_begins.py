"""While a deletion of the deployment is recorded nothing begins, however it is asked for and however far it is (I6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from controller.events import Hint, Subject
from controller.full_pass import FullPass
from controller.reconciliation import reconcile_hint
from launcher import handler
from launcher.actions import ActionContext
from spotkeep_jobs.errors import DeploymentIsBeingDeletedError, RequestRefusedError
from spotkeep_jobs.record.deployment_records import StackRequest
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_store import NewRun
from spotkeep_jobs.record.states import EndReason, RunState, SweepState
from spotkeep_jobs.runs.rules import LAUNCH_SETTLES
from tests.models.control_plane import ControlPlane
from tests.models.sagemaker import ModelJob
from tests.models.scheduler import Schedules

JOB = {"name": "digits", "run": "digits", "token": "digits", "command": "x", "capacity": "spot"}
SWEEP = {
    **JOB,
    "name": "swp",
    "run": "swp",
    "token": "swp",
    "sweep": {"trials": [{"lr": 1}, {"lr": 2}, {"lr": 3}], "parallel": 1},
}
NIGHTLY = {**JOB, "name": "nightly", "run": "nightly", "token": "nightly", "schedule": "rate(1 day)"}


class Deployment(ControlPlane):
    """A deployment that CloudFormation may ask to go at any moment."""

    def asked(self, document: Mapping[str, Any]) -> dict[str, Any]:
        return handler.answer_to(document, ActionContext(deployment=self.launcher, request_id="request"))

    def is_being_deleted(self) -> None:
        self.record.deployment.keep_deletion(
            StackRequest(
                kind="Delete", request_id="r-1", stack_id="stack", logical_resource_id="Shutdown",
                physical_resource_id="Shutdown", response_url="https://answers.example.com/1",
                asked_at=self.service.clock(),
            )
        )  # fmt: skip

    def passes(self) -> dict[str, str]:
        failures = FullPass(self.controller).run().failures
        self.advance_sweeps()
        return failures

    def ends(self, run: str, status: str = "Failed", failure: str | None = "AlgorithmError: words") -> ModelJob:
        job = self.service.jobs[self.run(run).job_name]
        self.service.gets_capacity(job)
        self.service.ends(job, status, failure=failure)
        return job

    def run(self, run: str) -> Run:
        found = self.record.runs.get(run)
        assert found is not None
        return found

    @property
    def live(self) -> list[str]:
        return [job.name for job in self.service.launched if job.live]


@pytest.fixture
def deployment() -> Deployment:
    return Deployment()


def refused(act: Callable[[], object]) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        act()
    assert [(each.field, each.problem) for each in caught.value.problems] == [
        ("(deployment)", "begins no work any more")
    ]


@pytest.mark.parametrize("document", [JOB, {**JOB, "capacity": "auto", "max_attempts": 3}, SWEEP, NIGHTLY])
def test_no_run_no_sweep_and_no_schedule(deployment: Deployment, document: dict[str, Any]) -> None:
    deployment.is_being_deleted()
    before = dict(deployment.service.dynamodb.items)
    refused(lambda: deployment.asked(document))
    assert (deployment.service.dynamodb.items, deployment.live) == (before, [])
    deployment.record.deployment.forget_deletion()
    deployment.asked(document)


def test_no_several_runs_of_one_document(deployment: Deployment) -> None:
    deployment.asked(JOB)
    attempt = deployment.record.runs.attempt("digits", 1)
    assert attempt is not None
    deployment.is_being_deleted()
    new = [
        NewRun(
            run=deployment.run("digits").model_copy(
                update={"run": f"d-{number}", "token": f"d-{number}", "checkpoint_uri": f"s3://bucket/d-{number}/"}
            ),
            attempt=attempt.model_copy(update={"run": f"d-{number}"}),
        )
        for number in (1, 2)
    ]
    with pytest.raises(DeploymentIsBeingDeletedError):
        deployment.record.runs.open(new)
    assert deployment.record.runs.get("d-1") is None


def test_a_launch_that_is_repeated_is_answered_with_the_run_that_it_launched_before(deployment: Deployment) -> None:
    deployment.asked(JOB)
    deployment.is_being_deleted()
    assert deployment.asked(JOB)["replayed"]


def test_no_run_is_resumed(deployment: Deployment) -> None:
    deployment.asked(JOB)
    deployment.ends("digits")
    deployment.passes()
    deployment.is_being_deleted()
    refused(lambda: deployment.asked({"action": "resume", "run": "digits"}))
    assert deployment.run("digits").attempt == 1


def test_no_firing_launches(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handler, "current_deployment", lambda: deployment.launcher)
    deployment.asked(NIGHTLY)
    deployment.is_being_deleted()
    deployment.service.seconds += 24 * 3600
    firing = f"{deployment.service.now():%Y-%m-%dT%H:%M:%SZ}"
    assert isinstance(deployment.service.schedules, Schedules)
    payload = deployment.service.schedules.fire("nightly", firing)
    answer = handler.answer_event(payload, request_id="request", seconds_left=lambda: 60.0)
    assert (answer["ok"], answer["problems"][0]["field"]) == (False, "(deployment)")
    assert deployment.live == []


def test_a_sweep_begins_no_trial_and_none_of_them_counts_as_failed(deployment: Deployment) -> None:
    deployment.asked(SWEEP)
    deployment.is_being_deleted()
    deployment.ends("swp-1", "Completed", None)
    deployment.passes()
    deployment.passes()
    assert deployment.live == []
    deployment.record.deployment.forget_deletion()
    deployment.passes()
    assert deployment.live == ["swp-2-1"]
    sweep = deployment.record.sweeps.get("swp")
    assert sweep is not None
    assert (sweep.counts.failed, sweep.counts.completed) == (0, 1)


def test_no_sweep_is_resumed(deployment: Deployment) -> None:
    deployment.asked(SWEEP)
    deployment.asked({"action": "stop", "sweep": "swp"})
    deployment.ends("swp-1", "Stopped", None)
    deployment.passes()
    deployment.is_being_deleted()
    refused(lambda: deployment.asked({"action": "resume", "sweep": "swp"}))
    sweep = deployment.record.sweeps.get("swp")
    assert sweep is not None
    assert sweep.state is SweepState.STOPPED


def test_no_other_job_follows_one_that_failed_and_the_run_ends_when_it_is_asked_to(deployment: Deployment) -> None:
    deployment.asked({**JOB, "script_retries": 3, "max_attempts": 4})
    deployment.is_being_deleted()
    deployment.ends("digits")
    assert "DeploymentIsBeingDeletedError" in deployment.passes()["run digits"]
    assert deployment.live == []
    deployment.record.runs.request_stop(run="digits", now=deployment.service.clock())
    assert deployment.passes() == {}
    assert deployment.run("digits").state.ended
    assert deployment.live == []


def test_no_pass_completes_a_launch_that_was_cut_short(deployment: Deployment) -> None:
    """Recorded before the deletion, by a launcher that died before it created the job."""

    def die(operation: str) -> None:
        if operation == "CreateTrainingJob":
            raise KeyboardInterrupt

    deployment.service.before_call = die
    with pytest.raises(KeyboardInterrupt):
        deployment.asked(JOB)
    deployment.service.before_call = lambda _operation: None
    deployment.is_being_deleted()
    deployment.service.seconds += LAUNCH_SETTLES.total_seconds()
    assert "DeploymentIsBeingDeletedError" in deployment.passes()["run digits"]
    refused(lambda: deployment.asked(JOB))
    assert deployment.live == []
    deployment.record.runs.request_stop(run="digits", now=deployment.service.clock())
    deployment.service.seconds += LAUNCH_SETTLES.total_seconds()
    assert deployment.passes() == {}
    assert deployment.run("digits").end_reason is EndReason.STOPPED_BY_USER


def test_no_run_that_waits_for_quota_gets_its_job(deployment: Deployment) -> None:
    deployment.service.used_by_others = 1_000_000
    deployment.asked(JOB)
    assert deployment.run("digits").quota_wait is not None
    deployment.is_being_deleted()
    deployment.service.used_by_others = 0
    deployment.service.seconds += 3600
    assert "DeploymentIsBeingDeletedError" in deployment.passes()["quota of spot ml.m5.xlarge"]
    assert (deployment.live, deployment.run("digits").state) == ([], RunState.WAITING)


def test_the_job_of_another_client_becomes_a_run_all_the_same(deployment: Deployment) -> None:
    """Nothing of it is the deployment's but the record."""
    deployment.is_being_deleted()
    tags = {"spotkeep:deployment": "spotkeep"}
    deployment.service.is_made_by_hand("theirs-1", tags=tags, environment={})
    reconcile_hint(
        Hint(subject=Subject.TRAINING_JOB, name="theirs-1", deployment="spotkeep"), deployment=deployment.controller
    )
    assert deployment.run("theirs-1").adopted
