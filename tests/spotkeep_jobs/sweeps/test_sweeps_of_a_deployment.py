"""Sweeps from launch to end, on launcher and controller as deployed, on a model of AWS."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest

from controller.events import Hint, Subject
from controller.full_pass import FullPass
from controller.reconciliation import reconcile_hint
from spotkeep_jobs.backends.job_files import SpecStore
from spotkeep_jobs.errors import RequestRefusedError
from spotkeep_jobs.pools.pool_actions import PoolActions
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.states import EndReason, RunState, SweepState, TrialState
from spotkeep_jobs.record.sweep import Sweep, Trial, TrialCounts
from spotkeep_jobs.record.sweep_store import SweepChangedError, SweepStore
from spotkeep_jobs.record.table_client import RecordRefusedError
from spotkeep_jobs.runs.launch_completion import LaunchUnfinishedError
from spotkeep_jobs.runs.run_actions import RunActions
from spotkeep_jobs.sweeps.actions import SweepActions
from spotkeep_jobs.sweeps.advance import Sweeps
from spotkeep_jobs.sweeps.budget import spent_usd
from spotkeep_jobs.sweeps.launch import LaunchedSweep, SweepLaunch
from tests.models.control_plane import ControlPlane
from tests.models.deployment import spec_in
from tests.models.faults import client_error
from tests.models.s3 import RefusedPuts
from tests.models.sagemaker import ModelJob

LISTED = {"trials": [{"lr": 0.1}, {"lr": 0.01}, {"lr": 0.001}, {"lr": 0.0001}, {"lr": 1}], "parallel": 2}
OBJECTIVE = {"objective": {"metric": "loss", "goal": "minimize"}}
ASHA = {
    "parameters": {"lr": [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]},
    "search": "asha",
    "trials": 9,
    "parallel": 9,
    "asha": {"min_steps": 5, "max_steps": 45},
    **OBJECTIVE,
}


class Deployment(ControlPlane):
    """What users and AWS do to it."""

    def begins(self, sweep: dict[str, Any], **fields: Any) -> LaunchedSweep:
        """Launch a sweep, of which the launcher's first invocation begins one trial."""
        document = {"name": "digits", "run": "digits", "command": "python train.py", "max_run": "1h", "sweep": sweep}
        return SweepLaunch(self.launcher).launch(document | fields, default_token="token")

    def launched(self, sweep: dict[str, Any], **fields: Any) -> LaunchedSweep:
        launch = self.begins(sweep, **fields)
        self.goes_on()
        return launch

    def goes_on(self) -> None:
        """Let the launcher go on with the sweep, as its own second invocation does."""
        Sweeps(self.launcher).advance("digits")

    def passes(self, **delta: float) -> None:
        """Let time go by, with a pass over everything every five minutes, as in a deployment."""
        end = self.service.seconds + timedelta(**delta).total_seconds()
        while self.service.seconds < end:
            self.service.seconds = min(self.service.seconds + 300, end)
            assert FullPass(self.controller).run().failures == {}
            self.advance_sweeps()

    def trains(self, number: int, *losses: float) -> ModelJob:
        """Let a trial's job get capacity and print its loss after each step."""
        job = self.job(number)
        if not job.on_instances:
            self.service.gets_capacity(job)
        for loss in losses:
            self.service.trains(job, 1)
            self.prints(job, "metrics", step=job.position, metrics={"loss": loss})
        return job

    def prints(self, job: ModelJob, event: str, **fields: Any) -> None:
        self.service.says(job, event, **fields)

    def ends(self, number: int, *losses: float, status: str = "Completed", failure: str | None = None) -> None:
        """End a trial's job, and let the controller hear of it."""
        job = self.trains(number, *losses)
        self.service.ends(job, status, failure=failure)
        self.hears_of(job)

    def pauses(self, number: int, loss: float, *, seconds_left: Callable[[], float] = lambda: math.inf) -> None:
        """Let a trial train to the step where it pauses, leave, and let the controller hear of it."""
        job = self.job(number)
        if not job.on_instances:
            self.service.gets_capacity(job)
        step = spec_in(job.request, objects=self.service.objects).pause_at_step or 0
        self.service.trains(job, step - job.position)
        self.prints(job, "metrics", step=step, metrics={"loss": loss})
        self.service.durable[job.checkpoint_uri] = step
        self.prints(job, "paused", step=step)
        self.service.ends(job, "Completed")
        self.hears_of(job, seconds_left=seconds_left)

    def fails(self, number: int, *losses: float) -> None:
        """Let a trial's script fail after some steps, each of them saved."""
        job = self.trains(number, *losses)
        self.service.durable[job.checkpoint_uri] = job.position
        self.ends(number, status="Failed", failure="AlgorithmError: division by zero")

    def stops(self, *running: int, as_: SweepState = SweepState.STOPPED) -> None:
        """Stop the sweep, and let the jobs of these trials end."""
        SweepActions(self.launcher).stop("digits", as_=as_, seconds_left=lambda: math.inf)
        for number in running:
            self.ends(number, status="Stopped")

    def resumes(self, **changes: Any) -> None:
        SweepActions(self.launcher).resume("digits", changes=changes, seconds_left=lambda: math.inf)

    def hears_of(self, job: ModelJob, *, seconds_left: Callable[[], float] = lambda: math.inf) -> None:
        reconcile_hint(Hint(subject=Subject.TRAINING_JOB, name=job.name), deployment=self.controller)
        self.advance_sweeps(seconds_left=seconds_left)

    def job(self, number: int) -> ModelJob:
        """The newest job of a trial."""
        return self.service.jobs[self.run(number).job_name]

    def run(self, number: int) -> Run:
        run = self.record.runs.get(f"digits-{number}")
        assert run is not None
        return run

    @property
    def sweep(self) -> Sweep:
        sweep = self.record.sweeps.get("digits")
        assert sweep is not None
        return sweep

    @property
    def trials(self) -> dict[int, Trial]:
        return {trial.number: trial for trial in self.record.sweeps.with_trials("digits")[1]}

    def states(self, state: TrialState) -> list[int]:
        return [number for number, trial in self.trials.items() if trial.state is state]

    @property
    def billed_usd(self) -> float | None:
        return None if self.sweep.cost is None else self.sweep.cost.billed_usd

    @property
    def runs_billed_usd(self) -> float:
        """What the runs of the trials cost, which have all ended."""
        costs = [self.run(number).cost for number in self.trials]
        return sum(cost.billed_usd or 0.0 for cost in costs if cost is not None)

    @property
    def notified(self) -> list[str]:
        return [message.subject for message in self.service.topic.published]


@pytest.fixture
def deployment() -> Deployment:
    return Deployment()


def test_a_trial_whose_spec_s3_refuses_fails_with_the_reason_and_is_tried_again_by_a_resume(
    deployment: Deployment,
) -> None:
    s3 = RefusedPuts("AccessDenied", "no identity-based policy allows the s3:PutObject action", 403)
    deployment.launcher.__dict__["specs"] = SpecStore(lambda: s3)  # type: ignore[arg-type,return-value]
    launch = deployment.begins({"trials": [{"lr": 0.1}]})
    [reason] = launch.advanced.refused.values()
    assert "s3:PutObject" in reason
    assert "Nothing was launched, and nothing is recorded" in reason
    assert (deployment.states(TrialState.FAILED), deployment.sweep.state) == ([1], SweepState.FAILED)
    s3.error = ()
    deployment.resumes()
    assert deployment.service.live == ["digits-1-1"]


def test_a_trial_whose_spec_s3_is_too_busy_for_is_begun_by_the_next_advance(deployment: Deployment) -> None:
    s3 = RefusedPuts("SlowDown", "Reduce your request rate.", 503)
    deployment.launcher.__dict__["specs"] = SpecStore(lambda: s3)  # type: ignore[arg-type,return-value]
    launch = deployment.begins({"trials": [{"lr": 0.1}]})
    assert "This call launched nothing and recorded nothing" in (launch.advanced.waits_because or "")
    s3.error = ()
    deployment.goes_on()
    assert deployment.service.live == ["digits-1-1"]


@pytest.mark.parametrize(("begun", "says"), [(False, "recorded nothing"), (True, "The sweep is recorded")])
def test_a_launch_of_a_sweep_that_met_others_at_every_try_says_what_is_recorded(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, begun: bool, says: str
) -> None:
    of, method = (Sweeps, "advance") if begun else (SweepStore, "open")
    monkeypatch.setattr(of, method, Mock(side_effect=SweepChangedError("digits")))
    with pytest.raises(LaunchUnfinishedError, match=f"{says}.*same document and token token") as caught:
        deployment.begins({"trials": [{"lr": 0.1}]})
    assert ("controller" in str(caught.value)) is begun


def test_a_sweep_runs_as_many_trials_at_a_time_as_it_asks_for_and_notifies_once_of_its_best_one_and_its_bill(
    deployment: Deployment,
) -> None:
    deployment.launched(LISTED | OBJECTIVE)
    assert deployment.states(TrialState.RUNNING) == [1, 2]
    assert deployment.service.live == ["digits-1-1", "digits-2-1"]
    for number, losses in ((2, (0.8, 0.2, 0.4)), (1, (0.9, 0.5)), (3, (0.3,)), (4, (0.7,))):
        deployment.ends(number, *losses)
        assert len(deployment.service.live) == (2 if number != 4 else 1)
    deployment.ends(5, 0.25)
    assert deployment.sweep.state is SweepState.COMPLETED
    assert deployment.states(TrialState.COMPLETED) == [1, 2, 3, 4, 5]
    assert deployment.service.live == []
    best = deployment.sweep.best
    assert best is not None
    assert (best.number, best.value, best.step, best.parameters) == (2, 0.2, 2, {"lr": 0.01})
    assert deployment.billed_usd == pytest.approx(deployment.runs_billed_usd)
    deployment.passes(minutes=10)
    assert deployment.notified == ["[spotkeep] digits is done, best loss 0.2"]
    assert "Trial 2" in deployment.service.topic.published[0].body


def test_the_launch_begins_one_trial_and_one_that_no_function_has_opened_holds_up_a_stop_until_none_can(
    deployment: Deployment,
) -> None:
    launch = deployment.begins(LISTED)
    assert launch.advanced.opened == ["digits-1"]
    assert deployment.service.live == ["digits-1-1"]
    assert deployment.sweep.counts.running == 2
    deployment.stops(1)
    assert deployment.sweep.state is SweepState.STOPPING
    deployment.passes(minutes=10)
    assert deployment.sweep.state is SweepState.STOPPED
    assert "digits-2-1" not in deployment.service.jobs
    deployment.resumes()
    assert sorted(deployment.service.live) == ["digits-1-2", "digits-2-1"]


def test_a_trial_is_a_run_with_parameters_of_its_own_and_no_notifications(deployment: Deployment) -> None:
    deployment.launched(
        LISTED | OBJECTIVE,
        name="digits-{index}",
        environment={"RATE": "{parameters.lr}"},
        hyperparameters={"epochs": 3},
    )
    second = deployment.run(2)
    assert second.request["hyperparameters"] == {"epochs": "3", "lr": "0.01"}
    assert second.request["environment"] == {"RATE": "0.01"}
    assert (second.name, second.notify) == ("digits-2", ())
    assert second.trial is not None
    assert (second.trial.sweep, second.trial.number) == ("digits", 2)
    assert second.request["metrics"] == {"loss": {"goal": "minimize"}}
    assert deployment.record.runs.list() == []
    assert {run.run for run in deployment.record.runs.list(trials=True)} == {"digits-1", "digits-2"}


def test_a_launch_that_is_repeated_launches_nothing_again_and_its_token_is_for_no_other(deployment: Deployment) -> None:
    assert not deployment.launched(LISTED).replayed
    assert deployment.launched(LISTED).replayed
    assert deployment.service.calls["CreateTrainingJob"] == 2
    with pytest.raises(RequestRefusedError, match="was used before, for sweep digits, with another document"):
        deployment.launched(LISTED | {"parallel": 3})


def test_events_that_never_come_delay_a_sweep_and_lose_nothing(deployment: Deployment) -> None:
    deployment.launched(LISTED)
    for number in range(1, 6):
        deployment.service.ends(deployment.trains(number), "Completed")
        deployment.passes(minutes=5)
    assert deployment.sweep.state is SweepState.COMPLETED


def test_a_stopped_sweep_waits_for_each_trials_job_and_goes_on_from_their_checkpoints(deployment: Deployment) -> None:
    deployment.launched(LISTED, pause_at_step=7)
    deployment.trains(1), deployment.trains(2)
    deployment.stops()
    assert deployment.service.stopped == ["digits-1-1", "digits-2-1"]
    deployment.passes(minutes=10)
    deployment.ends(1, status="Stopped")
    assert deployment.states(TrialState.RUNNING) == [2]
    assert deployment.sweep.state is SweepState.STOPPING
    deployment.ends(2, status="Stopped")
    assert deployment.sweep.state is SweepState.STOPPED
    deployment.passes(minutes=5)
    assert deployment.notified == ["[spotkeep] digits was stopped"]

    deployment.resumes()
    assert deployment.sweep.state is SweepState.RUNNING
    assert deployment.service.live == ["digits-1-2", "digits-2-2"]
    assert deployment.run(1).request["pause_at_step"] == 7
    for number in range(1, 6):
        deployment.ends(number)
    assert deployment.sweep.state is SweepState.COMPLETED
    deployment.passes(minutes=5)
    assert deployment.notified[1:] == ["[spotkeep] digits is done"]


def test_a_job_that_sagemaker_does_not_stop_keeps_no_other_from_being_stopped(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.launched(LISTED | {"parallel": 3})
    stop = deployment.service.stop_training_job

    def refuse_the_first(**asked: Any) -> Any:
        if asked["TrainingJobName"] == "digits-1-1":
            raise client_error("StopTrainingJob", "AccessDeniedException", "a person took its tags away")
        return stop(**asked)

    monkeypatch.setattr(deployment.service, "stop_training_job", refuse_the_first)
    advanced = SweepActions(deployment.launcher).stop("digits", seconds_left=lambda: math.inf)
    assert sorted(deployment.service.stopped) == ["digits-2-1", "digits-3-1"]
    assert "a person took its tags away" in (advanced.waits_because or "")
    assert deployment.run(1).asked_to_end is not None, "each pass asks again"


def test_a_run_whose_record_dynamodb_does_not_take_keeps_no_other_from_being_stopped(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment.launched(LISTED | {"parallel": 3})
    write = deployment.service.transact_write_items

    def refuse_the_first(**asked: Any) -> Any:
        if any(
            each.get("Put", {}).get("Item", {}).get("pk") == {"S": "run#digits-1"} for each in asked["TransactItems"]
        ):
            raise client_error("TransactWriteItems", "ValidationException", "Item size has exceeded")
        return write(**asked)

    monkeypatch.setattr(deployment.service, "transact_write_items", refuse_the_first, raising=False)
    with pytest.raises(RecordRefusedError, match="Item size has exceeded"):
        SweepActions(deployment.launcher).stop("digits", seconds_left=lambda: math.inf)
    assert sorted(deployment.service.stopped) == ["digits-1-1", "digits-2-1", "digits-3-1"]


def test_a_trial_whose_last_job_sagemaker_still_shows_as_live_goes_on_when_it_no_longer_does(
    deployment: Deployment,
) -> None:
    deployment.launched(LISTED)
    deployment.stops(1, 2)
    deployment.service.replicas_lag = True
    deployment.resumes()
    assert deployment.service.live == []
    assert deployment.states(TrialState.RUNNING) == [1, 2]

    deployment.passes(minutes=5)
    assert deployment.service.live == ["digits-1-2", "digits-2-2"]


def test_a_user_may_stop_a_single_trial_and_resume_it(deployment: Deployment) -> None:
    deployment.launched(LISTED)
    deployment.trains(1)
    RunActions(deployment.launcher).stop("digits-1")
    deployment.ends(1, status="Stopped")
    assert deployment.states(TrialState.STOPPED) == [1]
    assert deployment.states(TrialState.RUNNING) == [2, 3]
    RunActions(deployment.launcher).resume("digits-1")
    deployment.ends(1)
    assert deployment.states(TrialState.COMPLETED) == [1]


def test_a_trial_that_gets_no_better_is_stopped(deployment: Deployment) -> None:
    deployment.launched(LISTED | OBJECTIVE | {"stop": {"patience": 3}})
    deployment.trains(1, 0.5, 0.4, 0.6, 0.7)
    deployment.passes(minutes=15)
    assert deployment.service.stopped == []
    deployment.trains(1, 0.45)
    deployment.passes(minutes=15)
    assert deployment.service.stopped == ["digits-1-1"]
    deployment.ends(1, status="Stopped")
    assert deployment.trials[1].stop_because == "3 values of loss in a row were no better than its best"
    assert deployment.trials[1].best == 0.4


def test_what_is_wrong_is_named_all_at_once_and_nothing_is_launched(deployment: Deployment) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        deployment.launched(
            {"trials": [{"lr": 1}], "parallel": 0, "stop": {"patience": 2}}, instance_type="g5", runs=2, max_cost=-1
        )
    fields = {problem.field for problem in caught.value.problems}
    assert {"sweep.parallel", "instance_type", "max_cost"} <= fields
    assert deployment.service.dynamodb.items == {}


@pytest.mark.parametrize(
    ("sweep", "fields", "problem"),
    [
        ({"trials": 3}, {}, "sweep.parameters: is needed"),
        ({"parameters": {"a": [1]}}, {}, "sweep.search: is needed with parameters (found nothing)"),
        ({"trials": [{"a": 1}], "search": "grid"}, {}, "sweep.search: is given beside a list of trials"),
        ({"trials": [{"a": 1}], "stop": {"patience": 1}}, {}, "sweep.objective: is needed by stop"),
        ({"parameters": {"a": [1]}, "search": "asha", **OBJECTIVE}, {}, "sweep.asha: is needed by this search"),
        ({"parameters": {"a": [1]}, "search": "tpe", **OBJECTIVE}, {}, "sweep.search: needs a function"),
        (
            {"parameters": {"a": {"uniform": [0, 1]}}, "search": "tpe", "trials": 1001, **OBJECTIVE},
            {},
            "sweep.trials: is more than tpe takes (found 1001). Write at most 1000.",
        ),
        (
            {"parameters": {"a": {"range": [0, 10**6]}}, "search": "grid"},
            {},
            "sweep.trials: is more than grid takes (found 1000000). Write at most 10000.",
        ),
        (LISTED, {"runs": 2}, "runs: does not go with sweep"),
        (LISTED, {"deadline": "5h"}, "deadline: does not go with sweep"),
        (LISTED, {"backend": "ec2", "max_cost": 5}, "max_cost: does not go with sweep and backend: ec2"),
        (LISTED, {"checkpoint_prefix": "s3://bucket/a/"}, "checkpoint_prefix: would be the same for all trials"),
        (LISTED, {"run": "a" * 52}, "run: has 52 characters"),
        (LISTED, {"environment": {"RATE": "{parameters.lrr}"}}, "environment: stands for a parameter that the sweep"),
    ],
)
def test_what_does_not_go_together_is_refused(
    deployment: Deployment, sweep: dict[str, Any], fields: dict[str, Any], problem: str
) -> None:
    with pytest.raises(RequestRefusedError) as caught:
        deployment.launched(sweep, **fields)
    assert any(str(each).startswith(problem) for each in caught.value.problems), str(caught.value)


def test_a_completed_sweep_goes_on_with_more_trials(deployment: Deployment) -> None:
    deployment.launched({"trials": [{"lr": 1}], "parallel": 1})
    deployment.ends(1)
    with pytest.raises(RequestRefusedError, match="has no trial left"):
        deployment.resumes()
    with pytest.raises(RequestRefusedError, match=r"sweep\.trials: is not what 1 trials were chosen from"):
        deployment.resumes(sweep={"trials": [{"lr": 2}]})
    deployment.resumes(sweep={"trials": [{"lr": 1}, {"lr": 2}]})
    assert deployment.service.live == ["digits-2-1"]


class TestAResumeTriesFailedTrialsAgain:
    """With what has changed, from their last checkpoints, as places become free."""

    @pytest.fixture
    def failed(self, deployment: Deployment) -> Deployment:
        """A sweep that is over: trial 1 has completed, the others have failed after two steps."""
        deployment.launched(LISTED | OBJECTIVE)
        deployment.ends(1, 0.9)
        for number in (2, 3, 4, 5):
            deployment.fails(number, 0.8, 0.7)
        assert deployment.sweep.state is SweepState.COMPLETED
        return deployment

    def test_all_of_them_with_fixed_code_and_no_more_at_a_time_than_the_sweep_asks_for(
        self, failed: Deployment
    ) -> None:
        before = failed.sweep.cost
        failed.resumes(command="python fixed.py", hyperparameters={"epochs": 3})
        assert failed.service.live == ["digits-2-2", "digits-3-2"]
        assert failed.trains(2).position == 2
        request = failed.run(2).request
        assert (request["command"], request["hyperparameters"]) == (
            ["python", "fixed.py"],
            {"epochs": "3", "lr": "0.01"},
        )
        assert failed.sweep.counts == TrialCounts(running=2, completed=1, failed=2)
        for number in (2, 3, 4, 5):
            failed.ends(number, 1 / number)
        assert failed.sweep.state is SweepState.COMPLETED
        assert failed.states(TrialState.COMPLETED) == [1, 2, 3, 4, 5]
        assert failed.run(1).request["command"] == ["python", "train.py"]
        # The best trial, the bill and the notifications are of all attempts.
        best, cost = failed.sweep.best, failed.sweep.cost
        assert best is not None
        assert (best.number, best.step) == (5, 3)
        assert before is not None
        assert cost is not None
        assert cost.billed_usd == pytest.approx(failed.runs_billed_usd)
        assert cost.billed_seconds > before.billed_seconds
        failed.passes(minutes=5)
        assert failed.notified == [f"[spotkeep] digits is done, best loss {best}" for best in (0.7, 0.2)]

    def test_each_once_in_each_part_and_as_it_is_where_nothing_has_changed(self, failed: Deployment) -> None:
        failed.resumes()
        assert failed.run(2).request["command"] == ["python", "train.py"]
        for number in (2, 3, 4):
            failed.fails(number)
        assert failed.states(TrialState.RUNNING) == [5]
        failed.ends(5, 0.1)
        assert failed.sweep.state is SweepState.COMPLETED
        assert failed.states(TrialState.FAILED) == [2, 3, 4]
        failed.resumes()
        for number in (2, 3, 4):
            failed.fails(number)
        assert [failed.run(number).attempt for number in range(1, 6)] == [1, 3, 3, 3, 2]
        assert failed.sweep.state is SweepState.COMPLETED

    def test_three_that_fail_first_with_changed_code_end_the_sweep_again(self, failed: Deployment) -> None:
        failed.resumes(command="python typo.py")
        for number in (2, 3, 4):
            failed.ends(number, status="Failed", failure="AlgorithmError: no such file")
        assert failed.sweep.state is SweepState.STOPPING
        failed.ends(5, status="Stopped")
        assert failed.sweep.state is SweepState.FAILED
        assert failed.sweep.ended_because == (
            "3 trials failed and no other came further, the last one with: SCRIPT_FAILED: AlgorithmError: no such file"
        )
        failed.resumes(command="python fixed.py")
        assert failed.service.live == ["digits-2-3", "digits-5-3"]
        for number in (2, 5, 3, 4):
            failed.ends(number)
        assert failed.sweep.state is SweepState.COMPLETED

    def test_three_that_fail_end_no_sweep_in_which_another_came_further(self, failed: Deployment) -> None:
        failed.resumes(command="python fixed.py")
        failed.trains(2, 0.6)
        failed.passes(minutes=15)
        for number in (3, 4, 5):
            failed.fails(number)
        assert failed.sweep.state is SweepState.RUNNING

    def test_a_sweep_whose_first_trials_all_fail_ends_and_goes_on_with_them_and_then_with_its_search(
        self, deployment: Deployment
    ) -> None:
        deployment.launched(LISTED, instance_type="ml.m5.xlarge")
        for number in (1, 2, 3):
            deployment.ends(number, status="Failed", failure="AlgorithmError: no module named x")
        assert deployment.sweep.state is SweepState.STOPPING
        deployment.passes(minutes=5)
        assert deployment.states(TrialState.RUNNING) == [4]
        deployment.ends(4, status="Stopped")
        deployment.passes(minutes=5)
        assert deployment.sweep.state is SweepState.FAILED
        assert deployment.notified == ["[spotkeep] digits failed"]
        assert "no module named x" in (deployment.sweep.ended_because or "")
        assert 5 not in deployment.trials

        source = {"uri": "s3://checkpoints/fixed.tar.gz", "sha256": "0" * 64}
        # The instance type may be named by either of its fields.
        deployment.resumes(source=source, instance_types=["ml.g5.xlarge"])
        # First what only stopped with the sweep, then what failed.
        assert deployment.service.live == ["digits-1-2", "digits-4-2"]
        for number in (4, 1, 2, 3, 5):
            deployment.ends(number)
        assert deployment.sweep.state is SweepState.COMPLETED
        assert {deployment.run(number).request["source"]["sha256"] for number in range(1, 6)} == {"0" * 64}
        assert deployment.run(1).request["instance_types"] == ["ml.g5.xlarge"]

    def test_one_whose_run_sagemaker_refused_is_launched_anew(self, deployment: Deployment) -> None:
        deployment.service.refuses = ("ValidationException", "no such image")
        deployment.launched(LISTED)
        assert deployment.states(TrialState.FAILED) == [1, 2, 3]
        assert deployment.sweep.state is SweepState.FAILED
        deployment.service.refuses = None
        deployment.resumes(image="registry.example.com/fixed:1")
        assert [name.rpartition("-")[0] for name in deployment.service.live] == ["digits-1", "digits-2"]
        for number in range(1, 6):
            deployment.ends(number)
        assert deployment.sweep.state is SweepState.COMPLETED

    def test_one_that_its_user_resumed_meanwhile_is_not_resumed_twice(self, failed: Deployment) -> None:
        RunActions(failed.launcher).resume("digits-2")
        failed.resumes()
        assert failed.service.live == ["digits-2-2", "digits-3-2"]

    def test_one_that_its_user_resumed_in_vain_meanwhile_is_tried_again(self, failed: Deployment) -> None:
        RunActions(failed.launcher).resume("digits-2")
        failed.service.ends(failed.trains(2), "Failed", failure="AlgorithmError: division by zero")
        reconcile_hint(Hint(subject=Subject.TRAINING_JOB, name="digits-2-2"), deployment=failed.controller)
        failed.service.functions.waiting.clear()  # The launcher has not heard of it.
        failed.resumes()
        assert failed.service.live == ["digits-2-3", "digits-3-2"]

    def test_a_sweep_that_stops_before_they_go_on_leaves_them_failed_until_it_is_resumed(
        self, failed: Deployment
    ) -> None:
        SweepActions(failed.launcher).resume("digits", changes={}, seconds_left=lambda: 0.0)
        assert failed.states(TrialState.RUNNING) == [2, 3]
        failed.stops(as_=SweepState.PAUSED)
        failed.passes(minutes=10)
        assert failed.sweep.state is SweepState.PAUSED
        assert failed.states(TrialState.FAILED) == [2, 3, 4, 5]
        failed.resumes()
        assert failed.service.live == ["digits-2-2", "digits-3-2"]

    def test_what_the_patience_or_a_user_stopped_is_left(self, deployment: Deployment) -> None:
        deployment.launched(LISTED | OBJECTIVE | {"stop": {"patience": 1}})
        deployment.trains(1, 0.5, 0.6)
        deployment.passes(minutes=15)
        deployment.ends(1, status="Stopped")
        RunActions(deployment.launcher).stop("digits-2")
        deployment.ends(2, status="Stopped")
        for number in (3, 4, 5):
            deployment.ends(number, 0.4)
        with pytest.raises(RequestRefusedError, match="none of its trials failed"):
            deployment.resumes()

    def test_what_a_limit_ended_goes_on_when_the_resume_changes_the_limit(self, deployment: Deployment) -> None:
        deployment.launched(LISTED | OBJECTIVE)
        job = deployment.trains(1, 0.5)
        deployment.service.ends(job, "Stopped", secondary="MaxRuntimeExceeded")
        deployment.hears_of(job)
        for number in (2, 3, 4, 5):
            deployment.ends(number, 0.4)
        assert deployment.states(TrialState.STOPPED) == [1]
        deployment.resumes(command="python fixed.py", max_run="2h")
        assert deployment.service.live == ["digits-1-2"]
        assert deployment.run(1).request["max_run"] == 7_200

    def test_a_spent_max_cost_ends_the_sweep_and_a_raised_one_is_for_the_trials_that_go_on(
        self, deployment: Deployment
    ) -> None:
        near = "[spotkeep] digits has spent most of its max_cost"
        deployment.launched(LISTED, max_cost=1.0, capacity="on-demand", notify=["max-cost-near", "stopped"])
        deployment.trains(1).trained_seconds = 13_000  # 0.83 USD
        deployment.ends(1)
        deployment.passes(minutes=5)
        assert deployment.notified == [near]
        assert deployment.run(3).request["max_cost"] == pytest.approx(0.17)
        deployment.trains(2).trained_seconds = 4_000
        deployment.ends(2)
        assert deployment.sweep.state is SweepState.STOPPING
        assert deployment.service.stopped == ["digits-3-1"]
        deployment.ends(3, status="Stopped")
        assert deployment.sweep.state is SweepState.STOPPED
        assert deployment.sweep.ended_because == (
            "its max_cost (1.00 USD) is spent: its trials have cost 1.09 USD, and 0.03 USD are kept for the time until "
            "a stop takes effect"
        )
        assert 4 not in deployment.trials
        deployment.passes(minutes=5)
        assert "spotkeep resume digits --set max_cost=2" in deployment.service.topic.published[-1].body
        with pytest.raises(RequestRefusedError, match=r"max_cost: is spent: its trials have cost 1\.09 USD"):
            deployment.resumes()

        deployment.resumes(max_cost=2.0)
        assert deployment.run(3).request["max_cost"] == pytest.approx(0.91)
        assert deployment.trials[4].max_cost_usd == pytest.approx(0.91)
        deployment.trains(3).trained_seconds = 10_000  # 0.64 USD
        deployment.ends(3)
        deployment.passes(minutes=5)
        assert deployment.notified == [near, "[spotkeep] digits was stopped", near]

    def test_a_raise_that_is_spent_by_most_already_is_not_notified_of(self, deployment: Deployment) -> None:
        deployment.launched(LISTED, max_cost=1.0, capacity="on-demand", notify=["max-cost-near"])
        deployment.trains(1).trained_seconds = 16_000  # 1.02 USD
        deployment.ends(1)
        deployment.ends(2, status="Stopped")
        deployment.resumes(max_cost=1.1)
        deployment.passes(minutes=5)
        assert deployment.notified == ["[spotkeep] digits has spent most of its max_cost"]

    def test_asha_compares_and_promotes_them_as_any_other(self, deployment: Deployment) -> None:
        deployment.launched(ASHA)
        assert len(deployment.service.live) == 9
        deployment.fails(1, 0.5)
        for number in range(2, 10):
            deployment.pauses(number, loss=number / 10)
        assert deployment.run(9).end_reason is EndReason.PAUSED
        assert deployment.states(TrialState.RUNNING) == [2, 3]
        for number in (2, 3):
            deployment.fails(number, 0.1)
        assert deployment.sweep.state is SweepState.COMPLETED

        deployment.resumes(command="python fixed.py")
        assert [deployment.run(number).request["pause_at_step"] for number in (1, 2, 3)] == [5, 15, 15]
        assert deployment.trains(1).position == 1
        deployment.pauses(1, loss=0.01)
        # It is the best of the nine at step 5, and of the best three alone at step 15.
        assert deployment.run(1).request["pause_at_step"] == 15
        for number in (1, 2, 3):
            deployment.pauses(number, loss=number / 100)
        assert deployment.states(TrialState.RUNNING) == [1]
        assert deployment.run(1).request["command"] == ["python", "fixed.py"]
        assert "pause_at_step" not in deployment.run(1).request
        deployment.ends(1, 0.001)
        assert deployment.sweep.state is SweepState.COMPLETED
        assert deployment.trials[1].values == {5: 0.01, 15: 0.01}
        best = deployment.sweep.best
        assert best is not None
        assert (best.number, best.value) == (1, 0.001)

    def test_what_has_changed_is_judged_whole_first(self, failed: Deployment) -> None:
        wrong = {"instance_type": "ml.none", "commnd": "python train.py"}
        with pytest.raises(RequestRefusedError) as refused:
            failed.resumes(**wrong, backend="ec2", volume={"size_gb": 1})
        assert {problem.field for problem in refused.value.problems} == {"backend", "volume"}
        with pytest.raises(RequestRefusedError) as refused:
            failed.resumes(**wrong, hyperparameters={"seed": "{parameters.sed}"})
        assert {problem.field for problem in refused.value.problems} == {*wrong, "hyperparameters"}
        assert failed.sweep.state is SweepState.COMPLETED
        assert failed.service.live == []


class TestMaxCost:
    """What all trials of a sweep cost together stays below its max_cost, whatever they are doing."""

    @pytest.fixture
    def billed(self, deployment: Deployment) -> Deployment:
        """A deployment whose jobs are billed for all the time in which they have instances."""
        deployment.service.bills_by_the_clock = True
        return deployment

    def train_until_they_stop(self, deployment: Deployment, *numbers: int, limit: float = 4 * 3600) -> None:
        """Let trials train, with a pass every five minutes, and each end two minutes after it was asked to."""
        for number in numbers:
            deployment.trains(number)
        began = deployment.service.seconds
        while not deployment.service.stopped and deployment.service.seconds - began < limit:
            deployment.passes(minutes=5)
        deployment.service.seconds += 120
        for job in deployment.service.launched:
            if job.status == "Stopping":
                deployment.service.ends(job, "Stopped")
        deployment.passes(minutes=5)

    def cost_usd(self, deployment: Deployment) -> float:
        """What all jobs have cost, by SageMaker's own count."""
        return sum(job.billable_seconds * 0.23 / 3600 for job in deployment.service.launched)

    def test_twenty_trials_at_once_are_stopped_before_they_have_cost_more(self, billed: Deployment) -> None:
        sweep = {"trials": [{"seed": seed} for seed in range(40)], "parallel": 20}
        billed.launched(sweep, max_cost=2.0, capacity="on-demand", max_run="10h", notify=["max-cost-near", "stopped"])
        self.train_until_they_stop(billed, *range(1, 21))
        assert len(billed.service.stopped) == 20
        assert (billed.sweep.state, len(billed.trials)) == (SweepState.STOPPED, 20)
        assert 1.5 < self.cost_usd(billed) < 2.0
        assert billed.billed_usd == pytest.approx(self.cost_usd(billed))

    def test_one_trial_uses_nearly_all_of_it_and_80_percent_are_notified_while_it_trains(
        self, billed: Deployment
    ) -> None:
        sweep = {"trials": [{"seed": 1}, {"seed": 2}], "parallel": 1}
        billed.launched(sweep, max_cost=1.0, capacity="on-demand", max_run="10h", notify=["max-cost-near"])
        billed.trains(1)
        for _ in range(48):
            billed.passes(minutes=0 if billed.notified else 5)
        assert billed.notified == ["[spotkeep] digits has spent most of its max_cost"]
        assert billed.service.stopped == []
        assert 0.8 <= billed.service.seconds * 0.23 / 3600 < 0.85
        self.train_until_they_stop(billed)
        assert 0.95 < self.cost_usd(billed) < 1.0

    def test_a_trial_that_waits_costs_nothing_and_is_counted_from_its_first_instance_on(
        self, billed: Deployment
    ) -> None:
        queued = {"capacity": "on-demand", "queue": "gpu", "share": "vision"}
        billed.launched({"trials": [{"seed": 1}, {"seed": 2}], "parallel": 2}, max_cost=0.5, max_run="10h", **queued)
        billed.passes(hours=30)
        assert billed.sweep.state is SweepState.RUNNING
        for job in billed.service.batch.jobs.values():
            billed.service.gets_capacity(billed.service.batch.has_its_turn(job))
        self.train_until_they_stop(billed, limit=0)
        assert billed.sweep.state is SweepState.RUNNING
        billed.passes(hours=3.4)
        assert billed.sweep.state is SweepState.STOPPING

    def test_spot_counts_as_on_demand_until_it_is_billed_and_what_that_leaves_over_is_for_a_resume(
        self, billed: Deployment
    ) -> None:
        billed.launched({"trials": [{"seed": 1}], "parallel": 1}, max_cost=1.0, capacity="spot", max_run="10h")
        self.train_until_they_stop(billed, 1, limit=10 * 3600)
        assert billed.sweep.state is SweepState.STOPPED
        assert self.cost_usd(billed) == pytest.approx(0.3, abs=0.05)
        billed.resumes()
        assert billed.service.live == ["digits-1-2"]
        assert billed.run(1).request["max_cost"] == pytest.approx(1.0, abs=0.01)

    def test_no_more_trials_begin_than_what_is_left_pays_for(self, billed: Deployment) -> None:
        sweep = {"trials": [{"seed": seed} for seed in range(5)], "parallel": 2}
        billed.launched(sweep, max_cost=0.2, capacity="on-demand", max_run="10h")
        billed.trains(1), billed.trains(2)
        billed.passes(minutes=30)
        billed.ends(1)
        assert billed.states(TrialState.RUNNING) == [2], "what is left pays for the one that trains"
        billed.ends(2)
        assert billed.states(TrialState.RUNNING) == [], "and not for another"
        assert billed.sweep.state is SweepState.STOPPED

    @pytest.mark.parametrize(
        ("parallel", "max_cost", "refusal"),
        [
            (20, 0.6, r"does not pay for 20 trials at a time: .* 0\.63 USD may be spent .* Set sweep\.parallel to 19"),
            (20, 0.02, r"may be spent \(found 0\.02\)\. Give a max_cost of 0\.63 or more\."),
            (1, 0.03, r"does not pay for a trial: until a stop takes effect \(8m\) 0\.03 USD may be spent"),
        ],
    )
    def test_a_launch_is_refused_whose_trials_could_not_be_stopped_in_time(
        self, deployment: Deployment, parallel: int, max_cost: float, refusal: str
    ) -> None:
        sweep = {"trials": [{"seed": seed} for seed in range(20)], "parallel": parallel}
        with pytest.raises(RequestRefusedError, match=refusal):
            deployment.launched(sweep, max_cost=max_cost, capacity="on-demand")
        assert deployment.service.dynamodb.items == {}

    def test_a_resume_is_refused_for_the_same_and_names_what_is_left(self, billed: Deployment) -> None:
        sweep = {"trials": [{"seed": seed} for seed in range(20)], "parallel": 1}
        billed.launched(sweep, max_cost=0.5, capacity="on-demand", max_run="10h")
        billed.trains(1)
        billed.passes(hours=1)
        billed.stops()
        billed.ends(1, status="Stopped")
        wider = {**sweep, "parallel": 20}
        with pytest.raises(RequestRefusedError, match=r"20 trials at a time: 0\.27 USD are left, .*parallel to 8 or"):
            billed.resumes(sweep=wider)
        with pytest.raises(RequestRefusedError, match=r"max_cost: is spent: its trials have cost 0\.23 USD"):
            billed.resumes(max_cost=0.2)
        billed.resumes(max_cost=2.0, sweep=wider)
        assert len(billed.service.live) == 20

    def test_a_warm_pool_counts_until_it_is_known_what_it_cost(self, billed: Deployment) -> None:
        sweep = {"trials": [{"seed": seed} for seed in range(3)], "parallel": 1}
        billed.launched(sweep, max_cost=0.23, capacity="on-demand", max_run="10h", keep_alive="50m")
        billed.trains(1)
        billed.ends(1)
        # The pool may cost 0.19 USD: no trial begins beside it, and the sweep waits for what it costs.
        assert (billed.sweep.state, billed.states(TrialState.RUNNING)) == (SweepState.RUNNING, [])
        PoolActions(billed.launcher).stop(run="digits-1")
        billed.passes(minutes=5)
        assert billed.states(TrialState.RUNNING) == [2]
        assert billed.trials[1].cost == billed.run(1).cost

    def test_a_trial_whose_bill_never_comes_counts_as_all_the_time_it_may_have_had(self, billed: Deployment) -> None:
        billed.launched({"trials": [{"seed": 1}, {"seed": 2}], "parallel": 1}, max_cost=1.0, capacity="on-demand")
        job = billed.trains(1)
        billed.passes(minutes=30)
        billed.service.ends(job, "Completed")
        billed.service.is_deleted(job)
        billed.passes(minutes=15)
        assert billed.run(1).end_reason is EndReason.JOB_VANISHED
        assert billed.run(2).request["max_cost"] == pytest.approx(1.0 - 0.23 * 40 / 60, abs=0.05)

    def test_a_job_that_is_gone_before_a_pass_saw_its_instances_counts_as_the_time_since_the_last_pass(
        self, billed: Deployment
    ) -> None:
        billed.launched({"trials": [{"seed": 1}, {"seed": 2}], "parallel": 1}, max_cost=1.0, capacity="on-demand")
        billed.passes(minutes=15)
        job = billed.trains(1)
        billed.service.ends(job, "Completed")
        billed.service.is_deleted(job)
        billed.passes(minutes=15)
        assert billed.run(1).end_reason is EndReason.JOB_VANISHED
        assert billed.run(2).request["max_cost"] == pytest.approx(1.0 - 0.23 * 6 / 60, abs=0.01)

    def test_a_trial_whose_job_never_was_costs_nothing(self, billed: Deployment) -> None:
        billed.service.quota = 0
        billed.launched({"trials": [{"seed": 1}], "parallel": 1}, max_cost=1.0, capacity="on-demand")
        billed.passes(minutes=15)
        assert billed.sweep.state is SweepState.FAILED
        assert spent_usd(billed.trials.values(), now=billed.service.clock()) == 0.0

    def test_what_was_never_billed_stays_spent_when_the_trial_is_tried_again(self, billed: Deployment) -> None:
        billed.launched({"trials": [{"seed": 1}], "parallel": 1}, max_cost=1.0, capacity="on-demand", max_run="10h")
        job = billed.trains(1)
        billed.passes(hours=1)
        billed.service.ends(job, "Completed")
        billed.service.is_deleted(job)
        billed.passes(minutes=15)
        for attempt in (2, 3):
            billed.resumes()
            assert billed.run(1).attempt == attempt
            billed.trains(1)
            billed.passes(hours=1)
            spent = spent_usd(billed.trials.values(), now=billed.service.clock())
            assert 0.23 * attempt < spent < 0.23 * attempt + 0.1
            billed.fails(1)
        with pytest.raises(RequestRefusedError, match=r"max_cost: does not pay for a trial|max_cost: is spent"):
            billed.resumes(max_cost=0.7)

    def test_what_a_trial_of_several_types_keeps_for_its_stop_is_of_the_dearest(self, deployment: Deployment) -> None:
        sweep = {"trials": [{"type": "ml.m5.xlarge"}, {"type": "ml.g5.xlarge"}], "parallel": 2}
        launched = {"capacity": "on-demand", "instance_type": "{parameters.type}", "instance_count": 2}
        with pytest.raises(RequestRefusedError, match=r"0\.75 USD may be spent"):
            deployment.launched(sweep, max_cost=0.7, **launched)
        deployment.launched(sweep, max_cost=0.8, **launched)
        assert deployment.trials[1].reserved_usd == pytest.approx(481 * 2 * 0.23 / 3600, abs=1e-6)
        assert deployment.trials[2].reserved_usd == pytest.approx(481 * 2 * 1.4 / 3600, abs=1e-6)


def test_a_sweep_that_goes_on_with_fewer_places_lets_the_others_wait(deployment: Deployment) -> None:
    deployment.launched(LISTED | {"parallel": 3})
    deployment.stops(1, 2, 3, as_=SweepState.PAUSED)
    deployment.resumes(sweep=LISTED | {"parallel": 1}, command="python fixed.py")
    assert deployment.service.live == ["digits-1-2"]
    for number in range(1, 6):
        deployment.ends(number)
    assert deployment.sweep.state is SweepState.COMPLETED
    assert [deployment.run(number).attempt for number in range(1, 6)] == [2, 2, 2, 1, 1]
    assert {deployment.run(number).request["command"][1] for number in range(1, 6)} == {"fixed.py"}


def test_a_paused_sweep_notifies_of_nothing_and_a_resume_changes_what_it_notifies_of(deployment: Deployment) -> None:
    deployment.launched(LISTED, notify=["stopped"])
    deployment.stops(1, 2, as_=SweepState.PAUSED)
    deployment.passes(minutes=5)
    assert (deployment.sweep.state, deployment.notified) == (SweepState.PAUSED, [])
    deployment.resumes(notify=["completed"], sweep=LISTED | {"notify_trials": True})
    for number in range(1, 6):
        deployment.ends(number)
    deployment.passes(minutes=5)
    assert len(deployment.notified) == 6
    assert deployment.notified[-1] == "[spotkeep] digits is done"


def test_a_trial_whose_promotion_a_pause_came_before_is_promoted_when_its_sweep_goes_on(
    deployment: Deployment,
) -> None:
    deployment.launched(ASHA)
    for number in (1, 2):
        deployment.pauses(number, loss=number / 10)
    deployment.pauses(3, loss=0.3, seconds_left=lambda: 0.0)
    assert deployment.trials[1].pause_at_step == 15
    deployment.stops(*range(4, 10), as_=SweepState.PAUSED)
    deployment.passes(minutes=10)
    assert deployment.sweep.state is SweepState.PAUSED
    assert deployment.states(TrialState.PAUSED) == [1, 2, 3]
    deployment.resumes()
    assert "digits-1-2" in deployment.service.live
    assert deployment.run(1).request["pause_at_step"] == 15


def test_an_event_of_a_trial_is_one_query_of_the_sweep(deployment: Deployment) -> None:
    deployment.launched(LISTED | {"parallel": 5})
    before = deployment.service.calls.copy()
    deployment.service.ends(deployment.trains(1), "Completed")
    reconcile_hint(Hint(subject=Subject.TRAINING_JOB, name="digits-1-1"), deployment=deployment.controller)
    reconciled = deployment.service.calls - before
    deployment.advance_sweeps()
    advanced = deployment.service.calls - before - reconciled
    assert advanced == {"Query": 4, "TransactWriteItems": 1}, json.dumps(advanced)


@pytest.mark.parametrize("of_money", [{}, {"max_cost": 5.0}])
def test_the_bill_of_a_sweep_that_is_over_has_what_its_warm_pools_cost(
    deployment: Deployment, of_money: dict[str, float]
) -> None:
    sweep = {"trials": [{"seed": 1}], "parallel": 1}
    deployment.launched(sweep, capacity="on-demand", keep_alive="50m", **of_money)
    deployment.ends(1)
    assert deployment.sweep.state is SweepState.COMPLETED
    deployment.passes(hours=1.5)
    cost, of_trial = deployment.sweep.cost, deployment.run(1).cost
    assert cost is not None
    assert of_trial is not None
    assert (cost.idle_pool_seconds, cost.billed_usd) == (50 * 60, of_trial.billed_usd)
    assert list(deployment.record.sweeps.in_flight()) == []


def test_a_trial_that_a_user_resumes_after_its_sweep_has_ended_is_its_users_and_goes_on(deployment: Deployment) -> None:
    sweep = {"trials": [{"seed": 1}], "parallel": 1}
    deployment.launched(sweep, capacity="on-demand", keep_alive="20m")
    job = deployment.job(1)
    deployment.fails(1)
    assert deployment.sweep.state is SweepState.FAILED
    RunActions(deployment.launcher).resume("digits-1", changes={})
    Sweeps(deployment.launcher).advance("digits", ended_runs=["digits-1"])  # An event that arrives twice.
    deployment.passes(minutes=30)
    assert (deployment.sweep.state, deployment.run(1).asked_to_end) == (SweepState.FAILED, None)
    assert deployment.job(1) is not job
    deployment.ends(1)
    assert deployment.trials[1].state is TrialState.COMPLETED


def test_a_trial_tried_again_without_a_job_keeps_the_warm_pool_before_it_in_the_count(deployment: Deployment) -> None:
    sweep = {"trials": [{"seed": 1}], "parallel": 1}
    deployment.launched(sweep, capacity="on-demand", keep_alive="50m", max_cost=5.0)
    deployment.fails(1)
    deployment.service.quota = 0
    deployment.resumes()
    deployment.passes(minutes=15)
    assert (deployment.run(1).attempt, deployment.run(1).end_reason) == (2, EndReason.QUOTA)
    assert spent_usd(deployment.trials.values(), now=deployment.service.clock()) > 0.23 * 50 / 60
    deployment.passes(hours=1.5)
    cost = deployment.sweep.cost
    assert cost is not None
    assert cost.idle_pool_seconds == 50 * 60


def test_asha_that_trains_no_trial_to_its_end_says_so_and_names_the_command_that_finishes_the_best(
    deployment: Deployment,
) -> None:
    launch = deployment.launched(ASHA | {"trials": 2})
    [warning] = [each for each in launch.warnings if "asha" in each]
    assert warning.startswith(
        "asha trains none of 2 trials for max_steps (45 steps). The best of them pause at step 5."
    )
    deployment.pauses(1, loss=0.2)
    deployment.pauses(2, loss=0.1)
    deployment.passes(minutes=5)
    sweep = deployment.sweep
    assert (sweep.state, sweep.warning) == (SweepState.COMPLETED, None)
    assert "spotkeep resume digits-2 --set pause_at_step=" in deployment.service.topic.published[-1].body
    RunActions(deployment.launcher).resume("digits-2", changes={"pause_at_step": None})
    assert "pause_at_step" not in deployment.run(2).request
    deployment.ends(2, 0.05)
    assert deployment.trials[2].state is TrialState.COMPLETED


def test_with_a_max_cost_that_command_gives_the_best_trial_money_of_its_own(deployment: Deployment) -> None:
    deployment.launched(ASHA | {"trials": 2, "parallel": 2}, max_cost=10)
    deployment.pauses(1, loss=0.2)
    deployment.pauses(2, loss=0.1)
    deployment.passes(minutes=5)
    assert "resume digits-2 --set pause_at_step= --set max_cost=10" in deployment.service.topic.published[-1].body
    RunActions(deployment.launcher).resume("digits-2", changes={"pause_at_step": None, "max_cost": 10})
    assert deployment.run(2).state is not RunState.STOPPED


def test_asha_says_after_the_first_trial_that_reports_no_step_that_none_pauses(deployment: Deployment) -> None:
    deployment.launched(ASHA)
    job = deployment.trains(3)
    deployment.prints(job, "metrics", metrics={"loss": 0.5})
    deployment.prints(job, "exit", code=0)
    deployment.service.ends(job, "Completed")
    deployment.hears_of(job)
    said = "trial 3 did not pause after step 5, trained to its end and reports no step."
    assert (deployment.sweep.warning or "").startswith(said)
    deployment.pauses(1, 0.5)
    assert (deployment.sweep.warning or "").startswith(said)


def test_a_trial_that_is_done_before_its_pause_is_no_reason_for_that(deployment: Deployment) -> None:
    deployment.launched(ASHA)
    deployment.prints(deployment.trains(1, 0.5, 0.4, 0.3), "exit", code=0)
    deployment.ends(1)
    assert deployment.trials[1].state is TrialState.COMPLETED
    assert deployment.sweep.warning is None
