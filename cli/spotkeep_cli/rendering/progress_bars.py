"""The progress of a deployment or a download.

It is a bar on a terminal, and elsewhere a line a stack.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TransferSpeedColumn,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console

    from spotkeep_local.cdk import CdkProgress

_WORTH_SHOWING_BYTES = 2**20


@contextmanager
def showing_bytes(console: Console, doing: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of further bytes done, from any thread.

    Args:
        console: The console to show it on.
        doing: The current action, such as `downloading step 100`.
        total: Number of all bytes.
    """
    if total < _WORTH_SHOWING_BYTES or not console.is_terminal or console.is_dumb_terminal:
        yield lambda _: None
        return
    with Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn(), TransferSpeedColumn(),
        console=console, transient=True,
    ) as progress:  # fmt: skip
        task = progress.add_task(doing, total=total)
        yield lambda count: progress.advance(task, count)


@contextmanager
def showing_deployment(console: Console) -> Iterator[Callable[[CdkProgress], None]]:
    """Yield a function to call with each line of progress."""
    if not console.is_terminal or console.is_dumb_terminal:
        yield _LineView(console).show
        return
    with Progress(
        SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(), console=console, transient=True,
    ) as progress:  # fmt: skip
        yield _BarView(progress).show


class _LineView:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._step = ""

    def show(self, progress: CdkProgress) -> None:
        if progress.step.value != self._step:
            self._step = progress.step.value
            self._console.print(f"cdk {self._step} ...", highlight=False)
        if progress.finished and progress.stack:
            self._console.print(f"  {progress.stack} done", highlight=False)


class _BarView:
    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def show(self, progress: CdkProgress) -> None:
        name = f"cdk {progress.step.value} {progress.stack or ''}".rstrip()
        # Lines about no stack (synthesis, asset uploads) only say that the step is at work.
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=None)
        if progress.done is not None:
            self._progress.update(self._tasks[name], completed=progress.done, total=progress.total)
        if progress.finished:
            self._progress.update(self._tasks[name], total=progress.total or 1, completed=progress.total or 1)
