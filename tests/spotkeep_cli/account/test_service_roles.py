"""A service-linked role is there, missing, or could not be checked: three answers, never taken for each other."""

from __future__ import annotations

import boto3
from botocore.stub import Stubber

from spotkeep_cli.account.service_roles import ServiceRole, read_service_roles


def answered(*, error: str | None = None) -> ServiceRole:
    client = boto3.client("iam", region_name="eu-central-1", aws_access_key_id="test", aws_secret_access_key="test")
    with Stubber(client) as stub:
        if error is not None:
            stub.add_client_error("get_role", error, "in AWS's words")
        else:
            role = {
                "Path": "/aws-service-role/fis.amazonaws.com/", "RoleName": "AWSServiceRoleForFIS", "RoleId": "A" * 16,
                "Arn": "arn:aws:iam::123456789012:role/x", "CreateDate": "2026-11-23T00:00:00Z",
            }  # fmt: skip
            stub.add_response("get_role", {"Role": role}, {"RoleName": "AWSServiceRoleForFIS"})
        (found,) = read_service_roles(client, {"fis.amazonaws.com": "AWSServiceRoleForFIS"})
    return found


def test_a_role_that_is_there_needs_nothing() -> None:
    assert answered().exists is True


def test_a_role_that_is_missing_comes_with_its_command() -> None:
    found = answered(error="NoSuchEntity")
    assert found.exists is False
    assert found.creation == "aws iam create-service-linked-role --aws-service-name fis.amazonaws.com"


def test_a_denial_is_no_missing_role() -> None:
    found = answered(error="AccessDenied")
    assert found.exists is None
    assert "in AWS's words" in (found.problem or "")
