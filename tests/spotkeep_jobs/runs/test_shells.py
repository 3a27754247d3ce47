"""Shells in runs: where one is opened, and why one is not; what to do is always said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from spotkeep_fleet.shells import COMMAND_DOCUMENT
from spotkeep_jobs.backends.backend import JobPhase, JobView
from spotkeep_jobs.backends.session_manager import NOT_CONNECTED, Session
from spotkeep_jobs.errors import AwsBusyError, AwsRefusedError, Problem, RequestRefusedError
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.launch import Launcher
from spotkeep_jobs.runs.launch_completion import LaunchUnfinishedError
from spotkeep_jobs.runs.shells import open_shell, session_parameters
from spotkeep_jobs.settings import LauncherSettings
from tests.models.deployment import DEFAULTS, end_run, jobs_of, launcher_on
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.sagemaker import SageMaker

DOCUMENT = {"name": "first", "run": "first", "command": "python train.py", "instance_count": 2}


class Sessions:
    """Starts sessions, or fails as a test says."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []
        self.fails: Exception | None = None

    def start(self, parameters: Mapping[str, Any], /) -> Session:
        self.asked.append(parameters)
        if self.fails is not None:
            raise self.fails
        return Session(id="s-1", token="let-me-in", stream_url="wss://somewhere")


class Deployment:
    """A launcher with shells on a model of SageMaker."""

    def __init__(self) -> None:
        self.sagemaker, self.sessions = SageMaker(), Sessions()
        self.table = RunTable.of(client=InMemoryDynamoDb(), table_name="runs")  # type: ignore[arg-type]
        self.launcher: Deployment[LauncherSettings] = launcher_on(
            self.table, self.sagemaker, sessions=self.sessions, defaults=replace(DEFAULTS, shells=True)
        )

    def trains(self, **fields: Any) -> None:
        Launcher(self.launcher).launch({**DOCUMENT, **fields}, default_token="t")
        self.sagemaker.moves("first-1", "Training")

    def open(self, *, command: str | None = None, host: int = 1, asked_by: str | None = "ada") -> Mapping[str, Any]:
        return open_shell(self.launcher, "first", command=command, host=host, asked_by=asked_by).parameters

    def refusal(self, **asked: Any) -> Problem:
        with pytest.raises(RequestRefusedError) as refused:
            self.open(**asked)
        [problem] = refused.value.problems
        return problem


@pytest.fixture
def deployment() -> Deployment:
    return Deployment()


def test_a_shell_is_opened_in_a_training_job_that_asked_for_it(deployment: Deployment) -> None:
    deployment.trains(debug=True)
    asked = {"Target": "sagemaker-training-job:first-1_algo-1", "Reason": "spotkeep shell first, for ada"}
    assert deployment.open() == asked
    assert deployment.sessions.asked == [asked]
    assert deployment.open(host=2, asked_by=None) == {
        "Target": "sagemaker-training-job:first-1_algo-2",
        "Reason": "spotkeep shell first",
    }


def test_a_command_is_run_instead_of_a_shell(deployment: Deployment) -> None:
    deployment.trains(debug=True)
    found = deployment.open(command="nvidia-smi -l 1")
    assert (found["DocumentName"], found["Parameters"]) == (COMMAND_DOCUMENT, {"command": ["nvidia-smi -l 1"]})


def test_in_a_job_that_did_not_ask_for_it_remote_debugging_is_switched_on_and_nothing_is_interrupted(
    deployment: Deployment,
) -> None:
    deployment.trains()
    assert deployment.open()["Target"] == "sagemaker-training-job:first-1_algo-1"
    assert deployment.sagemaker.jobs["first-1"].request["RemoteDebugConfig"] == {"EnableRemoteDebug": True}
    asked: list[str] = []
    deployment.sagemaker.before_call = asked.append
    deployment.open()
    assert "UpdateTrainingJob" not in asked, "it is on"
    assert deployment.sagemaker.jobs["first-1"].status == "InProgress"


def test_a_job_that_ends_before_remote_debugging_is_on_takes_no_session(deployment: Deployment) -> None:
    deployment.trains()
    deployment.sagemaker.before_call = lambda operation: (
        deployment.sagemaker.moves("first-1", "Uploading") if operation == "UpdateTrainingJob" else None
    )
    assert "UpdateTrainingJob answered ValidationException" in deployment.refusal().problem
    assert deployment.sessions.asked == []


def test_a_container_of_an_algorithm_takes_none(deployment: Deployment) -> None:
    deployment.trains()
    run = deployment.table.runs.get("first")
    assert isinstance(run, Run)
    algorithm = run.model_copy(update={"request": {**run.request, "algorithm": "xgboost-1.7"}})
    view = jobs_of(deployment.sagemaker).observe("first-1")
    with pytest.raises(RequestRefusedError, match="AWS opens no shell"):
        session_parameters(algorithm, view, command=None, host=1, asked_by=None)


@pytest.mark.parametrize("secondary", ["Starting", "Downloading", "Interrupted", "Uploading"])
def test_a_job_that_does_not_train_takes_none(deployment: Deployment, secondary: str) -> None:
    deployment.trains(debug=True)
    deployment.sagemaker.moves("first-1", secondary)
    assert deployment.refusal().problem.startswith("does not train now")


def test_a_run_that_has_ended_takes_none(deployment: Deployment) -> None:
    deployment.trains(debug=True)
    end_run(deployment.table, deployment.sagemaker, "first")
    problem = deployment.refusal()
    assert (problem.found, problem.fix) == ("stopped", "See what it printed: spotkeep logs first")


def test_a_host_that_is_not_there_is_refused(deployment: Deployment) -> None:
    deployment.trains(debug=True)
    assert deployment.refusal(host=3).fix == "Give 1 to 2."


def test_a_deployment_without_shells_opens_none() -> None:
    sagemaker = SageMaker()
    table = RunTable.of(client=InMemoryDynamoDb(), table_name="runs")  # type: ignore[arg-type]
    parts = launcher_on(table, sagemaker)
    Launcher(parts).launch(DOCUMENT, default_token="t")
    with pytest.raises(RequestRefusedError, match="-c shells=true"):
        open_shell(parts, "first", command=None, host=1, asked_by=None)


def test_what_is_no_run_is_refused(deployment: Deployment) -> None:
    with pytest.raises(RequestRefusedError, match="not a run"):
        deployment.open()


def test_an_agent_without_a_connection_is_worth_a_second_try(deployment: Deployment) -> None:
    deployment.trains(debug=True)
    deployment.sessions.fails = AwsRefusedError(operation="StartSession", code=NOT_CONNECTED, reason="no agent")
    problem = deployment.refusal()
    assert ("Try again in a minute" in problem.fix, problem.temporary) == (True, True)
    deployment.sessions.fails = AwsRefusedError(operation="StartSession", code="AccessDenied", reason="not you")
    assert "AccessDenied: not you" in deployment.refusal().problem
    deployment.sessions.fails = AwsBusyError(operation="StartSession", code="ThrottlingException", reason="slow down")
    with pytest.raises(LaunchUnfinishedError, match="slow down"):
        deployment.open()


def test_on_an_instance_no_word_of_the_job_file_is_needed_and_root_is_not_given(deployment: Deployment) -> None:
    deployment.trains()
    run = deployment.table.runs.get("first")
    assert isinstance(run, Run)
    view = jobs_of(deployment.sagemaker).observe("first-1")
    assert isinstance(view, JobView)
    assert view.phase is JobPhase.TRAINING
    on_ec2 = with_changes(run, place=with_changes(run.place, backend="ec2"))
    found = session_parameters(
        on_ec2, replace(view, session_targets=("i-1",)), command="ls", host=1, asked_by="x" * 300
    )
    assert (found["Target"], len(found["Reason"])) == ("i-1", 256)
    assert found["Parameters"]["command"][0].startswith("exec sudo --set-home --user=spotkeep ")
    with pytest.raises(RequestRefusedError, match="does not train now"):
        session_parameters(on_ec2, replace(view, session_targets=()), command=None, host=1, asked_by=None)
    with pytest.raises(RequestRefusedError, match="one instance"):
        session_parameters(on_ec2, replace(view, session_targets=("i-1",)), command=None, host=2, asked_by=None)
