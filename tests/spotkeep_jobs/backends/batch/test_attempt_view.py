"""A service job and its training jobs are one job, whose phases only grow, whatever happens and is forgotten."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.backends.batch.api import ServiceJobsApi
from spotkeep_jobs.backends.batch.jobs import ServiceJobs
from spotkeep_jobs.backends.batch.service_job import client_token_of, payload_of, submission_of
from spotkeep_jobs.backends.job_view import JobPhase, JobView
from spotkeep_jobs.record.record import Attempt, QueuePlace
from spotkeep_jobs.record.states import EndReason
from tests.launching import jobs_of
from tests.models.batch import Batch, ModelServiceJob
from tests.models.clock import NOON
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

    def __init__(self) -> None:
        self.sagemaker = SageMaker()
        self.batch = Batch(self.sagemaker)
        self.queues = ServiceJobs(
            api=ServiceJobsApi(lambda: self.batch),
            training_jobs=jobs_of(self.sagemaker),
            deployment="spotkeep",
            now=self.sagemaker.now,
        )
        self.attempt = Attempt(
            run="digits",
            attempt=1,
            job_name="digits-1",
            capacity="on-demand",
            instance_type="ml.m5.xlarge",
            created_at=NOON,
            queue=PLACE,
            job_request=REQUEST,
        )
        arn = self.queues.of(self.attempt, PLACE).create(REQUEST)
        self.attempt = self.attempt.model_copy(update={"job_arn": arn})

    @property
    def job(self) -> ModelServiceJob:
        (job,) = self.batch.jobs.values()
        return job

    def observed(self) -> JobView:
        view = self.queues.of(self.attempt, PLACE).observe("digits-1")
        assert view is not None
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


@given(st.lists(st.integers(1, 9), max_size=4))
def test_the_bill_is_that_of_all_training_jobs(steps: list[int]) -> None:
    it = Story()
    for each in [*steps, 1]:
        training = it.batch.has_its_turn(it.job)
        it.sagemaker.gets_capacity(training)
        it.sagemaker.trains(training, each)
        it.observed()
        if len(it.job.made) <= len(steps):
            it.batch.preempts(it.job)
            it.sagemaker.ends(training, "Stopped")
            assert it.observed().phase is JobPhase.INTERRUPTED
            it.sagemaker.is_deleted(training)
    it.sagemaker.ends(training, "Completed")
    view = it.observed()
    assert view.end_reason is EndReason.COMPLETED
    assert view.billable_seconds == sum(each.billable_seconds for each in it.job.made)
    assert sum(each.phase is JobPhase.INTERRUPTED for each in view.transitions) == len(steps)


def test_a_submission_follows_from_what_is_recorded() -> None:
    submission = submission_of(REQUEST, place=PLACE, deployment="spotkeep")
    assert submission["jobQueue"] == "spotkeep-gpu"
    assert (submission["quotaShareName"], submission["schedulingPriority"]) == ("vision", 7)
    assert submission["tags"] == {"spotkeep:deployment": "spotkeep", "spotkeep:run": "digits"}
    assert submission == submission_of(dict(reversed(REQUEST.items())), place=PLACE, deployment="spotkeep")
    assert "feed" not in client_token_of(REQUEST)
    assert client_token_of(REQUEST) != client_token_of({**REQUEST, "Environment": {"SPOTKEEP_LAUNCH": "other"}})
    assert payload_of({"a": "ä"}) == '{"a":"ä"}'
