"""Each command answers programs in JSON or says why not, and the page lists the schemas."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from tests.spotkeep_cli.json_schemas import (
    PAGE,
    REPORT_ON_A_COMMAND,
    SEEN,
    WITHOUT_JSON,
    check,
    commands,
    definitions,
    file_name,
    form_of,
    page,
    written_schemas,
)


def test_each_command_has_the_option_or_a_reason() -> None:
    without = {
        name
        for name, command in commands().items()
        if not any("--json" in parameter.opts for parameter in command.params)
    }
    assert without == set(WITHOUT_JSON)


def test_each_document_has_a_schema() -> None:
    named = {name: file_name(name) for name in (*commands(), REPORT_ON_A_COMMAND) if name not in WITHOUT_JSON}
    assert written_schemas().keys() == {*named.values(), "error"}


def test_the_page_lists_the_schemas_of_the_day() -> None:
    schemas = written_schemas()
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


def test_a_document_of_another_form_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SEEN, raising=False)
    with pytest.raises(AssertionError, match="spotkeep checkpoints verify --json"):
        check(["checkpoints", "verify", "folder", "--json"], '{"checkpoints": 3, "resume_takes": 1}')
