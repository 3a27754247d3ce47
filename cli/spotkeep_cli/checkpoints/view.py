"""Shows checkpoints to people, as a list, the tree of one, or the changes between two."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spotkeep_cli.checkpoints.difference import ChangeKind
from spotkeep_cli.checkpoints.elements import as_json, as_text, element_type
from spotkeep_cli.checkpoints.listing import CheckpointState, damage_text
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, Fact, facts, table_that_fits
from spotkeep_cli.rendering.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from spotkeep.disk.inspection import Entry
    from spotkeep.disk.manifest import Manifest
    from spotkeep_cli.checkpoints.difference import Change, CheckpointDifference
    from spotkeep_cli.checkpoints.listing import CheckpointSummary, VerifiedCheckpoint

_STYLES = {
    CheckpointState.SIZES_RIGHT: "",
    CheckpointState.WHOLE: "green",
    CheckpointState.UNFINISHED: "yellow",
    CheckpointState.DAMAGED: "bold red",
    CheckpointState.NEWER: "yellow",
}
_LONGEST_NAME = 24


MOST_ENTRIES = 2_000
"""More would not be read by a person. `--json` gives them all."""

_MOST_METRICS = 20
_LONGEST_TREE_NAME = 60
_LONGEST_VALUE = 40


MOST_CHANGES = 2_000
"""More would not be read by a person. `--json` gives them all."""

_MARKS = {
    ChangeKind.ADDED: ("+", "green"),
    ChangeKind.REMOVED: ("-", "red"),
    ChangeKind.REFORMED: ("!", "bold yellow"),
    ChangeKind.CHANGED: ("~", "yellow"),
}
_WORDS = {ChangeKind.REFORMED: "of another form"}
_LONGEST_CHANGED_NAME = 60


def checkpoint_list(listed: Sequence[CheckpointSummary], *, width: int) -> RenderableType:
    """Return one row a checkpoint, and below them the problems of some."""
    columns = [
        Column(heading="STEP", cells=[str(one.step) for one in listed], justify="right"),
        Column(heading="WRITTEN (UTC)", cells=[quantities.moment(one.created) for one in listed], importance=3),
        Column(heading="SIZE", cells=[quantities.size(one.size) for one in listed], importance=4, justify="right"),
        Column(heading="FILES", cells=[str(one.files) for one in listed], importance=0, justify="right"),
        Column(heading="LIBRARY", cells=[_library(one) for one in listed], importance=1),
        Column(heading="STATE", cells=[state_text(one.state) for one in listed]),
    ]
    if any(one.ranks > 1 for one in listed):
        ranks = [str(one.ranks) for one in listed]
        columns.insert(-1, Column(heading="RANKS", cells=ranks, importance=1, justify="right"))
    if any(one.upload for one in listed):
        uploads = [one.upload or quantities.UNKNOWN for one in listed]
        columns.append(Column(heading="UPLOAD", cells=uploads, importance=2))
    problems = [
        _hanging(Text.assemble((f"step {one.step}: ", "bold"), printable_line(one.problem, longest=300)))
        for one in listed
        if one.problem
    ]
    table = table_that_fits(columns, width=width)
    return Group(table, Text(""), *problems) if problems else table


def state_text(state: CheckpointState) -> Text:
    """Return the state of a checkpoint, in its colour."""
    return Text(state.value, style=_STYLES[state])


def verdict_text(verdict: VerifiedCheckpoint) -> RenderableType:
    """Return a line about a checkpoint, and one for each thing that is wrong with it."""
    line = Text.assemble((f"step {verdict.step}", "bold"), "  ", state_text(verdict.state))
    if verdict.state is CheckpointState.WHOLE:
        line.append(f"  every byte of {quantities.size(verdict.size)}", style="dim")
    wrong = [damage_text(error) for error in verdict.damage] or ([verdict.problem] if verdict.problem else [])
    return Group(line, *(_hanging(Text(printable_line(text, longest=400))) for text in wrong))


def _library(one: CheckpointSummary) -> str:
    return printable_line(one.library, longest=_LONGEST_NAME) if one.library else quantities.UNKNOWN


def _hanging(text: Text) -> RenderableType:
    return Padding(text, (0, 0, 0, 2), expand=False)


def checkpoint_tree(manifest: Manifest, entries: Sequence[Entry], *, created: str) -> RenderableType:
    """Return a checkpoint on one page."""
    data = sum(entry.size or 0 for entry in entries)
    arrays = sum(entry.dtype is not None for entry in entries)
    rows: list[Fact] = [
        ("written", f"{created} UTC by {printable_line(manifest.library, longest=_LONGEST_TREE_NAME)}"),
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
            f"{printable_line(name, longest=_LONGEST_TREE_NAME)} {_metric(value)}"
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
    """Return the form of an entry, such as `float32 [3, 4]`, or its value."""
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
    return {**document, "bytes": entry.size or 0}


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
        size = "" if entry.size is None else quantities.size(entry.size)
        yield _name(name, len(groups)), Text(entry_text(entry)), size


def _name(name: str, depth: int, *, style: str = "") -> Text:
    # Deeper than this, the indentation says nothing to a person any more.
    return Text("  " * min(depth, 12) + printable_line(name, longest=_LONGEST_TREE_NAME), style=style)


def checkpoint_changes(found: CheckpointDifference) -> RenderableType:
    """Return one line a change, and the number of unchanged entries."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(overflow="fold")
    for change in found.changes[:MOST_CHANGES]:
        mark, style = _MARKS[change.kind]
        table.add_row(
            Text(mark, style=style), Text(printable_line(change.name, longest=_LONGEST_CHANGED_NAME)), _what(change)
        )
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
    if change.kind is ChangeKind.REFORMED or change.new.size is None or not change.elements:
        return Text(f"{_form(change.old)} -> {_form(change.new)}")
    return Text(f"{entry_text(change.new)}: {_moved(change)}")


def _form(entry: Entry) -> str:
    if entry.dtype is None and entry.size is not None:
        return f"{entry.kind}, {quantities.size(entry.size)}"
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
