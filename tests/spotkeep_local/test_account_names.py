"""Names that AWS keeps for a whole account: a second region's stack that wants one is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from spotkeep_local.lifecycle import LocalAws

NAMED: dict[str, dict[str, Any]] = {
    "AWS::IAM::ManagedPolicy": {
        "ManagedPolicyName": "people",
        "PolicyDocument": {
            "Version": "2012-10-17",
            "Statement": [{"Effect": "Allow", "Action": "s3:ListAllMyBuckets", "Resource": "*"}],
        },
    },
    "AWS::CloudWatch::Dashboard": {"DashboardName": "page", "DashboardBody": '{"widgets": []}'},
}


def created(local: LocalAws, *, region: str, stack: str, kind: str, properties: dict[str, Any]) -> str:
    """The state that a stack of one resource comes to."""
    stacks = replace(local, region=region).session().client("cloudformation")
    template = json.dumps({"Resources": {"Thing": {"Type": kind, "Properties": properties}}})
    stacks.create_stack(StackName=stack, TemplateBody=template, Capabilities=["CAPABILITY_NAMED_IAM"])
    while True:
        [found] = stacks.describe_stacks(StackName=stack)["Stacks"]
        if not found["StackStatus"].endswith("IN_PROGRESS"):
            return str(found["StackStatus"])


@pytest.mark.parametrize("kind", NAMED)
def test_a_name_of_the_account_is_taken_in_each_of_its_regions(local_aws: LocalAws, kind: str) -> None:
    properties = NAMED[kind]
    [field] = (name for name in properties if name.endswith("Name"))
    first = created(local_aws, region="us-east-1", stack=properties[field], kind=kind, properties=properties)
    second = created(local_aws, region="eu-west-1", stack=properties[field], kind=kind, properties=properties)
    other = {**properties, field: f"{properties[field]}-eu-west-1"}
    third = created(local_aws, region="eu-west-1", stack=other[field], kind=kind, properties=other)
    assert (first, third) == ("CREATE_COMPLETE", "CREATE_COMPLETE")
    assert second != "CREATE_COMPLETE"
