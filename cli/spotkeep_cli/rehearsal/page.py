"""The report of a rehearsal as a page, beside its JSON document and from the same report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from spotkeep_cli.rehearsal import view
from spotkeep_cli.rehearsal.evidence import ENDINGS
from spotkeep_cli.rehearsal.permissions import denials, permission_tables, summary_document
from spotkeep_cli.rehearsal.report import FleetReport, InterruptionReport, NodesReport, PoolReport, SweepReport
from spotkeep_cli.rehearsal.sweep_page import rehearsed_sweep_sections
from spotkeep_cli.rehearsal.sweep_verdict import interruptions_of
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import page_facts
from spotkeep_cli.rendering.run_description import bill_facts, saved_figures
from spotkeep_cli.rendering.run_page import metrics_section
from spotkeep_pages.bars import Lane, Mark, Span, bars
from spotkeep_pages.elements import (
    badge,
    bullets,
    command,
    element,
    figures,
    folded,
    notice,
    output,
    paragraph,
    table,
)
from spotkeep_pages.page import Section, page

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from xml.etree import ElementTree as ET

    from spotkeep_cli.rehearsal.evidence import ReceivedNotification, RunEvidence
    from spotkeep_cli.rehearsal.pool_verdict import PoolEvidence
    from spotkeep_cli.rehearsal.report import Report
    from spotkeep_cli.terminal import NextStep
    from spotkeep_pages.elements import Content

_MOST_LINES = 60
_TIMES = {
    "trained": "at work",
    "waited": "waited for capacity",
    "interrupted": "lost its capacity",
}
_STEPS = {
    "trained": "trained for the first time",
    "repeated": "trained a second time",
    "saved": "saved a checkpoint",
    "interrupted": "lost its capacity",
}


@dataclass(frozen=True, kw_only=True)
class Circumstances:
    """The facts about a rehearsal that are not in its report.

    Attributes:
        job_file: The job file.
        said: The lines that the script printed.
        hint: The next thing to do about a rehearsal that did not pass. None where it passed.
        steps: The useful next commands.
        footer: The origin of the page.
    """

    job_file: str
    said: Sequence[str]
    hint: str | None
    steps: Sequence[NextStep]
    footer: str


def report_page(report: Report, circumstances: Circumstances) -> str:
    """Return a report as one HTML file.

    Args:
        report: The report.
        circumstances: The facts that are not in it.
    """
    denied = denials(report.permissions)
    passed = report.passed and not denied
    word, tone = ("PASS", "good") if passed else ("FAIL", "bad")
    if report.missing_module:
        word, tone = "NOT JUDGED", "warning"
    return page(
        kind="Rehearsal",
        title=circumstances.job_file,
        status=badge(word, tone=tone),
        lead=list(_lead(report, circumstances, denied=denied)),
        sections=[
            *_checks(report),
            *_findings(report),
            *_notifications(report),
            *_printed(circumstances.said),
            *_permissions(report),
            Section("Duration", [_stages(report)]),
            *_next(circumstances.steps),
        ],
        footer=circumstances.footer,
    )


def _lead(report: Report, circumstances: Circumstances, *, denied: Sequence[str]) -> Iterator[Content]:
    yield paragraph(report.headline)
    if report.reasons:
        yield notice(bullets(map(_sentence, report.reasons)), tone="bad")
    if isinstance(report, InterruptionReport) and report.headline_of_instances is not None:
        yield paragraph(report.headline_of_instances)
    if report.failed_checks:
        failed = (f"{_sentence(check.expected)}. Found: {check.found}" for check in report.failed_checks)
        yield notice(bullets(failed), tone="bad")
    if denied:
        yield notice(paragraph("AWS would deny these calls."), bullets(denied), tone="bad")
    if circumstances.hint:
        heading = paragraph(element("strong", "To do"))
        yield notice(heading, paragraph(circumstances.hint), tone="warning")
    yield from (notice(paragraph(_sentence(remark))) for remark in report.remarks)
    yield figures(_tiles(report))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _tiles(report: Report) -> Iterator[tuple[str, str, str]]:
    match report:
        case InterruptionReport():
            losses = report.verdict.interruptions
            with_notice = sum(loss.notice for loss in losses)
            hosts = report.record.place.instance_count
            if hosts > 1:
                yield "Hosts", str(hosts), "which come and go together"
            yield "Interruptions", str(len(losses)), f"{with_notice} of them with a notice" if losses else ""
            repeated = [loss.steps_repeated for loss in losses if loss.steps_repeated is not None]
            if repeated:
                yield "Repeated", quantities.counted(sum(repeated), "step"), ""
            back = [loss.seconds_to_resume for loss in losses if loss.seconds_to_resume is not None]
            if back:
                yield "Back after", f"{max(back):.1f} s", "at most"
            cost = report.record.cost
            if cost is not None:
                yield from saved_figures(cost)
        case PoolReport():
            first, second = report.evidence.first.seconds, report.evidence.second.seconds
            yield "New host", f"{first:.1f} s", "to the first step"
            yield "Kept host", f"{second:.1f} s", "to the first step"
        case SweepReport():
            trials = report.evidence.trials
            yield "Trials", str(len(trials)), f"{sum(each.is_identical for each in trials)} as when left alone"
            yield "Interruptions", str(interruptions_of(trials)), ""
            if report.evidence.sweep.best is not None:
                yield f"Best {report.evidence.objective.metric}", f"{report.evidence.sweep.best.value:.4g}", ""
        case _:
            pass
    if report.checks:
        held = len(report.checks) - len(report.failed_checks)
        yield "Promises kept", f"{held} of {len(report.checks)}", ""
    if "total" in report.seconds:
        yield "Rehearsal", quantities.duration(report.seconds["total"]), ""


def _findings(report: Report) -> Iterator[Section]:
    match report:
        case InterruptionReport():
            yield from _of_run(report)
        case PoolReport():
            yield Section("Start of both jobs", [_starts(report.evidence)])
        case SweepReport():
            evidence = report.evidence
            yield from rehearsed_sweep_sections(evidence)
            trials = _table(view.trials(evidence), caption="The furthest first, beside the same trials left alone")
            yield Section("Beside the trials left alone", [trials])
            most = _table(view.calls(evidence.calls), caption="The most calls in a second")
            yield Section("Calls of AWS", [most])
        case _:
            pass


def _of_run(report: InterruptionReport) -> Iterator[Section]:
    if report.run.lives:
        yield Section("Timeline", list(_timeline(report)))
    losses = view.losses(report)
    lost: Content = paragraph("Nothing was taken.")
    if losses is not None:
        lost = _table(losses, caption="Each loss of capacity, and its cost", numbered="interruption")
    yield Section("Interruptions", [lost])
    if isinstance(report, FleetReport) and report.evidence.lives:
        phases = _table(
            view.recoveries(report.evidence.lives), caption="From boot to the first step, in seconds", corner="phase"
        )
        yield Section("Instances", [phases])
    if isinstance(report, NodesReport) and report.evidence.worlds:
        caption = "The nodes that train together are a world. Those of the run, one after the other"
        yield Section("Worlds", [_table(view.worlds(report.evidence.worlds), caption=caption, corner="world")])
    if report.metrics is not None and report.metrics.metrics:
        steps = [loss.resumed_from_step for loss in report.verdict.interruptions if loss.resumed_from_step]
        yield metrics_section(report.metrics, steps=steps)
    if report.record.cost is not None:
        yield Section("Bill", [page_facts(bill_facts(report.record, report.record.cost, prices=view.PRICES))])


def _timeline(report: InterruptionReport) -> Iterator[ET.Element]:
    runs = [(report.run, "Interrupted"), (report.reference, "Left alone")]
    shown = [_by_time(evidence, name) for evidence, name in runs if evidence.lives]
    yield element("h3", "By time")
    yield bars(shown, name="time", caption="The time since the first start of each run.", unit="seconds", legend=_TIMES)
    if report.run.reports_steps:
        yield element("h3", "By step")
        caption = "The steps of each life of the interrupted run. A step that stands in two rows was trained twice."
        yield bars(list(_by_step(report.run)), name="steps", caption=caption, unit="steps", legend=_STEPS)


def _by_time(evidence: RunEvidence, name: str) -> Lane:
    origin = evidence.lives[0].started_at
    spans, marks, before = [], [], origin
    for life in evidence.lives:
        begin, end = life.started_at - origin, life.ended_at - origin
        if life.started_at > before:
            waited = life.started_at - before
            spans.append(Span(before - origin, begin, "waited", f"waited for capacity for {waited:.1f} s"))
        spans.append(Span(begin, end, "trained", f"at work for {end - begin:.1f} s"))
        if life.was_taken:
            marks.append(Mark(end, "interrupted", f"lost its capacity after {end:.1f} s"))
        before = life.ended_at
    return Lane(f"{name}: {before - origin:.1f} s", spans, marks)


def _by_step(evidence: RunEvidence) -> Iterator[Lane]:
    furthest = 0
    for number, life in enumerate(evidence.lives, start=1):
        begin = life.resumed_from_step or 0
        end = max(begin, life.last_step or 0)
        again = min(end, furthest)
        spans = []
        if again > begin:
            spans.append(Span(begin, again, "repeated", f"steps {begin:,} to {again:,} a second time"))
        if end > max(begin, again):
            spans.append(Span(max(begin, again), end, "trained", f"steps {max(begin, again):,} to {end:,}"))
        marks = [Mark(step, "saved", f"saved step {step:,}") for step in life.saved_steps]
        if life.was_taken:
            marks.append(Mark(end, "interrupted", f"lost its capacity at step {end:,}"))
        furthest = max(furthest, end)
        yield Lane(f"Life {number}: from step {begin:,} to step {end:,}", spans, marks)


def _starts(evidence: PoolEvidence) -> ET.Element:
    lanes = [
        Lane(
            f"{name}: {start.seconds:.1f} s",
            [Span(0.0, start.seconds, "started", f"started for {start.seconds:.1f} s")],
        )
        for name, start in (
            ("The first job, on a new host", evidence.first),
            ("The next job, on the kept host", evidence.second),
        )
    ]
    caption = "From the creation of a job until its script knew the step to continue from."
    return bars(lanes, name="starts", caption=caption, unit="seconds", legend={"started": "start of the job"})


def _table(drawn: Table, *, caption: str, corner: str = "", numbered: str = "") -> ET.Element:
    """Return a table of the terminal as a table of the page.

    Args:
        drawn: The table.
        caption: Its subject.
        corner: The heading of a column that has none at the terminal.
        numbered: The heading of a first column that numbers the rows. Empty for no such column.
    """
    rows = [list(map(_plain, row)) for row in zip(*(column.cells for column in drawn.columns), strict=True)]
    headings = [_plain(column.header) or corner for column in drawn.columns]
    numeric = [at for at, column in enumerate(drawn.columns) if column.justify == "right"]
    if numbered:
        rows = [[str(number), *row] for number, row in enumerate(rows, start=1)]
        headings, numeric = [numbered, *headings], [at + 1 for at in numeric]
    return table(caption=caption, headings=headings, rows=rows, numeric=numeric)


def _plain(cell: object) -> str:
    return cell.plain if isinstance(cell, Text) else str(cell)


def _checks(report: Report) -> Iterator[Section]:
    if report.checks:
        rows: list[list[Content]] = [
            [badge("kept", tone="good") if check.passed else badge("broken", tone="bad"), check.expected, check.found]
            for check in sorted(report.checks, key=lambda check: check.passed)
        ]
        yield Section(
            "Promises", [table(caption="Each promise, and the fact", headings=["it is", "promise", "fact"], rows=rows)]
        )


def _notifications(report: Report) -> Iterator[Section]:
    """Show the notification of the ending first, and the others below it."""
    received: Sequence[ReceivedNotification] = ()
    subject = ""
    match report:
        case InterruptionReport():
            received, subject = report.notifications, report.run.run
        case PoolReport():
            received, subject = report.evidence.notifications, report.evidence.first.run
        case SweepReport():
            received, subject = report.evidence.notifications, report.evidence.sweep.sweep
        case _:
            pass
    if received:
        ordered = sorted(received, key=lambda each: (each.run != subject, each.status not in ENDINGS))
        others = [folded(each.subject or each.status, *_message(each)) for each in ordered[1:]]
        yield Section("Notifications", [*_message(ordered[0]), *others])


def _message(each: ReceivedNotification) -> Iterator[ET.Element]:
    at = each.received_at.partition(".")[0].replace("T", " ").removesuffix("Z")
    yield paragraph(f"Received {at} UTC", class_="soft")
    yield output(f"Subject: {each.subject}\n\n{each.body}")


def _printed(said: Sequence[str]) -> Iterator[Section]:
    if said:
        left_out = len(said) - _MOST_LINES
        content = [paragraph(f"The last {_MOST_LINES} of {len(said):,} lines.")] if left_out > 0 else []
        yield Section("Output", [*content, output("\n".join(said[-_MOST_LINES:]))], is_folded=True)


def _permissions(report: Report) -> Iterator[Section]:
    if not report.permissions:
        return
    rows = [
        [
            each["identity"],
            f"{each['calls']:,}",
            f"{each['denied']:,}" if each["denied"] else "",
            f"{each['unused_grants']:,}",
        ]
        for each in summary_document(report.permissions)
    ]
    summary = table(
        caption="The calls of each role and of the user, judged by the deployed policies",
        headings=["role or user", "calls", "denied", "grants not used here"],
        rows=rows,
        numeric=[1, 2, 3],
    )
    yield Section("Permissions", [summary, *_calls_of_roles(permission_tables(report.permissions))], is_folded=True)


def _calls_of_roles(parts: Iterable[object]) -> Iterator[ET.Element]:
    """Return the tables of `doctor --permissions`, each folded below the name of its role."""
    name = ""
    for part in parts:
        if isinstance(part, Text):
            name = part.plain.strip()
        elif isinstance(part, Table) and part.row_count:
            yield folded(name, _table(part, caption=f"The calls of {name}"))


def _stages(report: Report) -> ET.Element:
    rows = [
        [stage.replace("_", " ").replace("aws", "AWS"), quantities.duration(seconds)]
        for stage, seconds in report.seconds.items()
    ]
    return table(caption="The time of each stage", headings=["stage", "time"], rows=rows, numeric=[1])


def _next(steps: Sequence[NextStep]) -> Iterator[Section]:
    if steps:
        yield Section("Next", [command(step.command, purpose=_sentence(step.what)) for step in steps])
