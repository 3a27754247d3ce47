"""Data outside the deployment's bucket: both roles read the same, and the launcher judges as IAM does."""

from __future__ import annotations

import re
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Template
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotkeep_constructs.storage import DataAccess
from spotkeep_jobs.document.source import may_read

from .conftest import EVERYTHING_SET, Templates
from .test_aws_limits import characters, deployed
from .test_permissions import Statement, listed, text_of

TRAINING_ROLES = ("ExecutionRole", "RunRole", "InstanceRole")


def statements_for(templates: Templates, role: str) -> list[Statement]:
    """Every statement of the policies that a role has, its own and the managed ones."""
    named = re.compile(rf"{role}(Role)?[0-9A-F]{{8}}")
    policies = templates.resources("AWS::IAM::Policy") | templates.resources("AWS::IAM::ManagedPolicy")
    return [
        statement
        for policy in (resource["Properties"] for resource in policies.values())
        if any(named.fullmatch(each["Ref"]) for each in policy.get("Roles", []))
        for statement in policy["PolicyDocument"]["Statement"]
    ]


def about_data(templates: Templates, principal: str) -> list[tuple[str, str, Any]]:
    """What a role may do with the data and its keys: each action on each resource, with its condition."""
    named = re.compile(r":s3:::(lab|shared)-data|:kms:eu-west-1:")
    return sorted(
        (action, text_of(resource), statement.get("Condition"))
        for statement in statements_for(templates, principal)
        if statement["Effect"] == "Allow"
        for action in listed(statement["Action"])
        for resource in listed(statement["Resource"])
        if named.search(text_of(resource))
    )


def test_a_training_reads_the_same_data_whatever_it_runs_on(templates_with_everything: Templates) -> None:
    on_sagemaker, on_ec2, as_instance = (about_data(templates_with_everything, role) for role in TRAINING_ROLES)
    assert on_sagemaker == on_ec2 == as_instance
    assert [action for action, _, _ in on_ec2] == ["kms:Decrypt", *["s3:GetObject"] * 2, *["s3:ListBucket"] * 2]


def test_without_the_settings_no_role_reads_elsewhere(templates: Templates) -> None:
    for role in TRAINING_ROLES:
        assert about_data(templates, role) == []


def like(pattern: str, text: str) -> bool:
    """IAM's StringLike, and how it compares resources."""
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), text, re.DOTALL) is not None


def iam_allows(statements: list[Statement], action: str, resource: str, *, prefix: str | None = None) -> bool:
    for statement in statements:
        wanted = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix")
        if (
            action in listed(statement["Action"])
            and any(like(text_of(each).rpartition(":")[2], resource) for each in listed(statement["Resource"]))
            and (wanted is None or (prefix is not None and any(like(each, prefix) for each in listed(wanted))))
        ):
            return True
    return False


pieces = st.sampled_from(["", "/", "cifar10", "cifar", "10", "0", "a", "?", "*", "train.csv"])
uris = st.builds(
    lambda bucket, parts: f"s3://{bucket}/{''.join(parts)}",
    st.sampled_from(["lab-data", "shared-data", "shared-data-2", "other"]),
    st.lists(pieces, max_size=5),
)


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(uri=uris, more=st.text("abc/10", max_size=8))
def test_the_launcher_accepts_exactly_what_iam_lets_a_role_list_and_read(
    templates_with_everything: Templates, uri: str, more: str
) -> None:
    """Of one role: the others may do the same."""
    statements = statements_for(templates_with_everything, TRAINING_ROLES[0])
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    listing = iam_allows(statements, "s3:ListBucket", bucket, prefix=prefix)
    reading = iam_allows(statements, "s3:GetObject", f"{bucket}/{prefix}{more}")
    accepted = may_read(uri, locations=EVERYTHING_SET["data_locations"])
    assert accepted == listing
    assert reading or not accepted


def policies_for(stack: Stack, locations: list[str], keys: list[str]) -> list[dict[str, Any]]:
    roles = [iam.Role(stack, name, assumed_by=iam.ServicePrincipal("ec2.amazonaws.com")) for name in ("One", "Other")]
    DataAccess(locations=locations, key_arns=keys).let_read(stack, roles)
    found = Template.from_stack(stack).find_resources("AWS::IAM::ManagedPolicy").values()
    assert all(len(policy["Properties"]["Roles"]) == 2 for policy in found)
    return [policy["Properties"]["PolicyDocument"] for policy in found]


def test_many_locations_of_a_bucket_are_one_statement_and_a_whole_bucket_needs_no_prefix(stack: Stack) -> None:
    locations = ["s3://data/b/", "s3://data/a/", "s3://whole/", "s3://whole/part/", "s3://data/a/"]
    (policy,) = policies_for(stack, locations, [])
    listings = {
        text_of(statement["Resource"]).rpartition(":")[2]: statement.get("Condition")
        for statement in policy["Statement"]
        if statement["Action"] == "s3:ListBucket"
    }
    assert listings == {"data": {"StringLike": {"s3:prefix": ["a/*", "b/*"]}}, "whole": None}


@given(
    places=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 180)), min_size=1, max_size=50),
    keys=st.integers(0, 20),
)
@settings(max_examples=20, deadline=None)
def test_however_many_locations_each_is_in_a_policy_and_each_policy_fits(
    places: list[tuple[int, int]], keys: int
) -> None:
    """Sources of the limits: IAM's quotas of managed policies, in characters and attached to a role."""
    locations = [f"s3://bucket-{bucket}/{number:p>{length}}/" for number, (bucket, length) in enumerate(places)]
    key_arns = [f"arn:aws:kms:eu-west-1:123456789012:key/{key:k>64}" for key in range(keys)]
    documents = [deployed(each) for each in policies_for(Stack(), locations, key_arns)]
    assert all(characters(document) <= 6_144 for document in documents)
    assert len(documents) <= 8
    statements = [statement for document in documents for statement in document["Statement"]]
    for location in locations:
        bucket, _, prefix = location.removeprefix("s3://").partition("/")
        assert iam_allows(statements, "s3:GetObject", f"{bucket}/{prefix}part")
        assert iam_allows(statements, "s3:ListBucket", bucket, prefix=prefix)
    decrypting = [each for each in statements if each["Action"] == "kms:Decrypt"]
    assert sum(len(listed(each["Resource"])) for each in decrypting) == keys
