"""Each command answers programs in JSON or says why not, and the page lists the schemas."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

from tests.spotkeep_cli.json_schemas import (
    FOLDER,
    PAGE,
    WITHOUT_JSON,
    WITHOUT_SCHEMA,
    check,
    commands,
    definitions,
    form_of,
    page,
)


def test_each_command_has_the_option_or_a_reason() -> None:
    without = {
        name
        for name, command in commands().items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == set(WITHOUT_JSON)


def test_each_document_has_a_schema() -> None:
    described = {path.name.removesuffix(".schema.json") for path in FOLDER.glob("*.json")}
    silent = {name for name in commands() if name.replace(" ", "-") not in described}
    assert silent == {*WITHOUT_JSON, *WITHOUT_SCHEMA}


def test_the_page_lists_the_schemas_of_the_day() -> None:
    schemas = {path.name.removesuffix(".schema.json"): json.loads(path.read_text()) for path in FOLDER.glob("*.json")}
    assert PAGE.read_text() == page(schemas), "python -m tests.spotkeep_cli.json_schemas"
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("documents", "form"),
    [
        ([1, 2], {"type": "integer"}),
        ([1, 2.5], {"type": "number"}),
        ([None], {}),
        ([None, "a"], {"anyOf": [{"type": "null"}, {"type": "string"}]}),
        ([["a"], []], {"type": "array", "items": {"type": "string"}}),
        (
            [{"a": 1, "b": True}, {"a": 2}],
            {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "boolean"}}, "required": ["a"]},
        ),
        ([{"digits-1": 1}], {"type": "object", "additionalProperties": {"type": "integer"}}),
    ],
)
def test_a_schema_takes_the_documents_that_it_was_made_of(documents: list[Any], form: dict[str, Any]) -> None:
    assert form_of(documents) == form
    for document in documents:
        jsonschema.validate(document, form)


def test_a_record_is_described_by_its_type(make: Any) -> None:
    document = make.completed().model_dump(mode="json")
    form = form_of([document | {"forecast": 1.5}])
    assert form == {"$ref": "#/$defs/Run", "properties": {"forecast": {"type": "number"}}}
    schema = {**form, "$defs": definitions(form)}
    jsonschema.validate(document, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(document | {"state": "GONE"}, schema)


def test_a_document_of_another_form_is_found() -> None:
    with pytest.raises(AssertionError, match="spotkeep checkpoints verify --json"):
        check(["checkpoints", "verify", "folder", "--json"], '{"checkpoints": 3, "resume_takes": 1}')
