"""Follows a run as one stream of updates, and shows it.

The updates are changes of the run's record and lines of the job's output. Following reads only, so a user can leave and
come back at any time. A connection lost on the way is waited out.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from rich.text import Text

from spotkeep_cli.aws.job_log import LogLine
from spotkeep_cli.errors import NoConnectionError, RunFailedError, RunNotFoundError, RunStoppedError
from spotkeep_cli.failure_causes import hint_of_failure
from spotkeep_cli.next_steps import resume_of, steps_for_run
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import facts
from spotkeep_cli.rendering.job_event import event_text, total_steps
from spotkeep_cli.rendering.lists import reason_text, state_text
from spotkeep_cli.rendering.printable import coloured
from spotkeep_cli.rendering.run_bar import RunBar
from spotkeep_cli.rendering.run_description import bill, timeline_cells
from spotkeep_cli.signals import CtrlC
from spotkeep_cli.terminal import NextStep
from spotkeep_jobs.progress.job_events import JobEvent, JobEventKind, parse_line
from spotkeep_jobs.record.record import Run, TimelineEntry
from spotkeep_jobs.record.states import EndReason, RunState, TimelineKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from types import TracebackType

    from rich.console import Console

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.aws.job_log import AttemptLog
    from spotkeep_cli.rendering.run_bar import RunStatus
    from spotkeep_cli.seams import Invocation
    from spotkeep_cli.terminal import Terminal

ReadT = TypeVar("ReadT")

LOST_CONNECTION_TRIES = 10
"""Number of polls in a row that may fail before following gives up. The run does not care."""


_TROUBLE = frozenset(
    {
        *(JobEventKind.ENVIRONMENT_NOT_CACHED, JobEventKind.SAVE_FAILED, JobEventKind.FALLBACK, JobEventKind.PUT_ASIDE),
        *(JobEventKind.UPLOAD_FAILED, JobEventKind.UPLOAD_LATE, JobEventKind.NOT_IN_S3, JobEventKind.NOTICE),
        JobEventKind.EXIT_ON_NOTICE,
        *(JobEventKind.INSTANCE_SCRIPT_FAILED, JobEventKind.INSTANCE_FAILED),
    }
)
_STYLES = dict.fromkeys(_TROUBLE, "yellow") | dict.fromkeys(
    (JobEventKind.RESUME, JobEventKind.FINISH, JobEventKind.PAUSED), "green"
)
"""All other events are dim."""


@dataclass(frozen=True, kw_only=True)
class Reported:
    """A line in which the job reported an event (progress, a saved checkpoint, ...)."""

    event: JobEvent
    line: LogLine


@dataclass(frozen=True, kw_only=True)
class Unreachable:
    """A poll failed. Following goes on."""

    problem: str


Update: TypeAlias = TimelineEntry | LogLine | Reported | Unreachable | Run
"""One update for a follower.

It is a new entry of the timeline, a line of the job's output, an event, a failed poll, or the run. The run comes when
its record changed, and last of all when it has ended."""


def follow(
    deployment: DeploymentClient,
    run: str,
    *,
    pause: Callable[[], None],
    from_attempt: int = 1,
) -> Iterator[Update]:
    """Yield the updates of a run until it has ended and its log is read.

    Args:
        deployment: The deployment that it runs in.
        run: Its id.
        pause: Waits between two polls.
        from_attempt: The first attempt to show. Updates of earlier attempts are left out.

    Raises:
        NoConnectionError: The deployment stayed out of reach for many polls.
        RunNotFoundError: The run's record is gone.
    """
    poll = _Poll(deployment, run, from_attempt=from_attempt)
    for polled in polls(poll.new_updates, pause=pause):
        if isinstance(polled, Unreachable):
            yield polled
            continue
        updates, ended = polled
        yield from updates
        if ended:
            return


def polls(read: Callable[[], ReadT], *, pause: Callable[[], None]) -> Iterator[ReadT | Unreachable]:
    """Yield the result of each poll. It waits before the next one, and ends only when the caller leaves.

    Args:
        read: Makes one poll.
        pause: Waits between two polls.

    Raises:
        NoConnectionError: The deployment stayed out of reach for many polls.
    """
    failures = 0
    while True:
        try:
            polled: ReadT | Unreachable = read()
            failures = 0
        except NoConnectionError as error:
            failures += 1
            if failures >= LOST_CONNECTION_TRIES:
                raise
            polled = Unreachable(problem=error.message)
        yield polled
        pause()


def read_lines(log: AttemptLog, *, hosts: int) -> list[LogLine | Reported]:
    """Return the new lines of a log, each as an event or a line of output.

    Args:
        log: The log of an attempt.
        hosts: The attempt's number of hosts. With several, each line has the host that wrote it.
    """
    lines = [replace(line, host=line.stream) if hosts > 1 else line for line in log.read()]
    return [
        line if event is None else Reported(event=event, line=line)
        for line, event in ((line, parse_line(line.text)) for line in lines)
    ]


def host_before(line: LogLine) -> str:
    """Return what stands before the text of a line, which is its host where there are several."""
    return f"{line.host} " if line.host else ""


class _Poll:
    """The known facts of a run, so that each poll gives only new ones."""

    def __init__(self, deployment: DeploymentClient, run: str, *, from_attempt: int) -> None:
        self._deployment = deployment
        self._run = run
        self._from_attempt = from_attempt
        self._seen_version: int | None = None
        self._seen_entries: set[tuple[object, int, str]] = set()
        self._log: AttemptLog | None = None
        self._log_of = ""

    def new_updates(self) -> tuple[list[Update], bool]:
        """Return the new updates, and True if those were all."""
        run = self._deployment.table.runs.get(self._run)
        if run is None:
            raise RunNotFoundError(f"the record of {self._run} is gone", hint="ended runs are forgotten after a while")
        # The log is read after the run: once its record says that it ended, nothing more is written.
        updates: list[Update] = []
        changed = run.version != self._seen_version
        if changed:
            updates += self._new_entries()
        updates += self._new_lines(run)
        if changed or run.state.ended:
            updates.append(run)
        self._seen_version = run.version
        return updates, run.state.ended

    def _new_entries(self) -> list[TimelineEntry]:
        new = []
        for entry in self._deployment.table.runs.timeline(self._run, unreadable={}):  # `describe` names those.
            key = (entry.at, entry.attempt, entry.kind.value)
            if entry.attempt >= self._from_attempt and key not in self._seen_entries:
                self._seen_entries.add(key)
                new.append(entry)
        return new

    def _new_lines(self, run: Run) -> list[LogLine | Reported]:
        remaining: list[LogLine | Reported] = []
        hosts = run.place.instance_count
        if self._log is None or self._log_of != run.job_name:
            if self._log is not None:
                remaining = read_lines(self._log, hosts=hosts)  # what the last attempt still wrote
            names = (run.job_name,) if run.place.queue is None else self._earlier_training_jobs(run)
            self._log, self._log_of = self._deployment.job_log(*names, backend=run.place.backend), run.job_name
        if run.training_job is not None:
            self._log.also(run.training_job)
        return remaining + read_lines(self._log, hosts=hosts)

    def _earlier_training_jobs(self, run: Run) -> tuple[str, ...]:
        """Return those that AWS Batch has made for the run's attempt so far."""
        return next((each.log_names for each in self._deployment.table.runs.attempts(run.run)[-1:]), ())


_SHARES = 10


_METRICS_SECONDS = 10.0
"""Seconds between two lines about a metric. A job reports each of its first values, and more rarely later."""


class SparseProgress:
    """Selects the events of steps and metrics that are worth a line.

    Of progress events they are the first one, one each tenth of the way, the first after going back, and the last.
    Without a total number of steps, every one is shown. The job reports at most one every few seconds.
    """

    def __init__(self) -> None:
        self._last_share: int | None = None
        self._metrics_shown: dict[str, float] = {}

    def worth_a_line(self, event: JobEvent) -> bool:
        """Return True for an event to show. Each is asked about once, in order."""
        metrics = event.fields.get("metrics", {})
        if event.kind is JobEventKind.METRICS:
            shown = (event.at - self._metrics_shown.get(name, -math.inf) for name in metrics)
            new = not metrics or any(not 0 <= seconds < _METRICS_SECONDS for seconds in shown)
        else:
            new = self._is_new_share(event)
        if new:
            self._metrics_shown.update(dict.fromkeys(metrics, event.at))
        return new

    def _is_new_share(self, event: JobEvent) -> bool:
        total = total_steps(event)
        if total is None:
            return True
        share = (event.step or 0) * _SHARES // total
        new = share != self._last_share
        self._last_share = share
        return new


_FREQUENT = frozenset({JobEventKind.PROGRESS, JobEventKind.METRICS})
_QUIET = frozenset(
    {
        *(JobEventKind.SAVED, JobEventKind.UPLOADED, JobEventKind.DOWNLOADED, JobEventKind.SCHEDULE),
        *(JobEventKind.START, JobEventKind.EXIT),
        *(JobEventKind.INSTALLING, JobEventKind.INSTALLED, JobEventKind.ENVIRONMENT_CACHED, JobEventKind.SET_UP),
        *(JobEventKind.INSTANCE_LEAVING, JobEventKind.INSTANCE_FINISHED, JobEventKind.OUTPUT_SENT),
    }
)


class FollowView(AbstractContextManager["FollowView"]):
    """Shows updates as they come, above the bar of the run. With several hosts, each line says which wrote it.

    Args:
        console: The console to write to.
        now: Returns the time.
    """

    def __init__(self, console: Console, *, now: Callable[[], datetime]) -> None:
        self._console = console
        self._unreachable = False
        self._sparse = SparseProgress()
        self._bar = RunBar(console, now=now)

    def __enter__(self) -> FollowView:
        self._bar.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.__exit__(kind, error, trace)

    def show(self, update: Update) -> None:
        """Show one update."""
        take(update, status=self._bar.status)
        if not isinstance(update, LogLine | Unreachable):
            self._reachable_again()
        match update:
            case TimelineEntry(kind=TimelineKind.STEP_RESUMED):
                pass  # the job's own event said so already, and sooner
            case TimelineEntry() as entry:
                _, _, clock = quantities.moment(entry.at).partition(" ")
                when, mark, text = timeline_cells(entry, clock=clock)
                self._line(Text(" ").join([when, mark, text]))
            case Reported(event=event, line=line):
                self._show_event(event, host=host_before(line))
            case LogLine() as line:
                self._line(Text(f"           {host_before(line)}{line.text}", style="dim"))
            case Unreachable(problem=problem):
                if not self._unreachable:
                    self._line(Text(f"  {problem}; the run goes on, trying again", style="yellow"))
                self._unreachable = True

    def _show_event(self, event: JobEvent, *, host: str) -> None:
        if event.kind in _QUIET or (event.kind in _FREQUENT and self._bar.is_drawn):
            return
        if event.kind not in _FREQUENT or self._sparse.worth_a_line(event):
            self._line(Text.assemble("           ", (host, "dim"), event_text(event)))

    def _reachable_again(self) -> None:
        if self._unreachable:
            self._unreachable = False
            self._line(Text("  connected again", style="green"))

    def _line(self, text: Text) -> None:
        self._console.print(text, highlight=False, soft_wrap=True)


def take(update: Update, *, status: RunStatus) -> None:
    """Bring the facts of a run's bar up to date. Its lines are shown above it, and so not in it.

    Args:
        update: An update of the run.
        status: The facts.
    """
    match update:
        case Run():
            status.take_run(update)
        case Reported(event=event):
            status.take_event(event)


def follow_to_the_end(
    answer: dict[str, Any],
    *,
    became: str,
    invocation: Invocation,
    deployment: DeploymentClient,
    terminal: Terminal,
    detach: bool,
) -> None:
    """Follow the run of a launcher answer. Ctrl-C leaves it running.

    With `--json`, standard output gets the answer (detached) or the run as it ended, and the forecast there was.

    Args:
        answer: The launcher's answer.
        became: The new state of the run, in words, such as `launched`.
        invocation: The words that `spotkeep` was called with.
        deployment: The deployment that it runs in.
        terminal: The terminal to show it on.
        detach: True to leave at once.

    With `--json`, standard output gets the answer (detached) or the run as it ended, and the forecast there was.

    Raises:
        RunFailedError: It failed.
        RunStoppedError: It was stopped, or ran out of time.
    """
    run = str(answer["run"])
    fleet = str(answer.get("job_id") or "")
    job = fleet if fleet.startswith("fleet-") else f"training job {answer.get('job_name', '?')}"
    terminal.show(f"{run} {became} ({job})")
    if detach:
        if terminal.as_json:
            terminal.give_json(answer)
        terminal.show_next(*_come_back(run, "follow it", invocation=invocation))
        return
    attempt = int(answer.get("attempt", 1))
    ended = _watch(run, attempt=attempt, invocation=invocation, deployment=deployment, terminal=terminal)
    if ended is None:
        if terminal.as_json:
            terminal.give_json(answer)
        terminal.show(f"\nDetached. {run} goes on without you.")
        terminal.show_next(*_come_back(run, "follow it again", invocation=invocation))
        return
    _conclude(ended, forecast=answer.get("forecast"), invocation=invocation, terminal=terminal)


def _watch(
    run: str, *, attempt: int, invocation: Invocation, deployment: DeploymentClient, terminal: Terminal
) -> Run | None:
    """Return the run as it ended, or None when the user left with Ctrl-C."""
    last: Run | None = None
    try:
        with CtrlC(invocation.pause) as ctrl_c, FollowView(terminal.people, now=invocation.seams.now) as view:
            for update in follow(deployment, run, pause=ctrl_c.pause, from_attempt=attempt):
                view.show(update)
                if isinstance(update, Run):
                    last = update
    except KeyboardInterrupt:
        return None
    return last


def _conclude(run: Run, *, forecast: object, invocation: Invocation, terminal: Terminal) -> None:
    if terminal.as_json:
        terminal.give_json(run.model_dump(mode="json") | ({} if forecast is None else {"forecast": forecast}))
    else:
        terminal.show("")
        terminal.show(_verdict(run))
        terminal.show(bill(run))
        said = [("said", run.failure_reason)] if run.failure_reason else []
        terminal.show(facts([*said, ("model", run.output_uri or "none"), ("checkpoints", run.checkpoint_uri)]))
        terminal.show_next(*steps_for_run(run, invocation=invocation, after="launch"))
    resume, what = resume_of(run)
    raise_unless_done(run, hint=hint_of_failure(run.failure_reason or "") or f"{invocation.command(resume)}: {what}")


def raise_unless_done(run: Run, *, hint: str) -> None:
    """Raise an error for a run that ended and has neither completed nor paused on request.

    Args:
        run: A run that has ended.
        hint: The remedy.

    Raises:
        RunFailedError: It failed.
        RunStoppedError: It was stopped, or came to a limit.
    """
    if run.state is RunState.COMPLETED or run.end_reason is EndReason.PAUSED:
        return
    reason = reason_text(run.end_reason) or run.state.value.lower()
    if run.state is RunState.FAILED:
        raise RunFailedError(f"{run.run} failed, {reason}", hint=hint)
    raise RunStoppedError(f"{run.run} stopped, {reason}", hint=hint)


def _verdict(run: Run) -> Any:
    times = {0: "without an interruption", 1: "after one interruption"}
    how = times.get(run.interruptions, f"after {run.interruptions} interruptions")
    paused = "" if run.paused_at_step is None else f", paused at step {run.paused_at_step:,}"
    return state_text(run.state).append(f"  {run.run}{paused}, {how}", style="default")


def _come_back(run: str, what: str, *, invocation: Invocation) -> list[NextStep]:
    return [
        NextStep(command=invocation.command(f"logs {run} -f"), what=what),
        NextStep(command=invocation.command(f"describe {run}"), what="where it stands"),
        NextStep(command=invocation.command(f"stop {run}"), what="end it"),
    ]


class LogPrinter:
    """Prints log lines. With several hosts, each line says which wrote it.

    Args:
        console: The console to write to.
        raw: True to print events as they stand.
    """

    def __init__(self, console: Console, *, raw: bool) -> None:
        self._console = console
        self._raw = raw
        self.printed = 0
        self._sparse = SparseProgress()

    def show(self, update: Update) -> None:
        """Print an update, if it is for a log."""
        match update:
            case LogLine() as line:
                self._print(line, coloured(line.text))
            case Reported(line=line) if self._raw:
                self._print(line, coloured(line.text))
            case Reported(event=event) if event.kind in _FREQUENT and not self._sparse.worth_a_line(event):
                self.printed += 1
            case Reported(event=event, line=line):
                self._print(line, Text(f"spotkeep: {event_text(event)}", style=_STYLES.get(event.kind, "dim")))

    def _print(self, line: LogLine, text: Text) -> None:
        self.printed += 1
        if not self._raw:
            clock = quantities.moment(line.time).partition(" ")[2]
            text = Text.assemble((f"{clock} {host_before(line)}", "dim"), text)
        self._console.print(text, soft_wrap=True, highlight=False)
