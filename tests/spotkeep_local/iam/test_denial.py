"""Troubleshoot access denied error messages: the messages, and the errors that clients read them from."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.parsers import create_parser

from spotkeep_local.iam.authorization import Authorization, Call
from spotkeep_local.iam.denial import Denial, denial_answer, denial_message
from spotkeep_local.iam.evaluation import AuthorizationDecision, CallingPrincipal, Reason
from spotkeep_local.service_base.clients import service_model

JOHN = CallingPrincipal.user("arn:aws:iam::111122223333:user/John", user_id="AIDA")
QUEUE = "arn:aws:sqs:us-west-1:111122223333:queue"
ROLE = "arn:aws:iam::111122223333:role/a"
LISTS = Authorization(action="codecommit:ListRepositories", resource="*")
GROUP = "arn:aws:codedeploy:us-west-1:1:deploymentgroup:*"
DEPLOYS = Authorization(action="codedeploy:ListDeployments", resource=GROUP)
ASSUMES = Authorization(action="sts:AssumeRole", resource=ROLE)
TARGET = {"x-amz-target": "Service.Operation"}
FORM = {"content-type": "application/x-www-form-urlencoded; charset=utf-8"}
CBOR = {"smithy-protocol": "rpc-v2-cbor"}


def denied(reason: Reason = Reason.NO_IDENTITY_ALLOW) -> AuthorizationDecision:
    return AuthorizationDecision(reason=reason)


@pytest.mark.parametrize(
    ("asked", "reason", "message"),
    [
        (LISTS, Reason.NO_IDENTITY_ALLOW,
         "codecommit:ListRepositories because no identity-based policy allows the codecommit:ListRepositories action"),
        (LISTS, Reason.NO_SESSION_ALLOW,
         "codecommit:ListRepositories because no session policy allows the codecommit:ListRepositories action"),
        (LISTS, Reason.NO_BOUNDARY_ALLOW,
         "codecommit:ListRepositories because no permissions boundary allows the codecommit:ListRepositories action"),
        (LISTS, Reason.NO_RESOURCE_ALLOW,
         "codecommit:ListRepositories because no resource-based policy allows the codecommit:ListRepositories action"),
        (DEPLOYS, Reason.EXPLICIT_DENY_IDENTITY,
         f"codedeploy:ListDeployments on resource: {GROUP} with an explicit deny in an identity-based policy"),
        (DEPLOYS, Reason.EXPLICIT_DENY_BOUNDARY,
         f"codedeploy:ListDeployments on resource: {GROUP} with an explicit deny in a permissions boundary"),
        (DEPLOYS, Reason.EXPLICIT_DENY_SESSION,
         f"codedeploy:ListDeployments on resource: {GROUP} with an explicit deny in a session policy"),
        (DEPLOYS, Reason.EXPLICIT_DENY_RESOURCE,
         f"codedeploy:ListDeployments on resource: {GROUP} with an explicit deny in a resource-based policy"),
        (ASSUMES, Reason.NO_RESOURCE_ALLOW,
         "sts:AssumeRole because no role trust policy allows the sts:AssumeRole action"),
        (ASSUMES, Reason.EXPLICIT_DENY_RESOURCE,
         "sts:AssumeRole with an explicit deny in the role trust policy"),
        (ASSUMES, Reason.NO_IDENTITY_ALLOW,
         f"sts:AssumeRole on resource: {ROLE} because no identity-based policy allows the sts:AssumeRole action"),
        (Authorization(action="s3:GetObject", resource="arn:aws:s3:::b"), Reason.NO_IDENTITY_ALLOW,
         's3:GetObject on resource: "arn:aws:s3:::b" because no identity-based policy allows the s3:GetObject action'),
        (Authorization(action="sqs:SendMessage", resource=QUEUE), Reason.NO_IDENTITY_ALLOW,
         f"sqs:sendmessage on resource: {QUEUE} because no identity-based policy allows the sqs:sendmessage action"),
        (Authorization(action="sns:Publish", resource="arn:aws:sns:us-west-1:1:t"), Reason.EXPLICIT_DENY_RESOURCE,
         "SNS:Publish on resource: arn:aws:sns:us-west-1:1:t with an explicit deny in a resource-based policy"),
    ],
)  # fmt: skip
def test_the_messages_of_aws(asked: Authorization, reason: Reason, message: str) -> None:
    expected = f"User: {JOHN.arn} is not authorized to perform: {message}"
    assert denial_message(asked, denied(reason), JOHN) == expected


def test_what_the_judge_does_not_know_is_named() -> None:
    message = denial_message(
        LISTS, AuthorizationDecision.of_unknown("there is no action codecommit:ListRepositories"), JOHN
    )
    assert message.endswith(
        "because the local AWS does not know what AWS would decide: there is no action codecommit:ListRepositories"
    )


def read(call: Call, action: str, headers: dict[str, str], *, protocol: str | None = None) -> tuple[str, str, int]:
    """Read a denial as the client of a call does: code, message and status."""
    asked = Authorization(action=action, resource="*")
    denial = Denial(call=call, authorization=asked, decision=denied(), caller=JOHN)
    status, written, body = denial_answer(denial, headers=headers)
    model = service_model(call.service)
    parser = create_parser(protocol or model.metadata["protocol"])
    answer: dict[str, Any] = {
        "status_code": status, "headers": {name.lower(): value for name, value in written.items()}, "body": body
    }  # fmt: skip
    parsed = parser.parse(answer, model.operation_model(call.operation).output_shape)
    return parsed["Error"]["Code"], parsed["Error"]["Message"], status


@pytest.mark.parametrize(
    ("service", "operation", "headers", "code", "status"),
    [
        ("sagemaker", "CreateTrainingJob", TARGET, "AccessDeniedException", 400),
        ("sqs", "SendMessage", TARGET, "AccessDenied", 403),
        ("lambda", "Invoke", {}, "AccessDeniedException", 403),
        ("s3", "GetObject", {}, "AccessDenied", 403),
        ("s3", "DeleteObjects", FORM, "AccessDenied", 403),
        ("sns", "Publish", FORM, "AuthorizationError", 403),
        ("sts", "AssumeRole", FORM, "AccessDenied", 403),
        ("cloudwatch", "PutMetricData", CBOR, "AccessDenied", 403),
    ],
)
def test_the_error_that_boto3_reads(
    service: str, operation: str, headers: dict[str, str], code: str, status: int
) -> None:
    call = Call(service=service, operation=operation, parameters={})
    message = "User: {} is not authorized to perform: a:B because no identity-based policy allows the a:B action"
    assert read(call, "a:B", headers) == (code, message.format(JOHN.arn), status)


def test_ec2_words_it_in_its_own_way() -> None:
    call = Call(service="ec2", operation="RunInstances", parameters={})
    code, message, status = read(call, "ec2:RunInstances", FORM)
    assert (code, status) == ("UnauthorizedOperation", 403)
    assert message.startswith(f"You are not authorized to perform this operation. User: {JOHN.arn} is not authorized")


def test_clients_of_an_older_protocol_read_theirs() -> None:
    call = Call(service="sqs", operation="SendMessage", parameters={})
    code, _, status = read(call, "sqs:SendMessage", FORM, protocol="query")
    assert (code, status) == ("AccessDenied", 403)


def test_a_key_that_the_service_may_not_use_for_the_caller_is_an_error_of_its_own() -> None:
    call = Call(service="sns", operation="Publish", parameters={})
    assert read(call, "kms:Decrypt", FORM)[0] == "KMSAccessDenied"
    assert read(Call(service="s3", operation="GetObject", parameters={}), "kms:Decrypt", {})[0] == "AccessDenied"


@pytest.mark.parametrize(
    ("service", "operation", "headers", "protocol", "code"),
    [
        ("", "", TARGET, "json", "AccessDeniedException"),
        ("nowhere", "DoThis", FORM, "query", "AccessDenied"),
        ("sagemaker", "DoThis", TARGET, "json", "AccessDeniedException"),
    ],
)
def test_an_operation_that_botocore_does_not_know_is_denied_in_the_form_of_its_request(
    service: str, operation: str, headers: dict[str, str], protocol: str, code: str
) -> None:
    call = Call(service=service, operation=operation, parameters={})
    unknown = AuthorizationDecision.of_unknown("no")
    denial = Denial(call=call, authorization=LISTS, decision=unknown, caller=JOHN)
    status, written, body = denial_answer(denial, headers=headers)
    lowered = {name.lower(): value for name, value in written.items()}
    parsed = create_parser(protocol).parse({"status_code": status, "headers": lowered, "body": body}, None)
    assert (parsed["Error"]["Code"], status) == (code, 403)
    assert "does not know what AWS would decide: no" in parsed["Error"]["Message"]
