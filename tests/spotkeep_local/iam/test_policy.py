"""IAM JSON policy element reference: what a document may hold, and that all that it must not hold is named at once."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_local.errors import IamPolicyError
from spotkeep_local.iam.policy import Effect, PolicyDocument, PolicyKind, read_policy

ALLOW = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
TRUST = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"Service": "lambda.amazonaws.com"}}


def read(*statements: Any, kind: PolicyKind = PolicyKind.IDENTITY, version: str = "2012-10-17") -> PolicyDocument:
    return read_policy({"Version": version, "Statement": list(statements)}, name="role/policy", kind=kind)


def problems_of(*statements: Any, kind: PolicyKind = PolicyKind.IDENTITY, **document: Any) -> tuple[str, ...]:
    with pytest.raises(IamPolicyError) as caught:
        read_policy({"Version": "2012-10-17", "Statement": list(statements), **document}, name="r", kind=kind)
    return caught.value.problems


def named(principals: Any) -> frozenset[str] | None:
    return read({**ALLOW, "Principal": principals}, kind=PolicyKind.RESOURCE).statements[0].principals


def test_one_value_and_a_list_of_it_are_the_same() -> None:
    alone = {"Effect": "Allow", "Action": "s3:*", "Resource": "*", "Condition": {"Bool": {"aws:SecureTransport": True}}}
    listed = {
        "Effect": "Allow",
        "Action": ["s3:*"],
        "Resource": ["*"],
        "Condition": {"Bool": {"aws:SecureTransport": ["true"]}},
    }
    single = read_policy({"Version": "2012-10-17", "Statement": alone}, name="role/policy", kind=PolicyKind.IDENTITY)
    assert single == read(listed)


def test_a_statement_knows_where_it_is_from() -> None:
    first, second = read({**ALLOW, "Sid": "Read"}, ALLOW).statements
    assert [first.id, second.id] == ["role/policy#0 (Read)", "role/policy#1"]


def test_numbers_and_booleans_are_read_as_text() -> None:
    (statement,) = read(
        {**ALLOW, "Condition": {"NumericEquals": {"s3:max-keys": 10}, "Bool": {"aws:SecureTransport": False}}}
    ).statements
    assert [condition.values for condition in statement.conditions] == [("10",), ("false",)]


def test_names_of_actions_are_not_case_sensitive_and_take_wildcards() -> None:
    (statement,) = read({**ALLOW, "Action": ["S3:getO*", "sqs:?endMessage"]}).statements
    assert statement.names_action("s3:getobject")
    assert statement.names_action("sqs:sendmessage")
    assert not statement.names_action("s3:putobject")
    assert [pattern.text for pattern in statement.actions] == ["S3:getO*", "sqs:?endMessage"]


def test_not_action_and_not_resource_mean_everything_else() -> None:
    (statement,) = read({"Effect": "Deny", "NotAction": "s3:Get*", "NotResource": "arn:aws:s3:::b/*"}).statements
    assert statement.effect is Effect.DENY
    assert not statement.names_action("s3:getobject")
    assert statement.names_action("sqs:sendmessage")
    assert not statement.names_resource("arn:aws:s3:::b/x", {})
    assert statement.names_resource("arn:aws:s3:::c/x", {})


def test_a_star_at_the_end_of_a_resource_reaches_over_colons() -> None:
    (statement,) = read({**ALLOW, "Resource": "arn:aws:logs:us-west-1:*"}).statements
    assert statement.names_resource("arn:aws:logs:us-west-1:111122223333:log-group:a:log-stream:b", {})


def test_resources_are_case_sensitive() -> None:
    (statement,) = read({**ALLOW, "Resource": "arn:aws:s3:::Bucket/*"}).statements
    assert not statement.names_resource("arn:aws:s3:::bucket/x", {})


def test_policies_of_the_old_version_have_no_variables() -> None:
    resource = "arn:aws:s3:::b/${aws:username}"
    values = {"aws:username": ("ann",)}
    assert read({**ALLOW, "Resource": resource}).statements[0].names_resource("arn:aws:s3:::b/ann", values)
    (old,) = read({**ALLOW, "Resource": resource}, version="2008-10-17").statements
    assert not old.names_resource("arn:aws:s3:::b/ann", values)
    assert old.names_resource(resource, values)


class TestPrincipal:
    def test_everyone(self) -> None:
        assert named("*") == named({"AWS": "*"}) == {"*"}

    def test_an_account_by_its_id_or_its_root_user(self) -> None:
        account = {"111122223333"}
        assert named({"AWS": "111122223333"}) == named({"AWS": "arn:aws:iam::111122223333:root"}) == account

    def test_users_roles_and_sessions(self) -> None:
        arns = [
            "arn:aws:iam::111122223333:user/team/ann",
            "arn:aws:iam::111122223333:role/a",
            "arn:aws:sts::111122223333:assumed-role/a/session",
        ]
        assert named({"AWS": arns}) == set(arns)

    def test_services_and_those_that_no_caller_is(self) -> None:
        assert named({"Service": ["events.amazonaws.com"], "Federated": "example.com", "CanonicalUser": "1"}) == (
            {"events.amazonaws.com"}
        )

    @pytest.mark.parametrize(
        "principals",
        [
            "ann",
            {},
            {"Person": "ann"},
            {"AWS": "arn:aws:iam::111122223333:role/*"},
            {"AWS": "arn:aws:iam::111122223333:user/${aws:username}*"},
            {"AWS": "ann"},
            {"Service": "*"},
            {"Service": "events"},
            ["*"],
        ],
    )
    def test_what_is_no_principal(self, principals: Any) -> None:
        (problem,) = problems_of({**ALLOW, "Principal": principals}, kind=PolicyKind.RESOURCE)
        assert "Principal" in problem


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"Resouce": "*"}, "the element `Resouce` is not known"),
        ({"Effect": "allow"}, "Effect: `allow` is neither Allow nor Deny"),
        ({"Action": "GetObject"}, "Action: `GetObject` is no action"),
        ({"Action": "*:GetObject"}, "Action: `*:GetObject` is no action"),
        ({"Action": "s3:${aws:username}"}, "Action: `s3:${aws:username}` is no action"),
        ({"Action": []}, "Action: there is no value"),
        ({"Action": {"a": "b"}}, "Action: `{'a': 'b'}` is not text"),
        ({"NotAction": "s3:*"}, "either `Action` or `NotAction` must be there: both are there"),
        ({"NotResource": "*"}, "either `Resource` or `NotResource` must be there: both are there"),
        ({"Resource": "bucket"}, "Resource: `bucket` is no ARN"),
        ({"Resource": "arn:aws:s3:::${bucket}"}, "policy variable that is not known: `${bucket}`"),
        ({"Resource": "arn:aws:s3:${aws:x}::a"}, "has a policy variable before its fifth colon"),
        ({"Principal": "*"}, "`Principal` must not be there"),
        ({"Sid": 1}, "Sid: `1` is not text"),
        ({"Condition": "a"}, "Condition: `a` is not an object"),
        ({"Condition": {"StringEquals": "a"}}, "Condition.StringEquals: `a` is not an object"),
        ({"Condition": {"StringIs": {"aws:x": "a"}}}, "the condition operator `StringIs` is not known"),
        ({"Condition": {"StringEquals": {"aws:x": []}}}, "Condition.StringEquals.aws:x: there is no value"),
    ],
)
def test_what_is_not_known_is_named(change: dict[str, Any], problem: str) -> None:
    (found,) = problems_of({**ALLOW, **change})
    assert found.startswith("Statement[0]: ")
    assert problem in found


def test_everything_that_is_wrong_is_named_at_once() -> None:
    problems = problems_of(
        {"Effect": "Maybe", "Action": "x", "Condition": {"Is": {"a": "b"}}},
        {"Efect": "Allow"},
        Name="n",
        Version="2026",
    )
    text = "\n".join(problems)
    for named_there in ("`Name`", "`2026`", "`Maybe`", "`x`", "`Is`", "`Efect`", "Statement[1]"):
        assert named_there in text
    assert "the policy r cannot be judged" in str(IamPolicyError("r", problems=problems))


def test_a_document_without_statements_is_refused() -> None:
    assert problems_of() == ("there is no Statement",)
    assert "Statement[0]" in problems_of("Allow")[0]


def test_the_policy_of_a_resource_says_who() -> None:
    assert problems_of(ALLOW, kind=PolicyKind.RESOURCE) == (
        "Statement[0]: either `Principal` or `NotPrincipal` must be there: neither is there",
    )


def test_a_trust_policy_is_about_its_role() -> None:
    assert read(TRUST, kind=PolicyKind.TRUST).statements[0].resources == ()
    (problem,) = problems_of({**TRUST, "Resource": "*"}, kind=PolicyKind.TRUST)
    assert "`Resource` must not be there" in problem
