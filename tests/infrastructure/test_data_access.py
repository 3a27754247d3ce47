"""Data outside the deployment's bucket: both roles read the same, and the launcher judges as IAM does."""

from __future__ import annotations

import re
from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Template
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotkeep_constructs.data_access import DataAccess
from spotkeep_jobs.document.rules.access import may_read

from .conftest import EVERYTHING_SET, Templates
from .test_permissions import Statement, listed, statements_of, text_of

TRAINING_ROLES = ("ExecutionRole", "RunRole", "InstanceRole")


def about_data(templates: Templates, principal: str) -> list[tuple[str, str, Any]]:
    """What a role may do with the data and its keys: each action on each resource, with its condition."""
    named = re.compile(r":s3:::(lab|shared)-data|:kms:eu-west-1:")
    return sorted(
        (action, text_of(resource), statement.get("Condition"))
        for statement in statements_of(templates, principal)
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
    statements = statements_of(templates_with_everything, TRAINING_ROLES[0])
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    listing = iam_allows(statements, "s3:ListBucket", bucket, prefix=prefix)
    reading = iam_allows(statements, "s3:GetObject", f"{bucket}/{prefix}{more}")
    accepted = may_read(uri, locations=EVERYTHING_SET["data_locations"])
    assert accepted == listing
    assert reading or not accepted


def test_many_locations_of_a_bucket_are_one_statement_and_a_whole_bucket_needs_no_prefix(stack: Stack) -> None:
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("ec2.amazonaws.com"))
    locations = ["s3://data/b/", "s3://data/a/", "s3://whole/", "s3://whole/part/", "s3://data/a/"]
    DataAccess(locations=locations).grant_read(role)
    (policy,) = Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    listings = {
        text_of(statement["Resource"]).rpartition(":")[2]: statement.get("Condition")
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement["Action"] == "s3:ListBucket"
    }
    assert listings == {"data": {"StringLike": {"s3:prefix": ["a/*", "b/*"]}}, "whole": None}
