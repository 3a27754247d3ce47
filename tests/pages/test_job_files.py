"""The job files of pages are those that the schema takes, whole or in part."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.pages.shown import blocks_of
from tests.pages.worlds import PROJECT

SCHEMA = json.loads((PROJECT / "docs" / "job.schema.json").read_text())
WHOLE = jsonschema.Draft202012Validator(SCHEMA)
PART = jsonschema.Draft202012Validator(
    {name: value for name, value in SCHEMA.items() if name not in {"required", "anyOf", "allOf"}}
)
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]


def job_files(page: Path) -> list[dict[str, Any]]:
    """The YAML of a page. Numbers such as 1e-5, which PyYAML takes for text, are numbers in a job file."""
    texts = [block.content for block in blocks_of(page.read_text()) if block.language == "yaml"]
    return [yaml.safe_load(re.sub(r"\b(\d)e(-\d+)\b", r"\1.0e\2", text)) for text in texts]


@pytest.mark.parametrize("page", [page for page in PAGES if job_files(page)], ids=lambda page: page.name)
def test_a_page_shows_job_files_that_are_accepted(page: Path) -> None:
    for document in job_files(page):
        # The name of a schedule's or a sweep's run may hold a parameter of the trial.
        whole = {**document, "name": re.sub(r"\{.*?\}", "x", document["name"])} if "name" in document else document
        (WHOLE if "name" in document else PART).validate(whole)
