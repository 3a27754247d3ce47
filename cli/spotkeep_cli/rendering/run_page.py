"""The page of a run, from the same records as `describe` and its JSON."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from spotkeep_cli.extras import install_command
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import page_facts, page_table
from spotkeep_cli.rendering.lists import instances_of, reason_text, where
from spotkeep_cli.rendering.metric_list import metric_columns
from spotkeep_cli.rendering.pictures import can_draw
from spotkeep_cli.rendering.run_description import (
    WAITED,
    attempt_columns,
    bill_facts,
    counted_facts,
    deadline_facts,
    no_bill,
    nodes_in_words,
    run_facts,
    saved_figures,
    unit_of_bill,
)
from spotkeep_cli.rendering.run_pictures import metric_pictures, resumed_steps
from spotkeep_jobs.record.states import NotificationState, RunState, TimelineKind
from spotkeep_pages.bars import Lane, Mark, Span, bars
from spotkeep_pages.elements import badge, code, command, element, figures, folded, notice, output, paragraph, table
from spotkeep_pages.page import Section, page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime
    from xml.etree import ElementTree as ET

    from spotkeep_cli.rendering.run_description import RunStory
    from spotkeep_jobs.record.record import Attempt, Notification, Run, ScriptMetrics, TimelineEntry
    from spotkeep_pages.elements import Content

TONES = {
    RunState.LAUNCHING: "neutral",
    RunState.WAITING: "warning",
    RunState.TRAINING: "good",
    RunState.INTERRUPTED: "warning",
    RunState.STOPPING: "warning",
    RunState.COMPLETED: "good",
    RunState.FAILED: "bad",
    RunState.STOPPED: "neutral",
}
_PHASES = {
    TimelineKind.RUN_OPENED: "waited",
    TimelineKind.ATTEMPT_BEGUN: "waited",
    TimelineKind.QUOTA_WAIT: "waited",
    TimelineKind.JOB_CREATED: "waited",
    TimelineKind.QUEUE_BLOCKED: "waited",
    TimelineKind.INTERRUPTED: "waited",
    TimelineKind.STARTING: "started",
    TimelineKind.DOWNLOADING: "started",
    TimelineKind.TRAINING: "trained",
    TimelineKind.RESUMED: "trained",
    TimelineKind.UPLOADING: "other",
    TimelineKind.STOPPING: "other",
}
"""The phases that an entry of the timeline begins. Other entries change nothing."""
_ENDS = (TimelineKind.ENDED, TimelineKind.ATTEMPT_ENDED)
_MARKS = {
    TimelineKind.INTERRUPTED: "interrupted",
    TimelineKind.STEP_RESUMED: "resumed",
    TimelineKind.STUCK: "stuck",
}
_MEANINGS = {
    "waited": "waited for capacity",
    "started": "started, and fetched its data",
    "trained": "trained",
    "other": "saved its results",
    "interrupted": "lost its capacity",
    "resumed": "went on from a checkpoint",
    "stuck": "stood still",
}


def run_page(story: RunStory, *, now: datetime, steps: Iterable[tuple[str, str]], footer: str) -> str:
    """Return everything about a run as one HTML file.

    Args:
        story: The run's records.
        now: The time.
        steps: The useful next commands, with the purpose of each.
        footer: The origin of the page.
    """
    run = story.run
    metrics = story.metrics if story.metrics is not None and story.metrics.metrics else None
    reason = reason_text(run.end_reason)
    return page(
        kind="Run",
        title=run.run,
        status=badge(
            run.state.value.lower() if not reason else f"{run.state.value.lower()}: {reason}", tone=TONES[run.state]
        ),
        lead=list(_lead(run, now=now)),
        sections=[
            *_timeline(story, now=now),
            *([metrics_section(metrics, steps=resumed_steps(story.timeline))] if metrics is not None else []),
            Section("Bill", _bill(story)),
            *_deadline(story, now=now),
            *_notifications(story.notifications),
            Section("Details", [page_facts(run_facts(run, page=story.page, now=now))]),
            Section("Next", [command(line, purpose=purpose[:1].upper() + purpose[1:]) for line, purpose in steps]),
        ],
        footer=footer,
    )


def _lead(run: Run, *, now: datetime) -> Iterator[Content]:
    yield paragraph(_summary(run, now=now))
    if run.failure_reason:
        yield notice(paragraph(element("strong", "The reason")), output(run.failure_reason), tone="bad")
    if run.log_warning:
        yield notice(paragraph(run.log_warning), tone="warning")
    if run.waits_because and not run.state.ended:
        who = "EC2" if run.place.backend == "ec2" else "AWS Batch"
        yield notice(paragraph(f"It waits. {who} says: {run.waits_because}"), tone="warning")
    if run.quota_wait is not None:
        yield notice(paragraph(f"It waits for quota. SageMaker says: {run.quota_wait.reason}"), tone="warning")
    yield figures(_tiles(run))


def _summary(run: Run, *, now: datetime) -> str:
    place = where(run).replace(f" {run.place.capacity}", f", {run.place.capacity}")
    if run.started_at is None:
        return (
            f"It asks for {place}, and has not had instances yet." if not run.state.ended else "It never had instances."
        )
    end = run.ended_at if run.state.ended and run.ended_at else now
    lasted = quantities.duration((end - run.started_at).total_seconds())
    lost = _times(run.interruptions)
    took = f"It ended {lasted} after it first had instances" if run.state.ended else f"It has been at work for {lasted}"
    what = "its capacity" if run.node_range is None else "a node"
    nodes = ""
    if run.node_range is not None and not run.state.ended:
        nodes = f" Now {nodes_in_words(run, *run.node_range)}."
    return f"{took}, on {place}. It {f'lost {what} {lost}' if lost else 'was never interrupted'}.{nodes}"


def _times(count: int) -> str:
    return "" if not count else "once" if count == 1 else "twice" if count == 2 else f"{count} times"


def _tiles(run: Run) -> Iterator[tuple[str, str, str]]:
    cost, progress = run.cost, run.progress
    if progress is not None and not run.state.ended:
        of = f" of {progress.total_steps:,}" if progress.total_steps else ""
        yield "Step", f"{progress.step:,}{of}", f"{progress.durable_step:,} of them durable"
    if cost is not None:
        seconds = cost.training_seconds if run.place.backend == "ec2" else cost.billed_seconds
        time, unit = quantities.duration(seconds), unit_of_bill(run)
        dollars = cost.billed_usd
        billed = (time, "instance time") if dollars is None else (quantities.dollars(dollars), f"{time}{unit}")
        yield "Billed", *billed
        yield from saved_figures(cost)
        twice = "not known" if cost.redone_steps is None else quantities.counted(cost.redone_steps, "step")
        again = "" if cost.redone_seconds is None else f"{quantities.duration(cost.redone_seconds)}{unit}"
        yield "Repeated", twice, again
        waited = WAITED if run.node_range is None else "for nodes"
        yield "Waited", quantities.duration(cost.waited_seconds), waited
    yield "Interruptions", f"{run.interruptions:,}", ""


@dataclass(frozen=True, kw_only=True)
class _Phase:
    """A phase of an attempt, such as `waited`, from one entry of the timeline to the next that ends it."""

    kind: str
    begin: float
    end: float


def _timeline(story: RunStory, *, now: datetime) -> Iterator[Section]:
    if not story.timeline:
        return
    run, entries = story.run, sorted(story.timeline, key=lambda entry: entry.at)
    origin = min(run.created_at, entries[0].at)
    end = max(entries[-1].at, run.ended_at or entries[-1].at) if run.state.ended else max(now, entries[-1].at)
    by_attempt = {
        number: list(own)
        for number, own in groupby(sorted(entries, key=lambda each: each.attempt), key=lambda each: each.attempt)
    }
    names = {attempt.attempt: _name(attempt) for attempt in story.attempts}
    lanes = []
    for number, own in by_attempt.items():
        following = by_attempt.get(number + 1)
        until = following[0].at if following else end
        lanes.append(_lane(names.get(number, f"Attempt {number}"), own, origin=origin, until=until))
    picture = bars(
        lanes,
        name="timeline",
        caption=f"The time since {quantities.moment(origin)} UTC, in a row for each attempt.",
        unit="seconds",
        legend=_MEANINGS,
    )
    attempts = (
        page_table(attempt_columns(story.attempts), caption="The attempts of the run") if story.attempts else None
    )
    yield Section("Timeline", [picture, attempts, _events(entries)])


def _name(attempt: Attempt) -> str:
    return f"Attempt {attempt.attempt}: {instances_of(attempt)}, {attempt.place.capacity}"


def _lane(name: str, entries: Sequence[TimelineEntry], *, origin: datetime, until: datetime) -> Lane:
    def at(entry: TimelineEntry) -> float:
        return (entry.at - origin).total_seconds()

    phases: list[_Phase] = []
    begun: tuple[str, float] | None = None
    for entry in entries:
        kind = _PHASES.get(entry.kind)
        ends = entry.kind in _ENDS
        if begun is not None and (ends or (kind is not None and kind != begun[0])):
            phases.append(_Phase(kind=begun[0], begin=begun[1], end=at(entry)))
            begun = None
        if kind is not None and begun is None:
            begun = (kind, at(entry))
    if begun is not None:
        phases.append(_Phase(kind=begun[0], begin=begun[1], end=max(begun[1], (until - origin).total_seconds())))
    spans = [
        Span(
            each.begin, each.end, each.kind, f"{_MEANINGS[each.kind]} for {quantities.duration(each.end - each.begin)}"
        )
        for each in phases
        if each.end > each.begin
    ]
    marks = [
        Mark(at(entry), _MARKS[entry.kind], f"{quantities.moment(entry.at)}: {entry.text}")
        for entry in entries
        if entry.kind in _MARKS
    ]
    return Lane(name, spans, marks)


def _events(entries: Sequence[TimelineEntry]) -> ET.Element:
    rows = [[quantities.moment(entry.at), str(entry.attempt), entry.text] for entry in entries]
    events = table(caption="Times are in UTC", headings=["at", "attempt", "event"], rows=rows, numeric=[1])
    return folded(quantities.counted(len(rows), "event"), events)


def metrics_section(metrics: ScriptMetrics, *, steps: Sequence[int]) -> Section:
    """Return the metrics of a run as a section of a page, with a curve each.

    Args:
        metrics: The metrics. At least one.
        steps: The steps from which its jobs went on.
    """
    content: list[Content] = []
    columns = metric_columns(metrics)
    if can_draw():
        pictures = [each.element() for each in metric_pictures(metrics, steps=steps)]
        content.append(element("div", *pictures, class_="plots"))
        if pictures and steps:
            places = ", ".join(f"{step:,}" for step in steps)
            text = f"A dashed line is a step from which a job went on after an interruption: {places}."
            content.append(paragraph(text, class_="soft"))
        columns = columns[:-1]
    else:
        hint = install_command("planner")
        content.append(notice(paragraph("Larger curves need matplotlib. This command installs it: ", code(hint))))
    content.append(page_table(columns, caption="The values of each metric through all attempts"))
    if metrics.left_out:
        content.append(paragraph("The script reports more metrics than are kept."))
    return Section("Metrics", content)


def _bill(story: RunStory) -> list[Content]:
    run = story.run
    rows = counted_facts(story.attempts, max_cost_usd=run.request.get("max_cost"))
    if run.cost is not None:
        rows += bill_facts(run, run.cost)
    return [page_facts(rows)] if rows else [paragraph(no_bill(run)[0].upper() + no_bill(run)[1:] + ".")]


def _deadline(story: RunStory, *, now: datetime) -> Iterator[Section]:
    run = story.run
    if run.deadline_at is not None:
        rows = deadline_facts(run, deadline_at=run.deadline_at, plan=story.plan, now=now)
        yield Section("Deadline", [page_facts(rows)])


def _notifications(notifications: Sequence[Notification]) -> Iterator[Section]:
    if not notifications:
        return
    *earlier, newest = notifications
    others = [folded(each.subject, *_message(each)) for each in reversed(earlier)]
    yield Section("Notifications" if earlier else "Notification", [*_message(newest), *others])


def _message(notification: Notification) -> Iterator[ET.Element]:
    if notification.state is NotificationState.SENT:
        yield paragraph(f"Sent {quantities.moment(notification.sent_at)} UTC", class_="soft")
    else:
        problem = f": {notification.problem}" if notification.problem else ""
        yield paragraph(
            f"Not sent yet{problem}"
            if notification.state is not NotificationState.DEAD
            else f"Could not be sent{problem}"
        )
    yield output(f"Subject: {notification.subject}\n\n{notification.body}")
