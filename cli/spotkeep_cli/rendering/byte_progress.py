"""How far something that goes through many bytes is: a bar on a terminal; elsewhere nothing, or a line at the start."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

_WORTH_SHOWING_BYTES = 2**20


@contextmanager
def showing_bytes(console: Console, doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yields what to call with how many more bytes are done, from any thread.

    Args:
        console: Where to show it.
        doing: What is being done: `downloading step 100`.
        total: How many bytes there are.
    """
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    if total < _WORTH_SHOWING_BYTES or not console.is_terminal or console.is_dumb_terminal:
        yield lambda _: None
        return
    with Progress(
        TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        console=console, transient=True,
    ) as progress:  # fmt: skip
        task = progress.add_task(doing, total=total)
        yield lambda count: progress.advance(task, count)
