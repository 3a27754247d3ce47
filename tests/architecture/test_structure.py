"""The picture of the functions' library in docs/architecture.md is what the sources say."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from .structure import drawing, without_shortcuts

ROOT = Path(__file__).parents[2]


def test_the_picture_in_the_docs_is_drawn_from_the_sources() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    pictures = re.findall(r"```mermaid\n(flowchart TD\n.*?)\n?```", page, flags=re.DOTALL)
    assert drawing(ROOT / "lambda" / "spotkeep_jobs") in pictures


def test_an_arrow_that_a_longer_way_replaces_is_left_out() -> None:
    assert without_shortcuts({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_a_record_changes_by_fields_that_mypy_checks() -> None:
    """`model_copy(update=...)` takes names as strings: a wrong one makes a record that no reader expects."""
    allowed = ROOT / "lambda/spotkeep_jobs/record/fields.py"
    for path in (ROOT / "lambda").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr == "model_copy":
                assert path == allowed, f"{path}:{node.lineno}: use with_changes(record, field=value)"


ROOMS = (
    "lambda/spotkeep_jobs",
    "training/spotkeep",
    "training/spotkeep_agent",
    "cli/spotkeep_cli",
    "local/spotkeep_local",
)


@pytest.mark.parametrize("room", ROOMS)
def test_the_page_names_each_folder_and_module_of_a_room(room: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    folders = {f"{path.name}/" for path in (ROOT / room).iterdir() if path.is_dir() and any(path.glob("*.py"))}
    modules = {path.name for path in (ROOT / room).glob("*.py") if not path.name.startswith("__")}
    assert {name for name in folders | modules if f"`{name}`" not in page} == set()


def test_the_page_names_no_folder_and_module_that_is_not_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    named = set(re.findall(r"`([\w./-]+(?:/|\.py|\.json|\.txt|\.toml))`", page))
    above = [ROOT, *(ROOT / room for room in ROOMS), *(ROOT / "lambda").iterdir(), ROOT / "lambda"]
    above += [ROOT / "lambda/spotkeep_jobs/runs", ROOT / "lambda/spotkeep_jobs/sweeps", ROOT / "tests"]
    above += [ROOT / "training/spotkeep_agent/volume", ROOT / "constructs/spotkeep_constructs"]
    above += [ROOT / "planner/spotkeep_planner"]
    assert len(named) > 100
    assert {name for name in named if not any((folder / name).exists() for folder in above)} == set()
