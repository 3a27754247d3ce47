"""A sweep as a page, with its best trial, its pictures and its trials."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spotkeep_cli.next_steps import steps_for_best, steps_for_sweep
from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Fact, page_facts, page_table
from spotkeep_cli.rendering.metric_list import at_step
from spotkeep_cli.rendering.pictures import can_draw, lacking_pictures, laid_out
from spotkeep_cli.sweeps.sweep_plots import DrawnSweep, part_of, sweep_pictures
from spotkeep_cli.sweeps.sweep_view import (
    in_order,
    money_facts,
    search_in_words,
    trial_columns,
    trials_in_words,
    value_text,
)
from spotkeep_jobs.errors import UnreadableRecordError, in_words
from spotkeep_jobs.record.states import SweepState
from spotkeep_jobs.sweeps.document import SweepRequest
from spotkeep_pages.elements import badge, code, command, element, figures, notice, paragraph
from spotkeep_pages.page import Section, page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from datetime import datetime
    from xml.etree import ElementTree as ET

    from spotkeep_cli.seams import Invocation
    from spotkeep_jobs.record.run_store import RunStore
    from spotkeep_jobs.record.sweep import Sweep, Trial
    from spotkeep_pages.elements import Content

MOST_CURVES = 200
"""The most runs of trials that are read for their curves, the best first."""
MOST_ROWS = 1_000
"""The most trials in the table of a page, the best first."""
_TONES = {
    SweepState.RUNNING: "neutral",
    SweepState.STOPPING: "warning",
    SweepState.PAUSED: "warning",
    SweepState.COMPLETED: "good",
    SweepState.FAILED: "bad",
    SweepState.STOPPED: "warning",
}


@dataclass(frozen=True, kw_only=True)
class SweepStory:
    """The records of a sweep and of its trials' runs.

    Attributes:
        sweep: Its item.
        trials: Its trials.
        curves: The objective by steps, for each trial that has reported it, by the trial's number.
        interruptions: The number of interruptions of each read run, by the trial's number.
    """

    sweep: Sweep
    trials: Sequence[Trial]
    curves: Mapping[int, Sequence[tuple[int, float]]] = field(default_factory=dict)
    interruptions: Mapping[int, int] = field(default_factory=dict)

    @classmethod
    def read(
        cls,
        sweep: Sweep,
        trials: Sequence[Trial],
        *,
        runs: RunStore,
        unreadable: dict[str, str] | None = None,
    ) -> SweepStory:
        """Read the runs of the best trials.

        Args:
            sweep: Its item.
            trials: Its trials.
            runs: The run table that holds their runs.
            unreadable: Takes the runs that cannot be read. None to raise at the first.

        Raises:
            UnreadableRecordError: A run cannot be read, and nothing takes it.
        """
        request = SweepRequest.model_validate(sweep.document["sweep"])
        curves, interruptions = {}, {}
        for trial in in_order(trials, request)[:MOST_CURVES]:
            try:
                run, metrics, _ = runs.with_metrics_and_notifications(trial.run)
            except UnreadableRecordError as error:
                if unreadable is None:
                    raise
                unreadable[error.what] = in_words(error)
                continue
            if run is None or not trial.has(run):
                continue
            interruptions[trial.number] = run.interruptions
            if request.objective is not None and metrics is not None:
                metric = metrics.metrics.get(request.objective.metric)
                if metric is not None and metric.points:
                    curves[trial.number] = metric.points
        return cls(sweep=sweep, trials=trials, curves=curves, interruptions=interruptions)

    @property
    def request(self) -> SweepRequest:
        """Its request."""
        return SweepRequest.model_validate(self.sweep.document["sweep"])

    @property
    def drawn(self) -> DrawnSweep | None:
        """The sweep as its pictures show it. None where it has no objective."""
        request = self.request
        if request.objective is None:
            return None
        return DrawnSweep(
            sweep=self.sweep, trials=self.trials, request=request, objective=request.objective, curves=self.curves
        )


def sweep_html(story: SweepStory, *, invocation: Invocation, now: datetime) -> str:
    """Return the page of a sweep.

    Args:
        story: Its records.
        invocation: The words that `spotkeep` was called with.
        now: The time.
    """
    sweep = story.sweep
    return page(
        kind="Sweep",
        title=sweep.sweep,
        status=badge(sweep.state.value.lower(), tone=_TONES[sweep.state]),
        lead=list(_lead(story, now=now)),
        sections=[
            *sweep_sections(story, invocation=invocation),
            Section("The sweep", [page_facts(_facts(story)), *_commands(story, invocation=invocation)]),
        ],
        footer=f"{invocation.command(f'describe {sweep.sweep} --html')}, {quantities.moment(now)} UTC",
    )


def _commands(story: SweepStory, *, invocation: Invocation) -> list[ET.Element]:
    about_best = {step.command for step in steps_for_best(story.sweep, invocation=invocation)}
    steps = steps_for_sweep(story.sweep, invocation=invocation, after="describe")
    return [
        command(step.command, purpose=step.what[:1].upper() + step.what[1:])
        for step in steps
        if step.command not in about_best
    ]


def _lead(story: SweepStory, *, now: datetime) -> Iterator[Content]:
    sweep, request = story.sweep, story.request
    best, objective = sweep.best, request.objective
    if objective is None:
        yield paragraph("This sweep has no objective, so no trial is the best one.")
    elif best is None:
        yield paragraph(f"No trial has reported {objective.metric} yet.")
    else:
        yield paragraph(
            f"Trial {best.number} has the best {objective.metric} so far: "
            if not sweep.state.ended
            else f"Trial {best.number} has the best {objective.metric}: ",
            element("strong", f"{at_step(best.value, best.step)}"),
            ".",
        )
    if sweep.ended_because is not None:
        yield notice(paragraph(sweep.ended_because), tone=_TONES[sweep.state])
    if sweep.warning is not None:
        yield notice(paragraph(sweep.warning), tone="warning")
    yield figures(_tiles(story, now=now))


def _tiles(story: SweepStory, *, now: datetime) -> Iterator[tuple[str, str, str]]:
    sweep, objective = story.sweep, story.request.objective
    if sweep.best is not None and objective is not None:
        goal = "higher" if objective.goal == "maximize" else "lower"
        yield f"Best {objective.metric}", f"{sweep.best.value:.4g}", f"trial {sweep.best.number}; {goal} is better"
    counts = ", ".join(f"{count} {state}" for state, count in sweep.counts.model_dump().items() if count)
    yield "Trials", f"{sweep.counts.chosen:,}", counts
    length = ((sweep.ended_at or now) - sweep.created_at).total_seconds()
    yield "Time", quantities.duration(length), "from launch to end" if sweep.ended_at else "since the launch"
    if sweep.cost is not None and sweep.cost.billed_usd is not None:
        saved = sweep.cost.saved_usd
        at_most = "at most " if sweep.cost.saves_at_most else ""
        less = f"{at_most}{quantities.percent(sweep.cost.saved_percent)} less than on demand"
        remark = "" if saved is None else less
        yield "Cost", quantities.dollars(sweep.cost.billed_usd), remark
    taken = sum(story.interruptions.values())
    if taken:
        hit = sum(count > 0 for count in story.interruptions.values())
        yield "Interruptions", f"{taken:,}", f"of {quantities.counted(hit, 'trial')}"


def _facts(story: SweepStory) -> list[Fact]:
    sweep, request = story.sweep, story.request
    rows: list[Fact] = [
        ("launched", f"{quantities.moment(sweep.created_at)} UTC"),
        ("ended", "not yet" if sweep.ended_at is None else f"{quantities.moment(sweep.ended_at)} UTC"),
        ("owner", sweep.owner or quantities.UNKNOWN),
        ("trials", trials_in_words(sweep, request)),
        ("search", search_in_words(request)),
    ]
    return [*rows, *money_facts(sweep.cost, limit=sweep.document.get("max_cost"))]


def sweep_sections(story: SweepStory, *, invocation: Invocation | None) -> list[Section]:
    """Return the best trial, the pictures and the table of trials as sections of a page.

    Args:
        story: The records of the sweep.
        invocation: The words that `spotkeep` was called with. None for a sweep that is gone, with no next command.
    """
    sections = []
    best, drawn = story.sweep.best, story.drawn
    if best is not None:
        names = [(name, value_text(value)) for name, value in best.parameters.items()]
        steps = [] if invocation is None else steps_for_best(story.sweep, invocation=invocation)
        commands = [command(step.command, purpose=step.what[:1].upper() + step.what[1:]) for step in steps]
        sections.append(Section("The best trial", [page_facts([("run", best.run), *names]), *commands]))
    if not can_draw():
        sections.append(Section("Pictures", [lacking_pictures()]))
    elif drawn is not None and drawn.measured:
        sections += _picture_sections(drawn)
    if story.trials:
        content = list(_table(story, invocation=invocation))
        style = _marking(in_order(story.trials, story.request)[:MOST_ROWS]) if can_draw() and drawn is not None else ""
        sections.append(Section("All trials", content, style=style))
    return sections


def _picture_sections(drawn: DrawnSweep) -> Iterator[Section]:
    pictures = {picture.name: picture for picture in sweep_pictures(drawn)}
    for heading, names in (
        ("The objective over time and money", ("objective", "cost")),
        ("The trials", ("curves", "rungs")),
        ("The parameters", ("parameters",)),
    ):
        shown = [pictures[name] for name in names if name in pictures]
        remark = None
        if "cost" in names and "cost" not in pictures and drawn.ended:
            remark = paragraph("The cost of a trial is not known, so no picture shows the objective over money.")
        if shown:
            yield Section(heading, [*laid_out(shown), remark])


def _marking(trials: Sequence[Trial]) -> str:
    """Return the rules by which a trial whose row was chosen stands out in all pictures. They need no script."""
    chosen = [f":root:has(#{part}:target) .{part}" for part in map(part_of, trials)]
    lines, points = (",".join(f"{each} {tag}" for each in chosen) for tag in ("path", "use"))
    return (
        f"{lines}{{stroke:var(--text)!important;stroke-width:3px!important;stroke-opacity:1!important;opacity:1!important}}"
        f"{points}{{fill:var(--text)!important;fill-opacity:1!important;opacity:1!important}}"
    )


def _table(story: SweepStory, *, invocation: Invocation | None) -> Iterator[ET.Element]:
    ordered = in_order(story.trials, story.request)
    shown = ordered[:MOST_ROWS]
    caption = "The best trial first" if story.request.objective is not None else "In the order of their numbers"
    table = page_table(trial_columns(shown, story.request, interruptions=story.interruptions), caption=caption)
    for row, trial in zip(table.iter("tr"), [None, *shown], strict=True):
        if trial is not None:
            row.set("id", part_of(trial))
            row[0].text = None
            row[0].append(element("a", str(trial.number), href=f"#{part_of(trial)}"))
    if can_draw() and story.drawn is not None:
        yield paragraph("A click on the number of a trial makes it stand out in the pictures above.", class_="soft")
    yield table
    if len(shown) < len(ordered):
        more = f"And {len(ordered) - len(shown):,} more."
        if invocation is None:
            yield paragraph(more)
        else:
            everything = invocation.command(f"describe {story.sweep.sweep} --all")
            yield paragraph(f"{more} This command lists them: ", code(everything))
