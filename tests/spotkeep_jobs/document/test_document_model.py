"""The docstrings below a document's fields: a refusal's fix, and an editor's words."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import BaseModel, Field, ValidationError

from spotkeep_jobs.document.document_model import DocumentModel, described_fields
from spotkeep_jobs.document.reading import problems_of


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
