"""The output of `spotkeep describe`, with a run's state, attempts, metrics, timeline and bill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError
from rich.console import Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, Fact, facts, table_that_fits
from spotkeep_cli.rendering.lists import instances_of, reason_text, state_text, where
from spotkeep_cli.rendering.metric_list import metric_list
from spotkeep_jobs.backends.sagemaker.training_job import without_launch_id
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.progress.progress import work_left
from spotkeep_jobs.record.console_page import console_page
from spotkeep_jobs.record.states import RunState, TimelineKind
from spotkeep_jobs.runs.steering import on_demand_at_the_latest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from rich.console import RenderableType

    from spotkeep_jobs.record.record import Attempt, Cost, Hangs, Notification, Plan, Run, ScriptMetrics, TimelineEntry
    from spotkeep_jobs.record.run_store import RunStore

_MARKS = {
    TimelineKind.INTERRUPTED: ("!", "bold yellow"),
    TimelineKind.RESUMED: ("↻", "green"),
    TimelineKind.STEP_RESUMED: ("↻", "green"),
    TimelineKind.END_DOUBTFUL: ("!", "bold yellow"),
    TimelineKind.TRAINING: ("▶", "green"),
    TimelineKind.STOP_REQUESTED: ("■", "yellow"),
    TimelineKind.STOPPING: ("■", "yellow"),
    TimelineKind.FALLBACK_LEFT: ("↓", "yellow"),
    TimelineKind.ATTEMPT_ENDED: ("■", "yellow"),
    TimelineKind.ATTEMPT_BEGUN: ("↓", "yellow"),
    TimelineKind.REQUEST_CHANGED: ("✎", "cyan"),
    TimelineKind.STEERED: ("◇", "cyan"),
    TimelineKind.MAX_COST: ("$", "yellow"),
    TimelineKind.ENDED: ("●", "bold"),
}


def counted_facts(attempts: Sequence[Attempt], *, max_cost_usd: float | None) -> list[Fact]:
    """Return the cost of a run whose job lives, as the controller last counted it. Empty where none is counted.

    Args:
        attempts: Its attempts.
        max_cost_usd: Its limit, in US dollars.
    """
    counted = attempts[-1].counted_cost if attempts else None
    if counted is None:
        return []
    of = "" if max_cost_usd is None else f" of {quantities.dollars(max_cost_usd)} (max_cost)"
    remark = f", {counted.remark}" if counted.remark else ""
    text = f"about {quantities.dollars(counted.usd)}{of} at {quantities.moment(counted.at)} UTC{remark}"
    return [("so far", text)]


def bill(run: Run, *, prices: str | None = None) -> RenderableType:
    """Return a run's bill, a line each. A line says so where a figure is not known.

    Args:
        run: The run.
        prices: The source of the prices, where they are not those of the reader's account.
    """
    if run.cost is None:
        return Text(f"  {no_bill(run)}", style="dim")
    return facts(bill_facts(run, run.cost, prices=prices))


def no_bill(run: Run) -> str:
    """Return the reason that a run has no bill."""
    return "nothing was billed" if run.state.ended else "not known before the attempt ends"


WAITED: Final = "for capacity, not billed"


def bill_facts(run: Run, cost: Cost, *, prices: str | None = None) -> list[Fact]:
    """Return the bill of a run as facts, a line each.

    Args:
        run: The run.
        cost: Its bill.
        prices: The source of the prices, where they are not those of the reader's account.
    """
    at_most = "at most " if cost.redone_seconds is None else ""
    billed_seconds = cost.training_seconds if run.place.backend == "ec2" else cost.billed_seconds
    unit = unit_of_bill(run)
    billed, waited = _amount(billed_seconds, cost.billed_usd, unit=unit), WAITED
    if run.node_range is not None:
        # A node that waits for others is billed, and does no work.
        billed += ", with the waits of nodes for others" if cost.billed_usd is not None else ""
        waited = "for nodes"
    clean = _amount(cost.clean_on_demand_seconds, cost.clean_on_demand_usd, unit=unit)
    rows: list[Fact] = [
        ("billed", billed),
        *_idle_pool(cost, unit=unit),
        ("on demand, clean", at_most + clean),
        *_storage(cost),
        ("saved", _saved(cost, on_ec2=run.place.backend == "ec2", unit=unit)),
        ("repeated", _redone(cost, unit=unit)),
        ("waited", f"{quantities.duration(cost.waited_seconds)} {waited}"),
    ]
    if not run.state.ended:
        rows.append(("not on it", f"attempt {run.attempt:,}, which has not ended"))
    aws, ours = cost.aws_saved_percent, cost.saved_percent
    if aws is not None and (ours is None or round(aws) != round(ours)):
        rows.append(
            ("AWS shows", f"{quantities.percent(cost.aws_saved_percent)}, which counts repeated work as useful")
        )
    if cost.unknown_prices:
        rows.append(("price", f"not known: {', '.join(cost.unknown_prices)}"))
    elif cost.usd_per_hour is None:
        rows.append(("price", f"of {run.place.instance_type} not known: in instance time"))
    if prices is not None and cost.billed_usd is not None:
        rows.append(("prices", prices))
    return rows


def unit_of_bill(run: Run) -> str:
    """Return the words behind a time of a bill, which counts the time of each instance. Empty for one instance."""
    if run.node_range is not None:
        return " of node time"
    return " of instance time" if run.had_several_instances else ""


def _saved(cost: Cost, *, on_ec2: bool, unit: str) -> str:
    if cost.saved_percent is None and cost.unknown_prices:
        return "not known without the prices below"
    at_most = "at most " if cost.saves_at_most else ""
    percent = f"{at_most}{quantities.percent(cost.saved_percent)}"
    if on_ec2 and cost.saved_usd is not None:
        return f"{percent} ({quantities.dollars(cost.saved_usd)})"  # Seconds on demand mean little for moving prices.
    return f"{percent}, {_amount(cost.saved_seconds, cost.saved_usd, unit=unit)}"


def saved_figures(cost: Cost) -> Iterator[tuple[str, str, str]]:
    """Yield the saving as a large figure of a page, or nothing where it is unknown."""
    if cost.saved_percent is not None:
        at_most = "at most, " if cost.saves_at_most else ""
        yield "Saved", quantities.percent(cost.saved_percent), f"{at_most}against a clean on-demand run"


def _storage(cost: Cost) -> list[Fact]:
    rows: list[Fact] = []
    if cost.storage_gb_hours:
        rows.append(("volume", _stored(cost.storage_gb_hours, cost.storage_usd)))
    if cost.snapshot_gb_hours:
        rows.append(("snapshots", f"{_stored(cost.snapshot_gb_hours, cost.snapshot_usd)}, from zone to zone"))
    if cost.root_volume_gb_hours:
        rows.append(("root volumes", _stored(cost.root_volume_gb_hours, cost.root_volume_usd)))
    return rows


def _stored(gb_hours: float, usd: float | None) -> str:
    price = "" if usd is None else f", {quantities.dollars(usd)} of it"
    return f"{gb_hours:,.1f} GiB hours{price}"


def _idle_pool(cost: Cost, *, unit: str) -> list[Fact]:
    if not cost.idle_pool_seconds:
        return []
    return [("idle pool", f"{_amount(cost.idle_pool_seconds, cost.idle_pool_usd, unit=unit)} of it")]


def _amount(seconds: float, usd: float | None, *, unit: str) -> str:
    time = quantities.duration(seconds) + unit
    return time if usd is None else f"{time} ({quantities.dollars(usd)})"


def _redone(cost: Cost, *, unit: str) -> str:
    if cost.redone_steps is None:
        return "not known: the job did not report its steps"
    if cost.redone_steps == 0:
        return "nothing"
    seconds = f", {quantities.duration(cost.redone_seconds)}{unit}" if cost.redone_seconds is not None else ""
    return f"{quantities.counted(cost.redone_steps, 'step')}{seconds}"


@dataclass(frozen=True, kw_only=True)
class RunStory:
    """All records of a run.

    Attributes:
        run: The run item.
        attempts: Its attempts.
        timeline: Its events, oldest first.
        metrics: The metrics of its script. None where it measures nothing.
        notifications: Its notifications, sent or not, oldest first.
        plan: The plan that steers it. None for no plan.
        page: The address of its page in the AWS console. None where there is none.
    """

    run: Run
    attempts: Sequence[Attempt]
    timeline: Sequence[TimelineEntry]
    metrics: ScriptMetrics | None
    notifications: Sequence[Notification] = ()
    plan: Plan | None
    page: str | None

    @classmethod
    def read(cls, run: Run, *, runs: RunStore, region: str | None, unreadable: dict[str, str]) -> RunStory:
        """Read all records of a run.

        Args:
            run: The run item.
            runs: The run table that holds the other records.
            region: The deployment's. None for the local AWS, which has no console.
            unreadable: Takes the entries of the timeline that cannot be read.
        """
        _, metrics, notifications = runs.with_metrics_and_notifications(run.run)
        return cls(
            run=run,
            attempts=runs.attempts(run.run),
            timeline=runs.timeline(run.run, unreadable=unreadable),
            metrics=metrics,
            notifications=notifications,
            plan=None if run.deadline_at is None else runs.plan(run.run),
            page=None if region is None else console_page(run, region=region),
        )

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "run": self.run.model_dump(mode="json"),
            "attempts": [without_launch_id(attempt) for attempt in self.attempts],
            "timeline": [entry.model_dump(mode="json") for entry in self.timeline],
            "metrics": {} if self.metrics is None else self.metrics.model_dump(mode="json")["metrics"],
            "notifications": [each.model_dump(mode="json") for each in self.notifications],
            "console_url": self.page,
            **({} if self.plan is None else {"plan": self.plan.model_dump(mode="json")}),
        }


def run_description(
    story: RunStory, *, now: datetime, width: int, bar: RenderableType | None = None, most_entries: int | None = None
) -> RenderableType:
    """Return everything about a run, on one page.

    Args:
        story: The run's records.
        now: The time.
        width: The room, in characters.
        bar: The bar of a run at work.
        most_entries: Show only so many entries of the timeline, the newest ones.
    """
    run, attempts, metrics = story.run, story.attempts, story.metrics
    bars = [] if bar is None else [Padding(bar, (0, 0, 0, 2))]
    parts: list[RenderableType] = [_headline(run), *bars, facts(run_facts(run, page=story.page, now=now))]
    if len(attempts) > 1 or any(attempt.interruptions for attempt in attempts):
        table = table_that_fits(attempt_columns(attempts), width=width - 2)
        parts += [_heading("Attempts"), Padding(table, (0, 0, 0, 2), expand=False)]
    if run.deadline_at is not None:
        deadline = deadline_facts(run, deadline_at=run.deadline_at, plan=story.plan, now=now)
        parts += [_heading("Deadline"), facts(deadline)]
    if metrics is not None and metrics.metrics:
        parts += [_heading("Metrics"), metric_list(metrics, width=width)]
        if metrics.left_out:
            parts.append(Text("  the script reports more than are kept", style="dim"))
    if story.timeline:
        timeline = story.timeline if most_entries is None else story.timeline[-most_entries:]
        parts += [_heading("Timeline (UTC)"), timeline_table(timeline)]
    counted = counted_facts(attempts, max_cost_usd=run.request.get("max_cost"))
    parts += [_heading("Cost"), *([facts(counted)] if counted else [])]
    if run.cost is not None or not counted:
        parts.append(bill(run))
    return Group(*parts)


def timeline_table(timeline: Sequence[TimelineEntry]) -> Table:
    """Return one row an entry. The date is written where it changes."""
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    day = ""
    for entry in timeline:
        date, _, clock = quantities.moment(entry.at).partition(" ")
        if date != day:
            table.add_row("", "", Text(date, style="dim"))
            day = date
        table.add_row(*timeline_cells(entry, clock=clock))
    return table


def timeline_cells(entry: TimelineEntry, *, clock: str) -> tuple[Text, Text, Text]:
    """Return an entry as a row of time, mark and text."""
    mark, style = _MARKS.get(entry.kind, ("·", "dim"))
    return Text(f"  {clock}", style="dim"), Text(mark, style=style), Text(entry.text)


def _headline(run: Run) -> Text:
    line = Text.assemble((run.run, "bold"), "  ", state_text(run.state))
    if reason := reason_text(run.end_reason):
        line.append(f"  {reason}", style="dim")
    return line


def run_facts(run: Run, *, page: str | None, now: datetime) -> list[Fact]:
    """Return the facts about a run, a line each.

    Args:
        run: The run.
        page: The address of its page in the AWS console. None where there is none.
        now: The time.
    """
    rows: list[Fact] = [("runs on", where(run).replace(f" {run.place.capacity}", f", {run.place.capacity}"))]
    if run.group is not None:
        rows.append(
            (
                "launched as",
                f"number {run.group.index} of the {run.group.size} runs {run.group.id}-1 to -{run.group.size}",
            )
        )
    if run.owner:
        rows.append(("owner", run.owner))
    if run.adopted:
        rows.append(("launched by", "another client: the job has the deployment's tag"))
    if run.launched_by is not None and run.launched_by.name != run.owner:
        said = "" if run.launched_by.verified else ", whom AWS did not confirm"
        rows.append(("launched by", f"{run.launched_by.name}{said}"))
    rows.append(("created", f"{quantities.moment(run.created_at)} UTC"))
    if run.started_at is not None:
        end = run.ended_at if run.state.ended and run.ended_at else now
        lasted = quantities.duration((end - run.started_at).total_seconds())
        rows.append(("took" if run.state.ended else "at work", f"{lasted} since it first had instances"))
    if run.paused_at_step is not None:
        rows.append(("paused at", f"step {run.paused_at_step:,}"))
    if run.interruptions:
        lost = "lost capacity" if run.node_range is None else "lost a node"
        rows.append((lost, "once" if run.interruptions == 1 else f"{run.interruptions} times"))
    if run.hangs.count:
        rows.append(("stood still", _hangs(run.hangs, now=None if run.state.ended else now)))
    if run.place.backend == "ec2":
        rows.append(("fleet", run.job_id or "not there yet"))
    if run.node_range is not None:
        rows += [] if run.state.ended else [("now", nodes_in_words(run, *run.node_range))]
    elif run.place.backend == "ec2":
        rows.append(("volume", "not there yet" if run.volume is None else run.volume.id))
    elif run.place.queue is not None:
        rows.append(
            ("queue", f"{run.place.queue.queue}, share {run.place.queue.share}, priority {run.place.queue.priority}")
        )
        rows.append(("training job", run.training_job or "not there yet: it waits for its turn"))
    else:
        rows.append(("training job", run.job_name))
    if page is not None:
        rows.append(("console", page))
    rows.append(("checkpoints", run.checkpoint_uri or "none: its client asked for no checkpoint prefix"))
    rows.append(("model", run.output_uri or "not there yet" if not run.state.ended else run.output_uri or "none"))
    if run.output_uri:
        rows.append(("other output", "output.tar.gz beside it, where the script left some"))
    if run.quota_wait is not None:
        waited = quantities.duration((now - run.quota_wait.since).total_seconds())
        rows.append(("waits for quota", f"{waited}, says SageMaker: {run.quota_wait.reason}"))
    if run.waits_because and not run.state.ended:
        rows.append((f"waits, says {'EC2' if run.place.backend == 'ec2' else 'Batch'}", run.waits_because))
    if run.failure_reason:
        rows.append(("said", run.failure_reason))
    if run.log_warning:
        rows.append(("its log", run.log_warning))
    if run.ending is not None and run.ending.no_more_jobs_because:
        rows.append(("no job follows", run.ending.no_more_jobs_because))
    return rows


def nodes_in_words(run: Run, least: int, most: int) -> str:
    """Return the number of nodes of a live run, such as `3 of 4 nodes train, 1 waits to join`.

    Args:
        run: The run.
        least: The fewest nodes that train.
        most: The most nodes that it may have.
    """
    connected, in_world = (0, 0) if run.nodes is None else (run.nodes.connected, run.nodes.in_world)
    if in_world:
        waiting = connected - in_world
        joins = f", {waiting} {'waits' if waiting == 1 else 'wait'} to join" if waiting > 0 else ""
        return f"{in_world} of {most} nodes train{joins}"
    return f"{connected} of {most} nodes are there, and train when there are {least}"


def _hangs(hangs: Hangs, *, now: datetime | None) -> str:
    """Say how often a training stood still, and for how long it has done so now. `now` is None for an ended run."""
    often = "once" if hangs.count == 1 else f"{hangs.count} times"
    again = f", and was started again {'once' if hangs.restarts == 1 else f'{hangs.restarts} times'}"
    still = ""
    if hangs.still_since is not None and now is not None:
        still = f"; no step and no line for {quantities.duration((now - hangs.still_since).total_seconds())} now"
    return f"{often}{again if hangs.restarts else ''}{still}"


def deadline_facts(run: Run, *, deadline_at: datetime, plan: Plan | None, now: datetime) -> list[Fact]:
    """Return the facts about the deadline of a run, a line each.

    Args:
        run: The run.
        deadline_at: Its deadline.
        plan: The plan that steers it. None for no plan.
        now: The time.
    """
    until = (deadline_at - (run.ended_at or now if run.state.ended else now)).total_seconds()
    kept = f"{quantities.duration(abs(until))} {'before it' if until >= 0 else 'late'}"
    left = f"in {quantities.duration(until)}" if until >= 0 else f"{quantities.duration(-until)} ago"
    ended = f"ended {kept}" if run.state is RunState.COMPLETED else "not reached" if run.state.ended else left
    rows: list[Fact] = [("done by", f"{quantities.moment(deadline_at)} UTC, {ended}")]
    request = _request_of(run)
    if request is not None:
        if not run.state.ended:
            rows.append(("work left", _work_left(run, request)))
        if not run.state.ended and run.place.capacity == "spot":
            latest = on_demand_at_the_latest(request, deadline_at=deadline_at, now=now, progress=run.progress)
            when = "now" if latest <= now else f"{quantities.moment(latest)} UTC, if nothing is done until then"
            rows.append(("leaves spot", f"at the latest {when}"))
    if run.steered is not None:
        rows.append(("decided", f"{run.steered.choice}: {run.steered.reason}"))
    if plan is None:
        rows.append(("planned", "no: the guard alone keeps the deadline"))
    else:
        cost, finish = plan.cost_usd, plan.finish_seconds
        costs = f"{quantities.dollars(cost.p10)} to {quantities.dollars(cost.p90)}, " if cost else ""
        times = f"{quantities.duration(finish.p10)} to {quantities.duration(finish.p90)}"
        rows.append(("forecast", f"{costs}done after {times}, on-demand in {plan.chance_of_on_demand:.0%}"))
    return rows


def _work_left(run: Run, request: JobRequest) -> str:
    left = work_left(run.progress, work_seconds=request.work_seconds)
    progress = run.progress
    if not left.known or progress is None:
        return f"not known: all {quantities.duration(left.seconds)} of it count as left"
    return (
        f"{quantities.duration(left.seconds)}: step {progress.step:,} of {progress.total_steps:,}, "
        f"{progress.durable_step:,} taken to be durable"
    )


def _request_of(run: Run) -> JobRequest | None:
    try:
        return JobRequest.model_validate(run.request)
    except ValidationError:
        return None  # Of another version.


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")


def _newest_job(attempt: Attempt) -> str:
    return next(iter(attempt.log_names[-1:]), "none yet")


def attempt_columns(attempts: Sequence[Attempt]) -> list[Column]:
    """Return the table of a run's attempts."""
    trained = [attempt.usage.training_seconds if attempt.usage else None for attempt in attempts]
    return [
        Column(heading="#", cells=[str(attempt.attempt) for attempt in attempts], justify="right"),
        Column(heading="STATE", cells=[state_text(RunState(attempt.state.value)) for attempt in attempts]),
        Column(
            heading="RUNS ON",
            cells=[f"{instances_of(attempt)} {attempt.place.capacity}" for attempt in attempts],
            importance=1,
        ),
        Column(heading="JOB", cells=[_newest_job(attempt) for attempt in attempts], importance=0),
        Column(
            heading="STARTED",
            cells=[quantities.moment(attempt.started_at).partition(" ")[2] or "never" for attempt in attempts],
            importance=2,
        ),
        Column(heading="TRAINED", cells=[quantities.duration(time) for time in trained], importance=1, justify="right"),
        Column(heading="LOST", cells=[f"{attempt.interruptions}x" for attempt in attempts], justify="right"),
    ]
