"""A job file is read into a document, or refused with its line; a document into a request, or into its problems."""

from __future__ import annotations

import contextlib
import json
import tempfile
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from spotkeep_cli.errors import JobFileError
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_jobs.document.request import read_document

from .bounds import bounded, fed_by_strangers
from .mutations import NUMBERS, as_json, mutated

DOCUMENT = {
    "name": "count",
    "command": ["python", "train.py"],
    "source": {"git": "https://example.com/x.git", "commit": "a" * 40},
    "instance_types": ["ml.g5.xlarge"],
    "max_run": "2h",
    "max_wait": 7200,
    "environment": {"A": "b"},
    "hyperparameters": {"lr": 0.1, "steps": 3},
    "channels": [{"name": "train", "uri": "s3://bucket/data/", "input_mode": "FastFile"}],
    "fallback": [{"capacity": "on-demand", "after": "1h"}],
    "notify": ["completed"],
    "volume": {"size_gb": 8, "type": "gp3"},
    "tags": {"project": "x"},
}
LINES = yaml.safe_dump(DOCUMENT).splitlines()
SMUGGLED = [
    "a: &a [*a]", "b: &b [1, 2]", "c: [*b, *b, *b]", "<<: *b", "? [x]: y", "name: !!python/object:os.system x",
    "x: !!int z", "x: !!timestamp 1", "x: !!binary =", "x: !!bool 7", "x: !!float .", "x: !!set {a, b}", "---", "...",
    "%YAML 9.9", "\tx: 1", "x: |", "x: 'a", "- 1", "{", "]", "x: " + "[" * 300,
    "x: 0x7f", "x: 1e999", "x: " + "9" * 5000,
]  # fmt: skip
PAGES = st.lists(
    st.sampled_from(LINES) | st.sampled_from(SMUGGLED) | st.text(max_size=20), min_size=1, max_size=25
).map("\n".join)


def read_page(text: str) -> Any:
    path = Path(tempfile.gettempdir()) / "spotkeep-torture-job.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogatepass")
    with contextlib.suppress(JobFileError):
        return read_job_file(path).fields
    return None


@fed_by_strangers(share=0.4)
@given(PAGES)
def test_a_page_of_yaml_is_read_or_refused(text: str) -> None:
    with bounded():
        fields = read_page(text)
        if fields is not None:
            read_document(fields)


@fed_by_strangers(share=0.6)
@given(mutated(DOCUMENT), NUMBERS)
def test_a_document_is_a_request_or_its_problems(document: Any, number: str) -> None:
    """As `aws lambda invoke` hands it over: JSON, with numbers that Python alone reads."""
    text = as_json(document, number=number)
    with bounded():
        found = json.loads(text)
        if isinstance(found, dict):
            read_document(found)
