"""Shows a rehearsal while it goes on.

Each stage has a line with its time, and the stage at work has a bar.
"""

from __future__ import annotations

import contextlib
import enum
import textwrap
import time
from typing import TYPE_CHECKING

from rich.console import Group
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from spotkeep_cli.rehearsal.nodes_verdict import losses_alone
from spotkeep_cli.rehearsal.report import FleetReport, InterruptionReport, NodesReport, PoolReport, SweepReport
from spotkeep_cli.rendering.printable import printable_line
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
    from spotkeep_cli.rehearsal.nodes_verdict import RehearsedWorld
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
    NODE_NOTICED = "notice"
    NODE_LOST = "no notice"
    FEWER = "one fewer"
    WHOLE_AGAIN = "all again"
    MOVE = "other zone"
    RETURN = "same zone"
    COMPLETION = "completion"
    ACTIONS = "actions"
    WITHHELD = "withheld"


_STAGE_WIDTH = max(len(stage.value) for stage in Stage)
_SECONDS_OF = {stage: stage.name.lower() for stage in Stage} | {Stage.TRAINING: "run"}
"""The word of each stage in the report's `seconds`. Programs read the words deploy, launch and run there."""
PRICES = f"of {price_list.ORIGIN}"
"""The source of the dollars in a bill of the local AWS."""
_LONGEST_TEXT = 44
_WIDEST = 100
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
                TextColumn("{task.description}", markup=False),
                BarColumn(bar_width=None),
                TextColumn("{task.fields[count]}", markup=False),
                TextColumn("{task.fields[text]}", markup=False),
                TextColumn("{task.fields[said]}", markup=False),
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
            self._task = self._progress.add_task(name, total=None, count="", text="", said="")
        started, self._shown_lines = time.monotonic(), 0
        yield outcome
        self._show_last_line()
        self.seconds[_SECONDS_OF[stage]] = seconds = time.monotonic() - started
        if self._progress is not None and self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
        start = Text.assemble(("✓ ", "green"), (name, "bold"), f"  {seconds:5.1f} s  ")
        self._line(start, ("".join(outcome), "dim"))

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
        if self._progress is not None and self._task is not None and line.strip():
            self._progress.update(self._task, said=printable_line(line.strip(), longest=_LONGEST_TEXT))
        if self._shown_lines < _SHOWN_LINES:
            self._shown_lines += 1
            self._show_line_of_script(line)
        else:
            self._unshown.append(line)

    def _show_last_line(self) -> None:
        """Show the number of the lines that were not shown, and the last of them."""
        if len(self._unshown) > 1:
            self._below(f"... {counted(len(self._unshown) - 1, 'line')}", style="dim")
        if self._unshown:
            self._show_line_of_script(self._unshown[-1])
        self._unshown.clear()

    def notification_received(self, notification: ReceivedNotification) -> None:
        """Show that the subscriber got a notification."""
        self._below(notification.subject, style="dim")

    def _show_line_of_script(self, line: str) -> None:
        self._below(printable_line(line, longest=self._width - _STAGE_WIDTH - 4), style="dim")

    def _below(self, text: str, *, style: str) -> None:
        self._line(Text(" " * (_STAGE_WIDTH + 4)), (text, style))

    @property
    def _width(self) -> int:
        return min(self._console.width, _WIDEST)

    def _line(self, start: Text, more: tuple[str, str]) -> None:
        """Print a line, with its rest below its text. A word that is longer, such as a path, stays whole."""
        text, style = more
        lines = textwrap.wrap(text, self._width - len(start), break_long_words=False, break_on_hyphens=False) or [""]
        for number, line in enumerate(lines):
            before = Text(" " * len(start)) if number else start
            self._console.print(Text.assemble(before, (line, style)), highlight=False, soft_wrap=True)


_SHOWN_CALLS = ("CreateTrainingJob", "SubmitServiceJob", "DescribeTrainingJob", "DescribeServiceJob")


def drawn(report: Report, *, before_verdict: Sequence[RenderableType] = ()) -> Iterator[RenderableType]:
    """Draw a report, part by part. The verdict is the last part.

    A failed report shows the losses and the reasons alone. The bill and the notifications are in its file.

    Args:
        report: The report.
        before_verdict: Parts to draw before the verdict, such as the place of the file.
    """
    match report:
        case InterruptionReport():
            if not report.missing_module:
                yield from _of_run(report)
            yield from ("", *before_verdict, "", *_verdict(report))
            yield from _verdict_on_instances(report)
        case PoolReport():
            yield from _checks(report, heading="What a warm pool is for")
            yield from ("", *before_verdict, "", _judged(report))
        case SweepReport():
            yield from _of_sweep(report)
            yield from ("", *before_verdict, "", _judged(report))


def _of_run(report: InterruptionReport) -> Iterator[RenderableType]:
    yield from _findings(report)
    match report:
        case FleetReport():
            if report.passed:
                yield _heading("\nFrom boot to the first step, in seconds")
                yield recoveries(report.evidence.lives)
            yield from _checks(report, heading="What a fleet is for")
        case NodesReport():
            yield _heading("\nThe worlds, which are the nodes that train together, one after the other")
            yield worlds(report.evidence.worlds)
            yield from _checks(report, heading="What several nodes are for")
        case _:
            pass


def _verdict_on_instances(report: InterruptionReport) -> Iterator[RenderableType]:
    if (headline := report.headline_of_instances) is not None:
        yield _failed(headline) if report.failed_checks else _passed(headline)


def _of_sweep(report: SweepReport) -> Iterator[RenderableType]:
    evidence = report.evidence
    yield ""
    yield _heading("The trials, the furthest first")
    yield trials(evidence)
    if report.passed:
        yield _heading("\nThe most calls in a second")
        yield calls(evidence.calls)
    yield from _checks(report, heading="What a sweep is for")


def trials(evidence: SweepEvidence) -> Table:
    """Return the table of the trials, the furthest first."""
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


def calls(counts: CallCounts) -> Table:
    """Return the table of the most calls in a second, beside those that AWS takes."""
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


def _findings(report: InterruptionReport) -> Iterator[RenderableType]:
    """Draw the losses of any run, and the bill of one that passed."""
    yield ""
    yield _heading("What was taken, and what it cost")
    table = losses(report)
    yield Text("nothing was taken", style="dim") if table is None else table
    if report.passed:
        yield from ("", _heading("The bill"), bill(report.record, prices=PRICES))


def losses(report: InterruptionReport) -> Table | None:
    """Return the table of the losses of a run, by its steps or by its files. None where nothing was taken."""
    interruptions: Sequence[CapacityLoss] = report.verdict.interruptions
    if isinstance(report, NodesReport):
        interruptions = losses_alone(interruptions, worlds=report.evidence.worlds)
    on_fleet = isinstance(report, FleetReport)
    announced = "EC2" if isinstance(report, FleetReport | NodesReport) else "SIGTERM"
    if not interruptions:
        return None
    if report.run.reports_steps or all(loss.read_files is None for loss in interruptions):
        durable = "on the volume" if on_fleet else "in S3"
        return _by_steps(interruptions, announced=announced, durable=durable)
    return _by_files(interruptions, announced=announced)


def _by_steps(interruptions: Sequence[CapacityLoss], *, announced: str, durable: str) -> Table:
    hosts = ["not copied, by host"] * any(len(loss.hosts) > 1 for loss in interruptions)
    table = _figures("at step", "notice", durable, *hosts, "resumed from", "repeated", "back after")
    for loss in interruptions:
        table.add_row(
            "?" if loss.at_step is None else str(loss.at_step),
            announced if loss.notice else "none",
            f"step {loss.durable_step}",
            *_not_copied(loss, shown=bool(hosts)),
            "?" if loss.resumed_from_step is None else f"step {loss.resumed_from_step}",
            "?" if loss.steps_repeated is None else counted(loss.steps_repeated, "step"),
            "never" if loss.seconds_to_resume is None else f"{loss.seconds_to_resume:.1f} s",
        )
    return table


def _not_copied(loss: CapacityLoss, *, shown: bool) -> list[str]:
    """Return the cell of the files that were lost with each host. None where one host has all."""
    return [", ".join(f"{host.name} {counted(host.not_copied, 'file')}" for host in loss.hosts)] if shown else []


def _by_files(interruptions: Sequence[CapacityLoss], *, announced: str) -> Table:
    """Return the table of the losses of a script that reports no steps."""
    hosts = ["not copied, by host"] * any(len(loss.hosts) > 1 for loss in interruptions)
    table = _figures("after", "notice", "checkpoint files in S3", *hosts, "read again", "back after")
    for loss in interruptions:
        table.add_row(
            f"{loss.seconds_trained:.1f} s",
            announced if loss.notice else "none",
            str(len(loss.stored_files)),
            *_not_copied(loss, shown=bool(hosts)),
            "?" if loss.read_files is None else _named(loss.read_files),
            "never" if loss.seconds_to_resume is None else f"{loss.seconds_to_resume:.1f} s",
        )
    return table


def _named(files: Sequence[str]) -> str:
    """Name the last checkpoint, a file or a folder, and the number of the others."""
    checkpoints = list(dict.fromkeys(name.partition("/")[0] for name in files))
    more = f" and {len(checkpoints) - 1} more" if len(checkpoints) > 1 else ""
    return f"{checkpoints[-1]}{more}" if checkpoints else "none"


def recoveries(lives: Sequence[RehearsedInstance]) -> Table:
    """Return a table with one column for each instance. Phases are many, and instances are few."""
    table = _figures(*(life.zone for life in lives), of="")
    for phase in dict.fromkeys(phase for life in lives for phase in life.phases_s):
        table.add_row(phase, *(f"{life.phases_s[phase]:.1f}" if phase in life.phases_s else "" for life in lives))
    table.add_row("all", *(f"{sum(life.phases_s.values()):.1f}" for life in lives))
    table.add_row("AWS calls", *(str(sum(life.calls.values())) for life in lives))
    return table


def worlds(found: Sequence[RehearsedWorld]) -> Table:
    """Return the table of the worlds of a run."""
    table = _figures("nodes", "ranks", "from step", "to step", "first step after", of="world")
    table.add_column("ended by")
    for world in found:
        process = world.process
        table.add_row(
            str(world.fence),
            str(len(world.nodes)),
            "?" if world.ranks is None else str(world.ranks),
            str(process.resumed_from_step),
            str(process.last_step),
            f"{process.started_at - world.began_at:.1f} s",
            world.ending.value.replace("-", " "),
        )
    return table


def _checks(report: Report, *, heading: str) -> Iterator[RenderableType]:
    """Draw each check with the promise and the fact. Of a failed report, only the checks that did not hold."""
    shown = [check for check in report.checks if report.passed or not check.passed]
    if shown:
        yield _heading(f"\n{heading}")
        yield from map(_checked, shown)


def _judged(report: Report) -> RenderableType:
    return _passed(report.headline) if report.passed else _failed(report.headline)


def _checked(check: RehearsalCheck) -> RenderableType:
    """Return a mark, the promise, and below it the fact."""
    row = Table.grid(padding=(0, 1))
    mark = Text("  ✓", style="green") if check.passed else Text("  ✗", style="red")
    row.add_row(mark, Group(Text(check.expected), Text(check.found, style="dim")))
    return row


def _verdict(report: InterruptionReport) -> Iterator[RenderableType]:
    """Draw the verdict on the run's state, and the reasons if it is against the run."""
    if report.verdict.passed:
        yield _passed(report.headline)
        yield from (Text.assemble(("  ! ", "yellow"), remark) for remark in report.remarks)
        return
    not_judged = Text.assemble(("NOT JUDGED  ", "bold yellow"), report.headline)
    yield not_judged if report.missing_module else _failed(report.headline)
    yield from (Text.assemble(("  - ", "red"), reason) for reason in report.reasons)


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
