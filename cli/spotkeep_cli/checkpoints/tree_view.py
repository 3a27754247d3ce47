"""What is in a checkpoint, as a tree: names, types, shapes, sizes, values."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from spotkeep_cli.checkpoints.elements import element_type
from spotkeep_cli.checkpoints.state_values import as_json, as_text
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.facts import Fact, facts
from spotkeep_cli.rendering.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from spotkeep.disk.inspection import Entry
    from spotkeep.disk.manifest import Manifest

MOST_ENTRIES = 2_000
"""More would not be read by a person; `--json` gives them all."""

_MOST_METRICS = 20
_LONGEST_NAME = 60
_LONGEST_VALUE = 40


def checkpoint_tree(manifest: Manifest, entries: Sequence[Entry], *, created: str) -> RenderableType:
    """Return a checkpoint on one page."""
    data = sum(entry.span.size for entry in entries if entry.span)
    arrays = sum(entry.dtype is not None for entry in entries)
    rows: list[Fact] = [
        ("written", f"{created} UTC by {printable_line(manifest.library, longest=_LONGEST_NAME)}"),
        (
            "holds",
            f"{quantities.counted(arrays, 'array')} and {quantities.counted(len(entries) - arrays, 'other value')}, "
            f"{quantities.size(data)} in {quantities.counted(len(manifest.files), 'data file')}",
        ),
    ]
    if manifest.ranks:
        rows.append(("ranks", f"{manifest.world_size:,} wrote it together"))
    if manifest.epochs_completed is not None:
        rows.append(("epochs", f"{manifest.epochs_completed:,} completed"))
    if manifest.metrics:
        logged = (
            f"{printable_line(name, longest=_LONGEST_NAME)} {_metric(value)}"
            for name, value in manifest.metrics.items()
        )
        rows.append(("metrics", ", ".join(islice(logged, _MOST_METRICS))))
    parts: list[RenderableType] = [Text(f"step {manifest.step}", style="bold"), facts(rows), Text("")]
    table = Table.grid(padding=(0, 2))
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    table.add_column(justify="right", no_wrap=True)
    for row in _rows(entries):
        table.add_row(*row)
    parts.append(table)
    if len(entries) > MOST_ENTRIES:
        parts.append(Text(f"... and {len(entries) - MOST_ENTRIES:,} more; --json lists them all", style="dim"))
    return Group(*parts)


def entry_text(entry: Entry) -> str:
    """Return what an entry is: `float32 [3, 4]`, or its value."""
    if entry.kind == "value":
        return printable_line(as_text(entry.value), longest=_LONGEST_VALUE)
    if entry.dtype is None:
        return entry.kind
    order = ""
    if entry.order != "C":
        order = ", column-major" if entry.order == "F" else f", dimensions in memory {list(entry.order)}"
    kind = " (NumPy scalar)" if entry.kind == "scalar" else ""
    elements = printable_line(element_type(entry).label, longest=_LONGEST_VALUE)
    return f"{elements} {list(entry.shape or ())}{order}{kind}"


def entry_document(entry: Entry) -> dict[str, Any]:
    """Return it as `--json` gives it."""
    document: dict[str, Any] = {"name": entry.name, "path": list(entry.names), "kind": entry.kind}
    if entry.kind == "value":
        return {**document, "value": as_json(entry.value)}
    if entry.dtype is not None:
        document |= {"dtype": element_type(entry).label, "shape": list(entry.shape or ())}
    return {**document, "bytes": entry.span.size if entry.span else 0}


def _metric(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else printable_line(as_text(value), longest=_LONGEST_VALUE)


def _rows(entries: Sequence[Entry]) -> Iterator[tuple[Text, Text, str]]:
    above: tuple[str, ...] = ()
    for entry in entries[:MOST_ENTRIES]:
        *groups, name = entry.names or ("",)
        shared = next((n for n, (a, b) in enumerate(zip(above, groups, strict=False)) if a != b), None)
        shared = min(len(above), len(groups)) if shared is None else shared
        for depth in range(shared, len(groups)):
            yield _name(groups[depth], depth, style="bold"), Text(""), ""
        above = tuple(groups)
        size = quantities.size(entry.span.size) if entry.span else ""
        yield _name(name, len(groups)), Text(entry_text(entry)), size


def _name(name: str, depth: int, *, style: str = "") -> Text:
    # Deeper than this, the indentation says nothing to a person any more.
    return Text("  " * min(depth, 12) + printable_line(name, longest=_LONGEST_NAME), style=style)
