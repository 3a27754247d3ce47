"""The report can be attached to an issue: no account id and no name of a person is in it."""

from __future__ import annotations

from spotkeep_cli.first_account.plan import PlannedJob
from spotkeep_cli.first_account.questions import QUESTIONS, SeenJob
from spotkeep_cli.first_account.report import FirstAccountReport, Removal, markdown, without_names

REPORT = FirstAccountReport(
    version="0.1.0",
    region="eu-central-1",
    local=False,
    ceiling_usd=5.0,
    spent_usd=0.12345,
    ended_early="",
    jobs=[PlannedJob(kind="spot", shows="", document={"instance_type": "ml.m5.large"}, usd_at_most=0.04)],
    observed={
        "spot": SeenJob(
            run="first-account-spot-1a2b3c",
            state="FAILED",
            problem="arn:aws:iam::123456789012:role/x | may not\nbe assumed by Ada.Lovelace",
            printed=({"fact": "host", "at": 1795262400123, "hostname": "ada-laptop", "ada": 1},),
        )
    },
    removal=Removal(removed=("12 objects",), left=("logs of ada: AccessDenied",)),
    people={"ada", "ada.lovelace", "root"},
)


def test_ids_of_accounts_and_names_of_persons_are_replaced_and_keys_are_not() -> None:
    text = str(REPORT.to_document())
    assert "123456789012" not in text
    assert "lovelace" not in text.lower()
    (job,) = REPORT.to_document()["jobs"]
    assert job["problem"] == "arn:aws:iam::ACCOUNT:role/x | may not\nbe assumed by PERSON"
    assert job["printed"] == [{"fact": "host", "at": 1795262400123, "hostname": "PERSON-laptop", "ada": 1}]


def test_a_word_that_no_person_is_named_by_stays() -> None:
    assert without_names("root of Adapters in s3://b-123456789012", people={"root", "ada"}) == (
        "root of Adapters in s3://b-ACCOUNT"
    )


def test_the_page_has_each_question_and_what_is_left() -> None:
    page = markdown(REPORT.to_document())
    assert all(f"| `{question.id}` |" in page for question in QUESTIONS)
    assert "- logs of PERSON: AccessDenied" in page
    assert "expire by themselves" in page
    assert REPORT.to_document()["ok"] is False
