"""What boto3 sends is read back as the operation and the parameters that it was asked for."""

from __future__ import annotations

import ast
import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotkeep_local.iam.authorization import Call, UnknownCall
from spotkeep_local.iam.authorizations import OPERATIONS
from spotkeep_local.iam.calls import (
    FUNCTION_URL_PATH,
    INVOKE_BY_URL,
    needs_body,
    read_call,
)
from spotkeep_local.service_base.aws_service import HttpRequest
from tests.models.aws_requests import CALLS, CONTENT, client, sent
from tests.models.iam_account import REGION

PROJECT = Path(__file__).parents[3]
SCOPE = f"Credential=AKIAEXAMPLE/20261123/{REGION}"
PUT_ITEM = {"x-amz-target": "DynamoDB_20120810.PutItem"}
GET_ITEM = {"x-amz-target": "DynamoDB_20120810.GetItem"}
CBOR = "/service/GraniteServiceVersion20100801/operation/PutMetricData"
TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), min_size=1, max_size=12)


def signed(signing_name: str, **given: Any) -> HttpRequest:
    """A request with the scope of a service."""
    headers = {"authorization": f"AWS4-HMAC-SHA256 {SCOPE}/{signing_name}/aws4_request, Signature=0"}
    return HttpRequest(**{**given, "headers": {**headers, **given.get("headers", {})}})


def without_the_clients_own(call: Call, asked: dict[str, Any]) -> dict[str, Any]:
    """The parameters without those that the client added: checksums, lengths, encodings, tokens."""
    added = {"ChecksumAlgorithm", "ChecksumMode", "ContentLength", "EncodingType", "ContentMD5", "ContentType"}
    return {
        name: value
        for name, value in call.parameters.items()
        if name in asked or not (name in added or name.startswith("Checksum"))
    }


def is_scalar(value: object) -> bool:
    """Whether a value can stand in an address or a header."""
    return not isinstance(value, dict)


def test_every_operation_that_is_judged_has_a_request_here() -> None:
    assert {service: set(operations) for service, operations in CALLS.items()} == {
        service: set(operations) for service, operations in OPERATIONS.items()
    }


@pytest.mark.parametrize("service", CALLS)
def test_what_a_client_sends_is_read_back(service: str) -> None:
    for operation, parameters in CALLS[service].items():
        if operation == INVOKE_BY_URL:
            continue
        content = CONTENT.get(operation, {})
        request = sent(service, operation, {**parameters, **content})
        if not needs_body(request):
            request = dataclasses.replace(request, body=b"")
        call = read_call(request)
        assert isinstance(call, Call), call
        assert (call.service, call.operation) == (service, operation)
        # Configurations of buckets stand in bodies that no permission depends on.
        read = needs_body(request)
        asked = {name: value for name, value in parameters.items() if read or name == "Metadata" or is_scalar(value)}
        if operation == "PutBucketPolicy":
            del asked["Policy"]
        read_back = without_the_clients_own(call, asked)
        assert {name: value for name, value in read_back.items() if name not in content} == asked


def test_a_presigned_request_is_read_from_its_address() -> None:
    asked = {"Bucket": "bucket", "Key": "a b/c", "VersionId": "3"}
    url = client("s3").generate_presigned_url("get_object", Params=asked)
    address = urlsplit(url)
    request = HttpRequest(method="GET", path=address.path, query=parse_qs(address.query, keep_blank_values=True))
    assert read_call(request) == Call(service="s3", operation="GetObject", parameters=asked)


def test_a_function_url_is_a_call_of_its_own() -> None:
    request = signed("lambda", method="POST", path=f"{FUNCTION_URL_PATH}abc/launch/1")
    assert read_call(request) == Call(service="lambda", operation=INVOKE_BY_URL, parameters={"UrlId": "abc"})


def test_a_key_is_read_as_it_was_sent() -> None:
    call = read_call(signed("s3", method="GET", path="/bucket/a%2Fb/%252F/"))
    assert isinstance(call, Call)
    assert call.parameters["Key"] == "a/b/%2F/"


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (HttpRequest(), "no credentials"),
        (HttpRequest(headers={"authorization": "AWS AKIAEXAMPLE:x"}), "no credentials"),
        (signed("glacier"), "glacier is not known"),
        (signed("dynamodb", headers={"x-amz-target": "DynamoDB_20120810.Nothing"}), "no operation 'Nothing'"),
        (signed("dynamodb"), "no operation ''"),
        (signed("dynamodb", headers=GET_ITEM, body=b"["), "not JSON"),
        (signed("dynamodb", headers=GET_ITEM, body=b"[]"), "no JSON object"),
        (signed("s3", method="PUT", path="/b/k", headers=PUT_ITEM), "X-Amz-Target"),
        (signed("sagemaker", headers=PUT_ITEM), "X-Amz-Target"),
        (signed("s3", method="GET", path="/", query={"Action": ["ListQueues"]}), "Action"),
        (signed("s3", method="GET", path="/b", query={"acl": [""], "policy": [""]}), "may ask s3 for"),
        (signed("s3", method="PATCH", path="/b"), "no operation for PATCH"),
        (signed("lambda", method="GET", path="/2015-03-31/nothing"), "no operation for GET"),
        (signed("ec2", body=b"Action=Nothing"), "no operation 'Nothing'"),
        (signed("ec2", body=b"Action=CreateVolume&Size=big"), "must be a integer"),
        (signed("s3", method="POST", path="/b", query={"delete": [""]}, body=b"<Delete>"), "cannot be read"),
        (signed("monitoring", path=CBOR), "no operation ''"),
    ],
)  # fmt: skip
def test_what_is_not_certain_is_unreadable(request_: HttpRequest, reason: str) -> None:
    call = read_call(request_)
    assert isinstance(call, UnknownCall)
    assert reason in call.reason


TAGS = st.lists(st.fixed_dictionaries({"Key": TEXT, "Value": TEXT}), min_size=1, max_size=3)
SESSIONS = st.fixed_dictionaries(
    {"RoleArn": TEXT.map(lambda name: f"arn:aws:iam::111122223333:role/{name}"), "RoleSessionName": st.just("session")},
    optional={"Tags": TAGS, "TransitiveTagKeys": st.lists(TEXT, min_size=1), "DurationSeconds": st.integers(900, 1800)},
)
ATTRIBUTE = st.fixed_dictionaries({"DataType": st.just("String"), "StringValue": TEXT})
MESSAGES = st.fixed_dictionaries(
    {"TopicArn": TEXT, "Message": TEXT},
    optional={"MessageAttributes": st.dictionaries(TEXT, ATTRIBUTE, min_size=1, max_size=3)},
)
VOLUMES = st.fixed_dictionaries(
    {"AvailabilityZone": TEXT},
    optional={
        "Encrypted": st.booleans(),
        "Size": st.integers(1, 100),
        "TagSpecifications": st.lists(
            st.fixed_dictionaries({"ResourceType": st.just("volume"), "Tags": TAGS}), min_size=1, max_size=2
        ),
    },
)


@pytest.mark.parametrize(
    ("service", "operation", "requests"),
    [("sts", "AssumeRole", SESSIONS), ("sns", "Publish", MESSAGES), ("ec2", "CreateVolume", VOLUMES)],
)
def test_nested_query_parameters_come_back(service: str, operation: str, requests: st.SearchStrategy[Any]) -> None:
    client(service)  # takes longer to make than an example may last

    # Each is serialized by a client, which takes longer than to read it.
    @settings(max_examples=settings.default.max_examples // 3)
    @given(requests)
    def check(parameters: dict[str, Any]) -> None:
        call = read_call(sent(service, operation, parameters))
        assert isinstance(call, Call)
        assert {**call.parameters, "ClientToken": None} == {**parameters, "ClientToken": None}

    check()


def test_a_client_of_s3_in_the_process_changes_nothing() -> None:
    """A process of its own: the client takes the bucket out of the shared model before the addresses are read of it."""
    program = (
        "from tests.models.aws_requests import CALLS, sent\n"
        "from spotkeep_local.iam.calls import read_call\n"
        "requests = {name: sent('s3', name, given) for name, given in CALLS['s3'].items()}\n"
        "print({name: read_call(request).operation for name, request in requests.items()})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PROJECT, capture_output=True, text=True, check=True, timeout=60
    )
    assert ast.literal_eval(done.stdout) == {name: name for name in CALLS["s3"]}
