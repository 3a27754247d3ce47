"""The table of `spotkeep notifications ls`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from spotkeep_cli.rendering.columns import Column, table_that_fits
from spotkeep_jobs.record.states import NotificationState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from spotkeep_jobs.record.record import Notification

_STATES = {
    NotificationState.PENDING: Text("waits to go out", style="yellow"),
    NotificationState.SENDING: Text("goes out", style="cyan"),
    NotificationState.SENT: Text("sent", style="green"),
    NotificationState.DEAD: Text("could not be sent", style="bold red"),
}


def notification_list(notifications: Sequence[Notification], *, width: int) -> Table:
    """Return a table of notifications.

    Args:
        notifications: In the order of the rows.
        width: The width of the terminal, in columns.
    """
    columns = [
        Column(heading="ABOUT", cells=[notification.subject_id for notification in notifications]),
        Column(heading="KIND", cells=[notification.kind.value for notification in notifications]),
        Column(heading="STATE", cells=[_STATES[notification.state] for notification in notifications]),
        Column(
            heading="HAPPENED",
            cells=[f"{notification.happened_at:%Y-%m-%d %H:%M}" for notification in notifications],
            importance=2,
        ),
        Column(
            heading="TRIED",
            cells=[f"{notification.deliveries}x" for notification in notifications],
            importance=1,
            justify="right",
        ),
    ]
    return table_that_fits(columns, width=width)
