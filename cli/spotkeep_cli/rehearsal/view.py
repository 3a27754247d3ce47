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

from spotkeep_cli.rehearsal.report import FleetReport, InterruptionReport, PoolReport, SweepReport
from spotkeep_cli.rendering.quantities import counted
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
_SHOWN_LINES = 3
"""The number of a script's first lines that a stage shows."""


class RehearsalView(contextlib.AbstractContextManager["RehearsalView"]):
    """Shows a rehearsal at a terminal. Without one, a plain line for each thing that happened.

    Args:
        console: The console that shows it.

    Attributes:
        seconds: Seconds that each ended stage took.
        said: The lines that the training script printed. Few of them are shown.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}
        self.said: list[str] = []
        self._shown_lines = 0
        self._unshown: list[str] = []
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
        started, self._shown_lines = time.monotonic(), 0
        yield outcome
        self._show_last_line()
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
        self._show_last_line()
        self._below(text, style="yellow")

    def job_said(self, line: str) -> None:
        """Take a line that the training script printed. Of a stage the first lines are shown, and the last one."""
        self.said.append(line)
        if self._shown_lines < _SHOWN_LINES:
            self._shown_lines += 1
            self._below(line, style="dim")
        else:
            self._unshown.append(line)

    def _show_last_line(self) -> None:
        """Show the number of the lines that were not shown, and the last of them."""
        if len(self._unshown) > 1:
            self._below(f"... {counted(len(self._unshown) - 1, 'line')}", style="dim")
        if self._unshown:
            self._below(self._unshown[-1], style="dim")
        self._unshown.clear()

    def notification_received(self, notification: ReceivedNotification) -> None:
        """Show that the subscriber got a notification."""
        self._below(notification.subject, style="dim")

    def _below(self, text: str, *, style: str) -> None:
        self._line(Text.assemble("  ", " " * _STAGE_WIDTH, "  ", (text, style)))

    def _line(self, line: Text) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)


_SHOWN_CALLS = ("CreateTrainingJob", "SubmitServiceJob", "DescribeTrainingJob", "DescribeServiceJob")


def drawn(report: Report, *, before_verdict: Sequence[RenderableType] = ()) -> Iterator[RenderableType]:
    """Draw a report, part by part. The verdict is the last part.

    A failed report shows the losses and the reasons alone. The bill and the notifications are in its file.

    Args:
        report: The report.
        before_verdict: Parts to draw before the verdict, such as the place of the file.
    """
    match report:
        case FleetReport():
            yield from _of_fleet(report)
            yield from ("", *before_verdict, "", *_verdict(report))
            yield from _verdict_on_fleet(report)
        case InterruptionReport():
            if not report.missing_module:
                yield from _findings(report, notice="SIGTERM", durable="saved in S3")
            yield from ("", *before_verdict, "", *_verdict(report))
        case PoolReport():
            yield from _checks(report, heading="What a warm pool is for")
            gain = report.evidence.first.seconds - report.evidence.second.seconds
            passed = f"The second job started {gain:.1f} s sooner, and each ending was notified once."
            yield from ("", *before_verdict, "", _judged(report, passed=passed))
        case SweepReport():
            yield from _of_sweep(report)
            passed = "Each trial's curve equals, step for step, that of the same trial left alone."
            yield from ("", *before_verdict, "", _judged(report, passed=passed))


def _of_fleet(report: FleetReport) -> Iterator[RenderableType]:
    if report.missing_module:
        return
    yield from _findings(report, notice="EC2", durable="saved")
    if report.passed:
        yield _heading("\nFrom boot to the first step, in seconds")
        yield _recoveries(report.evidence.lives)
    yield from _checks(report, heading="What a fleet is for")


def _verdict_on_fleet(report: FleetReport) -> Iterator[RenderableType]:
    failed = sum(not check.passed for check in report.checks)
    if failed:
        yield _failed(f"{failed} of {len(report.checks)} things that a fleet is for did not hold.")
    elif report.passed:
        yield _passed("Two instances were lost and nothing else; one volume is left to pay for.")


def _of_sweep(report: SweepReport) -> Iterator[RenderableType]:
    evidence = report.evidence
    yield ""
    yield _heading("The trials, the furthest first")
    yield _trials(evidence)
    if report.passed:
        yield _heading("\nThe most calls in a second")
        yield _calls(evidence.calls)
    yield from _checks(report, heading="What a sweep is for")


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
    """Draw the losses of any run, and the bill of one that passed.

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
    if report.passed:
        yield from ("", _heading("The bill"), bill(report.record, prices=f"of {price_list.ORIGIN}"))


def _losses(interruptions: Sequence[CapacityLoss], *, announced: str, durable: str) -> RenderableType:
    if not interruptions:
        return Text("nothing was taken", style="dim")
    table = _figures("at step", "notice", durable, "resumed from", "repeated", "back after")
    for loss in interruptions:
        table.add_row(
            "?" if loss.at_step is None else str(loss.at_step),
            announced if loss.notice else "none",
            f"step {loss.durable_step}",
            "?" if loss.resumed_from_step is None else f"step {loss.resumed_from_step}",
            "?" if loss.steps_repeated is None else counted(loss.steps_repeated, "step"),
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


def _recoveries(lives: Sequence[RehearsedInstance]) -> Table:
    """Return a table with one column for each instance. Phases are many, and instances are few."""
    table = _figures(*(life.zone for life in lives), of="")
    for phase in dict.fromkeys(phase for life in lives for phase in life.phases_s):
        table.add_row(phase, *(f"{life.phases_s[phase]:.1f}" if phase in life.phases_s else "" for life in lives))
    table.add_row("all", *(f"{sum(life.phases_s.values()):.1f}" for life in lives))
    table.add_row("AWS calls", *(str(sum(life.calls.values())) for life in lives))
    return table


def _checks(report: Report, *, heading: str) -> Iterator[RenderableType]:
    """Draw each check with the promise and the fact. Of a failed report, only the checks that did not hold."""
    shown = [check for check in report.checks if report.passed or not check.passed]
    if shown:
        yield _heading(f"\n{heading}")
        yield from map(_checked, shown)


def _judged(report: Report, *, passed: str) -> RenderableType:
    if report.passed:
        return _passed(passed)
    failed = sum(not check.passed for check in report.checks)
    return _failed(f"{failed} of {len(report.checks)} did not hold.")


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
