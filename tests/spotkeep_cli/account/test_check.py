"""A user sees the deployment's training jobs; what IAM denies is no trouble and no finding."""

from __future__ import annotations

from datetime import timedelta

import boto3
import pytest
from botocore.stub import Stubber

from spotkeep_cli.account.check import OwnTrainingJobs, ServiceRole, read_service_roles
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


def answered(*, error: str | None = None) -> ServiceRole:
    client = boto3.client("iam", region_name="eu-central-1", aws_access_key_id="test", aws_secret_access_key="test")
    with Stubber(client) as stub:
        if error is not None:
            stub.add_client_error("get_role", error, "in AWS's words")
        else:
            role = {
                "Path": "/aws-service-role/fis.amazonaws.com/", "RoleName": "AWSServiceRoleForFIS", "RoleId": "A" * 16,
                "Arn": "arn:aws:iam::123456789012:role/x", "CreateDate": "2026-11-23T00:00:00Z",
            }  # fmt: skip
            stub.add_response("get_role", {"Role": role}, {"RoleName": "AWSServiceRoleForFIS"})
        (found,) = read_service_roles(client, {"fis.amazonaws.com": "AWSServiceRoleForFIS"})
    return found


def test_a_role_that_is_there_needs_nothing() -> None:
    assert answered().exists is True


def test_a_role_that_is_missing_comes_with_its_command() -> None:
    found = answered(error="NoSuchEntity")
    assert found.exists is False
    assert found.creation == "aws iam create-service-linked-role --aws-service-name fis.amazonaws.com"


def test_a_denial_is_no_missing_role() -> None:
    found = answered(error="AccessDenied")
    assert found.exists is None
    assert "in AWS's words" in (found.problem or "")
