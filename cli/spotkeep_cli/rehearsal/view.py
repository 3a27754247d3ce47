"""Shows a rehearsal while it goes on.

Each stage has a line with its time, and the stage at work has a bar.
"""

from __future__ import annotations

import contextlib
import enum
import time
from typing import TYPE_CHECKING

from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from rich.console import Console

    from spotkeep_cli.rehearsal.evidence import ReceivedNotification


class Stage(enum.StrEnum):
    """The stages of rehearsals, by the words a person reads."""

    LOCAL_AWS = "local AWS"
    BOOTSTRAP = "cdk bootstrap"
    DEPLOY = "cdk deploy"
    LAUNCH = "launch"
    TRAINING = "training"
    ONCE_MORE = "once more"
    NOTIFICATIONS = "notifications"
    FIRST_JOB = "first job"
    NEXT_JOB = "next job"
    EXTENSION = "extension"
    REMINDER = "reminder"
    EXPIRY = "expiry"
    LEFT_ALONE = "left alone"
    MOVE = "other zone"
    RETURN = "same zone"
    COMPLETION = "completion"
    ACTIONS = "actions"
    WITHHELD = "withheld"


_STAGE_WIDTH = max(len(stage.value) for stage in Stage)
_SECONDS_OF = {stage: stage.name.lower() for stage in Stage} | {Stage.TRAINING: "run"}
"""The word of each stage in the report's `seconds`. Programs read the words deploy, launch and run there."""
_LONGEST_TEXT = 44


class RehearsalView(contextlib.AbstractContextManager["RehearsalView"]):
    """Shows a rehearsal at a terminal. Without one, a plain line for each thing that happened.

    Args:
        console: The console that shows it.

    Attributes:
        seconds: Seconds that each ended stage took.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        if console.is_terminal and not console.is_dumb_terminal:
            self._progress = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[count]}"),
                TextColumn("{task.fields[text]}"),
                console=console,
                transient=True,
                expand=True,
            )

    def __enter__(self) -> RehearsalView:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    @contextlib.contextmanager
    def stage(self, stage: Stage) -> Iterator[list[str]]:
        """Time a stage and show it. Lines that the caller appends are shown as the stage's result."""
        name, outcome = stage.value.ljust(_STAGE_WIDTH), list[str]()
        if self._progress is not None:
            self._task = self._progress.add_task(name, total=None, count="", text="")
        started = time.monotonic()
        yield outcome
        self.seconds[_SECONDS_OF[stage]] = seconds = time.monotonic() - started
        if self._progress is not None and self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        text = "".join(outcome)
        self._line(Text.assemble(("✓ ", "green"), (name, "bold"), f"  {seconds:5.1f} s  ", (text, "dim")))

    def progress(self, *, done: int, total: int | None, text: str) -> None:
        """Show the progress of the stage at work, as `done` of `total` and its present step.

        `total` is None where it is unknown.
        """
        if self._progress is not None and self._task is not None:
            count = f"{done}/{total}" if total else ""
            self._progress.update(self._task, completed=done, total=total, count=count, text=text[:_LONGEST_TEXT])

    def note(self, text: str) -> None:
        """Show something that happened within a stage."""
        self._below(text, style="yellow")

    def job_said(self, line: str) -> None:
        """Show a line that the training script printed."""
        self._below(line, style="dim")

    def notification_received(self, notification: ReceivedNotification) -> None:
        """Show that the subscriber got a notification."""
        self._below(notification.subject, style="dim")

    def _below(self, text: str, *, style: str) -> None:
        self._line(Text.assemble("  ", " " * _STAGE_WIDTH, "  ", (text, style)))

    def _line(self, line: Text) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)
