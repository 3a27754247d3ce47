"""A user sees the deployment's training jobs; what IAM denies is no trouble and no finding."""

from __future__ import annotations

from datetime import timedelta

import pytest

from spotkeep_cli.account.own_training_jobs import OwnTrainingJobs
from spotkeep_jobs.errors import AwsRefusedError
from tests.models.sagemaker import SageMaker


def jobs_of_a_user(*, refusal: str = "AccessDeniedException") -> OwnTrainingJobs:
    """An account with a job of the deployment and one of another team, judged as the users' policy is."""
    sagemaker = SageMaker()
    for name in ("ours-1", "theirs-1"):
        sagemaker.has_job(name, ("Training", 0.0))
    sagemaker.has_job("of-last-month-1", ("Training", 0.0), CreationTime=sagemaker.now() - timedelta(days=30))
    sagemaker.withheld["theirs-1"] = refusal
    return OwnTrainingJobs(sagemaker, clock=sagemaker.now)  # type: ignore[arg-type]


def test_jobs_of_others_are_passed_over() -> None:
    jobs = jobs_of_a_user()
    assert [job.name for job in jobs.search_in_progress("spotkeep")] == ["ours-1"]
    assert list(jobs.search_in_progress("another")) == []
    assert jobs.observe("theirs-1") is None
    assert jobs.tags("job/theirs-1") == {}


def test_any_other_refusal_is_reported() -> None:
    jobs = jobs_of_a_user(refusal="ValidationException")
    with pytest.raises(AwsRefusedError):
        jobs.observe("theirs-1")
    with pytest.raises(AwsRefusedError):
        jobs.tags("job/theirs-1")
