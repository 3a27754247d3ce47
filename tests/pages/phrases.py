"""The phrases of outputs that no test prints, held against the texts of our sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PROJECT = Path(__file__).parents[2]
_FOLDERS = ("cli", "local", "training", "lambda", "planner", "constructs", "stacks", "benchmarks", "examples", "tests")
_VALUES = re.compile(r"\n|\S*[\d/_]\S*|\S*[a-z][A-Z]\S*|[$%|]|  +|[:;,.()]")
"""The ends of phrases: numbers, paths, names of objects, columns and punctuation."""


def phrases_of(text: str) -> list[tuple[str, str, str]]:
    """Return each three words that follow one another on a line of an output, without a value between them."""
    return [phrase for piece in _VALUES.split(text) for phrase in _in_threes(piece)]


@cache
def phrases_of_sources() -> frozenset[tuple[str, str, str]]:
    """Return each three words of a text in the sources, and of the outputs that other tests compare."""
    texts = (text for folder in _FOLDERS for path in (PROJECT / folder).rglob("*.py") for text in _texts(path))
    kept = (path.read_text() for path in (PROJECT / "tests").rglob("*.ambr"))
    return frozenset(phrase for each in (texts, kept) for text in each for phrase in _in_threes(text))


def _texts(path: Path) -> Iterator[str]:
    if Path(__file__).parent in path.parents:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else " 0 " for part in node.values)


def _in_threes(text: str) -> Iterator[tuple[str, str, str]]:
    words = re.findall(r"[a-z']+|\d+", text.lower())
    return (three for three in zip(words, words[1:], words[2:], strict=False) if not any(map(str.isdigit, three)))
