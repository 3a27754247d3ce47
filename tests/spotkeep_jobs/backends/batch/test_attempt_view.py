"""A service job and its training jobs are one job, whose phases only grow, whatever happens and is forgotten."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.backends.backend import (
    JobPhase,
    JobView,
    PhaseChange,
    count_interruptions,
    first_on_instances,
    time_in,
    time_loading_again,
)
from spotkeep_jobs.backends.batch import attempt_view
from spotkeep_jobs.backends.batch.attempt_view import (
    as_job_view,
    to_describe,
)
from spotkeep_jobs.backends.batch.service_job import ServiceJob, client_token_of, payload_of, submission_of
from spotkeep_jobs.cost.run_cost import usage_of
from spotkeep_jobs.progress.job_log import JobLog
from spotkeep_jobs.record.record import Attempt, Place, QueuedTrainingJob, QueuePlace, TrainingJobs
from spotkeep_jobs.record.states import EndReason
from spotkeep_jobs.record.table_client import fields_of, to_dynamodb
from tests.models.batch import Batch, ModelServiceJob
from tests.models.clock import NOON
from tests.models.deployment import jobs_of, queues_on
from tests.models.dynamodb import item_bytes
from tests.models.sagemaker import SageMaker

PLACE = QueuePlace(queue="gpu", share="vision", priority=7)
REQUEST: dict[str, Any] = {
    "TrainingJobName": "digits-1",
    "RoleArn": "arn:aws:iam::123456789012:role/execution",
    "CheckpointConfig": {"S3Uri": "s3://checkpoints/runs/digits/checkpoints/"},
    "ResourceConfig": {"InstanceType": "ml.m5.xlarge", "InstanceCount": 1, "VolumeSizeInGB": 30},
    "Environment": {"SPOTKEEP_RUN": "digits", "SPOTKEEP_ATTEMPT": "1", "SPOTKEEP_LAUNCH": "feed"},
    "Tags": [{"Key": "spotkeep:deployment", "Value": "spotkeep"}, {"Key": "spotkeep:run", "Value": "digits"}],
}


class Story:
    """One service job, and what is recorded of it from observation to observation."""

    def __init__(self, *, instance_count: int = 1) -> None:
        self.sagemaker = SageMaker()
        self.batch = Batch(self.sagemaker)
        self.queues = queues_on(jobs_of(self.sagemaker), self.batch, now=self.sagemaker.now)
        self.attempt = Attempt(
            run="digits",
            attempt=1,
            job_name="digits-1",
            place=Place(capacity="on-demand", instance_type="ml.m5.xlarge", instance_count=instance_count, queue=PLACE),
            created_at=NOON,
            job_request={**REQUEST, "ResourceConfig": {**REQUEST["ResourceConfig"], "InstanceCount": instance_count}},
        )
        arn = self.queues.of(self.attempt, PLACE).create(self.attempt.job_request or {})
        self.attempt = self.attempt.model_copy(update={"job_id": arn})

    @property
    def job(self) -> ModelServiceJob:
        (job,) = self.batch.jobs.values()
        return job

    def observed(self) -> JobView:
        view = self.queues.of(self.attempt, PLACE).observe("digits-1")
        self.attempt = self.attempt.model_copy(update={"training_jobs": view.training_jobs})
        return view

    def happens(self, what: str) -> None:
        """Do what is possible now of what was drawn."""
        job, training = self.job, self.job.training_job
        live = training is not None and training.live
        self.sagemaker.seconds += 7
        if what == "turn" and job.waits and not live:
            self.batch.has_its_turn(job)
        elif what == "lag":
            self.sagemaker.replicas_lag = not self.sagemaker.replicas_lag
        elif what == "batch sees":
            self.batch.catches_up()
        elif training is None or not live:
            if what == "deleted" and training is not None and training.name in self.sagemaker.jobs:
                self.sagemaker.is_deleted(training)
        elif what == "capacity" and not training.on_instances and training.status == "InProgress":
            self.sagemaker.gets_capacity(training)
            self.sagemaker.trains(training, 3)
        elif what == "preempted" and training.status == "InProgress" and not job.terminated and not job.preempting:
            self.batch.preempts(job)
        elif what == "no capacity" and not training.on_instances and not training.trained_seconds:
            self.sagemaker.ends(training, "Failed", failure="CapacityError: none")
        elif what == "over" and training.status == "Stopping":
            self.sagemaker.ends(training, "Stopped")
        elif what == "completes" and training.on_instances and training.status == "InProgress":
            self.sagemaker.ends(training, "Completed")
        elif what == "terminated":
            self.queues.of(self.attempt, PLACE).stop("digits-1")


def test_the_instances_of_all_training_jobs_are_billed_where_the_newest_is_deleted() -> None:
    """SageMaker deletes training jobs that found no capacity. Those before it had instances."""
    story = Story(instance_count=4)
    for what in ("turn", "capacity", "preempted", "over", "batch sees"):
        story.happens(what)
        story.observed()
    for what in ("turn", "no capacity", "batch sees", "deleted"):
        story.happens(what)
    story.queues.of(story.attempt, PLACE).stop("digits-1")
    story.sagemaker.seconds += 3_600
    view = story.observed()
    assert view.ended
    usage = usage_of(job=view, log=JobLog(), earlier=(), ended_at=story.sagemaker.now())
    assert usage.billable_seconds
    assert usage.instance_count == 4


HAPPENINGS = st.sampled_from(
    ["turn", "turn", "capacity", "capacity", "preempted", "over", "over", "no capacity", "batch sees", "lag", "deleted",
     "completes", "terminated"]
)  # fmt: skip


@given(st.lists(st.tuples(HAPPENINGS, st.booleans()), max_size=40))
def test_phases_only_grow_and_an_end_is_final(story: list[tuple[str, bool]]) -> None:
    """An answer older than the record may be shorter; the controller passes it over."""
    it = Story()
    recorded: list[tuple[JobPhase, Any]] = []
    for what, looks in story:
        it.happens(what)
        if not looks:
            continue
        view = it.observed()
        seen = [(each.phase, each.started_at) for each in view.transitions]
        assert seen[: len(recorded)] == recorded[: len(seen)]
        recorded = max(seen, recorded, key=len)
        if view.ended:
            assert it.job not in it.batch.unfinished, "it ended, and a training job of it lives"
            assert view.end_reason is not None
            return


LISTED = st.sampled_from([1, 2, 5])


@given(
    st.lists(st.tuples(HAPPENINGS, st.booleans()), min_size=20, max_size=120),
    LISTED,
    st.sampled_from([1, 3, attempt_view.KEPT_PHASES]),
)
def test_what_is_added_up_says_the_same_as_what_is_listed(
    happenings: list[tuple[str, bool]], kept: int, phases: int
) -> None:
    """I8: the same happenings, once with all training jobs listed and once with the newest alone."""
    views = []
    for kept_jobs, kept_phases in ((10**6, 10**6), (kept, phases)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(attempt_view, "KEPT_TRAINING_JOBS", kept_jobs)
            patch.setattr(attempt_view, "MOST_TRAINING_JOBS", 2 * kept_jobs)
            patch.setattr(attempt_view, "KEPT_PHASES", kept_phases)
            it = Story()
            for what, looks in (*happenings, ("batch sees", True)):
                it.happens(what)
                if looks:
                    view = it.observed()
            assert len(view.training_jobs.listed) <= 2 * kept_jobs
            views.append((view, it.attempt, it.sagemaker.now()))
    (whole, of_whole, now), (short, of_short, _) = views
    assert short.transitions == whole.transitions[short.earlier_phases.count :]
    same = ("phase", "end_reason", "training_started_at", "training_ended_at", "training_seconds", "billable_seconds")
    assert [getattr(short, name) for name in same] == [getattr(whole, name) for name in same]
    assert of_short.log_names == of_whole.log_names, "the logs of all of them are read when it ends"
    assert (count_interruptions(short), first_on_instances(short)) == (
        count_interruptions(whole), first_on_instances(whole)
    )  # fmt: skip
    for phase in JobPhase:
        assert time_in(short, {phase}, until=now) == time_in(whole, {phase}, until=now)
    for continues in (False, True):
        loading = [time_loading_again(view, continues=continues, until=now) for view in (whole, short)]
        assert loading[0] == loading[1]
    used = [usage_of(job=view, log=JobLog(), earlier=(), ended_at=now) for view in (whole, short)]
    assert used[0] == used[1]


def test_an_attempt_that_was_preempted_six_hundred_times_fits_its_item() -> None:
    it = Story()
    for _ in range(600):
        for what in ("turn", "capacity", "preempted", "over", "batch sees"):
            it.happens(what)
        it.observed()
    assert len(it.attempt.training_jobs.listed) == attempt_view.KEPT_TRAINING_JOBS
    assert count_interruptions(it.observed()) == 600
    assert len(it.attempt.training_jobs.earlier.names) == attempt_view.KEPT_NAMES
    assert it.observed().training_seconds == sum(made.trained_seconds for made in it.job.made)
    assert item_bytes(to_dynamodb(fields_of(it.attempt))) < 80_000


def test_a_submission_follows_from_what_is_recorded() -> None:
    submission = submission_of(REQUEST, place=PLACE, deployment="spotkeep")
    assert submission["jobQueue"] == "spotkeep_gpu"
    assert (submission["quotaShareName"], submission["schedulingPriority"]) == ("vision", 7)
    assert submission["tags"] == {"spotkeep:deployment": "spotkeep", "spotkeep:run": "digits"}
    *retried, exits = submission["retryStrategy"]["evaluateOnExit"]
    assert submission["retryStrategy"]["attempts"] > 1, "with one, nothing is tried again, whatever the conditions"
    assert {each["action"] for each in retried} == {"RETRY"}
    assert all("InternalServerError" in each["onStatusReason"] for each in retried)
    assert exits == {"action": "EXIT", "onStatusReason": "*"}
    assert "Tags" not in json.loads(submission["serviceRequestPayload"]), "handed on, each key would be there twice"
    assert submission == submission_of(dict(reversed(REQUEST.items())), place=PLACE, deployment="spotkeep")
    assert "feed" not in client_token_of(REQUEST)
    assert client_token_of(REQUEST) != client_token_of({**REQUEST, "Environment": {"SPOTKEEP_LAUNCH": "other"}})
    assert payload_of({"a": "ä"}) == '{"a":"ä"}'


class TestFieldByField:
    """What the view says, of what AWS Batch and SageMaker say."""

    MINUTE = timedelta(minutes=1)
    WAITS = ServiceJob(
        job_id="0f", arn="arn:aws:batch:service-job/0f", name="digits-1", status="RUNNABLE", status_reason="queue full",
        created_at=NOON, environment={"SPOTKEEP_RUN": "digits"},
    )  # fmt: skip
    RUNS = replace(WAITS, status="RUNNING", status_reason=None, training_jobs=("AWSBatch-1",))

    def training(self, **changes: Any) -> JobView:
        """What SageMaker says of a training job that has instances since 12:02 and trains since 12:03."""
        loads = PhaseChange(
            phase=JobPhase.LOADING, started_at=NOON + 2 * self.MINUTE, ended_at=NOON + 3 * self.MINUTE, text="gets"
        )
        trains = PhaseChange(phase=JobPhase.TRAINING, started_at=NOON + 3 * self.MINUTE, ended_at=None, text="trains")
        return replace(
            JobView(
                name="AWSBatch-1", job_id="arn:aws:sagemaker:training-job/AWSBatch-1", phase=JobPhase.TRAINING,
                created_at=NOON + self.MINUTE, last_modified_at=NOON + 3 * self.MINUTE, instance_type="ml.g5.xlarge",
                instance_count=2, transitions=(loads, trains), environment={}, session_targets=("container",),
            ),
            **changes,
        )  # fmt: skip

    def ended(self, **changes: Any) -> JobView:
        trains = replace(self.training().transitions[1], ended_at=NOON + 9 * self.MINUTE)
        end = PhaseChange(phase=JobPhase.ENDED, started_at=NOON + 9 * self.MINUTE, ended_at=None, text="over")
        return self.training(
            phase=JobPhase.ENDED, end_reason=EndReason.COMPLETED, training_ended_at=NOON + 9 * self.MINUTE,
            training_seconds=360, billable_seconds=420.0, session_targets=(),
            transitions=(self.training().transitions[0], trains, end), **changes,
        )  # fmt: skip

    def view(self, service_job: ServiceJob, seen: JobView | None = None, **known: Any) -> JobView:
        names = service_job.training_jobs[-1:]
        seen_by_name = dict.fromkeys(names, seen)
        recorded = TrainingJobs(**known)
        return as_job_view(
            service_job, known=recorded, seen=seen_by_name, instance_count=2, now=NOON + 20 * self.MINUTE
        )

    def test_while_it_waits(self) -> None:
        view = self.view(self.WAITS)
        assert (view.name, view.job_id, view.phase) == ("digits-1", "arn:aws:batch:service-job/0f", JobPhase.WAITING)
        assert (view.created_at, view.waits_because) == (NOON, "queue full")
        assert view.environment == {"SPOTKEEP_RUN": "digits"}
        assert (view.instance_type, view.instance_count, view.training_jobs.listed) == (None, 2, ())
        assert (view.training_started_at, view.training_ended_at, view.last_modified_at) == (None, None, None)
        assert (view.training_seconds, view.billable_seconds) == (None, None)
        assert view.transitions == (
            PhaseChange(phase=JobPhase.WAITING, started_at=NOON, ended_at=None, text="Waits in the queue for its turn"),
        )

    def test_while_it_trains(self) -> None:
        view = self.view(self.RUNS, self.training())
        assert (view.phase, view.waits_because, view.end_reason) == (JobPhase.TRAINING, None, None)
        assert (view.instance_type, view.instance_count) == ("ml.g5.xlarge", 2)
        assert (view.training_started_at, view.training_ended_at) == (NOON + 2 * self.MINUTE, None)
        assert (view.last_modified_at, view.session_targets) == (NOON + 3 * self.MINUTE, ("container",))
        assert [(each.phase, each.ended_at, each.text) for each in view.transitions] == [
            (JobPhase.WAITING, NOON + 2 * self.MINUTE, "Waits in the queue for its turn"),
            (JobPhase.LOADING, NOON + 3 * self.MINUTE, "gets"),
            (JobPhase.TRAINING, None, "trains"),
        ]
        (job,) = view.training_jobs.listed
        assert (job.name, job.over, job.preempted, job.left_at) == ("AWSBatch-1", False, False, None)

    def test_when_it_has_completed(self) -> None:
        succeeded = replace(self.RUNS, status="SUCCEEDED", stopped_at=NOON + 10 * self.MINUTE)
        view = self.view(succeeded, self.ended(model_uri="s3://checkpoints/model.tar.gz"))
        assert (view.phase, view.end_reason, view.failure_reason) == (JobPhase.ENDED, EndReason.COMPLETED, None)
        assert (view.training_ended_at, view.model_uri) == (NOON + 9 * self.MINUTE, "s3://checkpoints/model.tar.gz")
        assert (view.training_seconds, view.billable_seconds) == (360, 420.0)
        assert (view.transitions[-1].phase, view.transitions[-1].text) == (JobPhase.ENDED, "over")
        (job,) = view.training_jobs.listed
        assert (job.over, job.left_at) == (True, NOON + 9 * self.MINUTE)
        assert [span.phase for span in job.phases] == ["LOADING", "TRAINING"]

    def test_when_its_script_has_failed(self) -> None:
        failed = replace(self.RUNS, status="FAILED", status_reason="Job failed", stopped_at=NOON + 10 * self.MINUTE)
        seen = replace(self.ended(), end_reason=EndReason.SCRIPT_FAILED, failure_reason="AlgorithmError: exit 1")
        view = self.view(failed, seen)
        assert (view.end_reason, view.failure_reason) == (EndReason.SCRIPT_FAILED, "AlgorithmError: exit 1")

    @pytest.mark.parametrize(
        ("changes", "end_reason", "failure"),
        [
            ({}, EndReason.LAUNCH_REFUSED, "ValidationException: no such image"),
            ({"terminated": True}, EndReason.STOPPED_BY_USER, None),
        ],
        ids=["SageMaker refuses it", "it is terminated"],
    )
    def test_when_it_ends_without_a_training_job(
        self, changes: dict[str, Any], end_reason: EndReason, failure: str | None
    ) -> None:
        refused = {"status": "FAILED", "status_reason": "ValidationException: no such image"}
        view = self.view(replace(self.WAITS, stopped_at=NOON + 4 * self.MINUTE, **refused, **changes))
        assert (view.phase, view.end_reason, view.failure_reason) == (JobPhase.ENDED, end_reason, failure)
        assert (view.training_ended_at, view.waits_because) == (NOON + 4 * self.MINUTE, None)

    def test_when_it_is_preempted_and_waits_again(self) -> None:
        back = replace(self.WAITS, training_jobs=("AWSBatch-1",), preempted=frozenset({"AWSBatch-1"}))
        stopped = replace(self.ended(), end_reason=EndReason.STOPPED_BY_USER)
        view = self.view(back, stopped)
        assert (view.phase, view.end_reason, view.waits_because) == (JobPhase.INTERRUPTED, None, "queue full")
        assert view.training_ended_at is None
        last = view.transitions[-1]
        assert (last.phase, last.started_at, last.ended_at, last.text) == (
            JobPhase.INTERRUPTED, NOON + 9 * self.MINUTE, None,
            "Preempted: its instances went to another job, and it waits in the queue for its next turn",
        )  # fmt: skip
        assert view.training_jobs.listed[0].preempted

    def test_when_sagemaker_failed_and_batch_tries_again(self) -> None:
        failure = "InternalServerError: We encountered an internal error. Please try again."
        back = replace(self.WAITS, training_jobs=("AWSBatch-1",))
        failed = replace(self.ended(), end_reason=EndReason.PLATFORM_ERROR, failure_reason=failure)
        view = self.view(back, failed)
        assert (view.phase, view.end_reason) == (JobPhase.INTERRUPTED, None)
        last = view.transitions[-1]
        assert (last.phase, last.error_of_aws) == (JobPhase.INTERRUPTED, True)
        assert "InternalServerError" in last.text
        (job,) = view.training_jobs.listed
        assert (job.preempted, job.failed_in_sagemaker) == (True, True)

    def test_when_it_ends_because_sagemaker_itself_could_not_create_its_training_job(self) -> None:
        said = "Received status from SageMaker: InternalServerError: We encountered an internal error."
        refused = replace(self.WAITS, status="FAILED", status_reason=said, stopped_at=NOON + 4 * self.MINUTE)
        view = self.view(refused)
        assert (view.end_reason, view.failure_reason) == (EndReason.PLATFORM_ERROR, said)

    def test_when_batch_gives_it_up_after_a_preemption(self) -> None:
        given_up = replace(
            self.RUNS, status="FAILED", status_reason="no retry left", stopped_at=NOON + 12 * self.MINUTE,
            preempted=frozenset({"AWSBatch-1"}),
        )  # fmt: skip
        view = self.view(given_up, replace(self.ended(), end_reason=EndReason.STOPPED_BY_USER))
        assert (view.end_reason, view.failure_reason) == (EndReason.PLATFORM_ERROR, "no retry left")
        assert view.training_ended_at == NOON + 12 * self.MINUTE
        assert view.transitions[-1].ended_at == NOON + 12 * self.MINUTE

    @pytest.mark.parametrize(("minutes", "ended"), [(9, False), (10, True)])
    def test_a_training_job_that_sagemaker_does_not_know_is_waited_for(self, minutes: int, ended: bool) -> None:
        over = replace(self.RUNS, status="FAILED", stopped_at=NOON)
        now = NOON + minutes * self.MINUTE
        view = as_job_view(over, known=TrainingJobs(), seen={"AWSBatch-1": None}, instance_count=1, now=now)
        assert view.ended is ended
        assert view.phase is (JobPhase.ENDED if ended else JobPhase.STOPPING)


def test_what_is_over_is_described_no_more_but_the_newest() -> None:
    listed = tuple(
        QueuedTrainingJob(name=name, over=over, phases=())
        for name, over in (("first", True), ("second", False), ("third", True))
    )
    known = TrainingJobs(listed=listed)
    job = replace(TestFieldByField.RUNS, training_jobs=("third", "fourth"))
    assert to_describe(job, known=known) == ("second", "fourth")
    assert to_describe(replace(job, training_jobs=()), known=known) == ("second", "third")
