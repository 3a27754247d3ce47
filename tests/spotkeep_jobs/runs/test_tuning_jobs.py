"""Tuning jobs: only this deployment's are told of, once."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from spotkeep_jobs.errors import AwsBusyError
from spotkeep_jobs.runs.tuning_jobs import SageMakerTuningJobs, TuningJob, TuningObserver, ending_of, tuning_job_of

ANSWER: dict[str, Any] = {
    "HyperParameterTuningJobName": "search",
    "HyperParameterTuningJobArn": "arn:aws:sagemaker:us-east-1:123456789012:hyper-parameter-tuning-job/search",
    "HyperParameterTuningJobStatus": "Completed",
    "TrainingJobStatusCounters": {"Completed": 18, "NonRetryableError": 1, "RetryableError": 1, "Stopped": 3},
    "BestTrainingJob": {
        "TrainingJobName": "search-017",
        "FinalHyperParameterTuningJobObjectiveMetric": {"MetricName": "loss", "Value": 0.0312},
    },
}


class Client:
    """A SageMaker client that knows one tuning job."""

    def __init__(self, *, tags: dict[str, str] | None = None, error: Exception | None = None) -> None:
        self._tags = [{"Key": key, "Value": value} for key, value in (tags or {}).items()]
        self._error = error

    def describe_hyper_parameter_tuning_job(self, **request: Any) -> dict[str, Any]:
        if self._error is not None:
            raise self._error
        return ANSWER

    def get_paginator(self, operation: str) -> Any:
        assert operation == "list_tags"
        return self

    def paginate(self, *, ResourceArn: str) -> list[dict[str, Any]]:  # noqa: N803
        assert ResourceArn == ANSWER["HyperParameterTuningJobArn"]
        return [{"Tags": self._tags[:1]}, {"Tags": self._tags[1:]}]


class Known:
    """The seam, with what a test says."""

    def __init__(self) -> None:
        self.job: TuningJob | None = None

    def describe(self, name: str, /) -> TuningJob | None:
        return self.job


def job(status: str, deployment: str | None = "spotkeep") -> TuningJob:
    return TuningJob(name="search", deployment=deployment, status=status)


def test_a_description_is_read_with_its_deployment() -> None:
    jobs = SageMakerTuningJobs(Client(tags={"team": "a", "spotkeep:deployment": "spotkeep"}))  # type: ignore[arg-type]
    assert jobs.describe("search") == tuning_job_of(ANSWER, deployment="spotkeep")


def test_the_notification_names_the_best_job(make: Any) -> None:
    notification = ending_of(tuning_job_of(ANSWER, deployment="spotkeep"), deployment="spotkeep", now=make.noon)
    assert notification is not None
    text = " ".join(notification.body.split())
    assert "18 completed, 2 failed, 3 stopped. The best was search-017 (loss 0.0312)." in text


def test_an_unknown_job_is_none_and_a_throttled_call_an_error(make: Any) -> None:
    gone = make.error("DescribeHyperParameterTuningJob", "ResourceNotFound")
    assert SageMakerTuningJobs(Client(error=gone)).describe("search") is None  # type: ignore[arg-type]
    for fault in (
        make.error("DescribeHyperParameterTuningJob", "ThrottlingException"),
        EndpointConnectionError(endpoint_url="https://nowhere"),
    ):
        with pytest.raises(AwsBusyError):
            SageMakerTuningJobs(Client(error=fault)).describe("search")  # type: ignore[arg-type]


class TestObserving:
    @pytest.fixture
    def known(self) -> Known:
        return Known()

    @pytest.fixture
    def observer(self, world: Any, known: Known) -> TuningObserver:
        return TuningObserver(table=world.table, jobs=known, deployment="spotkeep", clock=world.clock)

    @pytest.mark.parametrize("theirs", [job("Completed", "another"), job("Completed", None), None])
    def test_a_strangers_or_a_vanished_job_is_left_alone(
        self, world: Any, known: Known, observer: TuningObserver, theirs: TuningJob | None
    ) -> None:
        known.job = theirs
        assert not observer.observe("search")
        assert world.table.tuning_notifications("search") == []
        assert list(world.table.watched_tuning_jobs()) == []

    def test_it_is_watched_from_its_first_event_and_told_once(
        self, world: Any, known: Known, observer: TuningObserver
    ) -> None:
        known.job = job("InProgress")
        assert observer.observe("search")
        assert list(world.table.watched_tuning_jobs()) == ["search"]
        known.job = job("Stopped")
        for _ in range(3):
            assert observer.observe("search")
            world.outbox.deliver_tuning_job("search")
        assert list(world.table.watched_tuning_jobs()) == []
        assert [notification.notification_id for notification in world.topic.published] == ["tuning:search/stopped"]
