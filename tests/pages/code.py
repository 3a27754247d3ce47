"""Code of pages: read, held against our packages without an import of them, and run inside a script."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from spotkeep import EXIT_INTERRUPTED
from tests.forking import environment_of_script
from tests.pages.every_block import Placed, placed_blocks
from tests.pages.shown import Block

PROJECT = Path(__file__).parents[2]
Start = Callable[[Path, Path], tuple[int, str]]

SCRIPTS = Path(__file__).parent / "scripts"
PLACE = "# the block of the page"
_ROOTS = [PROJECT / folder for folder in ("training", "cli", "local", "lambda", "constructs", "stacks", "planner")]
_DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def plain_code(block: Block) -> str:
    """Return the code of a block. Of a difference it is the new side."""
    if block.language != "diff":
        return textwrap.dedent(block.content)
    lines = (line for line in block.content.splitlines() if not line.startswith("-"))
    return "".join(f"{line[1:] if line[:1] in {'+', ' '} else line}\n" for line in lines)


def problems_of_code(code: str) -> list[str]:
    """Return the faults in code, by its text: its form, its imports from our packages, and its arguments to them."""
    try:
        tree = ast.parse(code)
    except SyntaxError as error:
        return [f"line {error.lineno} is not Python: {error.msg}"]
    problems = []
    known: dict[str, _DEFINITIONS] = {}
    modules: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0].startswith("spotkeep"):
            for name in node.names:
                found = _definition(str(node.module), name.name)
                if found is None:
                    problems.append(f"{node.module} has no {name.name}")
                elif isinstance(found, _DEFINITIONS):
                    known[name.asname or name.name] = found
                elif isinstance(found, ast.Module):
                    modules[name.asname or name.name] = f"{node.module}.{name.name}"
    objects = {
        target.id: made
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and isinstance(node.value.func, ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(made := known.get(node.value.func.id), ast.ClassDef)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called: ast.AST | None = None
        if isinstance(node.func, ast.Name):
            called = known.get(node.func.id)
        elif isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Name):
            owner = node.func.value.id
            if owner in modules:
                called = _definition(modules[owner], node.func.attr)
                problems += [] if called else [f"{owner} has no {node.func.attr}"]
            elif owner in objects and not objects[owner].bases:
                called = next((each for each in objects[owner].body if _is_method(each, node.func.attr)), None)
                problems += [] if called else [f"{owner} has no {node.func.attr}"]
        taken = _parameters(called) if isinstance(called, _DEFINITIONS) else None
        problems += [
            f"{ast.unparse(node.func)} takes no {keyword.arg}"
            for keyword in node.keywords
            if taken is not None and keyword.arg is not None and keyword.arg not in taken
        ]
    return problems


def _is_method(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name


@cache
def _definition(module: str, name: str) -> ast.AST | None:
    """Return the statement of a module that defines a name, through imports of other modules of ours."""
    path = _file(module)
    if path is None:
        return None
    if _file(f"{module}.{name}") is not None:
        return ast.Module(body=[], type_ignores=[])
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, _DEFINITIONS) and node.name == name:
            return node
        if isinstance(node, ast.ImportFrom) and any((each.asname or each.name) == name for each in node.names):
            base = module if path.name == "__init__.py" else module.rpartition(".")[0]
            inside = f"{base}.{node.module}" if node.level else str(node.module)
            return _definition(inside, name) or node
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                return node
        if isinstance(node, ast.Constant) and node.value == name and path.name == "__init__.py":
            lazily = next(iter(_lazy(path, name)), None)
            if lazily is not None:
                return _definition(lazily, name)
    return None


def _lazy(path: Path, name: str) -> Iterator[str]:
    for found in re.finditer(rf'"{name}": "([\w.]+)"', path.read_text()):
        yield found[1] if not found[1].startswith(".") else path.parent.name + found[1]


def _file(module: str) -> Path | None:
    tail = module.replace(".", "/")
    candidates = (root / f"{tail}{end}" for root in _ROOTS for end in (".py", "/__init__.py"))
    return next((path for path in candidates if path.exists()), None)


def _parameters(definition: _DEFINITIONS) -> set[str] | None:
    """Return the names of the parameters, or None where any name may be given or the fields are not here."""
    if isinstance(definition, ast.ClassDef):
        made = [each for each in definition.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        if not made:
            return None
        return _parameters(made[0])
    given = definition.args
    if given.kwarg is not None:
        return None
    return {each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs)}


def blocks_with_script(*scripts: str) -> list[Placed]:
    """Return the blocks that go into one of these scripts."""
    return [placed for placed in placed_blocks() if placed.block.script in scripts]


def _interpreter(script: Path, folder: Path) -> tuple[int, str]:
    folders = {"SPOTKEEP_CHECKPOINT_DIR": str(folder / "checkpoints"), "SM_MODEL_DIR": str(folder / "model")}
    done = subprocess.run(
        [sys.executable, script.name],
        cwd=folder,
        env=environment_of_script(**folders, TF_CPP_MIN_LOG_LEVEL="2"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def run_code(placed: Placed, folder: Path, *, start: Start | None = None) -> None:
    """Run the code of a block in its script, twice. The second run finds the checkpoints of the first.

    The first run may end on a notice that the script gives itself.

    Args:
        placed: The block.
        folder: The folder that the script lies in and works in.
        start: Runs a script, and gives its exit code and its output. None starts an interpreter.

    Raises:
        AssertionError: It ended with an error.
    """
    block = placed.block
    template = (SCRIPTS / f"{block.script}.txt").read_text()
    found = re.search(rf"^( *){PLACE}$", template, flags=re.MULTILINE)
    assert found is not None, f"{block.script}.txt has no line {PLACE}"
    code = textwrap.indent(plain_code(block), found[1])
    script = folder / "train.py"
    script.write_text(template[: found.start()] + code + template[found.end() :])
    for ends in ({0, EXIT_INTERRUPTED}, {0}):
        code, output = (start or _interpreter)(script, folder)
        assert code in ends, f"{placed}\n{output}"
