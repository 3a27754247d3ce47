"""Function URLs of the local AWS: reachable by the address a template resolves, and the event says who calls."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

if TYPE_CHECKING:
    from spotkeep_local import lifecycle

_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))
_CODE = "def handler(event, context):\n    return event"
_TEMPLATE = {
    "Resources": {
        "Role": {
            "Type": "AWS::IAM::Role",
            "Properties": {
                "RoleName": "people",
                "AssumeRolePolicyDocument": {
                    "Version": "2012-10-17",
                    "Statement": [
                        {
                            "Effect": "Allow",
                            "Principal": {"AWS": {"Fn::Sub": "arn:aws:iam::${AWS::AccountId}:root"}},
                            "Action": "sts:AssumeRole",
                        }
                    ],
                },
                "Policies": [
                    {
                        "PolicyName": "calls",
                        "PolicyDocument": {
                            "Version": "2012-10-17",
                            "Statement": [
                                {
                                    "Effect": "Allow",
                                    "Action": ["lambda:InvokeFunctionUrl", "lambda:InvokeFunction"],
                                    "Resource": "*",
                                }
                            ],
                        },
                    }
                ],
            },
        },
        "Function": {
            "Type": "AWS::Lambda::Function",
            "Properties": {
                "FunctionName": "echo",
                "Runtime": "python3.13",
                "Handler": "index.handler",
                "Role": {"Fn::GetAtt": ["Role", "Arn"]},
                "Code": {"ZipFile": _CODE},
            },
        },
        "Url": {
            "Type": "AWS::Lambda::Url",
            "Properties": {"AuthType": "AWS_IAM", "TargetFunctionArn": {"Fn::GetAtt": ["Function", "Arn"]}},
        },
        "Parameter": {
            "Type": "AWS::SSM::Parameter",
            "Properties": {"Name": "/echo/url", "Type": "String", "Value": {"Fn::GetAtt": ["Url", "FunctionUrl"]}},
        },
    },
}


def deploy_echo(local: lifecycle.LocalAws) -> None:
    """Make a function that answers with its event, behind a URL."""
    cloudformation = local.session().client("cloudformation")
    cloudformation.create_stack(
        StackName="echo", TemplateBody=json.dumps(_TEMPLATE), Capabilities=["CAPABILITY_NAMED_IAM"]
    )
    cloudformation.get_waiter("stack_create_complete").wait(StackName="echo", WaiterConfig={"Delay": 1})


@pytest.fixture(scope="module")
def url_aws(local_aws: lifecycle.LocalAws) -> lifecycle.LocalAws:
    """The local AWS, with that function."""
    deploy_echo(local_aws)
    return local_aws


def address_of(local: lifecycle.LocalAws) -> str:
    return str(local.session().client("ssm").get_parameter(Name="/echo/url")["Parameter"]["Value"])


def credentials_of(local: lifecycle.LocalAws, *, session_name: str) -> Credentials:
    """A session of the role `people`."""
    answer = (
        local.session()
        .client("sts")
        .assume_role(RoleArn=f"arn:aws:iam::{local.account_id}:role/people", RoleSessionName=session_name)[
            "Credentials"
        ]
    )
    return Credentials(answer["AccessKeyId"], answer["SecretAccessKey"], answer["SessionToken"])


def call(url: str, *, body: bytes = b"{}", credentials: Credentials | None) -> dict[str, Any]:
    """Call a function URL, signed unless there are no credentials."""
    request = AWSRequest("POST", url, headers={"content-type": "application/json"}, data=body)
    if credentials is not None:
        SigV4Auth(credentials, "lambda", "us-east-1").add_auth(request)
    sent = urllib.request.Request(url, data=body, headers=dict(request.headers.items()), method="POST")  # noqa: S310
    with _NO_PROXY.open(sent, timeout=30) as answer:
        return dict(json.loads(answer.read()))


def test_the_address_that_a_template_resolves_answers_on_this_machine(url_aws: lifecycle.LocalAws) -> None:
    url = address_of(url_aws)
    assert url.startswith(f"{url_aws.endpoint_url}/_aws/lambda-url/")
    event = call(url, body=b'{"a": 1}', credentials=credentials_of(url_aws, session_name="ada"))
    assert (event["body"], event["isBase64Encoded"], event["rawPath"]) == ('{"a": 1}', False, "/")


def test_the_event_says_whose_key_signed_the_request(url_aws: lifecycle.LocalAws) -> None:
    for name in ("ada", "grace"):
        credentials = credentials_of(url_aws, session_name=name)
        event = call(address_of(url_aws), credentials=credentials)
        caller = event["requestContext"]["authorizer"]["iam"]
        assert caller["userArn"] == f"arn:aws:sts::{url_aws.account_id}:assumed-role/people/{name}"
        assert caller["accessKey"] == credentials.access_key
        assert caller["userId"].endswith(f":{name}")
        assert set(caller) == {
            "accessKey", "accountId", "callerId", "cognitoIdentity", "principalOrgId", "userArn", "userId",
        }  # fmt: skip


def test_a_request_without_a_signature_is_refused(url_aws: lifecycle.LocalAws) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        call(address_of(url_aws), credentials=None)
    refused.value.close()
    assert refused.value.code == 403
