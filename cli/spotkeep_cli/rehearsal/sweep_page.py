"""The parts of a page that only the rehearsal of a sweep has. It shows the losses of the trials over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spotkeep_cli.rehearsal.evidence import ProcessEnding
from spotkeep_cli.rendering import quantities
from spotkeep_cli.sweeps.sweep_report import SweepStory, sweep_sections
from spotkeep_pages.bars import Lane, Mark, Span, bars
from spotkeep_pages.elements import paragraph
from spotkeep_pages.page import Section

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotkeep_cli.rehearsal.evidence import RehearsedProcess
    from spotkeep_cli.rehearsal.sweep_verdict import RehearsedTrial, SweepEvidence
    from spotkeep_pages.elements import Content

_MOST_LANES = 40
_MEANINGS = {
    "trained": "trained",
    "repeated": "trained steps again",
    "waited": "waited for capacity, or paused",
    "interrupted": "lost its capacity",
}


def rehearsed_sweep_sections(evidence: SweepEvidence) -> list[Section]:
    """Return the trials of a rehearsed sweep as sections of a page.

    Args:
        evidence: The evidence of the rehearsal.
    """
    story = SweepStory(
        sweep=evidence.sweep,
        trials=[each.trial for each in evidence.trials],
        curves={each.trial.number: sorted(each.curve.items()) for each in evidence.trials if each.curve},
        interruptions={each.trial.number: each.interruptions for each in evidence.trials},
    )
    return [
        Section("Trials over time", list(_over_time(evidence))),
        *sweep_sections(story, invocation=None),
    ]


def _over_time(evidence: SweepEvidence) -> Iterator[Content]:
    trained = [each for each in evidence.trials if each.lives]
    if not trained:
        yield paragraph("No trial began.")
        return
    begin = min(life.started_at for each in trained for life in each.lives)
    # Of many trials, those that lost their capacity are shown first.
    ordered = sorted(trained, key=lambda each: (-each.interruptions, each.trial.number))[:_MOST_LANES]
    lanes = [_lane(each, begin=begin) for each in sorted(ordered, key=lambda each: each.trial.number)]
    kinds = {span.kind for lane in lanes for span in lane.spans} | {mark.kind for lane in lanes for mark in lane.marks}
    yield bars(
        lanes,
        name="trials",
        caption="Each bar is a trial, from the first start of the sweep.",
        unit="seconds",
        legend={kind: meaning for kind, meaning in _MEANINGS.items() if kind in kinds},
    )
    if len(lanes) < len(trained):
        yield paragraph(f"And {len(trained) - len(lanes):,} trials more.")


def _lane(each: RehearsedTrial, *, begin: float) -> Lane:
    spans: list[Span] = []
    before: RehearsedProcess | None = None
    for life in sorted(each.lives, key=lambda life: life.started_at):
        if before is not None:
            length = quantities.duration(life.started_at - before.ended_at)
            text = f"waited for capacity, or paused, for {length}"
            spans.append(Span(before.ended_at - begin, life.started_at - begin, "waited", text))
        spans += _spans(life, before=before, begin=begin)
        before = life
    marks = [
        Mark(life.ended_at - begin, "interrupted", f"lost its capacity {_NOTICES[life.ending]}")
        for life in each.lives
        if life.was_taken
    ]
    return Lane(name=f"trial {each.trial.number}, {each.trial.state.value.lower()}", spans=spans, marks=marks)


_NOTICES = {ProcessEnding.NOTICE: "after a notice", ProcessEnding.NO_NOTICE: "without a notice"}


def _spans(life: RehearsedProcess, *, before: RehearsedProcess | None, begin: float) -> Iterator[Span]:
    """Return the parts of a life. The first one is for the steps that the life before had trained already."""
    first, last = life.resumed_from_step, life.last_step
    start, end = life.started_at - begin, life.ended_at - begin
    if before is not None and first is not None and last is not None and last > first:
        again = min(max(0, (before.last_step or 0) - first), last - first)
        middle = start + (end - start) * again / (last - first)
        if again:
            yield Span(
                start, middle, "repeated", f"trained {quantities.counted(again, 'step')} again, from step {first:,}"
            )
            start, first = middle, first + again
    if start < end:
        went_on = "" if before is None or first is None else f" from step {first:,}"
        yield Span(start, end, "trained", f"trained{went_on}" + ("" if last is None else f" to step {last:,}"))
