"""Each record keeps the fields that items in a deployment's table have: a changed or removed one is noticed.

`forms/fields.json` lists the fields of each record, with their types. A new field needs a default, and a line there.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.spotkeep_jobs.record.worst_records import all_records

FIELDS = Path(__file__).parent / "forms" / "fields.json"
KEPT: dict[str, dict[str, str]] = json.loads(FIELDS.read_text(encoding="utf-8"))
RECORDS = {each.__name__: each for each in all_records() if each.__module__.startswith("spotkeep_jobs.")}
TO_DO = (
    "Items that a deployment holds have it otherwise: convert them when they are read, or raise the record's FORM, "
    "then write the new form into forms/fields.json"
)


def fields_of(name: str) -> dict[str, str]:
    return {field: str(kind) for field, kind in RECORDS[name].__annotations__.items() if field != "FORM"}


@pytest.mark.parametrize("name", KEPT)
def test_a_record_keeps_its_fields(name: str) -> None:
    assert name in RECORDS, f"{name} is gone. {TO_DO}"
    found = fields_of(name)
    for field, kind in KEPT[name].items():
        assert found.get(field) == kind, f"{name}.{field} was {kind} and is {found.get(field)}. {TO_DO}"


def test_each_record_and_field_is_kept() -> None:
    for name in RECORDS:
        new = fields_of(name).keys() - KEPT.get(name, {}).keys()
        assert not new, f"{name}: {sorted(new)}: give each a default, and write it into forms/fields.json"
