"""Service environments, scheduling policies, job queues, quota shares, and their tags."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.spotkeep_local.batch.conftest import Batch

PREFIX = "arn:aws:batch:us-east-1:000000000000"


def test_an_environment_is_described_changed_and_deleted(batch: Batch):
    limits = [{"maxCapacity": 4, "capacityUnit": "NUM_INSTANCES"}]
    made = batch.call(
        "CreateServiceEnvironment",
        serviceEnvironmentName="team",
        serviceEnvironmentType="SAGEMAKER_TRAINING",
        capacityLimits=limits,
        tags={"a": "b"},
    )
    arn = f"{PREFIX}:service-environment/team"
    assert made == {"serviceEnvironmentName": "team", "serviceEnvironmentArn": arn}
    (described,) = batch.call("DescribeServiceEnvironments", serviceEnvironments=["team"])["serviceEnvironments"]
    assert described == {
        **made,
        "serviceEnvironmentType": "SAGEMAKER_TRAINING",
        "state": "ENABLED",
        "status": "VALID",
        "capacityLimits": limits,
        "tags": {"a": "b"},
    }
    assert "DISABLED first" in batch.refusal("DeleteServiceEnvironment", serviceEnvironment=arn)
    batch.call("UpdateServiceEnvironment", serviceEnvironment=arn, state="DISABLED")
    batch.call("DeleteServiceEnvironment", serviceEnvironment="team")
    assert batch.call("DescribeServiceEnvironments") == {"serviceEnvironments": []}


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ([], "must hold a limit"),
        ([{"maxCapacity": 1, "capacityUnit": "VCPU"}], "NUM_INSTANCES or an instance type"),
        ([{"maxCapacity": -1, "capacityUnit": "NUM_INSTANCES"}], "a number from 0"),
        ([{"maxCapacity": 1, "capacityUnit": "ml.m5.large"}] * 2, "names ml.m5.large 2 times"),
        (
            [{"maxCapacity": 1, "capacityUnit": "ml.m5.large"}, {"maxCapacity": 1, "capacityUnit": "NUM_INSTANCES"}],
            "not of both",
        ),
    ],
)
def test_limits_that_say_nothing_are_refused(batch: Batch, limits: list[object], problem: str):
    assert problem in batch.refusal(
        "CreateServiceEnvironment",
        serviceEnvironmentName="team",
        serviceEnvironmentType="SAGEMAKER_TRAINING",
        capacityLimits=limits,
    )


def test_a_queue_is_described_changed_and_deleted(batch: Batch):
    batch.make_queue()
    (described,) = batch.call("DescribeJobQueues", jobQueues=[f"{PREFIX}:job-queue/queue"])["jobQueues"]
    assert described["jobQueueType"] == "SAGEMAKER_TRAINING"
    environment = f"{PREFIX}:service-environment/queue-environment"
    assert described["serviceEnvironmentOrder"] == [{"order": 1, "serviceEnvironment": environment}]
    assert (described["state"], described["status"], described["priority"]) == ("ENABLED", "VALID", 1)
    batch.call("UpdateJobQueue", jobQueue="queue", priority=5)
    assert batch.call("DescribeJobQueues", jobQueues=["queue", "none"])["jobQueues"][0]["priority"] == 5
    assert "DISABLED first" in batch.refusal("DeleteJobQueue", jobQueue="queue")
    batch.call("UpdateServiceEnvironment", serviceEnvironment="queue-environment", state="DISABLED")
    assert "JobQueue relationship: queue" in batch.refusal(
        "DeleteServiceEnvironment", serviceEnvironment="queue-environment"
    )
    job = batch.submit("waits")
    batch.call("UpdateJobQueue", jobQueue="queue", state="DISABLED")
    batch.call("DeleteJobQueue", jobQueue="queue")
    assert batch.call("DescribeJobQueues")["jobQueues"] == []
    assert batch.describe(job)["status"] == "FAILED"
    batch.call("DeleteServiceEnvironment", serviceEnvironment="queue-environment")


def test_container_queues_are_refused_in_plain_words(batch: Batch):
    message = batch.refusal(
        "CreateJobQueue",
        jobQueueName="containers",
        priority=1,
        computeEnvironmentOrder=[{"order": 1, "computeEnvironment": "fargate"}],
    )
    assert "the local AWS has no compute environments" in message
    assert "jobQueueType SAGEMAKER_TRAINING alone" in message


def test_a_name_is_taken_once(batch: Batch):
    batch.make_queue()
    assert "already exists" in batch.refusal(
        "CreateJobQueue",
        jobQueueName="queue",
        jobQueueType="SAGEMAKER_TRAINING",
        priority=1,
        serviceEnvironmentOrder=[{"order": 1, "serviceEnvironment": "queue-environment"}],
    )


def test_the_units_of_an_environment_go_with_the_policy_of_its_queue(batch: Batch):
    policy = batch.call(
        "CreateSchedulingPolicy", name="quota", quotaSharePolicy={"idleResourceAssignmentStrategy": "FIFO"}
    )["arn"]
    limits = {"one": "NUM_INSTANCES", "types": "ml.m5.large"}
    for name, unit in limits.items():
        batch.call(
            "CreateServiceEnvironment",
            serviceEnvironmentName=name,
            serviceEnvironmentType="SAGEMAKER_TRAINING",
            capacityLimits=[{"maxCapacity": 1, "capacityUnit": unit}],
        )
    queue = {"jobQueueName": "queue", "jobQueueType": "SAGEMAKER_TRAINING", "priority": 1}
    by_number = [{"order": 1, "serviceEnvironment": "one"}]
    by_type = [{"order": 1, "serviceEnvironment": "types"}]
    assert "by instance type" in batch.refusal(
        "CreateJobQueue", **queue, serviceEnvironmentOrder=by_number, schedulingPolicyArn=policy
    )
    assert "by NUM_INSTANCES" in batch.refusal("CreateJobQueue", **queue, serviceEnvironmentOrder=by_type)
    batch.call("CreateJobQueue", **queue, serviceEnvironmentOrder=by_type, schedulingPolicyArn=policy)
    assert "has one job queue" in batch.refusal(
        "CreateJobQueue",
        **queue | {"jobQueueName": "second"},
        serviceEnvironmentOrder=by_type,
        schedulingPolicyArn=policy,
    )


def test_a_policy_is_of_quota_shares_is_changed_and_stays_while_a_queue_uses_it(batch: Batch):
    fair = {"fairsharePolicy": {"shareDecaySeconds": 600}}
    assert "fairsharePolicy must not be given" in batch.refusal("CreateSchedulingPolicy", name="fair", **fair)
    assert "quotaSharePolicy is missing" in batch.refusal("CreateSchedulingPolicy", name="none")
    batch.make_quota_queue(4, research=(2, "LEND"))
    policy = f"{PREFIX}:scheduling-policy/quota"
    (described,) = batch.call("DescribeSchedulingPolicies", arns=[policy])["schedulingPolicies"]
    assert described["quotaSharePolicy"] == {"idleResourceAssignmentStrategy": "FIFO"}
    assert "fairsharePolicy must not be given" in batch.refusal("UpdateSchedulingPolicy", arn=policy, **fair)
    batch.call("UpdateSchedulingPolicy", arn=policy, quotaSharePolicy={"idleResourceAssignmentStrategy": "FIFO"})
    assert "used by queue" in batch.refusal("DeleteSchedulingPolicy", arn=policy)
    other = batch.call("CreateSchedulingPolicy", name="other", quotaSharePolicy=described["quotaSharePolicy"])["arn"]
    batch.call("UpdateJobQueue", jobQueue="queue", schedulingPolicyArn=other)
    batch.call("DeleteSchedulingPolicy", arn=policy)


def test_a_queue_without_a_policy_gets_none_later(batch: Batch):
    policy = batch.call(
        "CreateSchedulingPolicy", name="quota", quotaSharePolicy={"idleResourceAssignmentStrategy": "FIFO"}
    )["arn"]
    batch.make_queue()
    assert "gets none later" in batch.refusal("UpdateJobQueue", jobQueue="queue", schedulingPolicyArn=policy)


def test_a_share_is_described_changed_and_deleted(batch: Batch):
    batch.make_quota_queue(4, research=(2, "LEND"))
    arn = f"{PREFIX}:job-queue/queue/quota-share/research"
    described = batch.call("DescribeQuotaShare", quotaShareArn=arn)
    assert described["capacityLimits"] == [{"maxCapacity": 2, "capacityUnit": "ml.m5.large"}]
    assert described["resourceSharingConfiguration"] == {"strategy": "LEND"}
    assert (described["jobQueueArn"], described["status"]) == (f"{PREFIX}:job-queue/queue", "VALID")
    borrows = {"strategy": "LEND_AND_BORROW", "borrowLimit": 50}
    disabled = {"inSharePreemption": "DISABLED"}
    batch.call(
        "UpdateQuotaShare",
        quotaShareArn=arn,
        resourceSharingConfiguration=borrows,
        preemptionConfiguration=disabled,
    )
    (listed,) = batch.call("ListQuotaShares", jobQueue="queue")["quotaShares"]
    assert (listed["resourceSharingConfiguration"], listed["preemptionConfiguration"]) == (borrows, disabled)
    assert "LEND_AND_BORROW alone" in batch.refusal(
        "UpdateQuotaShare", quotaShareArn=arn, resourceSharingConfiguration={"strategy": "LEND", "borrowLimit": 1}
    )
    job = batch.submit("waits", quotaShareName="research", instances=4)
    batch.call("UpdateJobQueue", jobQueue="queue", state="DISABLED")
    assert "quota shares research" in batch.refusal("DeleteJobQueue", jobQueue="queue")
    batch.call("UpdateQuotaShare", quotaShareArn=arn, state="DISABLED")
    batch.call("DeleteQuotaShare", quotaShareArn=arn)
    assert batch.describe(job)["status"] == "FAILED"
    batch.call("DeleteJobQueue", jobQueue="queue")


def test_a_queue_has_twenty_shares_with_five_limits_each(batch: Batch):
    batch.make_quota_queue(1, **{f"share-{number}": (1, "RESERVE") for number in range(20)})

    def share(limits: int) -> dict[str, object]:
        return {
            "quotaShareName": "more",
            "jobQueue": "queue",
            "capacityLimits": [{"maxCapacity": 1, "capacityUnit": f"ml.m5.{size}"} for size in range(limits)],
            "resourceSharingConfiguration": {"strategy": "RESERVE"},
            "preemptionConfiguration": {"inSharePreemption": "DISABLED"},
        }

    assert "5 limits at most, found 6" in batch.refusal("CreateQuotaShare", **share(6))
    assert "There are 20 already" in batch.refusal("CreateQuotaShare", **share(5))


def test_a_queue_without_quota_shares_gets_none(batch: Batch):
    batch.make_queue()
    assert "quotaSharePolicy" in batch.refusal(
        "CreateQuotaShare",
        quotaShareName="a",
        jobQueue="queue",
        capacityLimits=[{"maxCapacity": 1, "capacityUnit": "ml.m5.large"}],
        resourceSharingConfiguration={"strategy": "RESERVE"},
        preemptionConfiguration={"inSharePreemption": "DISABLED"},
    )


def test_everything_has_tags(batch: Batch):
    batch.make_quota_queue(0, a=(0, "RESERVE"))
    job = batch.submit("waits", quotaShareName="a", tags={"first": "1"})
    for arn in (
        f"{PREFIX}:service-environment/queue-environment",
        f"{PREFIX}:scheduling-policy/quota",
        f"{PREFIX}:job-queue/queue",
        f"{PREFIX}:job-queue/queue/quota-share/a",
        batch.describe(job)["jobArn"],
    ):
        batch.call("TagResource", resourceArn=arn, tags={"team": "a", "cost": "b"})
        batch.call("UntagResource", resourceArn=arn, tagKeys=["cost", "first"])
        assert batch.call("ListTagsForResource", resourceArn=arn) == {"tags": {"team": "a"}}
        assert batch.service.account.tags_of(arn) == {"team": "a"}
    assert batch.service.account.tags_of(f"{PREFIX}:job-queue/none") == {}
    assert "does not exist" in batch.refusal("ListTagsForResource", resourceArn=f"{PREFIX}:job-queue/none")


def test_a_list_comes_page_by_page(batch: Batch):
    for name in ("a", "b"):
        batch.make_queue(name=name)
    first = batch.call("DescribeJobQueues", maxResults=1)
    second = batch.call("DescribeJobQueues", maxResults=1, nextToken=first["nextToken"])
    assert [queue["jobQueueName"] for answer in (first, second) for queue in answer["jobQueues"]] == ["a", "b"]
    assert "nextToken" not in second
    assert "maxResults" in batch.refusal("DescribeJobQueues", maxResults=101)
    assert "nextToken" in batch.refusal("DescribeJobQueues", nextToken="x")


def test_the_next_server_has_them(batch: Batch):
    batch.make_quota_queue(4, a=(2, "LEND"))
    before = batch.call("DescribeJobQueues"), batch.call("ListQuotaShares", jobQueue="queue")
    batch.restart()
    assert (batch.call("DescribeJobQueues"), batch.call("ListQuotaShares", jobQueue="queue")) == before
