"""Who may name what and act on which run; the attacks on it are in tests/security/test_callers.py."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.record.fields import Caller
from spotkeep_jobs.runs.callers import CallerRules, is_made_for, run_of_prefix, with_owner
from tests.spotkeep_jobs.conftest import a_run

ADA = Caller(arn="arn:aws:sts::111122223333:assumed-role/Vision/ada", name="ada", verified=True)
NAMES = st.text("abc-_=+,.@", min_size=2, max_size=12)


@pytest.mark.parametrize("document", [[], None, "text", {"owner": "grace"}])
def test_an_owner_that_is_named_and_what_is_no_document_stay(document: object) -> None:
    assert with_owner(document, caller=ADA) is document


def test_a_document_without_an_owner_gets_its_caller() -> None:
    assert with_owner({"name": "a", "owner": None}, caller=ADA) == {"name": "a", "owner": "ada"}


@pytest.mark.parametrize(
    ("prefix", "run", "made_for_first"),
    [
        ("s3://bucket/runs/first/checkpoints/", "first", True),
        ("s3://bucket/teams/vision/runs/first/checkpoints/", "first", False),
        ("s3://other/runs/first/checkpoints/", "first", False),
        ("s3://bucket/runs/second/checkpoints/", "second", False),
        ("s3://bucket/runs/first/output/", None, False),
        ("s3://bucket/first/checkpoints/", None, False),
    ],
)
def test_a_prefix_is_that_of_the_run_whose_output_lies_beside_it(
    prefix: str, run: str | None, made_for_first: bool
) -> None:
    assert run_of_prefix(prefix) == run
    assert is_made_for(prefix, a_run("first")) is made_for_first


@given(role=NAMES, session=NAMES, other=NAMES)
def test_a_principal_without_a_star_stands_for_itself_alone(role: str, session: str, other: str) -> None:
    def caller(name: str) -> Caller:
        return Caller(arn=f"arn:aws:sts::111122223333:assumed-role/{role}/{name}", name=name, verified=True)

    rules = CallerRules(team_members={"vision": (caller(session).arn,)})
    assert rules.belongs_to(caller(session), "vision")
    assert rules.belongs_to(caller(other), "vision") is (other == session)
    assert not rules.belongs_to(caller(session), "speech")
    assert not rules.administers(caller(session))


def test_a_request_may_name_its_caller_and_what_is_the_callers() -> None:
    rules = CallerRules(team_members={"vision": ("arn:aws:sts::*:assumed-role/Vision/*",)})
    request = JobRequest(name="a", command=("true",), owner="ada", team="vision")
    assert list(rules.names(request, caller=ADA)) == []
    found = rules.names(request.model_copy(update={"owner": "grace", "team": "speech"}), caller=ADA)
    assert [problem.field for problem in found] == ["owner", "team"]
