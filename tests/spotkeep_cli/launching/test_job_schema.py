"""The published schema is the one the code has, and says yes to what the launcher accepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest
import yaml

from spotkeep_cli.launching.job_schema import job_file_schema

REPOSITORY = Path(__file__).parents[3]
PUBLISHED = REPOSITORY / "docs" / "job.schema.json"


@pytest.fixture(scope="module")
def validator() -> Any:
    schema = job_file_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_published_schema_is_current(spotkeep: Any) -> None:
    assert spotkeep("schema").stdout == PUBLISHED.read_text(), (
        "the job document changed; publish it: spotkeep schema > docs/job.schema.json"
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"source": "."},
        {"source": {"uri": "s3://code/train.tar.gz", "sha256": "0" * 64}},
        {"source": {"git": "https://example.com/a/b.git", "commit": "0" * 40}},
        {"command": ["python", "train.py", "--lr", 0.1]},
        {"max_run": "1h30m", "max_wait": 90_000},
        {"channels": {"train": "s3://data/train", "test": {"uri": "s3://data/test", "input_mode": "FastFile"}}},
        {"channels": [{"name": "train", "uri": "s3://data/train"}]},
        {"hyperparameters": {"lr": 0.1, "epochs": 30, "amsgrad": True}},
        {"instance_types": ["ml.g5.xlarge"]},
    ],
)
def test_what_the_launcher_accepts_passes(validator: Any, fields: dict[str, Any]) -> None:
    validator.validate({"name": "digits", "command": "python train.py", **fields})


@pytest.mark.parametrize(
    "fields",
    [{"max_runn": 1}, {"capacity": "cheap"}, {"instance_count": 21}, {"instance_type": "g5"}, {"name": "a b"}],
)
def test_what_it_refuses_in_one_field_fails(validator: Any, fields: dict[str, Any]) -> None:
    assert not validator.is_valid({"name": "digits", "command": "python train.py", **fields})


def documented_fields() -> set[str]:
    lines = (REPOSITORY / "docs" / "job-file.md").read_text().splitlines()
    return {line.split("`")[1] for line in lines if line.startswith("| `")}


def test_every_field_is_documented() -> None:
    assert set(job_file_schema()["properties"]) <= documented_fields()


def test_every_example_passes(validator: Any) -> None:
    blocks = (REPOSITORY / "docs" / "job-file.md").read_text().split("```yaml\n")[1:]
    documented = [block.split("```")[0] for block in blocks]
    files = [path.read_text() for path in REPOSITORY.glob("examples/*/job*.yaml")]
    assert documented
    assert files
    for text in documented + files:
        validator.validate(yaml.safe_load(text))
