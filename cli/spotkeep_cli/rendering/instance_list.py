"""The table of `spotkeep local ec2 instances`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, table_that_fits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.table import Table

_STYLES = {"pending": "cyan", "running": "bold green", "shutting-down": "yellow", "terminated": "dim"}


def instance_list(instances: Sequence[Mapping[str, Any]], *, now: datetime, width: int) -> Table:
    """Return one row an instance.

    Args:
        instances: As `spotkeep local ec2 instances --json` gives them.
        now: For their ages.
        width: The room, in characters.
    """

    def cells(name: str) -> list[str]:
        return [str(instance[name]) for instance in instances]

    ages = [quantities.age(datetime.fromtimestamp(instance["launched_at"], UTC), now=now) for instance in instances]
    columns = [
        Column(heading="INSTANCE", cells=cells("instance")),
        Column(heading="STATE", cells=[Text(state, style=_STYLES[state]) for state in cells("state")]),
        Column(heading="ZONE", cells=cells("zone")),
        Column(heading="TYPE", cells=cells("type"), importance=3),
        Column(heading="MARKET", cells=cells("market"), importance=2),
        Column(heading="AGE", cells=ages, justify="right"),
        Column(heading="VOLUMES", cells=[" ".join(instance["volumes"]) for instance in instances], importance=4),
        Column(heading="WHY IT ENDED", cells=cells("reason"), importance=1),
        Column(heading="FLEET", cells=cells("fleet"), importance=0),
    ]
    return table_that_fits(columns, width=width)
