"""The job files of pages are those that the schema takes, whole or in part."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_jobs.document.deployment_facts import NO_DEFAULTS
from spotkeep_jobs.document.request import validate
from spotkeep_jobs.sweeps.document import SweepRequest
from tests.pages.shown import blocks_of
from tests.pages.worlds import PROJECT

SCHEMA = json.loads((PROJECT / "docs" / "job.schema.json").read_text())
WHOLE = jsonschema.Draft202012Validator(SCHEMA)
PART = jsonschema.Draft202012Validator(
    {name: value for name, value in SCHEMA.items() if name not in {"required", "anyOf", "allOf"}}
)
DEFAULTS = replace(
    NO_DEFAULTS,
    prices={"ml.g5.xlarge": 1.4, "ml.g5.2xlarge": 1.5, "ml.g4dn.xlarge": 0.7, "ml.m5.large": 0.1, "ml.m5.xlarge": 0.2},
    region="eu-central-1",
    image="123456789012.dkr.ecr.eu-central-1.amazonaws.com/training:1",
    instance_type="ml.m5.large",
    fleet_instance_types=("m5.large",),
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


@pytest.mark.parametrize("page", [page for page in PAGES if job_files(page)], ids=lambda page: page.name)
def test_the_reader_and_the_launcher_take_each_job_file(page: Path, tmp_path: Path) -> None:
    for block in blocks_of(page.read_text()):
        if block.language != "yaml":
            continue
        path = tmp_path / "job.yaml"
        path.write_text(block.content)
        document = dict(read_job_file(path).fields)
        sweep = document.pop("sweep", None)
        document.pop("schedule", None)
        if isinstance(document.get("source"), str):
            # The command line uploads a folder, and the launcher gets an object.
            del document["source"]
        if sweep is not None:
            SweepRequest.model_validate(sweep)
        document["name"] = re.sub(r"\{.*?\}", "x", str(document.get("name", "part")))
        if not document.keys() & {"command", "algorithm", "image"}:
            document["command"] = "python train.py"
        if document.get("backend") == "ec2" or document.keys() & {"runs", "on_demand_base"}:
            document |= {"backend": "ec2", "instance_types": document.get("instance_types", ["g5.xlarge"])}
        if "work" in document:
            document.setdefault("max_run", "41h")
        assert [problem.as_document() for problem in validate(document, defaults=DEFAULTS).problems] == []
