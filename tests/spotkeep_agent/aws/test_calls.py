"""A call is repeated where botocore repeats it, with the tables of the installed botocore, and not where S3 refuses."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore
import botocore.session
import pytest
from botocore.retries.standard import ThrottledRetryableChecker, TransientRetryableChecker

from spotkeep.errors import RemoteError
from spotkeep.remote.s3_objects import Part
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.aws.object_store import objects_of
from spotkeep_agent.errors import AwsUnavailableError

Answer = tuple[int, dict[str, str], bytes]
SERVICES = ("dynamodb", "ec2", "ecr", "events", "lambda", "logs", "s3")
"""All that an instance calls."""


def calls_answered(*answers: Answer) -> AwsCalls:
    """Calls that get one answer after the other, the last one again and again."""
    left = list(answers)
    return AwsCalls(
        region="us-east-1",
        environment={"AWS_ACCESS_KEY_ID": "A", "AWS_SECRET_ACCESS_KEY": "S"},
        transport=lambda *_, **__: left.pop(0) if len(left) > 1 else left[0],
        sleep=lambda seconds: None,
    )


def codes_of_botocore() -> Iterator[str]:
    """What its modes `standard` and `legacy` repeat for these services by the code of the error."""
    yield from TransientRetryableChecker._TRANSIENT_ERROR_CODES
    yield from ThrottledRetryableChecker._THROTTLED_ERROR_CODES
    for response in legacy_rules():
        if "service_error_code" in response:
            yield response["service_error_code"]
    session = botocore.session.Session()
    for name in SERVICES:
        model = session.get_service_model(name)
        for operation in model.operation_names:
            for shape in model.operation_model(operation).error_shapes:
                if shape.metadata.get("retryable") is not None:
                    yield shape.metadata.get("error", {}).get("code") or shape.name


def statuses_of_botocore() -> Iterator[int]:
    yield from TransientRetryableChecker._TRANSIENT_STATUS_CODES
    for response in legacy_rules():
        if "service_error_code" not in response and "http_status_code" in response:
            yield response["http_status_code"]


def legacy_rules() -> Iterator[dict[str, Any]]:
    rules = json.loads((Path(botocore.__file__).parent / "data/_retry.json").read_text())
    for name in ("__default__", *SERVICES):
        service = rules["retry"].get(name, {})
        for policy in service.get("__default__", service).get("policies", {}).values():
            referred = rules["definitions"][policy["$ref"]] if "$ref" in policy else policy
            yield referred["applies_when"].get("response", {})


def test_each_code_that_botocore_repeats_is_repeated() -> None:
    """None of these calls has taken effect, so that one is repeated, too, that must not be made twice."""
    codes = sorted(set(codes_of_botocore()))
    assert {"RequestTimeout", "SlowDown", "BadDigest", "ReplicatedWriteConflictException"} <= set(codes)
    for code in codes:
        xml = calls_answered((400, {}, f"<Error><Code>{code}</Code></Error>".encode()), (200, {}, b"<R/>"))
        xml.query("ec2", "CreateSnapshot", {}, version="2016-11-15", retry=False)
        as_json = calls_answered((400, {}, json.dumps({"__type": f"x#{code}"}).encode()), (200, {}, b"{}"))
        assert as_json.json("dynamodb", "DynamoDB_20120810.GetItem", {}, version="1.0") == {}, code


def test_each_status_that_botocore_repeats_is_repeated() -> None:
    statuses = sorted(set(statuses_of_botocore()))
    assert {429, 500, 502, 503, 504} <= set(statuses)
    for status in statuses:
        calls = calls_answered((status, {}, b"<html>busy</html>"), (200, {}, b"<R/>"))
        calls.s3("PutObject", method="PUT", bucket="b", key="k", body=b"x")
        assert calls.counted["s3:PutObject"] == 2, status


@pytest.mark.parametrize(
    ("status", "code"),
    [(403, "AccessDenied"), (404, "NoSuchBucket"), (403, "InvalidObjectState"), (412, "PreconditionFailed")],
)
def test_what_s3_refuses_is_not_repeated_and_its_code_is_known(status: int, code: str) -> None:
    calls = calls_answered((status, {}, f"<Error><Code>{code}</Code></Error>".encode()))
    with pytest.raises(RemoteError) as caught:
        objects_of(calls, "b").read("k", start=0, size=1)
    assert (caught.value.code, calls.counted["s3:GetObject"]) == (code, 1)


def test_what_stays_without_an_answer_has_no_code() -> None:
    calls = calls_answered((503, {}, b"<Error><Code>SlowDown</Code></Error>"))
    with pytest.raises(RemoteError) as caught:
        objects_of(calls, "b").read("k", start=0, size=1)
    assert caught.value.code == ""


def test_an_upload_that_s3_fails_to_put_together_with_status_200_is_put_together_again() -> None:
    """ "CompleteMultipartUpload", S3 API reference: the error comes after the status has been sent."""
    failed = b'<?xml version="1.0" encoding="UTF-8"?>\n\n<Error><Code>InternalError</Code></Error>'
    calls = calls_answered((200, {}, failed), (200, {}, b"<CompleteMultipartUploadResult/>"))
    objects_of(calls, "b").finish_upload("k", "upload", [Part(1, '"e"', None, 1)])
    assert calls.counted["s3:CompleteMultipartUpload"] == 2
    with pytest.raises(AwsUnavailableError, match="InternalError"):
        calls_answered((200, {}, failed)).s3("CopyObject", method="PUT", bucket="b", key="k")


def test_an_object_that_looks_like_an_error_is_an_object() -> None:
    content = b"<Error><Code>InternalError</Code></Error>"
    assert objects_of(calls_answered((206, {}, content)), "b").read("k", start=0, size=len(content)) == content
