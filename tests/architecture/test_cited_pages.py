"""Messages cite pages as `spotkeep help TOPIC`, which works everywhere, and each cited page and section exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from spotkeep_cli.help_pages import page, topics

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("cli", "constructs", "lambda", "local", "planner", "stacks", "training")
CITED = re.compile(r"spotkeep help ([a-z-]+)([a-z ]*)")
PAGE_OF_A_CHECKOUT = re.compile(r"docs/[a-z-]+\.md")


def texts_of(path: Path) -> Iterator[str]:
    """The texts of a module, without its docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | parts:
            yield node.value


@pytest.fixture(scope="module")
def texts() -> list[tuple[str, str]]:
    """Each text with the module that has it."""
    return [
        (path.relative_to(ROOT).as_posix(), text)
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        if re.search("docs/|spotkeep help", path.read_text(encoding="utf-8"))
        for text in texts_of(path)
    ]


def test_no_message_cites_a_path_of_the_checkout(texts: list[tuple[str, str]]) -> None:
    assert [(path, text) for path, text in texts if PAGE_OF_A_CHECKOUT.search(text) and "://" not in text] == []


def test_each_cited_page_and_section_exists(texts: list[tuple[str, str]]) -> None:
    cited = {(path, found[1], found[2].strip()) for path, text in texts for found in CITED.finditer(text)}
    assert len(cited) > 15
    assert sorted(each for each in cited if page(each[1], each[2]) is None) == []


def test_a_topic_is_no_path() -> None:
    assert {"job-file", "training-scripts", "runbook"} <= topics().keys()
    assert page("../README") is None
