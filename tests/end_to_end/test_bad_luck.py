"""What goes wrong in the real world, done to the deployed app: throttles, lost answers, events twice, damaged files."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from spotkeep.disk.manifest import MANIFEST_NAME
from spotkeep.disk.writers import parse_folder
from spotkeep_jobs.record.states import EndReason, RunState
from spotkeep_local.capacity import CallFaults, CapacityScript, EventFaults, Interruption

if TYPE_CHECKING:
    from conftest import DeployedApp

pytestmark = pytest.mark.long


def ending_notifications(app: DeployedApp, run: str) -> list[str]:
    return [
        notification.kind.value
        for notification in app.table.notifications.of_run(run)
        if notification.kind.value in {"completed", "failed", "stopped"}
    ]


def object_keys(app: DeployedApp, uri: str) -> tuple[str, list[str]]:
    address = urlsplit(uri)
    pages = (
        app.client("s3")
        .get_paginator("list_objects_v2")
        .paginate(Bucket=address.netloc, Prefix=address.path.lstrip("/"))
    )
    return address.netloc, [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def test_i1_the_launcher_called_twice_at_once_launches_one_job(deployed_app: DeployedApp) -> None:
    job = deployed_app.counting("5", token=uuid.uuid4().hex)
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: deployed_app.invoke("launcher", job), range(2)))
    assert all(answer["ok"] for answer in answers), answers
    assert {answer["job_name"] for answer in answers} == {f"{job['run']}-1"}
    assert sorted(answer["replayed"] for answer in answers) == [False, True]
    jobs = deployed_app.client("sagemaker").list_training_jobs(NameContains=job["run"])["TrainingJobSummaries"]
    assert len(jobs) == 1
    deployed_app.wait_until_ended(job["run"])


def test_a_run_is_not_harmed_by_an_aws_that_throttles_loses_answers_and_sends_events_late_and_twice(
    deployed_app: DeployedApp,
) -> None:
    job = deployed_app.counting("160 --hurry")
    deployed_app.control.script_capacity(
        run=job["run"],
        script=CapacityScript(
            interruptions=(Interruption(at_step=40, notice=False, capacity_returns_after_seconds=1),)
        ),
    )
    deployed_app.control.event_faults(EventFaults(duplicate=True, shuffle=True, seed=1))
    deployed_app.control.call_faults(CallFaults(throttled=0.05, lost=0.05, seed=1))
    try:
        deployed_app.launch(**job)
        ended = deployed_app.wait_until_ended(job["run"], passes=True)
    finally:
        deployed_app.control.call_faults(CallFaults())
        deployed_app.control.event_faults(EventFaults())
    assert (ended.state, ended.attempt, ended.interruptions) == (RunState.COMPLETED, 1, 1)
    first, second = deployed_app.control.job_facts(ended.job_name).lifetimes
    assert 0 < (second.resumed_step or 0) <= (first.last_step_seen or 0)
    deployed_app.invoke("controller", {})
    assert ending_notifications(deployed_app, job["run"]) == ["completed"]


def test_sagemaker_fails_again_and_again_by_errors_of_its_own_and_the_run_completes(deployed_app: DeployedApp) -> None:
    """It starts the job again three times; then another job of the run follows, from the newest checkpoint."""
    job = deployed_app.counting("120", capacity="on-demand")
    error = Interruption(at_step=10, notice=False, capacity_returns_after_seconds=0.2, internal_error=True)
    deployed_app.control.script_capacity(run=job["run"], script=CapacityScript(interruptions=(error,) * 4))
    deployed_app.launch(**job)
    ended = deployed_app.wait_until_ended(job["run"], passes=True)
    assert (ended.state, ended.attempt, ended.interruptions) == (RunState.COMPLETED, 2, 3)
    attempts = deployed_app.table.runs.attempts(job["run"])
    assert [each.end_reason for each in attempts] == [EndReason.PLATFORM_ERROR, EndReason.COMPLETED]
    names = [each.job_name for each in attempts]
    described = [deployed_app.client("sagemaker").describe_training_job(TrainingJobName=name) for name in names]
    statuses = [[change["Status"] for change in each["SecondaryStatusTransitions"]] for each in described]
    assert [each.count("Restarting") for each in statuses] == [3, 0]
    assert ended.cost is not None
    assert ended.cost.billed_seconds == sum(each["BillableTimeInSeconds"] for each in described)
    assert ending_notifications(deployed_app, job["run"]) == ["completed"]


def step_of_key(key: str) -> int:
    found = parse_folder(key.split("/")[-2])
    assert found is not None, key
    return found[0]


def test_a_damaged_newest_checkpoint_falls_back_to_the_one_before_and_says_so(deployed_app: DeployedApp) -> None:
    job = deployed_app.counting("160 --hurry")
    # Long enough for the controller to see it and for the damage to be done, on a busy machine, too.
    loss = Interruption(at_step=53, notice=False, capacity_returns_after_seconds=30)
    deployed_app.control.script_capacity(run=job["run"], script=CapacityScript(interruptions=(loss,)))
    deployed_app.launch(**job)
    run_item = deployed_app.wait_until(job["run"], lambda run: run.state is RunState.INTERRUPTED)
    bucket, keys = object_keys(deployed_app, run_item.checkpoint_uri)
    # Of the very last one a part may have arrived, which no reader takes for a checkpoint.
    whole = [key for key in keys if f"{key.rpartition('/')[0]}/{MANIFEST_NAME}" in keys]
    newest = max(whole, key=step_of_key)
    newest_step = step_of_key(newest)
    s3 = deployed_app.client("s3")
    content = bytearray(s3.get_object(Bucket=bucket, Key=newest)["Body"].read())
    content[len(content) // 2] ^= 1
    s3.put_object(Bucket=bucket, Key=newest, Body=bytes(content))

    ended = deployed_app.wait_until_ended(job["run"])
    assert ended.state is RunState.COMPLETED
    lifetimes = deployed_app.control.job_facts(run_item.job_name).lifetimes
    assert 0 < (lifetimes[-1].resumed_step or 0) < newest_step
    log = deployed_app.client("logs").filter_log_events(
        logGroupName="/aws/sagemaker/TrainingJobs",
        logStreamNamePrefix=f"{run_item.job_name}/",
        filterPattern='"fallback"',
    )
    assert any(f'"step":{newest_step}' in event["message"] for event in log["events"])
