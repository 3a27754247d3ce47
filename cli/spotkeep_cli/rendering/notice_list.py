"""The table of `spotkeep notices ls`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from spotkeep_cli.rendering.columns import Column, table_that_fits
from spotkeep_jobs.facts.states import NoticeState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.table import Table

    from spotkeep_jobs.facts.record import Notice

_STATES = {
    NoticeState.PENDING: Text("waits to go out", style="yellow"),
    NoticeState.SENDING: Text("goes out", style="cyan"),
    NoticeState.SENT: Text("sent", style="green"),
    NoticeState.DEAD: Text("could not be sent", style="bold red"),
}


def notice_list(notices: Sequence[Notice], *, width: int) -> Table:
    """A table of notices.

    Args:
        notices: In the order of the rows.
        width: Of the terminal, in columns.
    """
    columns = [
        Column(heading="ABOUT", cells=[notice.subject_id for notice in notices]),
        Column(heading="TELLS", cells=[notice.kind.value for notice in notices]),
        Column(heading="STATE", cells=[_STATES[notice.state] for notice in notices]),
        Column(heading="HAPPENED", cells=[f"{notice.happened_at:%Y-%m-%d %H:%M}" for notice in notices], importance=2),
        Column(heading="TRIED", cells=[f"{notice.deliveries}x" for notice in notices], importance=1, justify="right"),
    ]
    return table_that_fits(columns, width=width)
