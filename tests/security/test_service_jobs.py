"""A session of a function in the wrong hands, or of a job: which of AWS Batch's queues and service jobs it reaches."""

from __future__ import annotations

import pytest

from .policies import ACCOUNT, REGION, Policies

BATCH = f"arn:aws:batch:{REGION}:{ACCOUNT}"
JOB = f"{BATCH}:service-job/0f0e0d"
OURS = {"aws:RequestTag/spotkeep:deployment": "lab"}


@pytest.mark.parametrize("function", ["LauncherRole", "ControllerRole"])
class TestAFunction:
    def test_submits_to_its_deployments_queues_alone(self, policies_with_everything: Policies, function: str) -> None:
        def submits(resource: str, context: dict[str, str] = OURS) -> bool:
            return policies_with_everything.allows(function, "batch:SubmitServiceJob", f"{BATCH}:{resource}", context)

        assert submits("job-queue/lab_gpu")
        assert submits("job-queue/lab_gpu/quota-share/vision")
        assert not submits("job-queue/production")
        assert not submits("job-queue/lab_gpu", {})
        assert not submits("job-queue/lab_gpu", {"aws:RequestTag/spotkeep:deployment": "production"})

    def test_ends_no_service_job_of_others_and_gives_none_its_tag(
        self, policies_with_everything: Policies, function: str
    ) -> None:
        def ends(owner: str) -> bool:
            context = {"aws:ResourceTag/spotkeep:deployment": owner}
            return policies_with_everything.allows(function, "batch:TerminateServiceJob", JOB, context)

        assert ends("lab")
        assert not ends("production")
        tags = {"aws:RequestTag/spotkeep:run": "mine"}
        assert not policies_with_everything.allows(function, "batch:TagResource", JOB, tags)


def test_jobs_instances_users_and_schedules_reach_batch_not_at_all(policies_with_everything: Policies) -> None:
    context = {**OURS, "aws:ResourceTag/spotkeep:deployment": "lab"}
    for role in ("ExecutionRole", "InstanceRole", "RunRole", "UsersPolicy", "ScheduledLaunchesRole"):
        for action in ("SubmitServiceJob", "TerminateServiceJob", "UpdateServiceJob"):
            assert not policies_with_everything.allows(role, f"batch:{action}", JOB, context), (role, action)
