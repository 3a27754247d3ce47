"""Finds the files of a source that a command uses, as far as their texts show. Pure.

It rather names a file too many. A name in the text of a used file counts wherever the source has such a file, and a
name that a script computes may be that of any file.
"""

from __future__ import annotations

import ast
import re
import warnings as python_warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from pathlib import PurePosixPath

_PATHS = re.compile(r"[\w./-]*\w\.(?:py|sh|bash|ya?ml|json|toml|cfg|ini)\b")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_OF_AN_OPTION = re.compile(r"(?:^|\s)(?:-m|--module)[\s=]+([A-Za-z_][\w.]*)")
_COMPUTED = re.compile(
    r"import_module|__import__|\brunpy\b|\bexec\(|spec_from_file_location|\bpkgutil\b|entry_points|\bhydra\b"
)
"""Ways to load a module whose name may be computed."""


def used_files(
    command: str, *, files: Collection[PurePosixPath], text_of: Callable[[PurePosixPath], str | None]
) -> frozenset[PurePosixPath]:
    """Return the files that a command names, and those that are named by them in turn. Empty where it names none.

    Args:
        command: The command, and other texts that its programs read.
        files: All files of the source.
        text_of: Returns the text of a file. None where it has none.
    """
    found: set[PurePosixPath] = set()
    new = set(_named(command, files))
    while new:
        found |= new
        texts = {path: text_of(path) or "" for path in new}
        if any(path.suffix == ".py" and _COMPUTED.search(text) for path, text in texts.items()):
            return frozenset(files)
        new = {each for path, text in texts.items() for each in _named(text, files, python=path.suffix == ".py")}
        new -= found
    return frozenset(found)


def _named(text: str, files: Collection[PurePosixPath], *, python: bool = False) -> Iterator[PurePosixPath]:
    if python:
        try:
            with python_warnings.catch_warnings():
                python_warnings.simplefilter("ignore")
                tree = ast.parse(text)
        except (SyntaxError, ValueError):
            yield from files
            return
        modules, text = _of_python(tree)
    else:
        text = re.sub(r"(^|\s)#.*", "", text)
        modules = set(_OF_AN_OPTION.findall(text))
    modules |= set(_DOTTED.findall(text))
    stems = {tuple(name.split(".")[:end]) for name in modules for end in range(1, name.count(".") + 2)}
    paths = {tuple(part for part in path.split("/") if part not in ("", ".", "..")) for path in _PATHS.findall(text)}
    for file in files:
        parts = file.parts
        if any(parts[start:] in paths for start in range(len(parts))):
            yield file
        elif file.suffix == ".py":
            parts = parts[:-1] if file.name in ("__init__.py", "__main__.py") else (*parts[:-1], file.stem)
            if any(parts[start:] in stems for start in range(len(parts))):
                yield file


def _of_python(tree: ast.Module) -> tuple[set[str], str]:
    """Return the names of the modules that a script may import, and its texts."""
    modules, texts = set[str](), list[str]()
    nodes = list(ast.walk(tree))
    remarks = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}  # Such as docstrings.
    for node in nodes:
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            before = f"{node.module}." if node.module else ""
            modules |= {before + alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in remarks:
            texts.append(node.value)
    return modules, "\n".join(texts)
