"""A module that decides says in its docstring that it is pure. Neither it nor any module below it calls AWS."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "spotkeep_jobs": "lambda",
    "spotkeep_fleet": "training",
    "spotkeep": "training",
    "spotkeep_agent": "training",
    "spotkeep_planner": "planner",
    "spotkeep_cli": "cli",
    "spotkeep_local": "local",
}
CLIENTS = frozenset({"boto3", "botocore", "aws_lambda_powertools"})
MACHINE = frozenset({"os", "subprocess", "socket", "time", "threading", "urllib.request", "http.client"})
"""Modules of Python that reach the machine or the network. A module of the functions that uses one is not pure."""
PURE = re.compile(r"\bPure(?:[.,]| types)")


def docstring_of(path: Path) -> str:
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module, *(f"{node.module}.{each.name}" for each in node.names)}
    return found


def modules_below(package: str) -> dict[str, Path]:
    root = ROOT / FOLDERS[package]
    return {
        ".".join(path.relative_to(root).with_suffix("").parts): path
        for path in (root / package).rglob("*.py")
        if path.name != "__init__.py"
    }


def says_that_it_is_pure(path: Path) -> bool:
    """By itself, or by its folder."""
    return any(PURE.search(docstring_of(each)) for each in (path, path.parent / "__init__.py"))


@pytest.fixture(scope="module")
def graph() -> grimp.ImportGraph:
    for folder in {*FOLDERS.values()}:
        assert str(ROOT / folder) in sys.path
    return grimp.build_graph(*FOLDERS, include_external_packages=True, cache_dir=None)


@pytest.mark.parametrize("package", FOLDERS)
def test_a_pure_module_calls_no_service(package: str, graph: grimp.ImportGraph) -> None:
    modules = {name: path for name, path in modules_below(package).items() if says_that_it_is_pure(path)}
    ways = {
        name: graph.find_shortest_chain(importer=name, imported=client)
        for name in modules
        for client in CLIENTS & graph.find_upstream_modules(name)
    }
    assert ways == {}, "import what it needs from a module that does not call AWS"


def test_a_module_of_the_functions_that_calls_nothing_says_that_it_is_pure(graph: grimp.ImportGraph) -> None:
    """So a decision that begins to call AWS does not go unnoticed: its docstring must change with it."""
    silent = [
        name
        for name, path in modules_below("spotkeep_jobs").items()
        if not says_that_it_is_pure(path)
        and not CLIENTS & graph.find_upstream_modules(name)
        and not MACHINE & imports_of(path)
    ]
    assert silent == [], 'say "Pure." in the docstring of the module, or of its folder'
