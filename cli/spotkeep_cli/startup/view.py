"""The starts of a run as a table with bars, the medians of earlier runs, and the advice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from rich.console import Group as Lines
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.columns import Column, Fact, facts, table_that_fits
from spotkeep_cli.startup.starts import Part, RunFacts, Start

if TYPE_CHECKING:
    from rich.console import RenderableType

    from spotkeep_cli.startup.advice import Advice, Group

_BAR_CELLS: Final = 40
_INDENT: Final = 9
_MARKS: Final[Mapping[Part, tuple[str, str]]] = {
    Part.CAPACITY: ("░", "dim"),
    Part.DATA: ("▓", "cyan"),
    Part.IMAGE: ("▒", "blue"),
    Part.PACKAGES: ("█", "yellow"),
    Part.RESTORE: ("▪", "magenta"),
    Part.FIRST_STEP: ("━", "green"),
}
"""The character and the colour of each part in a bar. The parts differ without colours, too."""


@dataclass(frozen=True, kw_only=True)
class StartupReport:
    """The answer of `spotkeep startup`.

    Attributes:
        facts: The choices of the run.
        starts: Its starts.
        earlier_runs: The number of other runs that were looked at.
        groups: The medians of all these starts by choice.
        advice: The advice.
    """

    facts: RunFacts
    starts: Sequence[Start]
    earlier_runs: int
    groups: Sequence[Group]
    advice: Sequence[Advice]

    def as_document(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "ok": True,
            "run": self.facts.run,
            "backend": self.facts.backend,
            "image": self.facts.image,
            "input_modes": list(self.facts.input_modes),
            "starts": [each.as_document() for each in self.starts],
            "earlier": {"runs": self.earlier_runs, "groups": [each.as_document() for each in self.groups]},
            "advice": [each.as_document() for each in self.advice],
        }


def startup_page(report: StartupReport, *, width: int) -> RenderableType:
    """Return everything about the starts of a run, on one page.

    Args:
        report: The report.
        width: The room, in characters.
    """
    parts: list[RenderableType] = [Text(f"Starts of {report.facts.run}", style="bold"), facts(_choices(report.facts))]
    parts += [Text(""), _table(report.starts, width=width), Text(""), *_bars(report.starts, width=width)]
    if report.groups:
        parts += [_heading(f"Medians by choice, with {quantities.counted(report.earlier_runs, 'other run')}")]
        parts.append(_medians(report.groups, width=width))
    parts.append(_heading("Advice"))
    if not report.advice:
        parts.append(Text("  none: no part is long enough, or nothing of the job file shortens it", style="dim"))
    parts.append(facts(line for each in report.advice for line in _advice(each)))
    return Lines(*parts)


def _advice(advice: Advice) -> Iterator[Fact]:
    saving = "" if advice.saves_seconds is None else f" Saves {quantities.duration(advice.saves_seconds)} a start."
    yield advice.part.value, f"{advice.text}{saving}"
    yield "", Text(f"{advice.because[:1].upper()}{advice.because[1:]}.", style="dim")
    if advice.source is not None:
        yield "", Text(advice.source, style="dim")


def _choices(run: RunFacts) -> list[Fact]:
    return [
        ("runs on", "SageMaker" if run.backend == "sagemaker" else "EC2"),
        ("image", run.image or "none"),
        ("input mode", " and ".join(run.input_modes) or "no channel"),
    ]


def _table(starts: Sequence[Start], *, width: int) -> RenderableType:
    columns = [
        Column(heading="ATTEMPT", cells=[str(each.attempt) for each in starts], justify="right"),
        Column(heading="POOL", cells=["warm" if each.warm else "cold" for each in starts], importance=1),
        *(
            Column(
                heading=part.value.upper(),
                cells=[quantities.duration(each.seconds.get(part)) for each in starts],
                importance=10 - place,
                justify="right",
            )
            for place, part in enumerate(Part)
        ),
        Column(heading="TOTAL", cells=[quantities.duration(each.total_seconds) for each in starts], justify="right"),
    ]
    return table_that_fits(columns, width=width)


def _bars(starts: Sequence[Start], *, width: int) -> list[RenderableType]:
    """Return a bar a start, all at one scale, and the legend."""
    cells = min(_BAR_CELLS, max(10, width - 20))
    longest = max((each.total_seconds for each in starts), default=0.0)
    lines: list[RenderableType] = []
    for each in starts:
        line = Text(f"{each.attempt:>{_INDENT - 2}}  ")
        drawn, passed = 0, 0.0
        for part in Part:
            passed += each.seconds.get(part, 0.0)
            upto = round(cells * passed / longest) if longest else 0
            mark, style = _MARKS[part]
            line.append(mark * (upto - drawn), style=style)
            drawn = upto
        lines.append(line)
    legend = Text(" " * _INDENT)
    for part in (part for part in Part if any(each.seconds.get(part) for each in starts)):
        mark, style = _MARKS[part]
        if len(legend) + len(part.value) + 2 > width:
            lines.append(legend)
            legend = Text(" " * _INDENT)
        legend.append(mark, style=style)
        legend.append(f" {part.value}   ", style="dim")
    return [*lines, legend]


def _medians(groups: Sequence[Group], *, width: int) -> RenderableType:
    shown = (Part.CAPACITY, Part.DATA, Part.IMAGE)
    columns = [
        Column(heading="CHOICE", cells=[each.choice for each in groups]),
        Column(heading="VALUE", cells=[each.value for each in groups]),
        Column(heading="STARTS", cells=[str(each.starts) for each in groups], importance=1, justify="right"),
        *(
            Column(
                heading=part.value.upper(),
                cells=[quantities.duration(each.median_seconds.get(part)) for each in groups],
                importance=2,
                justify="right",
            )
            for part in shown
        ),
    ]
    return table_that_fits(columns, width=width)


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style="bold")
