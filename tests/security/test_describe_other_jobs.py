"""A user reads what other teams of the account train.

Who: anyone with the users' policy. With what: DescribeTrainingJob, ListTags or Search on jobs that are not the
deployment's. Gained before: the environment, hyperparameters, images and data locations of every training job of the
account and region, and secrets where a team put them there.
"""

from __future__ import annotations

import pytest

from .policies import ACCOUNT, REGION, Policies

JOB = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/someone-elses-job"
TAG = "aws:ResourceTag/spotkeep:deployment"
HERE = {"aws:RequestedRegion": REGION}
ACTIONS = ("sagemaker:DescribeTrainingJob", "sagemaker:ListTags")


@pytest.fixture
def all_policies(policies: Policies, policies_with_everything: Policies) -> dict[str, Policies]:
    return {"spotkeep": policies, "lab": policies_with_everything}


@pytest.mark.parametrize("action", ACTIONS)
def test_a_user_describes_the_deployments_jobs_alone(all_policies: dict[str, Policies], action: str) -> None:
    for deployment, policies in all_policies.items():
        assert policies.allows("UsersPolicy", action, JOB, {**HERE, TAG: deployment})
        assert not policies.allows("UsersPolicy", action, JOB, HERE), "a job without the tag"
        assert not policies.allows("UsersPolicy", action, JOB, {**HERE, TAG: "another"})
        assert not policies.allows("UsersPolicy", action, JOB, {**HERE, TAG: f"{deployment}-2"})


@pytest.mark.parametrize("action", [*ACTIONS, "sagemaker:StopTrainingJob", "sagemaker:UpdateTrainingJob"])
def test_a_name_that_aws_batch_gives_opens_no_job_without_a_tag(all_policies: dict[str, Policies], action: str) -> None:
    """It may have none, whosever queue made it: IAM cannot distinguish ours, so users ask the launcher."""
    for policies in all_policies.values():
        for job in ("AWSBatchspotkeep-1ab", "AWSBatchlab-1ab", "awsbatchlab-1ab"):
            resource = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-job/{job}"
            assert not policies.allows("UsersPolicy", action, resource, HERE)


def test_a_user_does_not_search(all_policies: dict[str, Policies]) -> None:
    """A search answers whole jobs, and no condition of IAM leaves out those without a tag."""
    for policies in all_policies.values():
        assert not policies.allows("UsersPolicy", "sagemaker:Search", "*", HERE)


@pytest.mark.parametrize("role", ["LauncherRole", "ControllerRole", "ExecutionRole"])
def test_nothing_of_ours_changes_a_job_that_is_not_the_deployments(
    all_policies: dict[str, Policies], role: str
) -> None:
    for deployment, policies in all_policies.items():
        for action in ("StopTrainingJob", "UpdateTrainingJob", "DeleteTrainingJob"):
            assert not policies.allows(role, f"sagemaker:{action}", JOB, HERE)
            assert not policies.allows(role, f"sagemaker:{action}", JOB, {**HERE, TAG: f"{deployment}-2"})


def test_what_a_training_runs_with_describes_no_job(all_policies: dict[str, Policies]) -> None:
    for deployment, policies in all_policies.items():
        for role in ("ExecutionRole", "InstanceRole", "RunRole"):
            for action in (*ACTIONS, "sagemaker:Search", "sagemaker:ListTrainingJobs"):
                assert not policies.allows(role, action, JOB, {**HERE, TAG: deployment})
