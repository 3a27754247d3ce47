"""What a rehearsal of a warm pool found: the notification of the first job, the checks, the verdict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from spotkeep_cli.rendering.checks import checked
from spotkeep_cli.rendering.rehearsal_view import received_notification
from spotkeep_local import price_list

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.console import RenderableType

    from spotkeep_rehearsal.pool_rehearsal import PoolReport


def pool_report(report: PoolReport) -> Iterator[RenderableType]:
    """The parts of the report, to be printed one below the other."""
    evidence = report.evidence
    for notification in evidence.notifications:
        if notification.run == evidence.first.run and notification.status == "completed":
            yield Text("\nThe notification of the first job, as the subscriber got it", style="bold")
            yield received_notification(notification)
            yield Text(f"Its dollars are of {price_list.ORIGIN}.", style="dim")
    yield Text("\nWhat a warm pool is for", style="bold")
    for check in report.checks:
        yield checked(check)
    yield Text()
    gain = evidence.first.seconds - evidence.second.seconds
    if report.passed:
        yield Text.assemble(
            ("PASS", "bold green"), f"  The second job started {gain:.1f} s sooner, and each ending was told once."
        )
    else:
        failed = sum(not check.passed for check in report.checks)
        yield Text.assemble(("FAIL", "bold red"), f"  {failed} of {len(report.checks)} did not hold.")
