"""A user sees the deployment's training jobs; what IAM denies is no trouble and no finding."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_cli.account.own_training_jobs import OwnTrainingJobs
from spotkeep_jobs.errors import AwsRefusedError

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class SageMaker:
    """An account with a job of the deployment and one of another team, judged as the users' policy is."""

    own = ("ours-1",)
    denies = "AccessDeniedException"

    def __init__(self) -> None:
        self.listed: dict[str, Any] = {}

    def list_training_jobs(self, **query: Any) -> dict[str, Any]:
        self.listed = query
        names = ("ours-1", "theirs-1")
        return {"TrainingJobSummaries": [{"TrainingJobName": name, "TrainingJobArn": f"job/{name}"} for name in names]}

    def list_tags(self, *, ResourceArn: str, MaxResults: int) -> dict[str, Any]:  # noqa: N803 - AWS's names
        self._judge(ResourceArn.removeprefix("job/"), "ListTags")
        return {"Tags": [{"Key": "spotkeep:deployment", "Value": "spotkeep"}]}

    def describe_training_job(self, *, TrainingJobName: str) -> dict[str, Any]:  # noqa: N803
        self._judge(TrainingJobName, "DescribeTrainingJob")
        return {
            "TrainingJobName": TrainingJobName,
            "TrainingJobArn": f"job/{TrainingJobName}",
            "TrainingJobStatus": "InProgress",
            "SecondaryStatus": "Training",
            "CreationTime": NOON,
        }

    def _judge(self, job_name: str, operation: str) -> None:
        if job_name not in self.own:
            raise ClientError({"Error": {"Code": self.denies, "Message": "not authorized"}}, operation)


def test_jobs_of_others_are_passed_over() -> None:
    client = SageMaker()
    jobs = OwnTrainingJobs(client, clock=lambda: NOON)  # type: ignore[arg-type]
    assert [job.name for job in jobs.search_in_progress("spotkeep")] == ["ours-1"]
    assert list(jobs.search_in_progress("another")) == []
    assert (NOON - client.listed["CreationTimeAfter"]).days == 30
    assert jobs.observe("theirs-1") is None
    assert jobs.tags("job/theirs-1") == {}


def test_any_other_refusal_is_reported() -> None:
    client = SageMaker()
    client.denies = "ValidationException"
    jobs = OwnTrainingJobs(client, clock=lambda: NOON)  # type: ignore[arg-type]
    with pytest.raises(AwsRefusedError):
        jobs.observe("theirs-1")
    with pytest.raises(AwsRefusedError):
        jobs.tags("job/theirs-1")
