"""The output of every measurement, with bars, tables, and a JSON document with its time and machine."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

PROJECT: Final = Path(__file__).parents[1]
STATE: Final = PROJECT / ".spotkeep"


def write(output: Path, figures: Mapping[str, Any], console: Console, **machine: Any) -> None:
    """Write figures as JSON, and print the path.

    Args:
        output: The file, with a folder that is made when missing.
        figures: The figures.
        console: The console for the path.
        machine: Facts of this machine besides its system and its Python.
    """
    document = {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"system": platform.platform(), "python": platform.python_version(), **machine},
        **figures,
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(document, indent=2) + "\n")
    console.print(f"\nAll figures: {output}", soft_wrap=True)


def table(first: str, *columns: str, justify: str = "right", **style: Any) -> Table:
    """Return an empty table without lines.

    Args:
        first: The heading of the first column, which stands left.
        columns: The headings of the others.
        justify: The alignment of those columns.
        style: More of Rich's options of a table.
    """
    made = Table(**{"box": None, "padding": (0, 3, 0, 0), "header_style": "dim", **style})
    made.add_column(first)
    for column in columns:
        made.add_column(column, justify=justify)  # type: ignore[arg-type]
    return made


def progress(console: Console, *, disable: bool = False) -> Progress:
    """Return bars that say how much is done of how much, and that are gone afterwards.

    Args:
        console: The console that shows them.
        disable: True to hide them.
    """
    columns = (TextColumn("{task.description:<26}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=console, transient=True, disable=disable)
