"""A run in a queue of two shares, for real: it borrows, is preempted, saves, goes back to the queue and goes on."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.states import RunState, TimelineKind
from spotkeep_local.capacity import CapacityScript, Interruption

from .conftest import QUEUED_TYPE, DeployedApp

pytestmark = pytest.mark.long

STEPS, SAVED = 200, 20


# More than the 10 KiB of a request that AWS Batch takes.
WORDS = {f"WORD_{number}": "x" * 500 for number in range(30)}


def launch(app: DeployedApp, command: str, /, *, share: str, also: Sequence[str] = (), **fields: Any) -> str:
    document = app.counting(
        command,
        queue="cpu",
        share=share,
        instance_type=QUEUED_TYPE,
        capacity="on-demand",
        notify=["completed", "failed", "stopped", "interrupted", "resumed", *also],
        **fields,
    )
    return str(app.launch(**document)["run"])


def has_saved(app: DeployedApp, run: Run, *, step: int) -> bool:
    bucket, _, prefix = run.checkpoint_uri.removeprefix("s3://").partition("/")
    found = app.client("s3").list_objects_v2(Bucket=bucket, Prefix=f"{prefix}step-{step}-")
    return any(item["Key"].endswith("/manifest.json") for item in found.get("Contents", ()))


def model_of(app: DeployedApp, run: Run) -> str:
    assert run.output_uri is not None
    bucket, _, key = run.output_uri.removeprefix("s3://").partition("/")
    archive = app.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        file = tar.extractfile("count.txt")
        assert file is not None
        return file.read().decode()


@pytest.fixture(params=[False, True], ids=["training jobs without tags", "tags handed on"])
def app(deployed_app: DeployedApp, request: pytest.FixtureRequest) -> Iterator[DeployedApp]:
    """AWS does not say whether AWS Batch gives the tags of a service job to its training jobs."""
    deployed_app.control.batch_tags(handed_on=request.param)
    yield deployed_app
    deployed_app.control.batch_tags(handed_on=False)


def test_a_run_that_can_never_have_its_turn_is_refused_and_one_whose_queue_became_too_small_is_notified(
    app: DeployedApp,
) -> None:
    batch = app.client("batch")
    (environment,) = [
        each
        for each in batch.describe_service_environments()["serviceEnvironments"]
        if "cpu" in each["serviceEnvironmentName"]
    ]
    name, limits = environment["serviceEnvironmentName"], environment["capacityLimits"]
    batch.update_service_environment(serviceEnvironment=name, capacityLimits=[{**limits[0], "maxCapacity": 0}])
    try:
        run = launch(app, "10", share="vision", also=["queue-blocked"])
        app.wait_until(run, lambda _run: bool(app.table.notifications.of_run(run)))
    finally:
        batch.update_service_environment(serviceEnvironment=name, capacityLimits=limits)
    (sent,) = app.table.notifications.of_run(run)
    assert sent.kind.value == "queue-blocked"
    assert "can never have its turn" in sent.subject
    assert app.wait_until_ended(run).state is RunState.COMPLETED, "the queue is as large as it was"
    assert [each.kind.value for each in app.table.notifications.of_run(run)].count("queue-blocked") == 1


def test_an_error_of_sagemakers_own_is_an_interruption_and_the_service_job_goes_on(app: DeployedApp) -> None:
    job = app.counting("160 --hurry", queue="cpu", share="vision", instance_type=QUEUED_TYPE, capacity="on-demand")
    error = Interruption(at_step=40, notice=False, internal_error=True)
    app.control.script_capacity(run=job["run"], script=CapacityScript(interruptions=(error,)))
    app.launch(**job)
    ended = app.wait_until_ended(job["run"])
    assert (ended.state, ended.attempt, ended.interruptions) == (RunState.COMPLETED, 1, 1)
    attempt = app.table.runs.attempt(job["run"], 1)
    assert attempt is not None
    assert [each.failed_in_sagemaker for each in attempt.training_jobs.listed] == [True, False]
    names = [each.name for each in attempt.training_jobs.listed]
    described = [app.client("sagemaker").describe_training_job(TrainingJobName=name) for name in names]
    assert [each["TrainingJobStatus"] for each in described] == ["Failed", "Completed"]
    assert ended.cost is not None
    assert ended.cost.billed_seconds == sum(each["BillableTimeInSeconds"] for each in described)


def test_a_preempted_run_saves_goes_back_to_the_queue_and_ends_as_one_that_was_left_alone(app: DeployedApp) -> None:
    stays = launch(app, "3000 --pause 0.2", share="vision")
    app.wait_until(stays, lambda run: run.state is RunState.TRAINING)
    counts = f'test "${{#WORD_29}}" -eq 500 && exec python3 count.py {STEPS} --pause 0.3 --hurry'
    borrows = launch(app, "", share="vision", command=["sh", "-c", counts], environment=WORDS)
    app.wait_until(borrows, lambda run: has_saved(app, run, step=SAVED))

    owner = launch(app, "10", share="others")
    app.wait_until(borrows, lambda run: run.interruptions == 1)
    assert app.wait_until_ended(owner).state is RunState.COMPLETED
    preempted = app.wait_until_ended(borrows)
    assert (preempted.state, preempted.interruptions) == (RunState.COMPLETED, 1)
    assert model_of(app, preempted) == str(STEPS), "as one that was left alone"

    attempt = app.table.runs.attempt(borrows, 1)
    assert attempt is not None
    names = [job.name for job in attempt.training_jobs.listed]
    described = [app.client("sagemaker").describe_training_job(TrainingJobName=name) for name in names]
    assert not any(each["Environment"].keys() & WORDS.keys() for each in described), "they are in a file"
    assert [each["TrainingJobStatus"] for each in described] == ["Stopped", "Completed"]
    assert preempted.cost is not None
    assert preempted.cost.billed_seconds == sum(each["BillableTimeInSeconds"] for each in described)
    assert preempted.cost.redone_steps is not None
    assert preempted.cost.redone_steps <= 1, "it saved before it gave way"
    kinds = [entry.kind for entry in app.table.runs.timeline(borrows)]
    assert kinds.count(TimelineKind.INTERRUPTED) == kinds.count(TimelineKind.RESUMED) == 1
    sent = {notification.kind.value for notification in app.table.notifications.of_run(borrows)}
    assert sent == {"interrupted", "resumed", "completed"}

    assert app.invoke("launcher", {"action": "priority", "run": stays, "priority": 9})["queue"]["priority"] == 9
    assert app.invoke("launcher", {"action": "stop", "run": stays})["ok"]
    assert app.wait_until_ended(stays).state is RunState.STOPPED
