"""Draws what imports what inside the functions' library, from the sources: the picture in docs/architecture.md."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path


def imports_between_folders(package: Path) -> dict[str, set[str]]:
    """Read which folder of a package imports which other folder of it.

    Args:
        package: The folder of the package. Modules that stand beside its folders are left out.
    """
    folders = {path.name for path in package.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    found: dict[str, set[str]] = {folder: set() for folder in folders}
    for folder in folders:
        for source in (package / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(source.read_text())):
                if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{package.name}."):
                    found[folder].add((node.module or "").split(".")[1])
    return {folder: (used & folders) - {folder} for folder, used in found.items()}


def without_shortcuts(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Leave out an arrow where a longer way leads to the same folder, so that a person can read the picture."""

    def reaches(start: str, end: str, *, seen: frozenset[str]) -> bool:
        return any(step == end or reaches(step, end, seen=seen | {step}) for step in imports[start] if step not in seen)

    return {
        folder: {
            used for used in uses if not any(reaches(other, used, seen=frozenset({folder})) for other in uses - {used})
        }
        for folder, uses in imports.items()
    }


def drawing(package: Path) -> str:
    """Draw the folders of a package as a Mermaid flowchart: an arrow leads to what is imported."""
    arrows = without_shortcuts(imports_between_folders(package))
    lines = [f"    {folder} --> {' & '.join(sorted(uses))}" for folder, uses in sorted(arrows.items()) if uses]
    return "\n".join(["flowchart TD", *lines])
