"""Who: who sends a person a job file. With what: a page of YAML that is gigabytes when its aliases are written out.

Nine aliases, each nine times the one before, made millions of lines of `spotkeep check`, and ate the memory of the
machine it ran on. What a document expands to is counted before it is built.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spotkeep_cli.errors import JobFileError
from spotkeep_cli.launching.job_file import read_job_file
from tests.torture.input.bounds import bounded

LISTS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 10)
)
MAPPINGS = "a0: &a0 {x: 1, y: 2}\n" + "".join(
    f"a{level}: &a{level} {{b: *a{level - 1}, c: *a{level - 1}}}\n" for level in range(1, 30)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(
    f"a{level}: &a{level}\n  <<: [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 10)
)
TEXTS = "a0: &a0 " + "x" * 100_000 + "\ncommand: [" + ", ".join(["*a0"] * 1000) + "]\n"


@pytest.mark.parametrize(
    ("text", "too_much"),
    [
        pytest.param(LISTS, "more than 20000 values", id="lists"),
        pytest.param(MAPPINGS, "more than 20000 values", id="mappings"),
        pytest.param(MERGES, "more than 20000 values", id="merges"),
        pytest.param(TEXTS, "more than 1048576 characters", id="texts"),
        pytest.param("name: " + "[" * 60 + "]" * 60, "more than 40 lists", id="depth"),
        pytest.param("name: " + "[" * 50_000 + "]" * 50_000, "more than 40 lists", id="far too deep"),
        pytest.param("max_run: " + "9" * 5000, "a number of 5000 digits", id="digits"),
        pytest.param("max_cost: !!int x", "does not fit its tag", id="a tag that lies"),
    ],
)
def test_what_a_page_expands_to_has_bounds(tmp_path: Path, text: str, too_much: str) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    with bounded(), pytest.raises(JobFileError, match=too_much):
        read_job_file(path)


def test_aliases_that_save_writing_are_read(tmp_path: Path) -> None:
    path = tmp_path / "job.yaml"
    path.write_text("name: a\nenvironment: &e {A: b}\nhyperparameters: {<<: *e, c: d}\ncommand: [x]\n")
    assert read_job_file(path).fields["hyperparameters"] == {"A": "b", "c": "d"}
