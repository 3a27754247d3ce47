"""What a rehearsal on a fleet found: what was taken, recoveries by phase, the notification, checks, the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from spotkeep_cli.rendering.checks import checked
from spotkeep_cli.rendering.rehearsal_view import findings_of, verdict_on

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from spotkeep_rehearsal.fleet_evidence import InstanceLife
    from spotkeep_rehearsal.fleet_rehearsal import FleetReport


def fleet_report(report: FleetReport) -> Iterator[RenderableType]:
    """The parts of the report, to be printed one below the other."""
    if report.missing_module:
        yield from verdict_on(report.of_the_run)
        return
    yield from findings_of(report.of_the_run, notice="EC2", durable="durable")
    yield Text("\nFrom boot to the first step, in seconds", style="bold")
    yield _recoveries(report.evidence.lives)
    yield Text("\nWhat a fleet is for", style="bold")
    for check in report.checks:
        yield checked(check)
    yield Text()
    yield from verdict_on(report.of_the_run)
    failed = sum(not check.passed for check in report.checks)
    if failed:
        yield Text.assemble(
            ("FAIL", "bold red"), f"  {failed} of {len(report.checks)} things that a fleet is for did not hold."
        )
    elif report.passed:
        yield Text.assemble(
            ("PASS", "bold green"), "  Two instances were lost and nothing else; one volume is left to pay for."
        )


def _recoveries(lives: Sequence[InstanceLife]) -> Table:
    """One column for each instance: phases are many, and instances are few."""
    table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
    table.add_column("")
    for life in lives:
        table.add_column(life.zone, justify="right")
    for phase in dict.fromkeys(phase for life in lives for phase in life.phases_s):
        table.add_row(phase, *(f"{life.phases_s[phase]:.1f}" if phase in life.phases_s else "" for life in lives))
    table.add_row("all", *(f"{sum(life.phases_s.values()):.1f}" for life in lives))
    table.add_row("AWS calls", *(str(sum(life.calls.values())) for life in lives))
    return table
