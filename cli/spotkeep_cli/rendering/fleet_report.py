"""What a rehearsal on a fleet found: what was taken, each recovery by phase, the notice, the checks, the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from spotkeep_cli.rendering.checks import checked
from spotkeep_cli.rendering.rehearsal_view import report_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from rich.console import RenderableType

    from spotkeep_rehearsal.fleet_evidence import InstanceLife
    from spotkeep_rehearsal.fleet_rehearsal import FleetReport


def fleet_report(report: FleetReport) -> Iterator[RenderableType]:
    """The parts of the report, to be printed one below the other."""
    yield Text("\nFrom boot to the first step, in seconds", style="bold")
    yield _recoveries(report.evidence.lives)
    yield from report_of(report.of_the_run)
    yield Text("\nWhat a fleet is for", style="bold")
    for check in report.checks:
        yield checked(check)
    yield Text()
    failed = sum(not check.passed for check in report.checks) + (not report.of_the_run.passed)
    if report.passed:
        yield Text.assemble(
            ("PASS", "bold green"), "  The run lost two instances and nothing else; one volume is left to pay for."
        )
    else:
        yield Text.assemble(("FAIL", "bold red"), f"  {failed} of {len(report.checks) + 1} did not hold.")


def _recoveries(lives: Sequence[InstanceLife]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    phases = list(dict.fromkeys(phase for life in lives for phase in life.phases_s))
    for title in ("instance", "zone", *phases, "all", "AWS calls"):
        table.add_column(title, justify="left" if title in ("instance", "zone") else "right")
    for life in lives:
        seconds = [f"{life.phases_s[phase]:.1f}" if phase in life.phases_s else "" for phase in phases]
        whole = f"{sum(life.phases_s.values()):.1f}"
        table.add_row(life.instance_id, life.zone, *seconds, whole, str(sum(life.calls.values())))
    return table
