"""A withheld grant is missed once: the call is denied as if it were not deployed, and then it is given back."""

from __future__ import annotations

from typing import Any

import pytest

from spotkeep_local.iam.authorization import Authorization, Call
from spotkeep_local.iam.evaluation import AuthorizationDecision, CallingPrincipal, Policies, Question, Reason
from spotkeep_local.iam.policy import PolicyKind, read_policy
from tests.permissions.withheld import Withheld, WithheldGrant

ACCOUNT = "111122223333"
ROLE = CallingPrincipal.role_session(
    f"arn:aws:sts::{ACCOUNT}:assumed-role/trainer/job",
    role_arn=f"arn:aws:iam::{ACCOUNT}:role/trainer",
    user_id="AROA:job",
)
GET = WithheldGrant(identity="trainer", statement="trainer/own#0", action="s3:GetObject")
PUT = WithheldGrant(identity="trainer", statement="trainer/own#0", action="s3:Put*")


def question(action: str, *statements: list[str]) -> Question:
    """A question of a role with these statements, each with its actions."""
    document: dict[str, Any] = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Action": actions, "Resource": "*"} for actions in statements],
    }
    own = read_policy(document, name="trainer/own", kind=PolicyKind.IDENTITY)
    authorization = Authorization(action=action, resource="arn:aws:s3:::bucket/x")
    return Question(
        authorization=authorization, caller=ROLE, policies=Policies(identity=(own,), resource_account=ACCOUNT)
    )


def asked(withheld: Withheld, asked: Question, *, identity: str = "trainer") -> AuthorizationDecision | None:
    """What becomes of a call that everything together grants."""
    call = Call(service="s3", operation=asked.authorization.action.partition(":")[2], parameters={})
    return withheld.denial(identity, call=call, question=asked, granted=asked.decided())


@pytest.fixture
def withheld() -> Withheld:
    made = Withheld()
    made.withhold([GET, PUT])
    return made


def test_a_call_is_denied_once_for_want_of_a_grant_and_the_message_names_the_action(withheld: Withheld) -> None:
    get = question("s3:GetObject", ["s3:GetObject", "s3:Put*"])
    denial = asked(withheld, get)
    assert denial is not None
    assert (denial.allowed, denial.reason) == (False, Reason.NO_IDENTITY_ALLOW)
    (missed,) = withheld.missed()
    assert (missed.grant, missed.operation) == (GET, "s3.GetObject")
    assert "trainer/job is not authorized to perform: s3:GetObject on resource" in missed.denial
    assert asked(withheld, get) is None


def test_a_grant_with_wildcards_is_missed_by_what_it_names(withheld: Withheld) -> None:
    put = question("s3:PutObject", ["s3:GetObject", "s3:Put*"])
    assert asked(withheld, put) is not None
    assert [missed.grant for missed in withheld.missed()] == [PUT]
    assert asked(withheld, question("s3:GetObject", ["s3:GetObject", "s3:Put*"])) is not None


def test_what_another_statement_allows_is_not_missed(withheld: Withheld) -> None:
    assert asked(withheld, question("s3:GetObject", ["s3:GetObject"], ["s3:*"])) is None
    assert withheld.missed() == ()


def test_another_role_misses_nothing(withheld: Withheld) -> None:
    assert asked(withheld, question("s3:GetObject", ["s3:GetObject"]), identity="launcher") is None


def test_what_is_given_back_is_not_missed(withheld: Withheld) -> None:
    withheld.withhold([PUT])
    assert asked(withheld, question("s3:GetObject", ["s3:GetObject"])) is None
