"""The state that one object of the checkpoint library holds is small enough to keep in mind."""

from __future__ import annotations

import ast
from pathlib import Path

LIBRARY = Path(__file__).parents[2] / "training" / "spotkeep"
MOST_ATTRIBUTES = 12


def attributes(class_definition: ast.ClassDef) -> set[str]:
    """Name what the methods of a class assign to its objects, and the fields of a dataclass that may change.

    A frozen dataclass holds arguments: a value, and no state.
    """
    frozen = any(
        isinstance(decorator, ast.Call) and any(keyword.arg == "frozen" for keyword in decorator.keywords)
        for decorator in class_definition.decorator_list
    )
    if frozen:
        return set()
    names: set[str] = set()
    for member in class_definition.body:
        if isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            names.add(member.target.id)
        if not isinstance(member, (ast.FunctionDef, ast.AsyncFunctionDef)) or not member.args.args:
            continue
        own_name = member.args.args[0].arg
        names |= {
            node.attr
            for node in ast.walk(member)
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
            if isinstance(node.value, ast.Name) and node.value.id == own_name
        }
    return names


def test_no_object_of_the_checkpoint_library_has_more_than_twelve_attributes() -> None:
    counts = {
        f"{source.relative_to(LIBRARY)}: {node.name}": len(attributes(node))
        for source in LIBRARY.rglob("*.py")
        if "runner" not in source.parts
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
    assert len(counts) > 100
    assert {name: count for name, count in counts.items() if count > MOST_ATTRIBUTES} == {}


def test_an_attribute_counts_wherever_a_method_sets_it_and_in_a_frozen_dataclass_none_does() -> None:
    source = """
class Open:
    kind: int
    def __init__(self, given):
        self.first, self._second = given
    def go_on(this):
        this.third += 1
        other.fourth = 1

@dataclass(frozen=True)
class Given:
    name: str
"""
    found = [attributes(node) for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    assert found == [{"kind", "first", "_second", "third"}, set()]
