"""The table of `spotkeep checkpoints ls`, and the verdicts of `verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.padding import Padding
from rich.text import Text

from spotkeep_cli.checkpoints.listing import CheckpointState
from spotkeep_cli.checkpoints.verification import damage_text
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, table_that_fits
from spotkeep_cli.rendering.printable import printable_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from spotkeep_cli.checkpoints.listing import CheckpointSummary
    from spotkeep_cli.checkpoints.verification import VerifiedCheckpoint

_STYLES = {
    CheckpointState.WHOLE: "green",
    CheckpointState.UNFINISHED: "yellow",
    CheckpointState.DAMAGED: "bold red",
    CheckpointState.NEWER: "yellow",
}
_LONGEST_NAME = 24


def checkpoint_list(listed: Sequence[CheckpointSummary], *, width: int) -> RenderableType:
    """Return one row a checkpoint, and below what is wrong with some."""
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
