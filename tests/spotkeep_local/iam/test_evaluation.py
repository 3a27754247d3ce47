"""Policy evaluation logic: which policies must allow a request, and which of them may deny it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.iam.authorization import Authorization
from spotkeep_local.iam.evaluation import AuthorizationDecision, CallingPrincipal, Policies, Question, Reason
from spotkeep_local.iam.policy import PolicyDocument, PolicyKind, read_policy

ACCOUNT, OTHER = "111122223333", "444455556666"
ROLE = f"arn:aws:iam::{ACCOUNT}:role/team/trainer"
SESSION = f"arn:aws:sts::{ACCOUNT}:assumed-role/trainer/job"
USER = f"arn:aws:iam::{ACCOUNT}:user/ann"
OBJECT = "arn:aws:s3:::bucket/runs/a/x"
KEY = f"arn:aws:kms:us-west-1:{ACCOUNT}:key/1234"
QUEUE = f"arn:aws:sqs:us-west-1:{ACCOUNT}:queue"
EVENTS = {"Service": "events.amazonaws.com"}

session = CallingPrincipal.role_session(SESSION, role_arn=ROLE, user_id="AROA:job", tags={"run": "a"})
user = CallingPrincipal.user(USER, user_id="AIDA", tags={"team": "blue"})
eventbridge = CallingPrincipal.service("events.amazonaws.com")
stranger = CallingPrincipal.role_session(
    f"arn:aws:sts::{OTHER}:assumed-role/other/x", role_arn=f"arn:aws:iam::{OTHER}:role/other", user_id="AROB:x"
)

GET = Authorization(action="s3:GetObject", resource=OBJECT)
DECRYPT = Authorization(action="kms:Decrypt", resource=KEY)
ASSUME = Authorization(action="sts:AssumeRole", resource=ROLE)


def statement(effect: str = "Allow", action: str = "*", resource: str = "*", **others: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": action, "Resource": resource, **others}


def of_identity(*statements: dict[str, Any], name: str = "identity") -> PolicyDocument:
    return read_policy({"Version": "2012-10-17", "Statement": list(statements)}, name=name, kind=PolicyKind.IDENTITY)


def of_resource(*statements: dict[str, Any]) -> PolicyDocument:
    written = [{"Principal": "*", **each} if "NotPrincipal" not in each else each for each in statements]
    return read_policy({"Version": "2012-10-17", "Statement": written}, name="resource", kind=PolicyKind.RESOURCE)


def of_trust(principal: Any, **others: Any) -> PolicyDocument:
    written = {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": principal, **others}
    return read_policy({"Version": "2012-10-17", "Statement": written}, name="trust", kind=PolicyKind.TRUST)


ALLOW, DENY, SILENT = of_identity(statement()), of_identity(statement("Deny")), of_identity(statement(action="a:B"))


def decided(
    authorization: Authorization = GET, caller: CallingPrincipal = session, **policies: Any
) -> AuthorizationDecision:
    given = Policies(**{"resource_account": ACCOUNT, **policies})
    return Question(authorization=authorization, caller=caller, policies=given).decided()


def reason(authorization: Authorization = GET, caller: CallingPrincipal = session, **policies: Any) -> Reason:
    return decided(authorization, caller, **policies).reason


class TestExplicitAndImplicitDenies:
    def test_what_nothing_allows_is_denied(self) -> None:
        assert reason() is Reason.NO_IDENTITY_ALLOW
        assert reason(identity=(SILENT,)) is Reason.NO_IDENTITY_ALLOW

    def test_an_allow_allows_and_is_named(self) -> None:
        decision = decided(identity=(of_identity(statement(action="a:B"), statement(), name="role/policy"),))
        assert decision.allowed
        assert list(decision.statements) == ["role/policy#1"]

    def test_an_explicit_deny_in_any_policy_decides_and_is_named(self) -> None:
        everywhere = {
            "identity": (ALLOW,), "boundary": ALLOW, "session": (ALLOW,), "resource": of_resource(statement())
        }  # fmt: skip
        for kind, deny, expected in (
            ("identity", (ALLOW, DENY), Reason.EXPLICIT_DENY_IDENTITY),
            ("boundary", DENY, Reason.EXPLICIT_DENY_BOUNDARY),
            ("session", (DENY,), Reason.EXPLICIT_DENY_SESSION),
            ("resource", of_resource(statement(), statement("Deny")), Reason.EXPLICIT_DENY_RESOURCE),
        ):
            decision = decided(**{**everywhere, kind: deny})
            assert (decision.allowed, decision.reason) == (False, expected)
            assert len(decision.statements) == 1

    def test_a_deny_that_does_not_apply_denies_nothing(self) -> None:
        for change in (
            {"action": "s3:PutObject"},
            {"resource": "arn:aws:s3:::other/*"},
            {"Condition": {"StringEquals": {"aws:PrincipalTag/run": "b"}}},
        ):
            assert decided(identity=(ALLOW, of_identity(statement("Deny", **change)))).allowed


class TestPermissionsBoundaries:
    @pytest.mark.parametrize("caller", [session, user])
    def test_a_boundary_limits_what_identity_policies_allow(self, caller: CallingPrincipal) -> None:
        assert reason(GET, caller, identity=(ALLOW,), boundary=SILENT) is Reason.NO_BOUNDARY_ALLOW
        assert decided(GET, caller, identity=(ALLOW,), boundary=ALLOW).allowed

    def test_a_boundary_alone_allows_nothing(self) -> None:
        assert reason(boundary=ALLOW) is Reason.NO_IDENTITY_ALLOW

    def test_its_statement_is_named_beside_the_one_that_allows(self) -> None:
        decision = decided(identity=(ALLOW,), boundary=of_identity(statement(), name="boundary"))
        assert list(decision.statements) == ["identity#0", "boundary#0"]


class TestSessionPolicies:
    def test_a_session_has_what_its_role_and_its_policies_both_allow(self) -> None:
        assert reason(identity=(ALLOW,), session=(SILENT,)) is Reason.NO_SESSION_ALLOW
        assert reason(identity=(), session=(ALLOW,)) is Reason.NO_IDENTITY_ALLOW
        assert decided(identity=(ALLOW,), session=(SILENT, ALLOW)).allowed


class TestPolicyEvaluationWithinASingleAccount:
    """Of identity policies and the resource's policy one is enough; how it names the caller decides about limits."""

    def test_the_policy_of_the_resource_alone_allows(self) -> None:
        for principal in ("*", {"AWS": ROLE}, {"AWS": SESSION}):
            decision = decided(resource=of_resource(statement(Principal=principal)))
            assert decision.allowed
            assert list(decision.statements) == ["resource#0"]

    def test_one_that_names_the_account_leaves_it_to_identity_policies(self) -> None:
        resource = of_resource(statement(Principal={"AWS": ACCOUNT}))
        assert reason(resource=resource) is Reason.NO_IDENTITY_ALLOW
        decision = decided(resource=resource, identity=(ALLOW,))
        assert list(decision.statements) == ["identity#0"]

    def test_one_that_names_another_principal_allows_nothing(self) -> None:
        for principal in ({"AWS": ROLE + "s"}, {"AWS": OTHER}, {"Service": "events.amazonaws.com"}):
            assert reason(resource=of_resource(statement(Principal=principal))) is Reason.NO_IDENTITY_ALLOW

    def test_a_grant_to_the_role_is_limited_by_boundary_and_session_policy(self) -> None:
        resource = of_resource(statement(Principal={"AWS": ROLE}))
        assert reason(resource=resource, boundary=SILENT) is Reason.NO_BOUNDARY_ALLOW
        assert reason(resource=resource, session=(SILENT,)) is Reason.NO_SESSION_ALLOW

    @pytest.mark.parametrize("principal", ["*", {"AWS": SESSION}])
    def test_a_grant_to_the_session_or_to_everyone_is_not(self, principal: Any) -> None:
        resource = of_resource(statement(Principal=principal))
        assert decided(resource=resource, boundary=SILENT, session=(SILENT,)).allowed

    def test_a_grant_to_a_user_is_not_limited_by_its_boundary(self) -> None:
        assert decided(GET, user, resource=of_resource(statement(Principal={"AWS": USER})), boundary=SILENT).allowed

    def test_an_explicit_deny_in_a_boundary_denies_even_those(self) -> None:
        resource = of_resource(statement(Principal={"AWS": SESSION}))
        assert reason(resource=resource, boundary=DENY) is Reason.EXPLICIT_DENY_BOUNDARY

    def test_a_deny_of_the_account_denies_all_who_are_in_it(self) -> None:
        resource = of_resource(statement("Deny", Principal={"AWS": ACCOUNT}))
        for caller in (session, user):
            assert reason(GET, caller, identity=(ALLOW,), resource=resource) is Reason.EXPLICIT_DENY_RESOURCE

    def test_the_statements_of_a_resource_say_about_which(self) -> None:
        resource = of_resource(statement(resource="arn:aws:s3:::bucket/runs/b/*"))
        assert reason(resource=resource) is Reason.NO_IDENTITY_ALLOW


class TestCrossAccountPolicyEvaluationLogic:
    def test_both_sides_must_allow(self) -> None:
        resource = of_resource(statement(Principal={"AWS": OTHER}))
        assert reason(GET, stranger, identity=(ALLOW,)) is Reason.NO_RESOURCE_ALLOW
        assert reason(GET, stranger, resource=resource) is Reason.NO_IDENTITY_ALLOW
        decision = decided(GET, stranger, identity=(ALLOW,), resource=resource)
        assert list(decision.statements) == ["identity#0", "resource#0"]

    def test_naming_the_session_or_everyone_is_no_way_around(self) -> None:
        for principal in ("*", {"AWS": stranger.arn}, {"AWS": stranger.role_arn}):
            resource = of_resource(statement(Principal=principal))
            assert reason(GET, stranger, resource=resource) is Reason.NO_IDENTITY_ALLOW
            assert reason(GET, stranger, identity=(ALLOW,), boundary=SILENT, resource=resource) is (
                Reason.NO_BOUNDARY_ALLOW
            )
            assert decided(GET, stranger, identity=(ALLOW,), resource=resource).allowed


class TestKeyPoliciesInKms:
    """A key policy must give its part: no identity policy reaches a key that its policy leaves out."""

    def test_identity_policies_alone_reach_no_key(self) -> None:
        assert reason(DECRYPT, identity=(ALLOW,)) is Reason.NO_RESOURCE_ALLOW
        assert reason(DECRYPT, identity=(ALLOW,), resource=of_resource(statement(Principal={"AWS": OTHER}))) is (
            Reason.NO_RESOURCE_ALLOW
        )

    def test_one_that_names_the_account_delegates_to_identity_policies(self) -> None:
        key_policy = of_resource(statement(Principal={"AWS": ACCOUNT}))
        assert reason(DECRYPT, resource=key_policy) is Reason.NO_IDENTITY_ALLOW
        decision = decided(DECRYPT, identity=(ALLOW,), resource=key_policy)
        assert list(decision.statements) == ["identity#0", "resource#0"]

    def test_one_that_names_the_role_is_enough(self) -> None:
        assert decided(DECRYPT, resource=of_resource(statement(Principal={"AWS": ROLE}))).allowed

    def test_operations_on_no_key_have_no_key_policy(self) -> None:
        assert decided(Authorization(action="kms:ListKeys", resource="*"), identity=(ALLOW,)).allowed


class TestRoleTrustPolicies:
    """Assuming a role: its trust policy must name the caller, or its account, which then needs the permission too."""

    def test_identity_policies_alone_assume_no_role(self) -> None:
        assert reason(ASSUME, user, identity=(ALLOW,)) is Reason.NO_RESOURCE_ALLOW
        assert reason(ASSUME, user, identity=(ALLOW,), resource=of_trust({"AWS": ROLE})) is Reason.NO_RESOURCE_ALLOW

    def test_one_that_names_the_account_delegates_to_identity_policies(self) -> None:
        assert reason(ASSUME, user, resource=of_trust({"AWS": ACCOUNT})) is Reason.NO_IDENTITY_ALLOW
        assert decided(ASSUME, user, identity=(ALLOW,), resource=of_trust({"AWS": ACCOUNT})).allowed

    def test_one_that_names_the_caller_is_enough_in_the_same_account(self) -> None:
        assert decided(ASSUME, user, resource=of_trust({"AWS": USER})).allowed

    def test_across_accounts_both_are_needed(self) -> None:
        trust = of_trust({"AWS": stranger.role_arn})
        assert reason(ASSUME, stranger, resource=trust) is Reason.NO_IDENTITY_ALLOW
        assert decided(ASSUME, stranger, identity=(ALLOW,), resource=trust).allowed

    def test_a_role_does_not_trust_itself_unless_it_says_so(self) -> None:
        assert reason(ASSUME, session, identity=(ALLOW,), resource=of_trust({"AWS": USER})) is Reason.NO_RESOURCE_ALLOW

    def test_each_action_on_a_session_is_asked_for(self) -> None:
        tag = replace(ASSUME, action="sts:TagSession")
        assert reason(tag, user, identity=(ALLOW,), resource=of_trust({"AWS": ACCOUNT})) is Reason.NO_RESOURCE_ALLOW
        both = of_trust({"AWS": ACCOUNT}, Action=["sts:AssumeRole", "sts:TagSession"])
        assert decided(tag, user, identity=(ALLOW,), resource=both).allowed

    def test_passing_a_role_is_no_assuming(self) -> None:
        assert decided(Authorization(action="iam:PassRole", resource=ROLE), identity=(ALLOW,)).allowed


class TestServicePrincipals:
    """A service that acts on its own behalf has no identity policies: the policy of the resource decides."""

    SEND = Authorization(
        action="sqs:SendMessage",
        resource=QUEUE,
        context={"aws:SourceArn": (f"arn:aws:events:us-west-1:{ACCOUNT}:rule/r",), "aws:SourceAccount": (ACCOUNT,)},
    )

    def test_the_policy_of_the_resource_alone_decides(self) -> None:
        assert reason(self.SEND, eventbridge, identity=(ALLOW,)) is Reason.NO_RESOURCE_ALLOW
        assert decided(self.SEND, eventbridge, resource=of_resource(statement(Principal=EVENTS))).allowed

    def test_another_service_is_another_principal(self) -> None:
        resource = of_resource(statement(Principal={"Service": "sns.amazonaws.com"}))
        assert reason(self.SEND, eventbridge, resource=resource) is Reason.NO_RESOURCE_ALLOW

    @pytest.mark.parametrize("key", ["aws:SourceArn", "aws:SourceAccount"])
    def test_the_confused_deputy_problem(self, key: str) -> None:
        condition = {"StringEquals": {key: self.SEND.context[key][0]}}
        resource = of_resource(statement(Principal=EVENTS, Condition=condition))
        assert decided(self.SEND, eventbridge, resource=resource).allowed
        elsewhere = replace(self.SEND, context={key: (self.SEND.context[key][0].replace(ACCOUNT, OTHER),)})
        assert reason(elsewhere, eventbridge, resource=resource) is Reason.NO_RESOURCE_ALLOW
        assert reason(replace(self.SEND, context={}), eventbridge, resource=resource) is Reason.NO_RESOURCE_ALLOW

    def test_it_brings_none_of_the_keys_of_the_one_that_caused_the_call(self) -> None:
        condition = {"StringEquals": {"aws:PrincipalTag/run": "a"}}
        assert (
            reason(self.SEND, eventbridge, resource=of_resource(statement(Condition=condition)))
            is Reason.NO_RESOURCE_ALLOW
        )

    def test_it_is_an_aws_service(self) -> None:
        condition = {"Bool": {"aws:PrincipalIsAWSService": "true"}}
        resource = of_resource(statement(Condition=condition))
        assert decided(self.SEND, eventbridge, resource=resource).allowed
        assert reason(GET, session, resource=resource) is Reason.NO_IDENTITY_ALLOW

    def test_a_deny_for_everyone_is_for_services_too(self) -> None:
        resource = of_resource(statement(Principal=EVENTS), statement("Deny"))
        assert reason(self.SEND, eventbridge, resource=resource) is Reason.EXPLICIT_DENY_RESOURCE


class TestNotPrincipal:
    """To leave a caller out of a deny, its session, its role and its account must all be listed."""

    @pytest.mark.parametrize(
        ("listed", "expected"),
        [
            ([SESSION, ROLE, ACCOUNT], Reason.ALLOWED),
            ([SESSION, ROLE], Reason.EXPLICIT_DENY_RESOURCE),
            ([ROLE, ACCOUNT], Reason.EXPLICIT_DENY_RESOURCE),
            ([USER, ACCOUNT], Reason.EXPLICIT_DENY_RESOURCE),
        ],
    )
    def test_with_deny(self, listed: list[str], expected: Reason) -> None:
        resource = of_resource(statement("Deny", NotPrincipal={"AWS": listed}))
        assert reason(identity=(ALLOW,), resource=resource) is expected

    def test_with_deny_for_a_service(self) -> None:
        send = TestServicePrincipals.SEND
        kept = of_resource(statement(), statement("Deny", NotPrincipal=EVENTS))
        assert decided(send, eventbridge, resource=kept).allowed
        assert reason(GET, identity=(ALLOW,), resource=kept) is Reason.EXPLICIT_DENY_RESOURCE

    def test_with_allow_it_leaves_out_whom_it_names(self) -> None:
        resource = of_resource(statement(NotPrincipal={"AWS": ROLE}))
        assert reason(resource=resource) is Reason.NO_IDENTITY_ALLOW
        assert decided(GET, user, resource=resource).allowed


class TestContextKeys:
    @pytest.mark.parametrize(
        ("caller", "key", "value"),
        [
            (session, "aws:PrincipalArn", ROLE),
            (session, "aws:PrincipalAccount", ACCOUNT),
            (session, "aws:PrincipalType", "AssumedRole"),
            (session, "aws:userid", "AROA:job"),
            (session, "aws:PrincipalTag/run", "a"),
            (session, "aws:ResourceAccount", ACCOUNT),
            (user, "aws:PrincipalArn", USER),
            (user, "aws:username", "ann"),
            (user, "aws:PrincipalType", "User"),
            (user, "aws:principaltag/TEAM", "blue"),
        ],
    )
    def test_the_caller_brings_its_own(self, caller: CallingPrincipal, key: str, value: str) -> None:
        deny = statement("Deny", Condition={"StringEquals": {key: value}})
        assert reason(GET, caller, identity=(ALLOW, of_identity(deny))) is Reason.EXPLICIT_DENY_IDENTITY

    def test_a_role_session_has_no_user_name(self) -> None:
        condition = {"Null": {"aws:username": "false"}}
        assert reason(identity=(of_identity(statement(Condition=condition)),)) is Reason.NO_IDENTITY_ALLOW

    def test_a_request_does_not_choose_who_makes_it(self) -> None:
        claims = replace(GET, context={"aws:principaltag/run": ("b",)})
        condition = {"StringEquals": {"aws:PrincipalTag/run": "b"}}
        assert reason(claims, identity=(of_identity(statement(Condition=condition)),)) is Reason.NO_IDENTITY_ALLOW

    def test_tag_keys_of_the_request_are_not_case_sensitive(self) -> None:
        asked = replace(GET, context={"aws:requesttag/Spotkeep:Run": ("a",)})
        condition = {"StringEquals": {"aws:RequestTag/spotkeep:run": "a"}}
        assert decided(asked, identity=(of_identity(statement(Condition=condition)),)).allowed

    def test_a_resource_is_bound_to_the_tag_of_the_caller(self) -> None:
        own = of_identity(statement(resource="arn:aws:s3:::bucket/runs/${aws:PrincipalTag/run}/*"))
        assert decided(identity=(own,)).allowed
        assert (
            reason(replace(GET, resource="arn:aws:s3:::bucket/runs/b/x"), identity=(own,)) is Reason.NO_IDENTITY_ALLOW
        )


class TestUnknown:
    def test_a_set_under_an_operator_for_one_value_is_denied_and_named(self) -> None:
        asked = replace(GET, context={"aws:TagKeys": ("a",)}, multivalued=frozenset({"aws:TagKeys"}))
        policy = of_identity(statement(Condition={"StringEquals": {"aws:TagKeys": "a"}}))
        decision = decided(asked, identity=(policy,))
        assert (decision.allowed, decision.reason) == (False, Reason.UNKNOWN)
        assert "aws:TagKeys" in str(decision.unknown)

    def test_a_statement_about_another_principal_leaves_nothing_unknown(self) -> None:
        asked = replace(GET, context={"aws:TagKeys": ("a",)}, multivalued=frozenset({"aws:TagKeys"}))
        condition = {"StringEquals": {"aws:TagKeys": "a"}}
        resource = of_resource(statement("Deny", Principal={"AWS": OTHER}, Condition=condition))
        assert decided(asked, identity=(ALLOW,), resource=resource).allowed


statements = st.builds(
    statement,
    effect=st.sampled_from(["Allow", "Deny"]),
    action=st.sampled_from(["*", "s3:*", "s3:GetObject", "s3:PutObject", "kms:Decrypt", "sts:AssumeRole"]),
    resource=st.sampled_from(["*", "arn:aws:s3:::bucket/*", "arn:aws:s3:::bucket/runs/${aws:PrincipalTag/run}/*", KEY]),
    Condition=st.sampled_from(
        [{}, {"StringEquals": {"aws:PrincipalTag/run": "a"}}, {"StringNotEquals": {"aws:PrincipalTag/run": "a"}}]
    ),
)
of_resources = st.builds(
    lambda each, principal: {**each, "Principal": principal},
    statements,
    st.sampled_from(["*", {"AWS": ROLE}, {"AWS": SESSION}, {"AWS": ACCOUNT}, {"AWS": USER}, {"AWS": OTHER}]),
)
callers = st.sampled_from([session, user, stranger])
authorizations = st.sampled_from([GET, replace(GET, action="s3:PutObject"), DECRYPT])


@given(st.lists(statements, max_size=4), st.lists(of_resources, max_size=3), callers, authorizations, st.data())
def test_rules_that_hold_for_all_policies(
    identity: list[Any], resource: list[Any], caller: CallingPrincipal, asked: Authorization, data: st.DataObject
) -> None:
    def allowed(identity: list[Any], resource: list[Any], boundary: PolicyDocument | None = None) -> bool:
        return decided(
            asked,
            caller,
            identity=(of_identity(*identity),) if identity else (),
            resource=of_resource(*resource) if resource else None,
            boundary=boundary,
        ).allowed

    before = allowed(identity, resource)
    more, more_of_resource = data.draw(statements), data.draw(of_resources)
    if more["Effect"] == "Deny":
        assert allowed([*identity, more], resource) <= before, "a deny that is added allows nothing"
    else:
        assert allowed([*identity, more], resource) >= before, "an allow that is added denies nothing"
    if more_of_resource["Effect"] == "Deny":
        assert allowed(identity, [*resource, more_of_resource]) <= before
    else:
        assert allowed(identity, [*resource, more_of_resource]) >= before
    shuffled = data.draw(st.permutations(identity)), data.draw(st.permutations(resource))
    assert allowed(*shuffled) is before, "the order of statements decides nothing"
    limit = data.draw(st.lists(statements, min_size=1, max_size=3))
    both = allowed(identity, []) and allowed(limit, [])
    assert allowed(identity, [], of_identity(*limit)) is both, "a boundary is an and"
