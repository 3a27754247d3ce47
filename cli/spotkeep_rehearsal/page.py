"""The report of a rehearsal as a page. It says what the text and the JSON document say, and shows when. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from spotkeep_pages.bars import Lane, Mark, Span, bars
from spotkeep_pages.elements import Content, badge, bullets, command, element, figures, notice, output, paragraph, table
from spotkeep_pages.page import Section, page
from spotkeep_rehearsal.evidence import Life, RunFacts
from spotkeep_rehearsal.folders import is_log
from spotkeep_rehearsal.report import loss_headings, loss_rows
from spotkeep_rehearsal.verdict import Going, LossFacts, Status, Verdict

_TONES = {Status.PASS: "good", Status.FAIL: "bad", Status.NOT_JUDGED: "warning"}
_RUNS = {
    "alone": "Left alone",
    "again": "Left alone again",
    "interrupted": "Interrupted",
    "finished": "Started with the checkpoints of a run that is done",
}
_MEANINGS = {
    "trained": "at work",
    "repeated": "started again, until it was where it had been",
    "saved": "wrote a checkpoint file",
    "interrupted": "its machine was taken",
}
_MOST_SAVES = 60
_MOST_LINES = 20
_MOST_FILES = 100


def page_of(
    verdict: Verdict,
    *,
    words: Sequence[str],
    runs: Sequence[RunFacts],
    seconds: float,
    checkpoints: str | None,
    next_step: tuple[str, str],
    footer: str,
) -> str:
    """Return the report as one HTML file.

    Args:
        verdict: The verdict.
        words: The command.
        runs: The runs in the order of their starts.
        seconds: The seconds that the rehearsal took.
        checkpoints: The checkpoint folder. None where none was found.
        next_step: The next command, and its purpose.
        footer: The origin of the page.
    """
    line, purpose = next_step
    printed = list(_printed(runs))
    sections = [
        Section("Timeline", [_timeline(verdict, runs)]) if any(run.lives for run in runs) else None,
        Section("Interruptions", _losses(verdict)) if verdict.losses else None,
        Section("Output", printed, is_folded=True) if printed else None,
        Section("Next", [command(line, purpose=purpose[0].upper() + purpose[1:])]),
    ]
    return page(
        kind="Rehearsal",
        title=shlex.join(words),
        status=badge(verdict.status.value, tone=_TONES[verdict.status]),
        lead=[
            paragraph(_sentence(verdict.headline, words=words)),
            _reasons(verdict, words=words),
            _change(verdict) if verdict.change else None,
            *(notice(paragraph(_sentence(remark, words=words))) for remark in verdict.remarks),
            figures(_figures(verdict, seconds=seconds, checkpoints=checkpoints)),
        ],
        sections=[section for section in sections if section is not None],
        footer=footer,
    )


def _reasons(verdict: Verdict, *, words: Sequence[str]) -> Content | None:
    others = [_sentence(reason, words=words) for reason in verdict.reasons if reason != verdict.headline]
    if not others:
        return None
    return notice(bullets(map(_paragraphs, others)), tone="bad" if verdict.status is Status.FAIL else "neutral")


def _change(verdict: Verdict) -> Content:
    heading = "The line to change" if verdict.status is Status.FAIL else "To do"
    return notice(paragraph(element("strong", heading)), _paragraphs(verdict.change or ""), tone="warning")


def _sentence(text: str, *, words: Sequence[str]) -> str:
    """Return a text with a capital letter, unless it begins with the command."""
    return text if text.startswith(words[0]) else text[:1].upper() + text[1:]


def _paragraphs(text: str) -> Content:
    """Return a sentence, with the lines of a program's output below it."""
    first, _, rest = text.partition("\n")
    return element("div", paragraph(first), output(rest) if rest else None)


def _figures(verdict: Verdict, *, seconds: float, checkpoints: str | None) -> Iterator[tuple[str, str, str]]:
    losses = verdict.losses
    if losses:
        with_notice = sum(loss.notice for loss in losses)
        yield "Interruptions", str(len(losses)), f"{with_notice} of them with a notice"
        yield "Went on", f"{sum(loss.going is Going.ON for loss in losses)} of {len(losses)}", ""
        repeated = [loss.repeated for loss in losses if loss.repeated is not None]
        unit = "steps" if verdict.counted_by == "steps" else "counted lines"
        if repeated:
            yield "Repeated", f"{sum(repeated):,}", unit
    yield "Rehearsal", f"{seconds:.1f} s", ""
    if checkpoints is not None:
        yield "Checkpoint folder", checkpoints, ""


def _timeline(verdict: Verdict, runs: Sequence[RunFacts]) -> Content:
    lanes = [_lane(run, verdict.losses if run.name == "interrupted" else ()) for run in runs]
    left_out = any(len(_saves(life)) > _MOST_SAVES for run in runs for life in run.lives)
    caption = "The time from the start of each run. The lives of the interrupted run follow one another."
    if left_out:
        caption += f" The writes of a life with more than {_MOST_SAVES} are left out."
    return bars(lanes, name="runs", caption=caption, unit="seconds", legend=_MEANINGS)


def _lane(run: RunFacts, losses: Sequence[LossFacts]) -> Lane:
    spans: list[Span] = []
    marks: list[Mark] = []
    begin, number, repeated = 0.0, 0, 0.0
    for life in run.lives:
        end = begin + life.seconds
        if repeated:
            spans.append(Span(begin, begin + repeated, "repeated", f"{repeated:.1f} s until it was where it had been"))
        if life.seconds > repeated:
            spans.append(Span(begin + repeated, end, "trained", f"{life.seconds - repeated:.1f} s at work"))
        saves = _saves(life)
        if len(saves) <= _MOST_SAVES:
            marks += [
                Mark(begin + each, "saved", f"wrote a checkpoint file after {begin + each:.1f} s") for each in saves
            ]
        repeated = 0.0
        if life.was_taken:
            loss = losses[number] if number < len(losses) else None
            number += 1
            said = "with a notice" if life.ending.value == "notice" else "without notice"
            marks.append(Mark(end, "interrupted", f"machine taken {said} after {end:.1f} s"))
            repeated = 0.0 if loss is None else loss.seconds_to_catch_up or 0.0
        begin = end
    taken = f", taken away {len(losses)} times" if len(losses) > 1 else ", taken away once" if losses else ""
    return Lane(f"{_RUNS.get(run.name, run.name)}: {begin:.1f} s{taken}", spans, marks)


def _saves(life: Life) -> list[float]:
    """Return the moments of a life at which it wrote checkpoint files, no two within a hundredth of its length."""
    shown: list[float] = []
    for write in life.writes:
        if not is_log(write.name) and (not shown or write.seconds - shown[-1] >= 0.01 * life.seconds):
            shown.append(min(write.seconds, life.seconds))
    return shown


def _losses(verdict: Verdict) -> list[Content]:
    rows = [[str(number), *row] for number, row in enumerate(loss_rows(verdict), start=1)]
    headings = ["interruption", *loss_headings(verdict)]
    found: list[Content] = [
        table(caption="Each loss of the machine, and its cost", headings=headings, rows=rows, numeric=[1, 3, 4, 5, 6])
    ]
    for number, loss in enumerate(verdict.losses, start=1):
        if loss.found_files:
            read = None if loss.read_files is None else set(loss.read_files)
            names = [
                f"{name}{'' if read is None else ' (read)' if name in read else ' (not read)'}"
                for name in loss.found_files[:_MOST_FILES]
            ]
            more = len(loss.found_files) - _MOST_FILES
            names += [f"and {more} more"] if more > 0 else []
            summary = element("summary", f"Files that came back after interruption {number}")
            found.append(element("details", summary, bullets(names)))
    return found


def _printed(runs: Sequence[RunFacts]) -> Iterator[Content]:
    for run in runs:
        for number, life in enumerate(run.lives, start=1):
            lines = [line.text for line in life.lines[-_MOST_LINES:]]
            if lines:
                of_life = f", life {number} of {len(run.lives)}" if len(run.lives) > 1 else ""
                left_out = "" if len(life.lines) <= _MOST_LINES else f" (its last {_MOST_LINES} lines)"
                yield element("h3", f"{_RUNS.get(run.name, run.name)}{of_life}{left_out}")
                yield output("\n".join(lines))
