"""SageMaker's seam on a real client: answers read into types, errors distinguished, throttles retried."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.awsrequest import AWSPreparedRequest, AWSResponse, HeadersDict
from botocore.exceptions import EndpointConnectionError

from spotkeep_jobs.backends.backend import JobPhase
from spotkeep_jobs.backends.sagemaker.api import CREATE_ATTEMPTS, SageMakerTrainingJobs, client_config
from spotkeep_jobs.errors import (
    AwsBusyError,
    AwsCallError,
    AwsRefusedError,
    JobNotFoundError,
    TrainingJobNameTakenError,
)
from spotkeep_jobs.record.states import EndReason

if TYPE_CHECKING:
    from mypy_boto3_sagemaker import SageMakerClient

ARN = "arn:aws:sagemaker:us-east-1:123456789012:training-job/first-1"
EPOCH = 1_795_219_200.0
AT = datetime.fromtimestamp(EPOCH, tz=UTC)
MINIMAL = {
    "TrainingJobName": "first-1",
    "TrainingJobArn": ARN,
    "TrainingJobStatus": "InProgress",
    "SecondaryStatus": "Starting",
    "CreationTime": EPOCH,
    "ModelArtifacts": {"S3ModelArtifacts": "s3://bucket/output/model.tar.gz"},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600},
}
REQUEST: dict[str, Any] = {
    "TrainingJobName": "first-1",
    "RoleArn": "arn:aws:iam::123456789012:role/execution",
    "AlgorithmSpecification": {
        "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/image:1",
        "TrainingInputMode": "File",
    },
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/output/"},
}


class _Raw:
    def __init__(self, body: bytes) -> None:
        self._body = body

    def stream(self) -> list[bytes]:
        return [self._body]


class Wire:
    """What SageMaker answers, one entry a request; the last one for ever."""

    def __init__(self, client: SageMakerClient) -> None:
        self._answers: list[tuple[int, dict[str, Any]] | Exception] = []
        self.requests: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        client.meta.events.register("before-send.sagemaker", self._send)  # type: ignore[arg-type]

    def answers(self, *answers: tuple[int, dict[str, Any]] | Exception) -> None:
        self._answers = list(answers)

    def _send(self, request: AWSPreparedRequest, **_: Any) -> AWSResponse:
        target: Any = request.headers["X-Amz-Target"]
        self.requests.append(target.decode())
        self.bodies.append(json.loads(request.body or b"{}"))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, document = answer
        headers: Any = HeadersDict()
        return AWSResponse(request.url, status, headers, _Raw(json.dumps(document).encode()))


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> SageMakerClient:
    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda _seconds: None)
    return boto3.client("sagemaker", region_name="us-east-1", config=client_config())


@pytest.fixture
def wire(client: SageMakerClient) -> Wire:
    return Wire(client)


@pytest.fixture
def jobs(client: SageMakerClient) -> SageMakerTrainingJobs:
    return SageMakerTrainingJobs(client)


def failure(code: str, message: str = "", *, status: int = 400) -> tuple[int, dict[str, Any]]:
    return status, {"__type": code, "message": message}


LOST = EndpointConnectionError(endpoint_url="https://api.sagemaker.us-east-1.amazonaws.com")
NOT_FOUND = failure("ValidationException", "Requested resource not found.")
CALLS: list[tuple[str, Callable[[SageMakerTrainingJobs], object]]] = [
    ("CreateTrainingJob", lambda jobs: jobs.create(REQUEST)),
    ("DescribeTrainingJob", lambda jobs: jobs.observe("first-1")),
    ("Search", lambda jobs: list(jobs.search_in_progress("spotkeep"))),
    ("StopTrainingJob", lambda jobs: jobs.stop("first-1")),
]


def test_describes_all_that_the_tracker_needs(wire: Wire, jobs: SageMakerTrainingJobs) -> None:
    wire.answers(
        (
            200,
            MINIMAL
            | {
                "TrainingJobStatus": "Stopped",
                "SecondaryStatus": "MaxWaitTimeExceeded",
                "SecondaryStatusTransitions": [
                    {"Status": "Starting", "StartTime": EPOCH, "EndTime": EPOCH + 5, "StatusMessage": "x"},
                    {"Status": "Interrupted", "StartTime": EPOCH + 5},
                ],
                "TrainingStartTime": EPOCH,
                "TrainingEndTime": EPOCH + 90,
                "TrainingTimeInSeconds": 90,
                "BillableTimeInSeconds": 30,
                "FailureReason": "why",
                "EnableManagedSpotTraining": True,
                "ResourceConfig": {"InstanceCount": 2, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 1},
                "StoppingCondition": {"MaxRuntimeInSeconds": 60, "MaxWaitTimeInSeconds": 120},
                "CheckpointConfig": {"S3Uri": "s3://c/"},
                "OutputDataConfig": {"S3OutputPath": "s3://o/"},
                "ModelArtifacts": {"S3ModelArtifacts": "s3://o/first-1/output/model.tar.gz"},
                "Environment": {"SPOTKEEP_RUN": "first"},
            },
        )
    )
    job = jobs.observe("first-1")
    assert (job.phase, job.end_reason, job.failure_reason) == (JobPhase.ENDED, EndReason.MAX_WAIT_EXCEEDED, "why")
    assert (job.training_seconds, job.billable_seconds) == (90, 30)
    assert (job.created_at, job.training_started_at) == (AT, AT)
    assert (job.instance_type, job.instance_count) == ("ml.m5.large", 2)
    assert job.model_uri == "s3://o/first-1/output/model.tar.gz"
    assert job.environment == {"SPOTKEEP_RUN": "first"}
    assert [entry.phase for entry in job.transitions] == [JobPhase.WAITING, JobPhase.INTERRUPTED]
    assert job.transitions[1].ended_at is None


def test_searches_the_jobs_of_a_deployment_that_are_in_progress_a_hundred_at_a_time(
    wire: Wire, jobs: SageMakerTrainingJobs
) -> None:
    page = {"Results": [{"TrainingJob": MINIMAL}]}
    wire.answers((200, page | {"NextToken": "more"}), (200, page))
    assert [job.name for job in jobs.search_in_progress("ours")] == ["first-1", "first-1"]
    asked = wire.bodies
    wanted = {each["Name"]: each["Value"] for each in asked[0]["SearchExpression"]["Filters"]}
    assert wanted == {"TrainingJobStatus": "InProgress", "Tags.spotkeep:deployment": "ours"}
    assert (asked[0]["MaxResults"], asked[1]["NextToken"]) == (100, "more")


def test_a_job_that_never_launched_has_no_seconds_and_the_instance_type_that_sagemaker_selected(
    wire: Wire, jobs: SageMakerTrainingJobs
) -> None:
    resources = {"InstancePreferences": [{"InstanceType": "ml.g5.xlarge"}, {"InstanceType": "ml.g6.xlarge"}]}
    wire.answers((200, MINIMAL | {"ResourceConfig": resources | {"SelectedInstanceType": "ml.g6.xlarge"}}))
    job = jobs.observe("first-1")
    assert (job.training_seconds, job.billable_seconds, job.ended) == (None, None, False)
    assert job.instance_type == "ml.g6.xlarge"


def _group(name: str, instance_type: str, count: int) -> dict[str, Any]:
    return {"InstanceGroupName": name, "InstanceType": instance_type, "InstanceCount": count}


@pytest.mark.parametrize(
    ("resources", "instances"),
    [
        ({"InstanceGroups": [_group("a", "ml.p4d.24xlarge", 2), _group("b", "ml.c5.xlarge", 3)]},
         ("ml.p4d.24xlarge and ml.c5.xlarge", 5)),
        ({"InstanceGroups": [_group("a", "ml.g5.xlarge", 2), _group("b", "ml.g5.xlarge", 1)]}, ("ml.g5.xlarge", 3)),
        ({"InstanceGroups": [_group(each, f"ml.{each}.xlarge", 1) for each in ("g5", "g6", "c5")]},
         ("ml.g5.xlarge and 2 other types", 3)),
        ({"InstancePreferences": [{"InstanceType": "ml.g5.xlarge", "InstanceCount": 4}]}, (None, 4)),
        ({"InstancePreferences": [{"InstanceType": "ml.g5.xlarge", "InstanceCount": 4}],
          "SelectedInstanceType": "ml.g5.xlarge", "SelectedInstanceCount": 4}, ("ml.g5.xlarge", 4)),
        ({"InstanceType": "ml.g5.xlarge", "InstanceCount": 2, "InstanceGroups": []}, ("ml.g5.xlarge", 2)),
    ],
)  # fmt: skip
def test_all_instances_of_another_client_s_job_are_counted(
    wire: Wire, jobs: SageMakerTrainingJobs, resources: dict[str, Any], instances: tuple[str | None, int]
) -> None:
    """SageMaker bills each instance of each group."""
    wire.answers((200, MINIMAL | {"ResourceConfig": resources}))
    job = jobs.observe("first-1")
    assert (job.instance_type, job.instance_count) == instances


@pytest.mark.parametrize(
    ("secondary", "debug", "hosts", "off_in"),
    [("Training", {"EnableRemoteDebug": True}, 2, None), ("Training", {"EnableRemoteDebug": False}, 2, "first-1"),
     ("Training", {}, 2, "first-1"), ("Downloading", {"EnableRemoteDebug": True}, 0, None)],
)  # fmt: skip
def test_a_job_with_remote_debugging_takes_sessions_in_each_container_while_it_trains(
    wire: Wire,
    jobs: SageMakerTrainingJobs,
    secondary: str,
    debug: dict[str, bool],
    hosts: int,
    off_in: str | None,
) -> None:
    resources = {"InstanceCount": 2, "InstanceType": "ml.m5.large", "VolumeSizeInGB": 1}
    wire.answers(
        (200, MINIMAL | {"SecondaryStatus": secondary, "ResourceConfig": resources, "RemoteDebugConfig": debug})
    )
    job = jobs.observe("first-1")
    assert job.session_targets == tuple(f"sagemaker-training-job:first-1_algo-{host + 1}" for host in range(hosts))
    assert job.remote_debugging_off_in == off_in


@pytest.mark.parametrize(
    ("after_seconds", "began", "reason"),
    [(3_600, {}, EndReason.MAX_WAIT_EXCEEDED), (3_599, {}, EndReason.STOPPED_BY_USER),
     (3_600, {"TrainingStartTime": EPOCH + 60}, EndReason.STOPPED_BY_USER)],
    ids=["at its limit", "before", "after it had instances"],
)  # fmt: skip
def test_a_job_that_was_pending_for_too_long_was_not_stopped_by_its_user(
    wire: Wire, jobs: SageMakerTrainingJobs, after_seconds: int, began: dict[str, int], reason: EndReason
) -> None:
    limits = {"MaxRuntimeInSeconds": 60, "MaxPendingTimeInSeconds": 3_600}
    stopped = {"TrainingJobStatus": "Stopped", "SecondaryStatus": "Stopped", "StoppingCondition": limits}
    times = {"CreationTime": EPOCH, "TrainingEndTime": EPOCH + after_seconds, **began}
    wire.answers((200, MINIMAL | stopped | times))
    job = jobs.observe("first-1")
    assert job is not None
    assert job.end_reason is reason


def test_no_such_job_is_none_to_describe_and_an_error_to_stop(wire: Wire, jobs: SageMakerTrainingJobs) -> None:
    wire.answers(NOT_FOUND)
    assert jobs.observe("first-1") is None
    with pytest.raises(JobNotFoundError):
        jobs.stop("first-1")
    wire.answers(failure("ResourceNotFound", "no"))
    with pytest.raises(JobNotFoundError):
        jobs.stop("first-1")


def test_stopping_says_whether_there_was_something_to_stop(wire: Wire, jobs: SageMakerTrainingJobs) -> None:
    wire.answers((200, {}))
    assert jobs.stop("first-1") is True
    words = "The request was rejected because the training job is in status Completed."
    wire.answers(failure("ValidationException", words))
    assert jobs.stop("first-1") is False


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("ResourceInUse", TrainingJobNameTakenError),
        ("ResourceLimitExceeded", AwsRefusedError),
        ("ResourceNotFound", AwsRefusedError),
    ],
)
def test_refusals_of_create_are_distinguished(
    wire: Wire, jobs: SageMakerTrainingJobs, code: str, kind: type[AwsCallError]
) -> None:
    wire.answers(failure(code, "the words of AWS"))
    with pytest.raises(kind) as caught:
        jobs.create(REQUEST)
    assert caught.value.code == code
    assert caught.value.reason == "the words of AWS"
    assert len(wire.requests) == 1


def test_a_request_the_client_itself_refuses_is_a_refusal(wire: Wire, jobs: SageMakerTrainingJobs) -> None:
    with pytest.raises(AwsRefusedError) as caught:
        jobs.create({"TrainingJobName": 5})
    assert "RoleArn" in caught.value.reason
    assert wire.requests == []


@pytest.mark.parametrize(
    "trouble",
    [failure("ThrottlingException", "Rate exceeded"), failure("InternalFailure", status=500), LOST],
    ids=["throttled", "server error", "connection lost"],
)
def test_what_passes_by_itself_is_retried(wire: Wire, jobs: SageMakerTrainingJobs, trouble: Any) -> None:
    wire.answers(*[trouble] * (CREATE_ATTEMPTS - 1), (200, {"TrainingJobArn": ARN}))
    assert jobs.create(REQUEST) == ARN
    assert wire.requests == ["SageMaker.CreateTrainingJob"] * CREATE_ATTEMPTS


@pytest.mark.parametrize(("operation", "call"), CALLS, ids=[name for name, _ in CALLS])
def test_every_call_is_retried_and_busy_in_the_end_and_no_refusal(
    wire: Wire, jobs: SageMakerTrainingJobs, operation: str, call: Callable[[SageMakerTrainingJobs], object]
) -> None:
    wire.answers(LOST)
    with pytest.raises(AwsBusyError) as caught:
        call(jobs)
    assert caught.value.operation == operation
    assert wire.requests == [f"SageMaker.{operation}"] * CREATE_ATTEMPTS
