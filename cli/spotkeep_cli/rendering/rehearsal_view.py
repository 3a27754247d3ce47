"""Shows a rehearsal: a line a stage, a bar for the one at work, then the notification, the bill, the verdict."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from rich.console import Group
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.bill import bill
from spotkeep_local import price_list
from spotkeep_rehearsal.staging import Stage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from rich.console import Console, RenderableType

    from spotkeep_rehearsal.evidence import Interruption, ReceivedNotification
    from spotkeep_rehearsal.report import Report

_STAGE_WIDTH = max(len(stage.value) for stage in Stage)
_LONGEST_TEXT = 44
_ENDING_STATUSES = frozenset({"completed", "failed", "stopped"})


class RehearsalView(AbstractContextManager["RehearsalView"]):
    """The observer of a rehearsal at a terminal; without one, a plain line for each thing that happened.

    Args:
        console: Where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
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

    def stage_started(self, stage: Stage) -> None:
        """See `spotkeep_rehearsal.staging.Observer`."""
        if self._progress is not None:
            self._task = self._progress.add_task(stage.value.ljust(_STAGE_WIDTH), total=None, count="", text="")

    def stage_progress(self, stage: Stage, *, done: int, total: int | None, text: str) -> None:  # noqa: ARG002
        """See `spotkeep_rehearsal.staging.Observer`."""
        if self._progress is not None and self._task is not None:
            count = f"{done}/{total}" if total else ""
            self._progress.update(self._task, completed=done, total=total, count=count, text=text[:_LONGEST_TEXT])

    def stage_note(self, stage: Stage, text: str) -> None:  # noqa: ARG002
        """See `spotkeep_rehearsal.staging.Observer`."""
        self._line(Text.assemble("  ", " " * _STAGE_WIDTH, "  ", (text, "yellow")))

    def stage_finished(self, stage: Stage, *, seconds: float, text: str) -> None:
        """See `spotkeep_rehearsal.staging.Observer`."""
        if self._progress is not None and self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        name = stage.value.ljust(_STAGE_WIDTH)
        self._line(Text.assemble(("✓ ", "green"), (name, "bold"), f"  {seconds:5.1f} s  ", (text, "dim")))

    def job_said(self, line: str) -> None:
        """See `spotkeep_rehearsal.staging.Observer`."""
        self._line(Text.assemble("  ", " " * _STAGE_WIDTH, "  ", (line, "dim")))

    def notification_received(self, notification: ReceivedNotification) -> None:
        """See `spotkeep_rehearsal.staging.Observer`."""
        self._line(Text.assemble("  ", " " * _STAGE_WIDTH, "  ", (notification.subject, "dim")))

    def _line(self, line: Text) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


def report_of(report: Report) -> Sequence[RenderableType]:
    """What a person reads at the end: what was taken, the notification, the bill, the verdict."""
    findings = () if report.missing_module else findings_of(report, notice="SIGTERM", durable="durable in S3")
    return [*findings, "", *verdict_on(report)]


def findings_of(report: Report, *, notice: str, durable: str) -> Sequence[RenderableType]:
    """What a rehearsal found of any run: what was taken, the notification, the bill.

    Args:
        report: What it found.
        notice: How an interruption is announced there.
        durable: Where a checkpoint survives its machine.
    """
    told = next((n for n in report.notifications if n.run == report.run.run and n.status in _ENDING_STATUSES), None)
    parts: list[RenderableType] = [
        "",
        _heading("What was taken, and what it cost"),
        _losses(report.verdict.interruptions, announced=notice, durable=durable),
    ]
    if told is not None:
        parts += ["", _heading("The notification, as the subscriber got it"), received_notification(told)]
    parts += ["", _heading("The bill"), bill(report.head, prices=f"of {price_list.ORIGIN}")]
    return parts


def received_notification(notification: ReceivedNotification) -> RenderableType:
    """A notification as its subscriber got it.

    A bar at the left instead of a box: addresses stay whole, so that they can be copied.
    """
    lines = [
        Text.assemble(("Subject: ", "dim"), (notification.subject, "bold")),
        Text(),
        *map(Text, notification.body.splitlines()),
    ]
    # A group: printed one by one, texts are joined to a new one that wraps.
    return Group(*(Text.assemble(("  │ ", "dim"), line, no_wrap=True, overflow="ignore") for line in lines))


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _losses(interruptions: Sequence[Interruption], *, announced: str, durable: str) -> RenderableType:
    if not interruptions:
        return Text("nothing was taken", style="dim")
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for title in ("at step", "notice", durable, "resumed from", "done twice", "back after"):
        table.add_column(title, justify="right")
    for loss in interruptions:
        table.add_row(
            _number(loss.at_step),
            announced if loss.notice else "none",
            f"step {loss.durable_step}",
            "?" if loss.resumed_from_step is None else f"step {loss.resumed_from_step}",
            "?" if loss.steps_repeated is None else quantities.counted(loss.steps_repeated, "step"),
            "never" if loss.seconds_to_resume is None else f"{loss.seconds_to_resume:.1f} s",
        )
    return table


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def verdict_on(report: Report) -> list[RenderableType]:
    """Whether the run kept what it had, and if not, why."""
    if report.verdict.passed:
        how = "bit for bit" if report.verdict.identical_to_uninterrupted else "value for value"
        same = f"The final model equals, {how}, that of a run that was left alone."
        return [
            Text.assemble(("PASS  ", "bold green"), same),
            *(Text.assemble(("  ! ", "yellow"), remark) for remark in report.verdict.remarks),
        ]
    failed = ("FAIL  ", "bold red"), "This job would not survive on spot capacity:"
    not_shown = ("FAIL  ", "bold red"), "Nothing shows that this job survives on spot capacity:"
    not_judged = ("NOT JUDGED  ", "bold yellow"), "This job could not begin on this machine:"
    return [
        Text.assemble(*(not_judged if report.missing_module else not_shown if report.verdict.unproven else failed)),
        *(Text.assemble(("  - ", "red"), reason) for reason in report.verdict.reasons),
    ]
