"""Labelled facts, one a line: prose wraps under itself, addresses stay whole so that they can be copied."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

Fact = tuple[str, str | Text]


def facts(rows: Iterable[Fact], *, indent: int = 2) -> RenderableType:
    """Return the facts below each other, their values aligned."""
    listed = list(rows)
    width = max((len(label) for label, _ in listed), default=0)
    lines: list[RenderableType] = []
    for label, value in listed:
        heading = " " * indent + label.ljust(width)
        if "://" in str(value):
            line = Text.assemble((f"{heading}  ", "dim"), value)
            line.no_wrap, line.overflow = True, "ignore"
            lines.append(line)
            continue
        row = Table.grid(padding=(0, 2))
        row.add_column(style="dim", no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(heading, value)
        lines.append(row)
    return Group(*lines)
