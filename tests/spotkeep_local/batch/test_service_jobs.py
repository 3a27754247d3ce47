"""Service jobs from their submission to their end, as their training jobs go."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from botocore.exceptions import ClientError

from spotkeep_local.capacity import EventFaults
from spotkeep_local.service_base.aws_service import ServiceError, ValidationError
from spotkeep_local.training.job import CAPACITY_ERROR, SecondaryStatus

if TYPE_CHECKING:
    from tests.spotkeep_local.batch.conftest import Batch

CHANGE = "Batch Service Job State Change"
BLOCKED = "Batch Service Job Queue Blocked"


def test_its_tags_are_handed_on_where_that_is_asked_for(batch: Batch):
    batch.make_queue()
    with pytest.raises(ServiceError, match="handed_on must be true or false"):
        batch.service.control_operations["BatchTags"]({"handed_on": "yes"})
    batch.service.control_operations["BatchTags"]({"handed_on": True})
    batch.training_job(batch.submit("digits", tags={"team": "a"}))
    assert batch.sagemaker.requests[0]["Tags"] == [{"Key": "team", "Value": "a"}]


def test_a_job_follows_its_training_job(batch: Batch):
    batch.make_queue()
    job = batch.submit("digits", tags={"team": "a"})
    name = batch.training_job(job)
    assert re.fullmatch(r"AWSBatchdigits[0-9a-f]{32}", name)
    assert batch.describe(job)["status"] == "SCHEDULED"
    request = batch.sagemaker.requests[0]
    assert "Tags" not in request
    assert request["ResourceConfig"]["InstanceType"] == "ml.m5.large"
    assert batch.sagemaker.queued_as == ["digits"]
    for secondary, status in (
        (SecondaryStatus.DOWNLOADING, "STARTING"),
        (SecondaryStatus.TRAINING, "RUNNING"),
        (SecondaryStatus.UPLOADING, "RUNNING"),
        (SecondaryStatus.COMPLETED, "SUCCEEDED"),
    ):
        batch.sagemaker.advance(name, secondary)
        ended = batch.wait_for(job, status)
    assert ended["statusReason"] == "Received status from SageMaker: Training job completed"
    (attempt,) = ended["attempts"]
    assert attempt["serviceResourceId"]["value"].endswith(f":training-job/{name}")
    assert ended["createdAt"] <= ended["scheduledAt"] <= attempt["startedAt"] <= attempt["stoppedAt"]
    assert ended["capacityUsage"] == [{"capacityUnit": "ml.m5.large", "quantity": 1}]
    batch.wait_for_event(CHANGE, status="SUCCEEDED")
    assert [detail["status"] for _kind, detail in batch.events] == [
        "RUNNABLE",
        "SCHEDULED",
        "STARTING",
        "RUNNING",
        "SUCCEEDED",
    ]
    assert not any({"tags", "serviceRequestPayload"} & detail.keys() for _kind, detail in batch.events)


def test_jobs_beyond_the_limit_wait_in_the_order_of_their_submission(batch: Batch):
    batch.make_queue(limit=2)
    first, second = batch.submit("first"), batch.submit("second", instances=2)
    third = batch.submit("third")
    name = batch.run(first)
    assert [batch.describe(job)["status"] for job in (second, third)] == ["RUNNABLE", "RUNNABLE"]
    batch.sagemaker.advance(name, SecondaryStatus.COMPLETED)
    batch.wait_for(second, "SCHEDULED")
    assert batch.describe(third)["status"] == "RUNNABLE"


def test_a_job_that_can_never_fit_says_why_it_waits(batch: Batch):
    batch.make_queue(limit=1)
    job = batch.submit("large", instances=2)
    batch.wait_until(lambda: "statusReason" in batch.describe(job))
    assert batch.describe(job)["statusReason"].startswith("MISCONFIGURATION:SERVICE_ENVIRONMENT_MAX_RESOURCE")
    limits = [{"maxCapacity": 2, "capacityUnit": "NUM_INSTANCES"}]
    batch.call("UpdateServiceEnvironment", serviceEnvironment="queue-environment", capacityLimits=limits)
    assert "statusReason" not in batch.wait_for(job, "SCHEDULED")


def test_a_job_that_can_never_fit_blocks_those_behind_it_and_an_event_says_so_once(batch: Batch):
    batch.make_quota_queue(2, small=(1, "LEND"), other=(1, "LEND"))
    large = batch.submit("large", instances=2, quotaShareName="small")
    behind = batch.submit("behind", quotaShareName="small")
    beside = batch.submit("beside", quotaShareName="other")
    said = batch.wait_for_event(BLOCKED, jobName="large")
    assert said["statusReason"].startswith("MISCONFIGURATION:QUOTA_MANAGEMENT_LIMIT_EXCEEDED")
    assert not said.keys() & {"serviceRequestPayload", "tags"}
    batch.wait_for(beside, "SCHEDULED")
    for job in (large, behind):
        batch.wait_for(job, "RUNNABLE")
    batch.call("TerminateServiceJob", jobId=large, reason="enough")
    batch.wait_for(behind, "SCHEDULED")
    assert [detail["jobName"] for kind, detail in batch.events if kind == BLOCKED] == ["large"]


def limit(reason: str) -> list[dict[str, object]]:
    return [{"reason": reason, "state": "RUNNABLE", "maxTimeSeconds": 600, "action": "TERMINATE"}]


@pytest.mark.parametrize("ends", [True, False])
def test_a_queues_time_limit_ends_what_can_never_fit_so_that_the_next_one_has_its_turn(batch: Batch, ends: bool):
    misfit, capacity = "MISCONFIGURATION:SERVICE_ENVIRONMENT_MAX_RESOURCE", "CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"
    batch.make_queue(limit=1, jobStateTimeLimitActions=limit(misfit if ends else capacity))
    large, behind = batch.submit("large", instances=2), batch.submit("behind")
    batch.wait_for_event(BLOCKED, jobName="large")
    batch.let_pass(700)
    if not ends:
        batch.wait_until(lambda: batch.describe(large)["statusReason"].startswith("MISCONFIGURATION"))
        batch.wait_for(behind, "RUNNABLE")
        return
    ended = batch.wait_for(large, "FAILED")
    assert ended["statusReason"] == f"Terminated by JobStateTimeLimit action due to reason: {misfit}"
    batch.wait_for(behind, "SCHEDULED")


def test_a_queues_time_limit_ends_what_has_no_capacity(batch: Batch):
    batch.make_queue(jobStateTimeLimitActions=limit("CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY"))
    job = batch.submit("scarce")
    batch.sagemaker.advance(batch.training_job(job), SecondaryStatus.FAILED, reason=CAPACITY_ERROR)
    batch.wait_for(job, "RUNNABLE")
    batch.let_pass(700)
    batch.wait_until(lambda: batch.describe(job)["status"] in ("FAILED", "SCHEDULED"))
    if batch.describe(job)["status"] == "SCHEDULED":  # It was tried once more: then its time is over at the next wait.
        batch.sagemaker.advance(batch.training_job(job), SecondaryStatus.FAILED, reason=CAPACITY_ERROR)
    ended = batch.wait_for(job, "FAILED")
    assert ended["statusReason"].endswith("due to reason: CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY")


def test_a_disabled_environment_dispatches_nothing_and_a_disabled_queue_takes_nothing(batch: Batch):
    batch.make_queue()
    batch.call("UpdateServiceEnvironment", serviceEnvironment="queue-environment", state="DISABLED")
    job = batch.submit("waits")
    batch.wait_for(job, "RUNNABLE")
    batch.call("UpdateJobQueue", jobQueue="queue", state="DISABLED")
    assert "DISABLED" in batch.refusal("SubmitServiceJob", **submission("late"))
    batch.call("UpdateServiceEnvironment", serviceEnvironment="queue-environment", state="ENABLED")
    batch.wait_for(job, "SCHEDULED")


def submission(name: str, **changes: object) -> dict[str, object]:
    request = {
        "jobName": name,
        "jobQueue": "queue",
        "serviceJobType": "SAGEMAKER_TRAINING",
        "serviceRequestPayload": "{}",
        "clientToken": name,
    }
    return request | changes


# Failures and retries.


def test_a_failed_attempt_is_followed_by_another_training_job(batch: Batch):
    batch.make_queue()
    job = batch.submit("again", retryStrategy={"attempts": 2})
    first = batch.run(job)
    batch.sagemaker.advance(first, SecondaryStatus.FAILED, reason="AlgorithmError: boom")
    batch.wait_until(lambda: batch.training_job(job) != first)
    second = batch.run(job)
    batch.sagemaker.advance(second, SecondaryStatus.FAILED, reason="AlgorithmError: boom, exit code: 1")
    failed = batch.wait_for(job, "FAILED")
    assert failed["statusReason"] == "Received status from SageMaker: AlgorithmError: boom, exit code: 1"
    names = [attempt["serviceResourceId"]["value"].rpartition("/")[2] for attempt in failed["attempts"]]
    assert names == [first, second]


@pytest.mark.parametrize(
    ("reason", "status"), [("InternalServerError: We are sorry", "SCHEDULED"), ("AlgorithmError: [x]", "FAILED")]
)
def test_the_first_condition_that_matches_decides_about_a_retry(batch: Batch, reason: str, status: str):
    batch.make_queue()
    conditions = [
        {"action": "RETRY", "onStatusReason": "Received status from SageMaker: InternalServerError*"},
        {"action": "EXIT", "onStatusReason": "*AlgorithmError: [x]"},
    ]
    job = batch.submit("conditions", retryStrategy={"attempts": 3, "evaluateOnExit": conditions})
    first = batch.run(job)
    batch.sagemaker.advance(first, SecondaryStatus.FAILED, reason=reason)
    batch.wait_until(lambda: len(batch.describe(job)["attempts"]) == 1)
    batch.wait_for(job, status)


def test_no_capacity_is_tried_again_and_counts_as_no_attempt(batch: Batch):
    batch.make_queue()
    job = batch.submit("patient")
    first = batch.training_job(job)
    batch.sagemaker.advance(first, SecondaryStatus.FAILED, reason=CAPACITY_ERROR)
    waiting = batch.wait_for(job, "RUNNABLE")
    assert waiting["statusReason"].startswith("CAPACITY:INSUFFICIENT_INSTANCE_CAPACITY - ")
    assert waiting["attempts"] == []
    batch.wait_until(lambda: batch.training_job(job) != first)
    second = batch.run(job)
    batch.sagemaker.advance(second, SecondaryStatus.COMPLETED)
    assert len(batch.wait_for(job, "SUCCEEDED")["attempts"]) == 1


def test_a_quota_that_is_used_up_is_waited_for(batch: Batch):
    batch.make_queue()
    batch.sagemaker.refusal = ServiceError("The account-level service limit is 0", code="ResourceLimitExceeded")
    job = batch.submit("quota")
    batch.wait_until(lambda: "ResourceLimitExceeded" in batch.describe(job).get("statusReason", ""))
    assert batch.wait_for(job, "SCHEDULED")["attempts"] == []


def test_what_is_in_a_payload_shows_when_sagemaker_refuses_it(batch: Batch):
    batch.make_queue()
    unreadable = batch.submit("unreadable", serviceRequestPayload="no JSON")
    assert "ValidationException" in batch.wait_for(unreadable, "FAILED")["statusReason"]
    batch.sagemaker.refusal = ValidationError("1 validation error detected")
    refused = batch.submit("refused")
    failed = batch.wait_for(refused, "FAILED")
    expected = "Received status from SageMaker: ValidationException: 1 validation error detected"
    assert failed["statusReason"] == expected
    (attempt,) = failed["attempts"]
    assert attempt["statusReason"] == expected
    assert "serviceResourceId" not in attempt


def test_a_role_that_may_not_read_the_data_fails_the_attempt(batch: Batch):
    batch.make_queue()
    denied = {"Error": {"Code": "AccessDenied", "Message": "not authorized to perform: s3:ListBucket"}}
    batch.sagemaker.refusal = ClientError(denied, "ListObjectsV2")
    assert "s3:ListBucket" in batch.wait_for(batch.submit("denied"), "FAILED")["statusReason"]


def test_what_goes_wrong_once_holds_nothing_up(batch: Batch):
    batch.make_queue()
    batch.sagemaker.refusal = RuntimeError("the server has a bug")
    batch.wait_for(batch.submit("goes-on"), "SCHEDULED")


def test_a_training_job_that_a_user_stops_fails_its_service_job(batch: Batch):
    batch.make_queue()
    job = batch.submit("stopped")
    name = batch.run(job)
    for secondary in (SecondaryStatus.STOPPING, SecondaryStatus.STOPPED):
        batch.sagemaker.advance(name, secondary)
    assert batch.wait_for(job, "FAILED")["statusReason"] == "Received status from SageMaker: Training job stopped"


def test_an_attempt_that_takes_too_long_is_stopped_and_not_tried_again(batch: Batch):
    batch.make_queue()
    job = batch.submit("slow", timeoutConfig={"attemptDurationSeconds": 1}, retryStrategy={"attempts": 3})
    name = batch.run(job)
    batch.wait_until(lambda: batch.sagemaker.stopped == [name])
    batch.sagemaker.advance(name, SecondaryStatus.STOPPED)
    assert batch.wait_for(job, "FAILED")["statusReason"] == "Job attempt duration exceeded timeout"


# Termination.


def test_a_job_that_waits_is_terminated_at_once(batch: Batch):
    batch.make_queue(limit=0)
    job = batch.submit("waits")
    batch.call("TerminateServiceJob", jobId=job, reason="not needed")
    ended = batch.describe(job)
    assert (ended["status"], ended["statusReason"], ended["isTerminated"]) == ("FAILED", "not needed", True)
    batch.wait_for_event(CHANGE, status="FAILED")
    batch.call("TerminateServiceJob", jobId=job, reason="once more")
    assert batch.describe(job)["statusReason"] == "not needed"


def test_a_job_that_runs_is_terminated_once_its_training_job_has_stopped(batch: Batch):
    batch.make_queue()
    job = batch.submit("runs", retryStrategy={"attempts": 3})
    name = batch.run(job)
    batch.call("TerminateServiceJob", jobId=batch.describe(job)["jobArn"], reason="not needed")
    batch.wait_until(lambda: batch.sagemaker.stopped == [name])
    assert batch.describe(job)["status"] == "RUNNING"
    batch.sagemaker.advance(name, SecondaryStatus.STOPPED)
    ended = batch.wait_for(job, "FAILED")
    assert (ended["statusReason"], ended["isTerminated"]) == ("not needed", True)


# Preemption.


def test_lent_capacity_is_taken_back_by_stopping_the_training_job(batch: Batch):
    batch.make_quota_queue(2, a=(1, "LEND_AND_BORROW"), b=(1, "LEND"))
    own = batch.submit("own", quotaShareName="a", schedulingPriority=1)
    batch.run(own)
    borrower = batch.submit("borrower", quotaShareName="a")
    first = batch.run(borrower)
    owner = batch.submit("owner", quotaShareName="b")
    batch.wait_until(lambda: batch.sagemaker.stopped == [first])
    started = batch.wait_for_event("Batch Service Job Preemption Started")
    assert started["status"] == "RUNNING"
    reason = "PREEMPTION_IN_PROGRESS: Cross-share preemption triggered to reclaim borrowed capacity"
    assert started["statusReason"] == reason
    batch.sagemaker.advance(first, SecondaryStatus.STOPPED)
    batch.wait_for(owner, "SCHEDULED")
    waiting = batch.wait_for(borrower, "RUNNABLE")
    assert waiting["attempts"] == []
    summary = waiting["preemptionSummary"]
    assert summary["preemptedAttemptCount"] == 1
    (attempt,) = summary["recentPreemptedAttempts"]
    assert attempt["serviceResourceId"]["value"].endswith(first)
    completed = batch.wait_for_event("Batch Service Job Preemption Completed")
    assert completed["preemptionSummary"] == summary
    batch.sagemaker.advance(batch.run(owner), SecondaryStatus.COMPLETED)
    batch.wait_until(lambda: batch.training_job(borrower) != first)
    batch.sagemaker.advance(batch.run(borrower), SecondaryStatus.COMPLETED)
    assert len(batch.wait_for(borrower, "SUCCEEDED")["attempts"]) == 1


def test_a_job_of_several_instances_borrows_all_of_them_and_gives_all_back_for_one(batch: Batch):
    batch.make_quota_queue(3, a=(1, "LEND_AND_BORROW"), b=(2, "LEND"))
    borrower = batch.submit("borrower", instances=3, quotaShareName="a")
    first = batch.run(borrower)
    assert batch.sagemaker.requests[0]["ResourceConfig"]["InstanceCount"] == 3
    assert batch.describe(borrower)["capacityUsage"] == [{"capacityUnit": "ml.m5.large", "quantity": 3}]
    owner = batch.submit("owner", quotaShareName="b")
    batch.wait_until(lambda: batch.sagemaker.stopped == [first])
    batch.sagemaker.advance(first, SecondaryStatus.STOPPED)
    name = batch.run(owner)
    waiting = batch.wait_for(borrower, "RUNNABLE")
    assert waiting["preemptionSummary"]["preemptedAttemptCount"] == 1
    assert len(batch.sagemaker.requests) == 2, "two free instances are not enough for three"
    batch.sagemaker.advance(name, SecondaryStatus.COMPLETED)
    batch.sagemaker.advance(batch.run(borrower), SecondaryStatus.COMPLETED)
    assert len(batch.wait_for(borrower, "SUCCEEDED")["attempts"]) == 1


def test_a_higher_priority_takes_the_place_of_a_lower_one_in_its_share(batch: Batch):
    batch.make_quota_queue(1, a=(1, "RESERVE"))
    low = batch.submit("low", quotaShareName="a")
    first = batch.run(low)
    high = batch.submit("high", quotaShareName="a")
    batch.wait_for(high, "RUNNABLE")
    assert batch.sagemaker.stopped == []
    batch.call("UpdateServiceJob", jobId=high, schedulingPriority=7)
    batch.wait_until(lambda: batch.sagemaker.stopped == [first])
    assert "In-share" in batch.wait_for_event("Batch Service Job Preemption Started")["statusReason"]
    batch.sagemaker.advance(first, SecondaryStatus.STOPPED)
    batch.wait_for(high, "SCHEDULED")
    assert batch.describe(low)["status"] == "RUNNABLE"


def test_a_job_is_preempted_as_often_as_it_allows(batch: Batch):
    batch.make_quota_queue(1, a=(1, "RESERVE"))
    once = {"preemptionRetriesBeforeTermination": 0}
    low = batch.submit("low", quotaShareName="a", preemptionConfiguration=once)
    first = batch.run(low)
    batch.submit("high", quotaShareName="a", schedulingPriority=7)
    batch.wait_until(lambda: batch.sagemaker.stopped == [first])
    batch.sagemaker.advance(first, SecondaryStatus.STOPPED)
    assert "preemptionRetriesBeforeTermination" in batch.wait_for(low, "FAILED")["statusReason"]


def test_a_job_that_completes_while_it_is_being_stopped_has_succeeded(batch: Batch):
    batch.make_quota_queue(1, a=(1, "RESERVE"))
    low = batch.submit("low", quotaShareName="a")
    first = batch.run(low)
    high = batch.submit("high", quotaShareName="a", schedulingPriority=7)
    batch.wait_until(lambda: batch.sagemaker.stopped == [first])
    batch.sagemaker.advance(first, SecondaryStatus.COMPLETED)
    assert "preemptionSummary" not in batch.wait_for(low, "SUCCEEDED")
    batch.wait_for(high, "SCHEDULED")


# Events.


def test_events_can_be_lost_and_come_twice(batch: Batch):
    batch.make_queue()
    batch.service.set_event_faults(EventFaults(drop=1.0))
    job = batch.submit("lost")
    batch.wait_for(job, "SCHEDULED")
    batch.service.set_event_faults(EventFaults(duplicate=True))
    batch.sagemaker.advance(batch.training_job(job), SecondaryStatus.COMPLETED)
    batch.wait_until(lambda: len(batch.events) == 2)
    assert [detail["status"] for _kind, detail in batch.events] == ["SUCCEEDED", "SUCCEEDED"]


# Submission.


def test_all_problems_of_a_submission_come_at_once(batch: Batch):
    batch.make_queue()
    message = batch.refusal(
        "SubmitServiceJob",
        **submission(
            "a b",
            serviceRequestPayload="x" * 10_241,
            schedulingPriority=10_000,
            shareIdentifier="team",
            quotaShareName="team",
            preemptionConfiguration={"preemptionRetriesBeforeTermination": -1},
            retryStrategy={"attempts": 11, "evaluateOnExit": [{"action": "EXIT", "onStatusReason": "*"}] * 6},
            timeoutConfig={"attemptDurationSeconds": 0},
            tags={"aws:mine": ""},
        ),
    )
    for problem in (
        "jobName",
        "serviceRequestPayload must have at most 10240 bytes, found 10241",
        "schedulingPriority must be from 0 to 9999, found 10000",
        "shareIdentifier must not be given",
        "quotaShareName must not be given",
        "preemptionConfiguration must not be given",
        "attempts must be from 1 to 10, found 11",
        "evaluateOnExit must hold 5",
        "preemptionRetriesBeforeTermination",
        "attemptDurationSeconds",
        "aws:mine",
    ):
        assert problem in message


def test_a_request_is_at_most_30_kib(batch: Batch):
    batch.make_queue()
    tags = {f"key-{number}": "v" * 256 for number in range(50)}
    payload = json.dumps({"a": "x" * 10_000})
    batch.call("SubmitServiceJob", **submission("fits", tags=tags, serviceRequestPayload=payload))
    tags = {f"{number:0128}": "v" * 256 for number in range(50)}
    retries = {"attempts": 1, "evaluateOnExit": [{"action": "EXIT", "onStatusReason": "x" * 512}] * 5}
    message = batch.refusal(
        "SubmitServiceJob", **submission("large", tags=tags, serviceRequestPayload=payload, retryStrategy=retries)
    )
    assert message.startswith("the request must have at most 30720 bytes")


def test_a_queue_with_shares_takes_jobs_of_its_enabled_shares(batch: Batch):
    batch.make_quota_queue(1, a=(1, "RESERVE"))
    assert "quotaShareName is missing" in batch.refusal("SubmitServiceJob", **submission("none"))
    assert "does not exist" in batch.refusal("SubmitServiceJob", **submission("other", quotaShareName="other"))
    arn = batch.call("ListQuotaShares", jobQueue="queue")["quotaShares"][0]["quotaShareArn"]
    batch.call("UpdateQuotaShare", quotaShareArn=arn, state="DISABLED")
    assert "DISABLED" in batch.refusal("SubmitServiceJob", **submission("late", quotaShareName="a"))


def test_a_second_request_with_the_same_token_and_payload_is_refused(batch: Batch):
    batch.make_queue(limit=0)
    batch.call("SubmitServiceJob", **submission("once"))
    assert "clientToken once" in batch.refusal("SubmitServiceJob", **submission("once"))
    assert len(listed(batch, filters=[{"name": "JOB_NAME", "values": ["once"]}])) == 1


# Lists.


def listed(batch: Batch, **request: object) -> list[str]:
    answer = batch.call("ListServiceJobs", jobQueue="queue", **request)
    return [job["jobName"] for job in answer["jobSummaryList"]]


def test_lists_by_status_by_name_and_by_share(batch: Batch):
    batch.make_quota_queue(1, a=(1, "RESERVE"), b=(0, "LEND"))
    runs = batch.submit("runs", quotaShareName="a")
    batch.run(runs)
    for name in ("Waits-1", "waits-2"):
        batch.wait_for(batch.submit(name, quotaShareName="b"), "RUNNABLE")
    assert listed(batch) == ["runs"]
    assert listed(batch, jobStatus="RUNNABLE") == ["waits-2", "Waits-1"]
    assert listed(batch, jobStatus="RUNNABLE", maxResults=1) == ["waits-2"]
    assert listed(batch, filters=[{"name": "JOB_NAME", "values": ["waits-1"]}]) == ["Waits-1"]
    assert listed(batch, filters=[{"name": "JOB_NAME", "values": ["WAITS*"]}]) == ["waits-2", "Waits-1"]
    of_share = [{"name": "QUOTA_SHARE_NAME", "values": ["b"]}]
    assert listed(batch, filters=of_share) == ["waits-2", "Waits-1"]
    assert listed(batch, filters=of_share, jobStatus="RUNNING") == []
    created = batch.describe(runs)["createdAt"]
    assert listed(batch, filters=[{"name": "AFTER_CREATED_AT", "values": [str(created + 60_000)]}]) == []
    assert len(listed(batch, filters=[{"name": "BEFORE_CREATED_AT", "values": [str(created + 60_000)]}])) == 3
    assert "jobQueue" in batch.refusal("ListServiceJobs")
    assert "name must be one of" in batch.refusal(
        "ListServiceJobs", jobQueue="queue", filters=[{"name": "COLOUR", "values": ["red"]}]
    )


def test_unknown_jobs_and_priorities_are_refused(batch: Batch):
    batch.make_queue(limit=0)
    assert "does not exist" in batch.refusal("DescribeServiceJob", jobId="none")
    job = batch.submit("waits")
    assert "0 to 9999" in batch.refusal("UpdateServiceJob", jobId=job, schedulingPriority=-1)
    batch.call("TerminateServiceJob", jobId=job, reason="enough")
    assert "FAILED" in batch.refusal("UpdateServiceJob", jobId=job, schedulingPriority=1)


# Another server.


def test_the_next_server_goes_on(batch: Batch):
    batch.make_queue(limit=1)
    runs, waits = batch.submit("runs"), batch.submit("waits")
    name = batch.run(runs)
    batch.restart()
    assert batch.describe(runs)["status"] == "RUNNING"
    batch.sagemaker.advance(name, SecondaryStatus.COMPLETED)
    batch.wait_for(runs, "SUCCEEDED")
    batch.wait_for(waits, "SCHEDULED")
