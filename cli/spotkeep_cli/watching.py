"""Shows a list, a run or a sweep again and again until nothing of it changes any more.

On average there is at most one call to AWS in five seconds. A refused or throttled call is shown and tried again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Group
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from spotkeep_cli.errors import NoConnectionError, RunNotFoundError
from spotkeep_cli.following import Unreachable, polls
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.lists import is_rehearsal, run_list, where, worth_listing
from spotkeep_cli.rendering.run_bar import RunStatus, status_bar
from spotkeep_cli.rendering.run_description import RunStory, run_description
from spotkeep_cli.signals import CtrlC
from spotkeep_cli.sweeps.sweep_view import states_in_words, sweep_list, sweep_page
from spotkeep_jobs.progress.job_events import parse_line
from spotkeep_jobs.progress.job_log import MetricsFollower
from spotkeep_jobs.record.states import RunState

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from datetime import datetime

    from rich.console import Console, RenderableType

    from spotkeep_cli.aws.deployment import DeploymentClient
    from spotkeep_cli.aws.job_log import AttemptLog
    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record.record import Run, ScriptMetrics
    from spotkeep_jobs.record.run_table import RunTable
    from spotkeep_jobs.record.sweep import Sweep

Line = tuple["datetime | None", str]

CALL_SECONDS = 5.0
_LOCAL_CALL_SECONDS = 0.5
_REDRAWN_A_SECOND = 2
_MOST_ENTRIES = 8


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One reading of the things that are watched.

    Attributes:
        draw: Draws it for a terminal, with the present time.
        lines: A line for each fact, by a key, with the fact's own time where it has one. Where the output is no
            terminal, a new or changed line is printed.
        ended: True when nothing of it changes any more.
    """

    draw: Callable[[], RenderableType]
    lines: Mapping[Hashable, Line]
    ended: bool


def watch(
    read: Callable[[], Snapshot], *, console: Console, deployment: DeploymentClient, invocation: Invocation
) -> None:
    """Read and show until nothing changes any more. Ctrl-C leaves.

    Args:
        read: Makes one reading.
        console: The console to show it on.
        deployment: The deployment that it is read from. It counts the calls.
        invocation: The clock.

    Raises:
        NoConnectionError: The deployment stayed out of reach for many readings.
        RunNotFoundError: The record is gone.
    """
    view = _View(console, invocation=invocation)
    pace = _Pace(deployment, invocation=invocation)
    try:
        with CtrlC(pace.pause) as ctrl_c, view.live:
            for polled in polls(read, pause=ctrl_c.pause):
                if isinstance(polled, Unreachable):
                    view.show_problem(polled.problem)
                    continue
                view.show(polled)
                if polled.ended:
                    return
    except KeyboardInterrupt:
        console.print()


@dataclass(frozen=True, kw_only=True)
class RunsAndSweeps:
    """The runs and sweeps that `ps` lists.

    Attributes:
        runs: The runs of the list.
        sweeps: The sweeps of the list.
        found: Number of runs that were found, also those that ended long ago.
        rehearsals_left_out: True when those of rehearsals are not in the list.
        unreadable: The reason of each record that cannot be read.
    """

    runs: Sequence[Run]
    sweeps: Sequence[Sweep]
    found: int
    rehearsals_left_out: bool
    unreadable: Mapping[str, str]

    @classmethod
    def read(
        cls,
        table: RunTable,
        *,
        everything: bool,
        owner: str | None,
        limit: int,
        rehearsals: bool,
        most_read: int,
        now: datetime,
    ) -> RunsAndSweeps:
        """Read the list.

        Args:
            table: The run table.
            everything: True to list those too that ended over a day ago.
            owner: Only those of this owner. None for all owners.
            limit: At most so many of each.
            rehearsals: True to list those of rehearsals, too.
            most_read: Number of the newest runs to choose from.
            now: The time.
        """
        unreadable: dict[str, str] = {}
        known = table.runs.list(owner=owner, limit=most_read, unreadable=unreadable)
        found = [run for run in known if rehearsals or not is_rehearsal(run)][:limit]
        sweeps = table.sweeps.list(owner=owner, limit=limit, unreadable=unreadable)
        sweeps = [each for each in sweeps if rehearsals or not is_rehearsal(each)]
        return cls(
            runs=[run for run in found if everything or worth_listing(run, now=now)],
            sweeps=[each for each in sweeps if everything or worth_listing(each, now=now)],
            found=len(found),
            rehearsals_left_out=len(known) > len(found),
            unreadable=unreadable,
        )

    def draw(self, *, now: datetime, width: int) -> RenderableType:
        """Draw the list, the sweeps first."""
        parts: list[RenderableType] = []
        if self.sweeps:
            parts.append(sweep_list(self.sweeps, now=now, width=width))
        if self.sweeps and self.runs:
            parts.append("")
        if self.runs:
            parts.append(run_list(self.runs, now=now, width=width))
        return Group(*parts)

    def lines(self) -> Mapping[Hashable, Line]:
        """Return a line for each of them, by its id."""
        lines: dict[Hashable, Line] = {each.sweep: (None, _sweep_line(each)) for each in self.sweeps}
        for run in self.runs:
            lines[run.run] = (None, f"{run.run}  {run.state.value.lower()}  {where(run)}")
        return lines


def watched_list(
    read: Callable[[], RunsAndSweeps], *, console: Console, deployment: DeploymentClient, invocation: Invocation
) -> RunsAndSweeps:
    """Show the list again and again until all in it has ended, and return it as it was read last.

    Args:
        read: Makes one reading.
        console: The console to show it on.
        deployment: The deployment that it is read from.
        invocation: The clock.

    Raises:
        NoConnectionError: The deployment stayed out of reach for many readings.
    """
    newest = RunsAndSweeps(runs=(), sweeps=(), found=0, rehearsals_left_out=False, unreadable={})

    def snapshot() -> Snapshot:
        nonlocal newest
        newest = listed = read()
        return Snapshot(
            draw=lambda: listed.draw(now=invocation.seams.now(), width=console.width),
            lines=listed.lines(),
            ended=all(run.state.ended for run in listed.runs) and all(each.state.ended for each in listed.sweeps),
        )

    watch(snapshot, console=console, deployment=deployment, invocation=invocation)
    return newest


def watched_sweep(
    sweep: str, *, everything: bool, console: Console, deployment: DeploymentClient, invocation: Invocation
) -> None:
    """Show a sweep and its trials again and again until it has ended.

    Args:
        sweep: Its id.
        everything: True to show more than the best trials.
        console: The console to show it on.
        deployment: The deployment that it runs in.
        invocation: The clock.

    Raises:
        NoConnectionError: The deployment stayed out of reach for many readings.
        RunNotFoundError: The record is gone.
    """

    def snapshot() -> Snapshot:
        found, trials = deployment.table.sweeps.with_trials(sweep)
        if found is None:
            raise RunNotFoundError(f"the record of {sweep} is gone", hint="ended sweeps are forgotten after a while")
        lines: dict[Hashable, Line] = {"": (None, _sweep_line(found))}
        for trial in trials:
            lines[trial.number] = (None, f"trial {trial.number}  {trial.state.value.lower()}")
        return Snapshot(
            draw=lambda: sweep_page(
                found, trials, now=invocation.seams.now(), width=console.width, everything=everything
            ),
            lines=lines,
            ended=found.state.ended,
        )

    watch(snapshot, console=console, deployment=deployment, invocation=invocation)


def _sweep_line(sweep: Sweep) -> str:
    return f"{sweep.sweep}  {sweep.state.value.lower()}  {states_in_words(sweep.counts)}".rstrip()


class _Pace:
    """Waits after each reading for as long as its calls may have. The first reading is that of any command."""

    def __init__(self, deployment: DeploymentClient, *, invocation: Invocation) -> None:
        self._calls = deployment.calls
        self._sleep = invocation.seams.sleep
        self._seconds = _LOCAL_CALL_SECONDS if invocation.options.local else CALL_SECONDS
        self._made_before: int | None = None

    def pause(self) -> None:
        made = 1 if self._made_before is None else self._calls.made - self._made_before
        self._made_before = self._calls.made
        self._sleep(self._seconds * max(1, made))


class _View:
    """Draws the newest snapshot at a terminal, and prints its changes elsewhere."""

    def __init__(self, console: Console, *, invocation: Invocation) -> None:
        self._console = console
        self._now = invocation.seams.now
        self._snapshot: Snapshot | None = None
        self._shown: dict[Hashable, Line] = {}
        self._problem = ""
        self._moves = console.is_terminal and not console.is_dumb_terminal
        self.live = Live(
            get_renderable=self._drawn,
            console=console,
            refresh_per_second=_REDRAWN_A_SECOND,
            transient=True,
            auto_refresh=self._moves,
        )

    def show(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        if self._problem:
            self._problem = ""
            self._print(Text("connected again", style="green"), at=None)
        for key, line in snapshot.lines.items():
            if self._shown.get(key) != line:
                self._shown[key] = line
                at, text = line
                self._print(Text(text), at=at)
        self._redraw()

    def show_problem(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._print(Text(f"{problem}; trying again", style="yellow"), at=None)
        self._redraw()

    def _redraw(self) -> None:
        if self._moves:
            self.live.refresh()

    def _print(self, text: Text, *, at: datetime | None) -> None:
        if not self._moves:
            clock = quantities.moment(at or self._now()).partition(" ")[2]
            self._console.print(Text(f"{clock}  ").append(text), soft_wrap=True, highlight=False)

    def _drawn(self) -> RenderableType:
        if not self._moves:
            return ""
        drawn = Text("asking", style="dim") if self._snapshot is None else self._snapshot.draw()
        problem = [Text(f"\n{self._problem}; trying again", style="yellow")] if self._problem else []
        return Group(drawn, *problem, Text("\nCtrl-C leaves", style="dim"))


def status_of(run: Run, *, log: AttemptLog | None) -> RunStatus:
    """Return the facts of a run's bar.

    Args:
        run: The run.
        log: The log of its newest attempt. Its last lines are read while it trains.
    """
    status = RunStatus()
    take_newest(run, status=status, log=log)
    return status


def take_newest(run: Run, *, status: RunStatus, log: AttemptLog | None) -> None:
    """Bring the facts of a run's bar up to date. A log that cannot be read is said in place of its last line.

    Args:
        run: The run.
        status: The facts.
        log: The log of its newest attempt.
    """
    status.take_run(run)
    if log is None or run.state is not RunState.TRAINING:
        return
    try:
        lines = log.last_lines()
    except NoConnectionError as error:
        status.take_line(error.message)
        return
    for line in lines:
        event = parse_line(line.text)
        if event is None:
            status.take_line(line.text)
        else:
            status.take_event(event)


def metrics_now(story: RunStory, *, log: AttemptLog) -> ScriptMetrics | None:
    """Return the metrics of a run, for one at work with those that only its log has so far.

    Args:
        story: The run's records.
        log: The log of its newest attempt. It is read as a whole.

    Raises:
        NoConnectionError: CloudWatch Logs refused or could not be reached.
    """
    if story.run.state.ended:
        return story.metrics
    kept = {} if story.metrics is None else story.metrics.metrics
    follower = MetricsFollower(story.metrics, goals={name: metric.goal for name, metric in kept.items()})
    for line in log.read():
        event = parse_line(line.text)
        if event is not None:
            follower.add(event)
    return follower.metrics()


def log_of(run: Run, *, deployment: DeploymentClient) -> AttemptLog:
    """Return the log of the newest job of a run."""
    return deployment.job_log(run.training_job or run.job_name, backend=run.place.backend)


def watched_run(run: Run, *, console: Console, deployment: DeploymentClient, invocation: Invocation) -> Run:
    """Show a run again and again until it has ended, and return it as it was read last.

    Args:
        run: The run.
        console: The console to show it on.
        deployment: The deployment that it runs in.
        invocation: The clock.

    Raises:
        NoConnectionError: The deployment stayed out of reach for many readings.
        RunNotFoundError: The record is gone.
    """
    watched = _WatchedRun(run, deployment=deployment, invocation=invocation, width=console.width)
    watch(watched.read, console=console, deployment=deployment, invocation=invocation)
    return watched.run


class _WatchedRun:
    """Reads a run again and again. Its other records are read where its item has changed."""

    def __init__(self, run: Run, *, deployment: DeploymentClient, invocation: Invocation, width: int) -> None:
        self.run = run
        self._deployment, self._invocation, self._width = deployment, invocation, width
        self._status, self._spinner = RunStatus(), Spinner("dots")
        self._region = None if invocation.options.local else deployment.region
        self._story: RunStory | None = None
        self._log = log_of(run, deployment=deployment)
        self._lines: dict[Hashable, Line] = {}

    def read(self) -> Snapshot:
        runs = self._deployment.table.runs
        run = runs.get(self.run.run)
        if run is None:
            raise RunNotFoundError(
                f"the record of {self.run.run} is gone", hint="ended runs are forgotten after a while"
            )
        if self._story is None or run.version != self.run.version:
            self._story = story = RunStory.read(run, runs=runs, region=self._region, unreadable={})
            self._log = log_of(run, deployment=self._deployment)
            self._lines |= {(entry.at, entry.kind): (entry.at, entry.text) for entry in story.timeline}
        self.run, story = run, self._story
        take_newest(run, status=self._status, log=self._log)
        self._lines["state"] = (None, f"{run.run}  {run.state.value.lower()}")
        if self._status.share is not None:
            self._lines.setdefault(("tenth", int(self._status.share * 10)), (None, self._status.words()))
        return Snapshot(draw=partial(self._draw, story), lines=self._lines, ended=run.state.ended)

    def _draw(self, story: RunStory) -> RenderableType:
        now = self._invocation.seams.now()
        bar = None if story.run.state.ended else status_bar(self._status, now=now, spinner=self._spinner)
        return run_description(story, now=now, width=self._width, bar=bar, most_entries=_MOST_ENTRIES)
