"""Shows a rehearsal while it goes on.

Each stage has a line with its time, and the stage at work has a bar.
"""

from __future__ import annotations

import contextlib
import enum
import time
from typing import TYPE_CHECKING

from rich.console import Group
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from spotkeep_cli.rehearsal.evidence import ENDINGS
from spotkeep_cli.rehearsal.report import FleetReport, InterruptionReport, PoolReport, SweepReport
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.run_description import bill
from spotkeep_local.access.call_rates import CALLS_A_SECOND
from spotkeep_local.account import price_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

    from rich.console import Console, RenderableType

    from spotkeep_cli.rehearsal.evidence import CapacityLoss, ReceivedNotification, RehearsalCheck
    from spotkeep_cli.rehearsal.fleet_verdict import RehearsedInstance
    from spotkeep_cli.rehearsal.report import Report
    from spotkeep_cli.rehearsal.sweep_verdict import SweepEvidence
    from spotkeep_local.access.call_rates import CallCounts


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
                TimeElapsedColumn(),
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


_SHOWN_CALLS = ("CreateTrainingJob", "SubmitServiceJob", "DescribeTrainingJob", "DescribeServiceJob")


def drawn(report: Report) -> Iterator[RenderableType]:
    """Draw a report, part by part."""
    match report:
        case FleetReport():
            yield from _of_fleet(report)
        case InterruptionReport():
            yield from _of_spot(report)
        case PoolReport():
            yield from _of_pool(report)
        case SweepReport():
            yield from _of_sweep(report)


def _of_spot(report: InterruptionReport) -> Iterator[RenderableType]:
    if not report.missing_module:
        yield from _findings(report, notice="SIGTERM", durable="durable in S3")
    yield ""
    yield from _verdict(report)


def _of_fleet(report: FleetReport) -> Iterator[RenderableType]:
    if report.missing_module:
        yield from _verdict(report)
        return
    yield from _findings(report, notice="EC2", durable="durable")
    yield _heading("\nFrom boot to the first step, in seconds")
    yield _recoveries(report.evidence.lives)
    yield _heading("\nWhat a fleet is for")
    yield from map(_checked, report.checks)
    yield Text()
    yield from _verdict(report)
    failed = sum(not check.passed for check in report.checks)
    if failed:
        yield _failed(f"{failed} of {len(report.checks)} things that a fleet is for did not hold.")
    elif report.passed:
        yield _passed("Two instances were lost and nothing else; one volume is left to pay for.")


def _of_pool(report: PoolReport) -> Iterator[RenderableType]:
    evidence = report.evidence
    for notification in evidence.notifications:
        if notification.run == evidence.first.run and notification.status == "completed":
            yield _heading("\nThe notification of the first job, as the subscriber got it")
            yield _received(notification)
            yield Text(f"Its dollars are of {price_list.ORIGIN}.", style="dim")
    yield _heading("\nWhat a warm pool is for")
    gain = evidence.first.seconds - evidence.second.seconds
    passed = f"The second job started {gain:.1f} s sooner, and each ending was notified once."
    yield from _judged(report, passed=passed)


def _of_sweep(report: SweepReport) -> Iterator[RenderableType]:
    evidence = report.evidence
    yield ""
    yield _heading("The trials, the furthest first")
    yield _trials(evidence)
    for notification in evidence.notifications:
        if notification.run == evidence.sweep.sweep and notification.status in ENDINGS:
            yield from ("", _heading("The notification, as the subscriber got it"), _received(notification))
    yield _heading("\nThe most calls in a second")
    yield _calls(evidence.calls)
    yield _heading("\nWhat a sweep is for")
    passed = "Each trial's curve equals, step for step, that of the same trial left alone."
    yield from _judged(report, passed=passed)


def _trials(evidence: SweepEvidence) -> Table:
    in_a_queue = evidence.others is not None
    preempted = ["preempted"] if in_a_queue else []
    table = _figures("trial", "jobs", "taken", *preempted, "steps", evidence.objective.metric, "as alone")
    table.add_column("parameters")
    for each in sorted(evidence.trials, key=lambda each: (-max(each.curve, default=0), each.trial.number)):
        steps = max(each.curve, default=0)
        table.add_row(
            str(each.trial.number),
            str(len(each.jobs)),
            str(each.interruptions or ""),
            *([str(each.preemptions or "")] if in_a_queue else []),
            str(steps),
            f"{each.curve[steps]:.4g}" if each.curve else "none",
            "yes" if each.is_identical else Text("no", style="red"),
            ", ".join(f"{name} {_short(value)}" for name, value in each.trial.parameters.items()),
        )
    return table


def _calls(counts: CallCounts) -> Table:
    table = _figures("asked", "AWS takes", "throttled for that", of="operation")
    for operation in _SHOWN_CALLS:
        table.add_row(
            operation,
            str(counts.most_in_a_second.get(operation, 0)),
            str(CALLS_A_SECOND.get(operation, "not published")),
            str(counts.throttled.get(operation, 0)),
        )
    return table


def _short(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _findings(report: InterruptionReport, *, notice: str, durable: str) -> Iterator[RenderableType]:
    """Draw the findings of any run, which are the losses, the notification and the bill.

    Args:
        report: The rehearsal's report.
        notice: The form of an interruption's announcement there.
        durable: The place where a checkpoint survives its machine.
    """
    yield ""
    yield _heading("What was taken, and what it cost")
    if report.run.reports_steps or all(loss.read_files is None for loss in report.verdict.interruptions):
        yield _losses(report.verdict.interruptions, announced=notice, durable=durable)
    else:
        yield _losses_by_files(report.verdict.interruptions, announced=notice)
    ending = next((n for n in report.notifications if n.run == report.run.run and n.status in ENDINGS), None)
    if ending is not None:
        yield from ("", _heading("The notification, as the subscriber got it"), _received(ending))
    yield from ("", _heading("The bill"), bill(report.record, prices=f"of {price_list.ORIGIN}"))


def _losses(interruptions: Sequence[CapacityLoss], *, announced: str, durable: str) -> RenderableType:
    if not interruptions:
        return Text("nothing was taken", style="dim")
    table = _figures("at step", "notice", durable, "resumed from", "done twice", "back after")
    for loss in interruptions:
        table.add_row(
            "?" if loss.at_step is None else str(loss.at_step),
            announced if loss.notice else "none",
            f"step {loss.durable_step}",
            "?" if loss.resumed_from_step is None else f"step {loss.resumed_from_step}",
            "?" if loss.steps_repeated is None else quantities.counted(loss.steps_repeated, "step"),
            "never" if loss.seconds_to_resume is None else f"{loss.seconds_to_resume:.1f} s",
        )
    return table


def _losses_by_files(interruptions: Sequence[CapacityLoss], *, announced: str) -> RenderableType:
    """Draw the losses of a script that reports no steps."""
    table = _figures("after", "notice", "checkpoint files in S3", "read again", "back after")
    for loss in interruptions:
        table.add_row(
            f"{loss.seconds_trained:.1f} s",
            announced if loss.notice else "none",
            str(len(loss.stored_files)),
            "?" if loss.read_files is None else _named(loss.read_files),
            "never" if loss.seconds_to_resume is None else f"{loss.seconds_to_resume:.1f} s",
        )
    return table


def _named(files: Sequence[str]) -> str:
    """Name the last checkpoint, a file or a folder, and the number of the others."""
    checkpoints = list(dict.fromkeys(name.partition("/")[0] for name in files))
    more = f" and {len(checkpoints) - 1} more" if len(checkpoints) > 1 else ""
    return f"{checkpoints[-1]}{more}" if checkpoints else "none"


def _received(notification: ReceivedNotification) -> RenderableType:
    """Draw a notification as its subscriber got it.

    It has a bar at the left instead of a box. Addresses stay whole, so that they can be copied.
    """
    lines = [
        Text.assemble(("Subject: ", "dim"), (notification.subject, "bold")),
        Text(),
        *map(Text, notification.body.splitlines()),
    ]
    # A group: printed one by one, texts are joined to a new one that wraps.
    return Group(*(Text.assemble(("  │ ", "dim"), line, no_wrap=True, overflow="ignore") for line in lines))


def _recoveries(lives: Sequence[RehearsedInstance]) -> Table:
    """Return a table with one column for each instance. Phases are many, and instances are few."""
    table = _figures(*(life.zone for life in lives), of="")
    for phase in dict.fromkeys(phase for life in lives for phase in life.phases_s):
        table.add_row(phase, *(f"{life.phases_s[phase]:.1f}" if phase in life.phases_s else "" for life in lives))
    table.add_row("all", *(f"{sum(life.phases_s.values()):.1f}" for life in lives))
    table.add_row("AWS calls", *(str(sum(life.calls.values())) for life in lives))
    return table


def _judged(report: Report, *, passed: str) -> Iterator[RenderableType]:
    """Draw each check with the promise and the fact, and the verdict."""
    yield from map(_checked, report.checks)
    yield Text()
    if report.passed:
        yield _passed(passed)
    else:
        failed = sum(not check.passed for check in report.checks)
        yield _failed(f"{failed} of {len(report.checks)} did not hold.")


def _checked(check: RehearsalCheck) -> RenderableType:
    """Return a mark, the promise, and below it the fact."""
    row = Table.grid(padding=(0, 1))
    mark = Text("  ✓", style="green") if check.passed else Text("  ✗", style="red")
    row.add_row(mark, Group(Text(check.expected), Text(check.found, style="dim")))
    return row


def _verdict(report: InterruptionReport) -> Iterator[RenderableType]:
    """Draw the verdict on the run's state, and the reasons if it is against the run."""
    verdict = report.verdict
    if verdict.passed:
        if verdict.equal_to_uninterrupted:
            how = "bit for bit" if verdict.identical_to_uninterrupted else "value for value"
            yield _passed(f"The final model equals, {how}, that of a run that was left alone.")
        else:
            yield _passed("The job went on from its own checkpoint after each interruption.")
        yield from (Text.assemble(("  ! ", "yellow"), remark) for remark in verdict.remarks)
        return
    if report.missing_module:
        yield Text.assemble(("NOT JUDGED  ", "bold yellow"), "This job could not begin on this machine:")
    elif verdict.fails_alone:
        yield _failed("This job does not end well even when nothing is taken from it:")
    elif verdict.unproven:
        yield _failed("Nothing shows that this job survives on spot capacity:")
    elif verdict.only_the_model_differs:
        yield _failed("This job goes on after an interruption, and ends with another model than one left alone:")
    else:
        yield _failed("This job would not survive on spot capacity:")
    yield from (Text.assemble(("  - ", "red"), reason) for reason in verdict.reasons)


def _figures(*titles: str, of: str | None = None) -> Table:
    """Return an empty table of figures, with a column before them for their names."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    if of is not None:
        table.add_column(of)
    for title in titles:
        table.add_column(title, justify="right")
    return table


def _heading(text: str) -> Text:
    return Text(text, style="bold")


def _passed(text: str) -> Text:
    return Text.assemble(("PASS  ", "bold green"), text)


def _failed(text: str) -> Text:
    return Text.assemble(("FAIL  ", "bold red"), text)
