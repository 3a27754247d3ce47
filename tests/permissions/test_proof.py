"""Each grant and each bound is proven by what becomes of a call that it had allowed, without it or beyond it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_local.iam.authorization import Authorization, Call
from spotkeep_local.iam.evaluation import CallingPrincipal, Policies, Question
from spotkeep_local.iam.policy import PolicyDocument, PolicyKind, read_policy
from spotkeep_local.iam.uses import Use
from tests.permissions.judge import Examples
from tests.permissions.proof import BoundProof, Granted, GrantProof, Proofs, prove

ACCOUNT = "111122223333"
OBJECT = "arn:aws:s3:::bucket/runs/a/x"
QUEUE = f"arn:aws:sqs:us-west-1:{ACCOUNT}:queue"
RULE = f"arn:aws:events:us-west-1:{ACCOUNT}:rule/ours-1"
ROLE = CallingPrincipal.role_session(
    f"arn:aws:sts::{ACCOUNT}:assumed-role/trainer/job",
    role_arn=f"arn:aws:iam::{ACCOUNT}:role/trainer",
    user_id="AROA:job",
    tags={"run": "a"},
)
GET = Authorization(action="s3:GetObject", resource=OBJECT)


def allow(*actions: str, resource: str | list[str] = "*", effect: str = "Allow", **more: Any) -> dict[str, Any]:
    return {"Effect": effect, "Action": list(actions), "Resource": resource, **more}


def policy(
    *statements: dict[str, Any], name: str = "trainer/own", kind: PolicyKind = PolicyKind.IDENTITY
) -> PolicyDocument:
    return read_policy({"Version": "2012-10-17", "Statement": list(statements)}, name=name, kind=kind)


def proven(
    *own: PolicyDocument, asked: tuple[Authorization, ...] = (GET,), resource: PolicyDocument | None = None
) -> Proofs:
    """What is proven of a role that asked for these permissions, each of which its policies must grant."""
    questions = [question(each, *own, resource=resource) for each in asked]
    return prove({"trainer": own}, {use_of(each): [each] for each in questions})


def question(authorization: Authorization, *own: PolicyDocument, resource: PolicyDocument | None = None) -> Question:
    policies = Policies(identity=own, resource=resource, resource_account=ACCOUNT)
    return Question(authorization=authorization, caller=ROLE, policies=policies)


def use_of(granted: Question, operation: str | None = None) -> Use:
    decision = granted.decided()
    assert decision.allowed
    return Use(
        identity="trainer",
        operation=operation or granted.authorization.action.replace(":", "."),
        action=granted.authorization.action,
        allowed=True,
        statements=decision.statements,
        reason=decision.reason.value,
    )


def grant(proofs: Proofs, action: str) -> GrantProof:
    (found,) = [each for each in proofs.grants if each.action == action]
    return found


def bound(proofs: Proofs, text: str) -> BoundProof:
    (found,) = [each for each in proofs.bounds if text in each.bound]
    return found


class TestGrants:
    def test_a_call_without_its_grant_is_denied_and_the_denial_names_the_action(self) -> None:
        proof = grant(proven(policy(allow("s3:GetObject"))), "s3:GetObject")
        assert proof.operations == ("s3.GetObject",)
        assert proof.denial == (
            f"User: {ROLE.arn} is not authorized to perform: s3:GetObject on resource: "
            f'"{OBJECT}" because no identity-based policy allows the s3:GetObject action'
        )
        assert proof.allowed_by == ()

    def test_one_action_of_a_statement_is_taken_away_and_the_others_stay(self) -> None:
        put = Authorization(action="s3:PutObject", resource=OBJECT)
        proofs = proven(policy(allow("s3:GetObject", "s3:PutObject")), asked=(GET, put))
        for action in ("s3:GetObject", "s3:PutObject"):
            assert action in (grant(proofs, action).denial or "")

    def test_the_same_twice_is_denied_by_neither_and_names_the_other(self) -> None:
        proofs = proven(policy(allow("s3:GetObject"), allow("s3:Get*")))
        assert grant(proofs, "s3:GetObject").denial is None
        assert grant(proofs, "s3:GetObject").allowed_by == ("trainer/own#1",)
        assert grant(proofs, "s3:Get*").allowed_by == ("trainer/own#0",)

    def test_a_statement_that_one_of_its_calls_needs_is_proven_though_another_has_two(self) -> None:
        other = Authorization(action="s3:GetObject", resource="arn:aws:s3:::bucket/sources/x")
        proofs = proven(
            policy(allow("s3:GetObject", resource="arn:aws:s3:::bucket/*"), allow("s3:Get*", resource=OBJECT)),
            asked=(GET, other),
        )
        assert grant(proofs, "s3:GetObject").denial is not None
        assert grant(proofs, "s3:Get*").denial is None

    def test_what_nothing_used_is_without_proof(self) -> None:
        proofs = proven(policy(allow("s3:GetObject", "s3:PutObject")))
        assert grant(proofs, "s3:PutObject") == GrantProof(
            identity="trainer", statement="trainer/own#0", action="s3:PutObject", operations=()
        )

    def test_an_allow_of_all_but_some_actions_is_without_proof(self) -> None:
        rest = {"Effect": "Allow", "NotAction": ["iam:*", "s3:Delete*"], "Resource": "*"}
        (proof,) = proven(policy(rest)).grants
        assert (proof.action, proof.operations, proof.denial) == ("all but iam:*, s3:Delete*", (), None)

    def test_what_a_resource_allows_as_well_is_named(self) -> None:
        bucket = policy(
            allow("s3:GetObject", Principal={"AWS": f"arn:aws:iam::{ACCOUNT}:role/trainer"}),
            name="bucket",
            kind=PolicyKind.RESOURCE,
        )
        proofs = proven(policy(allow("s3:Get*")), resource=bucket)
        assert grant(proofs, "s3:Get*").allowed_by == ("bucket#0",)
        assert grant(proofs, "s3:GetObject").allowed_by == ("trainer/own#0",)

    @given(
        owned=st.lists(
            st.lists(st.sampled_from(["s3:GetObject", "s3:PutObject", "s3:*"]), min_size=1, unique=True), min_size=1
        )
    )
    def test_a_grant_is_needed_exactly_when_no_other_allows_the_call(self, owned: list[list[str]]) -> None:
        own = policy(*(allow(*actions) for actions in owned), allow("s3:GetObject", resource="arn:aws:s3:::other/*"))
        allowing = [action for actions in owned for action in actions if action != "s3:PutObject"]
        if not allowing:
            return
        used = [each for each in proven(own).grants if each.operations]
        assert [each.action for each in used] == allowing
        for each in used:
            assert (each.denial is not None) is (len(allowing) == 1)
            assert bool(each.allowed_by) is (len(allowing) > 1)


class TestBounds:
    @pytest.mark.parametrize(
        ("condition", "context", "tried"),
        [
            (
                {"StringEquals": {"aws:SourceAccount": ACCOUNT}},
                {"aws:SourceAccount": ACCOUNT},
                ("aws:SourceAccount = 999999999999", "no aws:SourceAccount"),
            ),
            (
                {"ArnLike": {"aws:SourceArn": RULE.replace("ours-1", "ours-*")}},
                {"aws:SourceArn": RULE},
                (
                    f"aws:SourceArn = {RULE.replace(ACCOUNT, '999999999999')}",
                    f"aws:SourceArn = {RULE.replace('rule', 'another-rule')}",
                    f"aws:SourceArn = {RULE.replace('ours-1', 'another-ours-1')}",
                    "no aws:SourceArn",
                ),
            ),
            (
                {"StringEquals": {"aws:ResourceTag/spotkeep": "jobs"}},
                {"aws:ResourceTag/spotkeep": "jobs"},
                (
                    "aws:ResourceTag/spotkeep = another-jobs",
                    "aws:ResourceTag/spotkeep = jobs-another",
                    "no aws:ResourceTag/spotkeep",
                ),
            ),
            (
                {"StringLike": {"s3:prefix": "runs/*"}},
                {"s3:prefix": "runs/a/"},
                ("s3:prefix = another-runs/a/", "no s3:prefix"),
            ),
            (
                {"NumericLessThanEqualsIfExists": {"sagemaker:KeepAlivePeriod": "3600"}},
                {"sagemaker:KeepAlivePeriod": "600"},
                ("sagemaker:KeepAlivePeriod = 3601",),
            ),
            ({"Bool": {"aws:SecureTransport": "true"}}, {"aws:SecureTransport": "true"}, None),
            (
                {"StringNotEquals": {"aws:ResourceTag/frozen": "yes"}},
                {"aws:ResourceTag/frozen": "no"},
                ("aws:ResourceTag/frozen = yes",),
            ),
            ({"Null": {"kms:ViaService": "true"}}, {}, ("kms:ViaService = another-",)),
        ],
    )
    def test_a_condition_holds_against_what_it_is_there_to_keep_out(
        self, condition: dict[str, Any], context: dict[str, str], tried: tuple[str, ...] | None
    ) -> None:
        asked = Authorization(
            action="s3:GetObject", resource=OBJECT, context={key: (value,) for key, value in context.items()}
        )
        (operator,) = condition
        proof = bound(proven(policy(allow("s3:GetObject", Condition=condition)), asked=(asked,)), operator)
        assert proof.holds
        assert "s3:GetObject" in (proof.denial or "")
        if tried is not None:
            assert proof.tried == tried

    @pytest.mark.parametrize(
        ("quantifier", "held"), [("ForAllValues", ("run", "another-run")), ("ForAnyValue", ("another-run",))]
    )
    def test_a_set_gets_a_value_more_or_no_right_one(self, quantifier: str, held: tuple[str, ...]) -> None:
        asked = Authorization(
            action="ec2:CreateTags",
            resource="*",
            context={"aws:TagKeys": ("run",)},
            multivalued=frozenset({"aws:TagKeys"}),
        )
        condition = {f"{quantifier}:StringEquals": {"aws:TagKeys": ["run"]}}
        proof = bound(proven(policy(allow("ec2:CreateTags", Condition=condition)), asked=(asked,)), quantifier)
        assert proof.holds
        assert f"aws:TagKeys = {', '.join(held)}" in proof.tried

    def test_a_policy_variable_keeps_another_runs_key_out(self) -> None:
        own = policy(allow("s3:GetObject", resource="arn:aws:s3:::bucket/runs/${aws:PrincipalTag/run}/*"))
        proof = bound(proven(own), "${aws:principaltag/run}")
        assert proof.holds
        assert proof.tried == (
            "aws:principaltag/run = another-a",
            "aws:principaltag/run = a-another",
            "no aws:principaltag/run",
        )

    def test_a_resource_keeps_every_part_of_it_that_the_policy_fixes(self) -> None:
        own = policy(allow("s3:GetObject", resource="arn:aws:s3:::bucket/runs/*"))
        proof = bound(proven(own), "arn:aws:s3:::bucket/runs/*")
        assert proof.holds
        assert proof.tried == ("arn:aws:s3:::another-bucket/runs/a/x", "arn:aws:s3:::bucket/another-runs/a/x")

    def test_what_another_statement_lets_through_does_not_hold_and_names_it(self) -> None:
        tagged = {"StringEquals": {"aws:ResourceTag/spotkeep": "jobs"}}
        asked = Authorization(
            action="ec2:TerminateInstances", resource="*", context={"aws:ResourceTag/spotkeep": ("jobs",)}
        )
        own = policy(allow("ec2:TerminateInstances", Condition=tagged), allow("ec2:Terminate*"))
        proof = bound(proven(own, asked=(asked,)), "StringEquals")
        assert not proof.holds
        assert proof.denial is None
        assert proof.granted[0] == Granted(
            action="ec2:TerminateInstances",
            tried="aws:ResourceTag/spotkeep = another-jobs",
            allowed_by=("trainer/own#1",),
        )

    def test_a_condition_that_nothing_can_break_does_not_hold(self) -> None:
        own = policy(allow("s3:GetObject", Condition={"StringLikeIfExists": {"s3:prefix": "*"}}))
        proof = bound(proven(own), "s3:prefix")
        assert (proof.tried, proof.holds) == ((), False)

    @given(name=st.text("abc/-", min_size=1, max_size=8), others=st.text("abc/-", max_size=8))
    def test_a_bound_that_fixes_the_beginning_of_a_name_always_holds(self, name: str, others: str) -> None:
        arn = f"arn:aws:s3:::bucket/{name}{others}"
        own = policy(allow("s3:GetObject", resource=f"arn:aws:s3:::bucket/{name}*"))
        proofs = proven(own, asked=(Authorization(action="s3:GetObject", resource=arn),))
        assert all(proof.holds for proof in proofs.bounds)


class TestStatementsThatDeny:
    def test_what_they_deny_is_asked_for_and_denied_by_them(self) -> None:
        deny = allow(
            "ec2:*Volume", resource="*", effect="Deny", Condition={"StringNotEquals": {"aws:RequestTag/a": "b"}}
        )
        proof = bound(proven(policy(allow("*"), deny)), "ec2:*Volume")
        assert proof.holds
        assert proof.statement == "trainer/own#1"
        assert "ec2:xVolume" in (proof.denial or "")
        assert "with an explicit deny in an identity-based policy" in (proof.denial or "")

    def test_those_of_a_resource_are_asked_for_once_for_all_of_its_objects(self) -> None:
        insecure = {"Bool": {"aws:SecureTransport": "false"}}
        denying = allow("s3:*", effect="Deny", Principal="*", Condition=insecure)
        own = policy(allow("s3:GetObject"))
        granted = {}
        for number in range(2):
            bucket = policy(denying, name=f"{OBJECT}{number}", kind=PolicyKind.RESOURCE)
            asked = question(GET, own, resource=bucket)
            granted[use_of(asked, f"GetObject{number}")] = [asked]
        (proof,) = prove({"trainer": [own]}, granted).bounds
        assert (proof.identity, proof.holds) == (f"{OBJECT}0", True)
        assert "explicit deny in a resource-based policy" in (proof.denial or "")


def test_a_role_is_not_taken_by_the_trust_policy_of_another() -> None:
    run_role = f"arn:aws:iam::{ACCOUNT}:role/run"
    trust = read_policy(
        {
            "Version": "2012-10-17",
            "Statement": {"Effect": "Allow", "Action": "sts:AssumeRole", "Principal": {"AWS": ROLE.role_arn}},
        },
        name=run_role,
        kind=PolicyKind.TRUST,
    )
    asked = Authorization(action="sts:AssumeRole", resource=run_role)
    proofs = proven(policy(allow("sts:AssumeRole", resource=run_role)), asked=(asked,), resource=trust)
    assert bound(proofs, run_role).holds
    of_role, of_trust = proofs.grants
    assert (of_role.denial, of_role.allowed_by) == (None, (f"{run_role}#0",))
    assert "because no role trust policy allows the sts:AssumeRole action" in (of_trust.denial or "")


def test_each_of_several_resources_that_a_statement_names_has_a_question_of_its_own() -> None:
    own = policy(
        allow(
            "s3:GetObject", resource=["arn:aws:s3:::bucket/sources/*", "arn:aws:s3:::bucket/${aws:PrincipalTag/run}/*"]
        )
    )
    examples = Examples()
    for key in ("sources/x", "sources/y", "a/x"):
        authorization = Authorization(action="s3:GetObject", resource=f"arn:aws:s3:::bucket/{key}")
        asked = question(authorization, own)
        call = Call(service="s3", operation="GetObject", parameters={})
        examples.add("trainer", call=call, question=asked, decision=asked.decided())
    (questions,) = examples.granted().values()
    assert [each.authorization.resource.partition("/")[2] for each in questions] == ["sources/x", "a/x"]
    assert bound(prove({"trainer": [own]}, examples.granted()), "${aws:principaltag/run}").holds


def test_what_was_used_under_another_policy_proves_nothing_of_the_one_that_is_there_now() -> None:
    before, now = policy(allow("s3:Get*")), policy(allow("s3:GetObject"))
    asked = question(GET, before)
    assert grant(prove({"trainer": [now]}, {use_of(asked): [asked]}), "s3:GetObject").operations == ()
