"""Each trap that others fell into has tests, and docs/traps.md names them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| (\d+) \|.*?\| ([^|]*)\|$", (ROOT / "docs/traps.md").read_text(encoding="utf-8"), re.MULTILINE)
NAMED = [(number, test) for number, tests in ROWS for test in re.findall(r"`(tests/[^`]+)`", tests)]
WAITERS = ("get_waiter", "wait_until_exists")


def test_every_trap_is_there() -> None:
    assert [int(number) for number, _ in ROWS] == list(range(1, 14))
    assert {number for number, _ in NAMED} == {number for number, _ in ROWS}


@pytest.mark.parametrize(("number", "test"), NAMED)
def test_a_test_that_the_page_names_exists(number: str, test: str) -> None:
    path, *names = test.split("::")
    body = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
    for name in names:
        found = [node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name]
        assert found, f"trap {number}: {path} has no {name}"
        body = found[0].body


def test_no_function_waits_for_what_takes_minutes() -> None:
    """Waiters poll for up to ten minutes inside a function that is billed meanwhile, and cut off (trap 11)."""
    sources = list((ROOT / "lambda").rglob("*.py"))
    assert len(sources) > 20
    for path in sources:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                assert node.attr not in WAITERS, f"{path}:{node.lineno} waits; reconcile with the next event instead"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "sleep":
                raise AssertionError(f"{path}:{node.lineno} sleeps; reconcile with the next event instead")
