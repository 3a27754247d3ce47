"""The evaluator that the attacks on permissions trust lets nothing pass because it does not know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.infrastructure.conftest import Templates

from .policies import ACCOUNT, Policies

TABLE = {"Fn::GetAtt": ["Runs", "Arn"]}
TABLE_ARN = f"arn:aws:dynamodb:us-west-1:{ACCOUNT}:table/runs"


def policies_with(*statements: dict[str, Any]) -> Policies:
    resources = {
        "Runs": {"Type": "AWS::DynamoDB::Table", "Properties": {"TableName": "runs"}},
        "ReaderRolePolicy": {
            "Type": "AWS::IAM::Policy",
            "Properties": {
                "PolicyDocument": {"Version": "2012-10-17", "Statement": list(statements)},
                "Roles": [{"Ref": "ReaderRole1"}],
            },
        },
    }
    return Policies(Templates({"Storage": {"Resources": resources}}, Path()))


def reading(**condition: dict[str, Any]) -> dict[str, Any]:
    operators = {name.replace("_", ":"): keys for name, keys in condition.items()}
    return {"Effect": "Allow", "Action": "dynamodb:GetItem", "Resource": TABLE, "Condition": operators}


@pytest.mark.parametrize(
    "statement",
    [
        reading() | {"Condition": {"DateBefore": {"aws:CurrentTime": "2026"}}},
        reading() | {"Condition": {"StringEquals": {"aws:CurrentTime": "${now}"}}},
        reading(StringEquals={"dynamodb:LeadingKeys": ["a"]}),
        reading() | {"Resource": {"Fn::Select": [0, []]}},
        {"Effect": "Allow", "NotActions": "s3:*", "Resource": TABLE},
    ],
)
def test_what_it_does_not_know_fails_the_test_that_asks(statement: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="this evaluator"):
        policies_with(statement).allows(
            "ReaderRole", "dynamodb:GetItem", TABLE_ARN, {"dynamodb:LeadingKeys": ["a", "b"]}
        )
