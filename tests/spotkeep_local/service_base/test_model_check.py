"""What an answer may hold, shown in each of AWS's protocols; and that a client's view hides none of the problems."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.ec2.service import Ec2QueryProtocol
from spotkeep_local.service_base.aws_service import AwsService, HttpRequest, JsonProtocol
from spotkeep_local.service_base.clients import service_model
from spotkeep_local.service_base.model_check import problems_of_answer
from tests.answers import AnswerError

STATUS = {"TrainingJobName": "a", "TrainingJobArn": "arn", "CreationTime": 1.5, "TrainingJobStatus": "Completed"}


def problems(service: str, operation: str, body: str | bytes) -> list[str]:
    raw = body if isinstance(body, bytes) else body.encode()
    return problems_of_answer(service_model(service).operation_model(operation), raw)


def listed(**change: Any) -> list[str]:
    summary = {name: value for name, value in (STATUS | change).items() if value != "left out"}
    return problems("sagemaker", "ListTrainingJobs", json.dumps({"TrainingJobSummaries": [summary]}))


def volume(inner: str) -> list[str]:
    return problems("ec2", "DescribeVolumes", f"<DescribeVolumesResponse>{inner}</DescribeVolumesResponse>")


def caller(inner: str) -> list[str]:
    result = f"<GetCallerIdentityResult>{inner}</GetCallerIdentityResult><ResponseMetadata/>"
    return problems("sts", "GetCallerIdentity", f"<GetCallerIdentityResponse>{result}</GetCallerIdentityResponse>")


def objects(inner: str) -> list[str]:
    return problems("s3", "ListObjectsV2", f'<ListBucketResult xmlns="http://s3/">{inner}</ListBucketResult>')


def test_what_the_model_describes_has_no_problem() -> None:
    assert listed() == []
    assert volume("<requestId>1</requestId><volumeSet><item><size>1</size></item></volumeSet>") == []
    assert caller("<Account>1</Account>") == []
    assert objects("<IsTruncated>false</IsTruncated><Contents><Key>a</Key></Contents><Contents/>") == []
    assert problems("s3", "HeadObject", b"") == []
    assert problems("ec2", "TerminateInstances", b"<TerminateInstancesResponse/>") == []


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"CreationTime": "left out"}, "TrainingJobSummaries[].CreationTime is missing"),
        ({"CreationTime": None}, "TrainingJobSummaries[].CreationTime is missing"),
        ({"CreationTime": "2026-11-21T00:00:00Z"}, "not a timestamp in the format unixTimestamp"),
        ({"TrainingJobStatus": "Done"}, "TrainingJobSummaries[].TrainingJobStatus is 'Done', not one of InProgress"),
        ({"TrainingJobName": 3}, "TrainingJobSummaries[].TrainingJobName is 3, not a string"),
        ({"WarmPoolStatus": {"Status": "Available", "For": 3}}, "WarmPoolStatus.For is not in the model"),
        ({"WarmPoolStatus": {"ReusedByJob": "b"}}, "WarmPoolStatus.Status is missing"),
        (
            {"WarmPoolStatus": {"Status": "Available", "ResourceRetainedBillableTimeInSeconds": True}},
            "TimeInSeconds is True, not a integer",
        ),
    ],
)
def test_each_problem_of_a_json_answer_is_named(change: dict[str, Any], problem: str) -> None:
    [found] = listed(**change)
    assert problem in found


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (volume("<volumes/>"), "volumes is not in the model"),
        (volume("<volumeSet><member/></volumeSet>"), "volumeSet holds member, not item"),
        (volume("<volumeSet><item><size>a</size></item></volumeSet>"), "volumeSet[].size is 'a', not a integer"),
        (volume("<volumeSet><item><encrypted>True</encrypted></item></volumeSet>"), "'True', not a boolean"),
        (volume("<volumeSet><item><status>new</status></item></volumeSet>"), "status is 'new', not one of creating"),
        (volume("<volumeSet><item><createTime>1</createTime></item></volumeSet>"), "in the format iso8601"),
        (volume("<nextToken>a</nextToken><nextToken>b</nextToken>"), "nextToken is there 2 times"),
        (volume("<volumeSet><item><requestId/></item></volumeSet>"), "volumeSet[].requestId is not in the model"),
        (caller("<account>1</account>"), "account is not in the model"),
        (problems("sts", "GetCallerIdentity", "<GetCallerIdentityResponse/>"), "GetCallerIdentityResult is missing"),
        (problems("sts", "GetCallerIdentity", "<Response/>"), "the root is Response, not GetCallerIdentityResponse"),
        (problems("sts", "GetCallerIdentity", "{}"), "the body is not XML"),
        (objects("<Contents><Key><a/></Key></Contents>"), "Contents[].Key is an element with elements"),
        (objects("<Contents><Size>1.5</Size></Contents>"), "Contents[].Size is '1.5', not a long"),
        (problems("fis", "GetExperiment", b"<a/>"), "the body is not JSON"),
    ],
)
def test_each_problem_of_an_xml_answer_is_named(found: list[str], problem: str) -> None:
    assert len(found) == 1, found
    assert problem in found[0]


def test_a_map_in_xml_is_read_entry_by_entry() -> None:
    def attributes(entries: str) -> list[str]:
        result = f"<GetTopicAttributesResult><Attributes>{entries}</Attributes></GetTopicAttributesResult>"
        return problems(
            "sns", "GetTopicAttributes", f"<GetTopicAttributesResponse>{result}</GetTopicAttributesResponse>"
        )

    assert attributes("<entry><key>a</key><value>b</value></entry>") == []
    assert attributes("<entry><key>a</key></entry>") == ["Attributes has an entry that is no pair of key and value"]


@given(name=st.from_regex(r"[A-Z][a-z]{3,12}Q", fullmatch=True))
def test_no_unknown_member_passes_at_any_depth(name: str) -> None:
    job = {**STATUS, "WarmPoolStatus": {"Status": "Available", name: 1}, name: None}
    body = json.dumps({"TrainingJobSummaries": [job], name: {}})
    assert sorted(problems("sagemaker", "ListTrainingJobs", body)) == sorted(
        [f"{name} is not in the model", f"TrainingJobSummaries[].WarmPoolStatus.{name} is not in the model"]
    )


def test_a_service_gives_no_answer_that_aws_cannot_give() -> None:
    service = AwsService(
        JsonProtocol("sagemaker", target="SageMaker"), {"ListTrainingJobs": lambda _: {"TrainingJobSummaries": [{}]}}
    )
    status, _, body = service.answer(HttpRequest(headers={"x-amz-target": "SageMaker.ListTrainingJobs"}))
    assert (status, json.loads(body)["__type"]) == (500, "InternalFailure")
    assert "TrainingJobSummaries[].TrainingJobName is missing" in json.loads(body)["message"]


def test_so_does_no_service_in_xml() -> None:
    service = AwsService(Ec2QueryProtocol(), {"DescribeVolumes": lambda _: {"Volumes": [{"State": "new"}]}})
    status, _, body = service.answer(HttpRequest(body=b"Action=DescribeVolumes"))
    assert status == 500
    assert b"volumeSet[].status is &#x27;new&#x27;" in body or b"volumeSet[].status is 'new'" in body


def test_a_client_of_a_test_is_given_none() -> None:
    client = boto3.client("sagemaker")
    answer = {"status_code": 200, "headers": {}, "body": b'{"TrainingJobSummaries": [], "More": 1}', "context": {}}
    model = client.meta.service_model.operation_model("ListTrainingJobs")
    with pytest.raises(AnswerError, match="sagemaker ListTrainingJobs: More is not in the model"):
        client.meta.events.emit(
            "before-parse.sagemaker.ListTrainingJobs",
            operation_model=model,
            response_dict=answer,
            customized_response_dict={},
        )
