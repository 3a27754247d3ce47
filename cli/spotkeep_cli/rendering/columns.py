"""Tables that fit the terminal.

Where the terminal is too narrow, the least important columns go, so that none is cut or folded.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rich import box
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from spotkeep_pages.elements import facts as facts_of_page
from spotkeep_pages.elements import link, table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from xml.etree import ElementTree as ET

_GAP = 3
"""Number of characters that `box.SIMPLE_HEAD` puts between two columns."""


Fact = tuple[str, str | Text]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column.

    Attributes:
        heading: Its heading.
        cells: One cell a row.
        importance: Columns with the lowest importance go first. None never goes.
        footer: The text below the column.
        justify: The alignment, left for text and right for figures.
    """

    heading: str
    cells: Sequence[str | Text]
    importance: int | None = None
    footer: str = ""
    justify: Literal["left", "right"] = "left"

    @property
    def width(self) -> int:
        """The room it needs."""
        texts = [self.heading, self.footer, *(str(cell) for cell in self.cells)]
        return max(cell_len(text) for text in texts)


def table_that_fits(columns: Sequence[Column], *, width: int) -> Table:
    """Return a table of the columns there is room for.

    Args:
        columns: From left to right, all with the same number of cells.
        width: The room, in characters.
    """
    shown = list(columns)
    while _width(shown) > width and (least := _least_important(shown)) is not None:
        shown.remove(least)
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, show_footer=any(column.footer for column in shown)
    )
    for column in shown:
        # What is left and still too wide folds: an id must be whole, over two lines if need be.
        table.add_column(column.heading, justify=column.justify, overflow="fold", footer=column.footer)
    for row in zip(*(column.cells for column in shown), strict=True):
        table.add_row(*row)
    return table


def page_table(columns: Sequence[Column], *, caption: str) -> ET.Element:
    """Return columns as a table of a page. A column without any text is left out.

    Args:
        columns: From left to right, all with the same number of cells.
        caption: The subject of the table.
    """
    columns = [column for column in columns if any(str(cell) for cell in column.cells)]
    rows = zip(*([str(cell) for cell in column.cells] for column in columns), strict=True)
    numeric = [at for at, column in enumerate(columns) if column.justify == "right"]
    headings = [column.heading.lower() if column.heading.isupper() else column.heading for column in columns]
    return table(caption=caption, headings=headings, rows=list(rows), numeric=numeric)


def page_facts(rows: Iterable[Fact]) -> ET.Element:
    """Return facts as a part of a page. A fact without a name goes on with the one before."""
    pairs: list[tuple[str, str]] = []
    for name, value in rows:
        if name or not pairs:
            pairs.append((name, str(value)))
        else:
            pairs[-1] = (pairs[-1][0], f"{pairs[-1][1]}\n{value}")
    return facts_of_page((name, link(value, value)) for name, value in pairs)


def _width(columns: Sequence[Column]) -> int:
    return sum(column.width for column in columns) + _GAP * (len(columns) - 1)


def _least_important(columns: Sequence[Column]) -> Column | None:
    removable = [column for column in columns if column.importance is not None]
    return min(removable, key=lambda column: column.importance or 0, default=None)


def facts(rows: Iterable[Fact], *, indent: int = 2) -> RenderableType:
    """Return the facts below each other, their values aligned."""
    listed = list(rows)
    width = max((len(label) for label, _ in listed), default=0)
    lines: list[RenderableType] = []
    for label, value in listed:
        heading = " " * indent + label.ljust(width)
        if " " not in str(value) or "://" in str(value):  # It is copied, and a fold would break it.
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
