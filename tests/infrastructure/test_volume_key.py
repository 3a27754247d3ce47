"""A customer's own key for volumes: what the deployment gives, and what the key's owner has to."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from .conftest import EVERYTHING_SET
from .test_permissions import listed, statements_of, text_of

if TYPE_CHECKING:
    from .conftest import Templates

KEY = EVERYTHING_SET["volume_kms_key_arn"]
VIA_EC2 = "ec2.us-west-1.<AWS::URLSuffix>"


def on_the_key(templates: Templates) -> dict[str, dict[str, Any]]:
    """The conditions under which instances may use the key, by action."""
    return {
        action: statement["Condition"]
        for statement in statements_of(templates, "RunRole")
        if statement["Effect"] == "Allow" and KEY in listed(statement["Resource"])
        for action in listed(statement["Action"])
    }


def test_instances_use_it_through_ec2_alone(templates_with_everything: Templates) -> None:
    found = on_the_key(templates_with_everything)
    assert set(found) == {
        "kms:CreateGrant",
        "kms:Decrypt",
        "kms:DescribeKey",
        "kms:GenerateDataKeyWithoutPlaintext",
        "kms:ReEncryptFrom",
        "kms:ReEncryptTo",
    }
    assert {text_of(condition["StringEquals"]["kms:ViaService"]) for condition in found.values()} == {VIA_EC2}


def test_their_grants_are_for_ec2s_own_use(templates_with_everything: Templates) -> None:
    assert on_the_key(templates_with_everything)["kms:CreateGrant"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}


def test_no_function_may_use_it(templates_with_everything: Templates) -> None:
    for stack in ("Jobs", "Events"):
        kinds = ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy")
        policies = [templates_with_everything.resources(kind, stack=stack) for kind in kinds]
        assert KEY not in json.dumps(policies)


def test_the_statements_for_its_policy_name_ec2s_roles_and_the_instances(templates_with_everything: Templates) -> None:
    output = templates_with_everything.by_stack["Compute"]["Outputs"]["VolumeKeyPolicy"]["Value"]
    use, grant = json.loads(text_of(output))
    for statement in (use, grant):
        fleet, spot, instances = statement["Principal"]["AWS"]
        assert fleet.endswith(":role/aws-service-role/ec2fleet.amazonaws.com/AWSServiceRoleForEC2Fleet")
        assert spot.endswith(":role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot")
        assert "RunRole" in instances
        assert statement["Condition"]["StringEquals"] == {"kms:ViaService": VIA_EC2}
    assert grant["Action"] == ["kms:CreateGrant"]
    assert grant["Condition"]["Bool"] == {"kms:GrantIsForAWSResource": "true"}
    assert set(use["Action"]) == set(on_the_key(templates_with_everything)) - {"kms:CreateGrant"}


def test_without_the_setting_there_is_nothing_of_it(templates: Templates) -> None:
    compute = templates.by_stack["Compute"]
    assert "VolumeKeyPolicy" not in compute["Outputs"]
    assert "kms:CreateGrant" not in json.dumps(compute)
