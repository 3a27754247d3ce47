"""What changed between two checkpoints, for a person and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from spotkeep_cli.checkpoints.difference import ChangeKind
from spotkeep_cli.checkpoints.tree_view import entry_document, entry_text
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.printable import printable_line

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spotkeep.disk.inspection import Entry
    from spotkeep_cli.checkpoints.difference import Change, CheckpointDifference

MOST_CHANGES = 2_000
"""More would not be read by a person; `--json` gives them all."""

_MARKS = {
    ChangeKind.ADDED: ("+", "green"),
    ChangeKind.REMOVED: ("-", "red"),
    ChangeKind.REFORMED: ("!", "bold yellow"),
    ChangeKind.CHANGED: ("~", "yellow"),
}
_WORDS = {ChangeKind.REFORMED: "of another form"}
_LONGEST_NAME = 60


def checkpoint_changes(found: CheckpointDifference) -> RenderableType:
    """Return one line a change, and how many entries are as they were."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for change in found.changes[:MOST_CHANGES]:
        mark, style = _MARKS[change.kind]
        table.add_row(Text(mark, style=style), Text(printable_line(change.name, longest=_LONGEST_NAME)), _what(change))
    parts: list[RenderableType] = [table] if found.changes else []
    if len(found.changes) > MOST_CHANGES:
        parts.append(Text(f"... and {len(found.changes) - MOST_CHANGES:,} more; --json lists them all", style="dim"))
    return Group(*parts, Text(_summary(found)))


def change_document(change: Change) -> dict[str, Any]:
    """Return it as `--json` gives it."""
    document: dict[str, Any] = {
        "name": change.name,
        "change": change.kind.value,
        "old": entry_document(change.old) if change.old else None,
        "new": entry_document(change.new) if change.new else None,
    }
    if change.elements:
        largest = change.distance.largest
        finite = largest is not None and math.isfinite(largest)
        document |= {
            "elements": change.elements,
            "changed_elements": change.distance.changed,
            "largest_difference": largest if finite or largest is None else str(largest),
            "not_numbers": change.distance.not_numbers,
        }
    return document


def _what(change: Change) -> Text:
    if change.old is None or change.new is None:
        present = change.new or change.old
        return Text(entry_text(present) if present else "")
    if change.kind is ChangeKind.REFORMED or change.new.span is None or not change.elements:
        return Text(f"{_form(change.old)} -> {_form(change.new)}")
    return Text(f"{entry_text(change.new)}: {_moved(change)}")


def _form(entry: Entry) -> str:
    if entry.dtype is None and entry.span is not None:
        return f"{entry.kind}, {quantities.size(entry.span.size)}"
    return entry_text(entry)


def _moved(change: Change) -> str:
    distance = change.distance
    share = 100 * distance.changed / change.elements
    percent = f"{share:.0f}%" if share >= 1 else "under 1%"
    unit = "byte" if change.new is not None and change.new.dtype is None else "element"
    text = f"{distance.changed:,} of {quantities.counted(change.elements, unit)} ({percent})"
    if distance.changed == change.elements:
        text = "changed" if change.elements == 1 else f"all {quantities.counted(change.elements, unit)}"
    if distance.largest is not None:
        text += f", by at most {distance.largest:.4g}"
    if distance.not_numbers:
        text += ", some to or from NaN or infinity"
    return text


def _summary(found: CheckpointDifference) -> str:
    counts = {kind: sum(change.kind is kind for change in found.changes) for kind in ChangeKind}
    parts = [f"{count:,} {_WORDS.get(kind, kind.value)}" for kind, count in counts.items() if count]
    parts.append(f"{found.unchanged:,} the same to the bit")
    return ", ".join(parts)
