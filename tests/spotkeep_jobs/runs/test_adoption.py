"""The training jobs of other clients, made runs of."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_jobs.errors import RequestRefusedError
from spotkeep_jobs.notifications.texts.endings import next_steps, places_of
from spotkeep_jobs.record.states import NotificationKind, RunState, TimelineKind
from spotkeep_jobs.runs.adoption import Adoption, surprises_of
from spotkeep_jobs.runs.run_actions import RunActions
from tests.models.deployment import launcher_on
from tests.models.faults import Fault

TAGS = [{"Key": "spotkeep:deployment", "Value": "spotkeep"}, {"Key": "spotkeep:owner", "Value": "ada"}]
OTHERS: dict[str, Any] = {"Environment": {}, "Tags": TAGS}
JOB = "pytorch-training-2026-11-24-04-15-00-123"
CHECKPOINTS = "s3://theirs/checkpoints/"
SPOT = {"EnableManagedSpotTraining": True, "CheckpointConfig": {"S3Uri": CHECKPOINTS}}


def faster(other: Adoption, world: Any) -> None:
    """Another function adopts the job, between what this one read and what it writes."""
    world.faults.before_call = lambda _operation: None
    other.adopt(JOB)


@pytest.fixture
def adoption(world: Any) -> Adoption:
    return Adoption(world.controller)


def opened(world: Any, run: str = JOB) -> str:
    [entry] = [entry for entry in world.table.runs.timeline(run) if entry.kind is TimelineKind.RUN_OPENED]
    return str(entry.text)


def test_a_tagged_job_is_a_run_with_its_jobs_name(world: Any, adoption: Adoption) -> None:
    world.sagemaker.has_job(JOB, ("Training", 1.0), request=OTHERS | SPOT)
    assert adoption.adopt(JOB) == JOB
    run = world.table.runs.get(JOB)
    assert (run.adopted, run.owner, run.place.capacity, run.checkpoint_uri) == (True, "ada", "spot", CHECKPOINTS)
    assert (run.job_name, run.place.instance_type, run.request) == (JOB, "ml.m5.xlarge", {})
    assert opened(world).startswith(
        f"Another client created training job {JOB} with the deployment's tag; how many steps"
    )


def test_it_ends_like_any_run(world: Any, adoption: Adoption) -> None:
    world.sagemaker.has_job(JOB, ("Training", 1.0), request=OTHERS | SPOT)
    adoption.adopt(JOB)
    assert world.runs.reconcile(JOB).run.state is RunState.TRAINING
    world.sagemaker.has_job(
        JOB, ("Training", 1.0), ("Interrupted", 3.0), ("Training", 5.0), ("Completed", 11.0),
        TrainingTimeInSeconds=600, BillableTimeInSeconds=180,
    )  # fmt: skip
    reconciled = world.runs.reconcile(JOB)
    run = reconciled.run
    # Nothing of ours writes into its log.
    assert {"DescribeLogStreams", "FilterLogEvents", "GetLogEvents"}.isdisjoint(world.faults.calls)
    assert (run.state, run.interruptions, run.log_warning) == (RunState.COMPLETED, 1, None)
    assert (run.cost.billed_seconds, run.cost.training_seconds, run.cost.redone_steps) == (180, 600, None)
    assert [notification.kind for notification in reconciled.notifications] == [NotificationKind.COMPLETED]


def test_it_is_one_run_however_often_it_is_found(world: Any, adoption: Adoption) -> None:
    world.sagemaker.has_job(JOB, ("Training", 1.0), request=OTHERS)
    assert [adoption.adopt(JOB) for _ in range(3)] == [JOB] * 3
    assert len(world.table.runs.attempts(JOB)) == 1
    assert world.faults.calls.count("DescribeTrainingJob") == 1


def test_two_functions_at_once_record_it_once(world: Any, adoption: Adoption) -> None:
    world.sagemaker.has_job(JOB, ("Training", 1.0), request=OTHERS)
    other = Adoption(world.controller)
    world.faults.before_call = lambda operation: operation == "ListTags" and faster(other, world)
    adoption.adopt(JOB)
    assert [run.run for run in world.table.runs.list()] == [JOB]


@pytest.mark.parametrize(
    "request_of_it",
    [
        {"Environment": {}, "Tags": []},
        {"Environment": {}, "Tags": [{"Key": "spotkeep:deployment", "Value": "lab"}]},
        {"Tags": TAGS},  # with the marks of a launcher
    ],
    ids=["no tag", "another deployment's", "a launcher's"],
)
def test_no_other_job_is(world: Any, adoption: Adoption, request_of_it: dict[str, Any]) -> None:
    world.sagemaker.has_job(JOB, ("Training", 1.0), request=request_of_it)
    assert adoption.adopt(JOB) is None
    assert adoption.adopt("not-there") is None
    assert world.table.runs.list() == []


def test_what_sagemaker_cannot_answer_is_asked_again(world: Any, adoption: Adoption) -> None:
    world.sagemaker.has_job(JOB, ("Training", 1.0), request=OTHERS)
    world.faults.strike(Fault.REFUSED, operation="ListTags")
    with pytest.raises(Exception, match="ListTags"):
        adoption.adopt(JOB)
    assert adoption.adopt(JOB) == JOB


@pytest.mark.parametrize("operation", ["DescribeTrainingJob", "ListTags"])
def test_one_that_cannot_be_described_keeps_no_other_from_being_adopted(
    world: Any, adoption: Adoption, operation: str
) -> None:
    jobs = ["a-first", "b-second", "c-third"]
    for name in jobs:
        world.sagemaker.has_job(name, ("Training", 1.0), request=OTHERS)
    found = {job.name: job for job in world.jobs.search_in_progress("spotkeep")}
    world.faults.strike(Fault.REFUSED, operation=operation)
    failures: dict[str, str] = {}
    [unread] = set(jobs) - set(adoption.adopt_found(found, failures=failures))
    assert list(failures) == [f"job {unread}"]
    assert operation in failures[f"job {unread}"]
    assert adoption.adopt_found(found, failures={}) == [unread], "the next pass asks again"


def test_without_a_checkpoint_prefix_it_says_what_an_interruption_costs(world: Any, adoption: Adoption) -> None:
    for name in ("first", "second"):  # neither takes the other's lock
        world.sagemaker.has_job(name, ("Training", 1.0), request=OTHERS, EnableManagedSpotTraining=True)
        adoption.adopt(name)
    assert "it has no checkpoint prefix, so an interruption starts it anew" in opened(world, "second")
    assert world.table.runs.get("first").checkpoint_uri == world.table.runs.get("second").checkpoint_uri == ""


BY_THE_SDK = {
    "AlgorithmSpecification": {
        "ContainerEntrypoint": ["/bin/bash"],
        "ContainerArguments": [
            "-c",
            "chmod +x /opt/ml/input/data/sm_drivers/sm_train.sh && /opt/ml/input/data/sm_drivers/sm_train.sh",
        ],
    }
}
TUNING = {"TuningJobArn": "arn:aws:sagemaker:us-east-1:123456789012:hyper-parameter-tuning-job/search"}
OF_AN_EXECUTION = {
    "Key": "sagemaker:pipeline-execution-arn",
    "Value": "arn:aws:sagemaker:us-east-1:123456789012:pipeline/train/execution/ab12cd34ef56",
}
PIPELINE = {"request": {"Environment": {}, "Tags": [*TAGS, OF_AN_EXECUTION]}}
TWO_DAYS = {"StoppingCondition": {"MaxRuntimeInSeconds": 7_200, "MaxWaitTimeInSeconds": 172_800}}


@pytest.mark.parametrize(
    ("name", "described", "says"),
    [
        ("a", SPOT | BY_THE_SDK, "gets no SIGTERM, unless the trainer's command begins with exec"),
        ("b", BY_THE_SDK, None),  # It saves nothing.
        ("c", SPOT | TUNING, "all jobs of the tuning job have its checkpoint prefix"),
        ("d", SPOT | PIPELINE, "its checkpoint prefix lacks the id of the pipeline's execution"),
        ("pipelines-ab12cd34ef56-train-x1y2z3", SPOT, "its checkpoint prefix lacks the id of the pipeline's execution"),
        ("e", {"CheckpointConfig": {"S3Uri": "s3://theirs/ab12cd34ef56/"}} | PIPELINE, None),
        ("AWSBatchtrain0a1b", TWO_DAYS, "ends it after a day, unless it was submitted with a longer timeout"),
        ("f", SPOT | TWO_DAYS, None),
    ],
)
def test_what_its_client_made_otherwise_than_a_user_expects_is_said_at_once(
    world: Any, adoption: Adoption, name: str, described: dict[str, Any], says: str | None
) -> None:
    world.sagemaker.has_job(name, ("Training", 1.0), **({"request": OTHERS} | described))
    adoption.adopt(name)
    job = world.jobs.adoptable(name)
    surprises = surprises_of(job, tags=world.jobs.tags(job.view.job_id))
    assert len(surprises) == (says is not None)
    assert all(str(says) in each and each in opened(world, name) for each in surprises)


def test_i1_one_that_writes_a_live_runs_checkpoints_is_known_and_says_so(
    world: Any, adoption: Adoption, make: Any
) -> None:
    live = world.launch(make.run("digits"), make.attempt("digits"))
    config = {"CheckpointConfig": {"S3Uri": live.checkpoint_uri}}
    world.sagemaker.has_job(JOB, ("Training", 1.0), request=OTHERS, **config)
    adoption.adopt(JOB)
    assert f"it writes the checkpoints of digits, {live.checkpoint_uri}" in opened(world)
    assert world.table.claims.checkpoint_lock_owner(live.checkpoint_uri) == "digits"


def test_the_jobs_of_a_tuning_job_have_its_name_and_send_no_mail(world: Any, adoption: Adoption) -> None:
    world.sagemaker.has_job("search-001-2f1e", ("Training", 1.0), ("Completed", 2.0), request=OTHERS, **TUNING)
    adoption.adopt("search-001-2f1e")
    reconciled = world.runs.reconcile("search-001-2f1e")
    assert (reconciled.run.name, reconciled.run.state) == ("search", RunState.COMPLETED)
    assert reconciled.notifications == ()


def test_it_cannot_be_resumed_and_texts_and_the_refusal_say_what_can_be_done(world: Any, adoption: Adoption) -> None:
    world.sagemaker.has_job(JOB, ("Training", 1.0), ("Failed", 2.0), request=OTHERS, FailureReason="AlgorithmError: no")
    adoption.adopt(JOB)
    run = world.runs.reconcile(JOB).run
    commands = [line.strip() for line in next_steps(run) if "spotkeep" in line]
    assert commands == [f"spotkeep logs {JOB}", f"spotkeep import {JOB}"]
    assert places_of(run) == ["There is no model and there are no checkpoints."]
    with pytest.raises(RequestRefusedError, match="launched by another client") as refused:
        RunActions(launcher_on(world.table, world.sagemaker)).resume(JOB, changes={})
    assert refused.value.problems[0].fix.endswith(f"spotkeep import {JOB}")


def test_a_user_stops_it(world: Any, adoption: Adoption) -> None:
    world.sagemaker.has_job(JOB, ("Training", 1.0), request=OTHERS)
    adoption.adopt(JOB)
    world.table.runs.request_stop(run=JOB, now=world.clock())
    world.runs.reconcile(JOB)
    assert world.sagemaker.stopped == [JOB]


def test_its_warm_pool_is_watched(world: Any, adoption: Adoption, make: Any) -> None:
    asked = make.pool_request() | OTHERS
    asked["ResourceConfig"]["KeepAlivePeriodInSeconds"] = 1_800
    world.sagemaker.has_job(JOB, ("Training", 1.0), ("Completed", 2.0), request=asked, TrainingTimeInSeconds=60)
    adoption.adopt(JOB)
    world.runs.reconcile(JOB)
    assert [pool.job_name for pool in world.table.pools.kept()] == [JOB]
