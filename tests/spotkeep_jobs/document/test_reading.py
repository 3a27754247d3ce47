"""What pydantic finds wrong in any model, in our words: the settings of a deployment are read with it, too."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError

from spotkeep_jobs.document.reading import DocumentModel, Wording, described_fields, problems_of
from spotkeep_jobs.errors import Problem


class Mail(BaseModel):
    model_config = ConfigDict(extra="forbid")
    to: str = Field(description="who gets it", examples=["ada@example.com"], pattern="^[a-z]+@[a-z.]+$")


class Hook(BaseModel):
    url: str


class Deployed(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: str = Field(description="what it is called", examples=["spotkeep"])
    days: Annotated[int, Strict()] | None = Field(default=None, description="how long data is kept", ge=31, le=3650)
    price: float = Field(default=1, gt=0)
    orphans: Literal["report", "remove"] = "remove"
    mails: tuple[Mail, ...] = ()
    hook: Hook | None = None
    password: str = Field(default="", max_length=3)


def problems(**values: Any) -> list[Problem]:
    values = {"name": "spotkeep"} | values
    with pytest.raises(ValidationError) as caught:
        Deployed.model_validate(values)
    gone = {"webhook": "Keep the address in a secret."}
    wording = Wording(secret=("password",), other_names={"retention": "days"}, gone=gone)
    return problems_of(caught.value, Deployed, document=values, wording=wording)


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"name": 5}, "name: is not text (found 5). Write it as text, in quotes if it looks like a number."),
        ({"days": 30}, "days: is out of range: 31 to 3650 are allowed (found 30). Choose 31 to 3650."),
        ({"price": -1}, "price: is out of range: above 0 is allowed (found -1). Choose above 0."),
        ({"days": 30.5}, "days: is not a whole number (found 30.5). Give a number from 31 to 3650, no unit."),
        ({"orphans": "Report"}, "orphans: is spelled differently from 'report' (found 'Report'). Write report."),
        ({"orphans": 1}, "orphans: is not one of report or remove (found 1). Choose report or remove."),
        ({"mails": [{}]}, "mails[0].to: is required (found nothing). Add it, for example to: 'ada@example.com'."),
        ({"hook": {}}, "hook.url: is required (found nothing). Add it."),
        (
            {"mails": [{"to": "ada"}]},
            "mails[0].to: is not written as it must be (found 'ada'). who gets it. For example: 'ada@example.com'.",
        ),
        ({"mails": [{"to": "a@b", "too": 1}]}, "mails[0].too: is not a known field (found 1). Did you mean `to`?"),
        ({"dayz": 40}, "dayz: is not a known field (found 40). Did you mean `days`?"),
        ({"Retention": 40}, "Retention: is not a known field (found 40). Did you mean `days`?"),
        ({"password": "1234"}, "password: has 4 characters; 3 are allowed (found a value of type str). "
         "Shorten it to 3 characters."),
        ({"webhook": "https://secret"}, "webhook: is not a field any more (found a value). "
         "Keep the address in a secret."),
    ],
)  # fmt: skip
def test_a_problem_says_field_found_and_fix(values: dict[str, Any], said: str) -> None:
    assert [str(problem) for problem in problems(**values)] == [said]


def test_a_word_that_is_near_none_is_referred_to_the_page_that_lists_them() -> None:
    with pytest.raises(ValidationError) as caught:
        Mail.model_validate({"to": "ada@example.com", "zzz": 1})
    [problem] = problems_of(caught.value, Mail, document={}, wording=Wording(listed_in="docs/mail.md"))
    assert problem.fix == "docs/mail.md lists those that there are."


def test_all_problems_come_at_once_in_the_order_of_the_fields() -> None:
    assert [each.field for each in problems(days=1, orphans=2, name=3)] == ["name", "days", "orphans"]


class Data(DocumentModel):
    """Not the docstring of a field."""

    uri: str = Field(pattern="^s3://", examples=["s3://data/"])
    """Where the data is:
    a prefix."""
    mode: str = "File"


class Channel(Data):
    name: str = Field(description="Its name.")
    """Not what it is described by."""
    of: tuple[Data, ...] = ()
    """More of it."""


class Other(BaseModel):
    uri: str
    """No part of a document."""


def test_a_field_is_described_by_the_docstring_below_it_its_own_description_and_the_base_class() -> None:
    described = {name: field.description for name, field in described_fields(Channel).items()}
    assert described == {
        "uri": "Where the data is:\na prefix.",
        "mode": None,
        "name": "Its name.",
        "of": "More of it.",
    }
    assert described_fields(Other)["uri"].description is None


def test_the_fix_of_a_refusal_is_the_docstring() -> None:
    document: dict[str, Any] = {"name": "a", "uri": "s3://a", "of": [{"uri": "http://a"}]}
    with pytest.raises(ValidationError) as caught:
        Channel.model_validate(document)
    (problem,) = problems_of(caught.value, Channel, document=document)
    assert (problem.field, problem.fix) == ("of[0].uri", "Where the data is: a prefix. For example: 's3://data/'.")


def test_the_schema_of_an_editor_has_the_docstrings_of_all_parts() -> None:
    schema = Channel.model_json_schema()
    assert schema["properties"]["name"]["description"] == "Its name."
    assert "description" not in schema["properties"]["mode"]
    assert schema["$defs"]["Data"]["properties"]["uri"]["description"] == "Where the data is:\na prefix."
