"""One thing that was checked, with what was found."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spotkeep_rehearsal.evidence import Check


def checked(check: Check) -> RenderableType:
    """A mark, what should be, and below it what was."""
    row = Table.grid(padding=(0, 1))
    mark = Text("  ✓", style="green") if check.passed else Text("  ✗", style="red")
    row.add_row(mark, Group(Text(check.expected), Text(check.found, style="dim")))
    return row
