"""A test of one module has the module's name, so a test does not keep the name of a module that is gone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = [ROOT / folder for folder in ("lambda", "training", "cli", "local", "constructs", "planner")]


def modules_of(path: Path) -> set[str]:
    """Give the modules of ours that a test imports. Errors are no subject of a test, and types alone are none."""
    found = set()
    for node in imports_of(ast.parse(path.read_text(encoding="utf-8"))):
        names = [each.name for each in node.names]
        whole = names if isinstance(node, ast.Import) else [node.module, *(f"{node.module}.{name}" for name in names)]
        found |= {name for name in whole if name and not name.endswith(".errors") and source_of(name)}
    return found


def imports_of(node: ast.AST) -> Iterator[ast.Import | ast.ImportFrom]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.Import, ast.ImportFrom)):
            yield child
        elif not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)):
            yield from imports_of(child)


def source_of(module: str) -> Path | None:
    """Give the file of a module of ours."""
    files = (root.joinpath(*module.split(".")).with_suffix(".py") for root in SOURCES)
    return next((file for file in files if file.is_file()), None)


def test_a_test_of_one_module_is_named_after_it() -> None:
    others = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        folder = ".".join(path.parent.relative_to(ROOT / "tests").parts)
        name = path.stem.removeprefix("test_")
        if source_of(f"{folder}.{name}"):
            continue
        modules = modules_of(path)
        if len(modules) == 1:
            [module] = modules
            of_folder, _, leaf = module.rpartition(".")
            if of_folder == folder and not name.startswith(leaf):
                others[str(path.relative_to(ROOT))] = f"test_{leaf}.py, or test_{leaf}_<subject>.py"
    assert others == {}
