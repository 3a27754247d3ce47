"""Every problem of a job document: where, what was found, what is wrong, what to write."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from spotkeep_cli.errors import LocatedProblem


def problem_list(problems: Iterable[LocatedProblem], *, mark: str = "✗", style: str = "red") -> RenderableType:
    """Return one block a problem; long text wraps under itself."""
    blocks: list[RenderableType] = []
    for problem in problems:
        if not problem.field:
            blocks.append(_indented(Text.assemble((f"{mark} ", style), problem.problem), by=2))
            continue
        heading = Text.assemble((f"{mark} ", style), (problem.field, "bold"))
        if problem.line is not None:
            heading.append(f"  line {problem.line}", style="dim")
        elif problem.overridden:
            heading.append("  --set", style="dim")
        if problem.found:
            heading.append(f"  found {_shortened(problem.found)}", style="dim")
        blocks.append(_indented(heading, by=2))
        blocks.append(_indented(Text(problem.problem), by=4))
        if problem.fix:
            blocks.append(_indented(Text(f"→ {problem.fix}", style="green"), by=4))
    return Group(*blocks)


def _indented(text: Text, *, by: int) -> RenderableType:
    return Padding(text, (0, 0, 0, by), expand=False)


def _shortened(found: str) -> str:
    one_line = " ".join(found.split())
    return one_line if len(one_line) <= 60 else one_line[:57] + "..."
