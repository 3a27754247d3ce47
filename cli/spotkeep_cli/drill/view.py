"""Shows a drill to a person, with a line for each phase as it is seen, and the table with the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from spotkeep_cli.drill.recovery import Phase
from spotkeep_cli.rendering.columns import Column, table_that_fits
from spotkeep_cli.rendering.quantities import UNKNOWN, counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spotkeep_cli.drill.recovery import Recovery

_TABLE_WIDTH = 80


def phase_line(recovery: Recovery, phase: Phase) -> str:
    """Return one line, as soon as a phase is seen."""
    return f"{recovery.seen[phase]:7.1f} s  {_said(recovery, phase)}"


def drill_report(recovery: Recovery) -> RenderableType:
    """Return the phases with their seconds, the losses, and the verdict."""
    phases = recovery.phases()
    table = table_that_fits(
        [
            Column(heading="PHASE", cells=[phase.value for phase, _, _ in phases]),
            Column(heading="AFTER", cells=[f"{at:.1f} s" for _, at, _ in phases], justify="right"),
            Column(heading="TOOK", cells=[f"{took:.1f} s" for _, _, took in phases], justify="right"),
            Column(heading="WHAT", cells=[_said(recovery, phase) for phase, _, _ in phases], importance=0),
        ],
        width=_TABLE_WIDTH,
    )
    lost = UNKNOWN if recovery.steps_lost is None else counted(recovery.steps_lost, "step")
    return Group(table, Text(f"Trained twice: {lost}"), _verdict(recovery))


def _verdict(recovery: Recovery) -> Text:
    if not recovery.recovered:
        return Text.assemble(("FAIL", "bold red"), f"  {recovery.run} did not come back.")
    after = recovery.seen[Phase.TRAINING]
    moved = "another zone" if recovery.replacement_zone != recovery.zone else "the same zone"
    return Text.assemble(
        ("PASS", "bold green"),
        f"  {recovery.run} trains again after {after:.0f} s, in {moved} ({recovery.replacement_zone}).",
    )


def _said(recovery: Recovery, phase: Phase) -> str:
    step = "" if recovery.saved_step is None else f", step {recovery.saved_step} saved"
    place = f"{recovery.replacement} in {recovery.replacement_zone}"
    return {
        Phase.NOTICE: f"{recovery.instance} in {recovery.zone} has its notice",
        Phase.LET_GO: f"it has let go{step}",
        Phase.GONE: "it is gone",
        Phase.REPLACED: f"the fleet has {place}",
        Phase.TAKEN_UP: "which has taken the run up",
        Phase.TRAINING: "it trains again",
    }[phase]
