"""Runs and sweeps as a notebook shows them, and the bar of one that is waited for."""

from __future__ import annotations

import importlib
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

from spotkeep_cli.rendering import quantities
from spotkeep_cli.rendering.lists import reason_text, where
from spotkeep_cli.rendering.metric_list import at_step, sparkline
from spotkeep_cli.rendering.printable import PrintableConsole, printable_line
from spotkeep_cli.rendering.run_bar import RunStatus, status_bar
from spotkeep_cli.sweeps.sweep_view import in_order, states_in_words, value_text
from spotkeep_jobs.sweeps.document import SweepRequest

if TYPE_CHECKING:
    from datetime import datetime

    from rich.console import RenderableType

    from spotkeep_cli.rendering.pictures import Picture
    from spotkeep_jobs.record.record import Run, ScriptMetrics
    from spotkeep_jobs.record.sweep import Sweep, Trial

_MOST_TRIALS = 20
_LONGEST_TEXT = 1_000


@dataclass(frozen=True, kw_only=True)
class Shown:
    """The state of a bar.

    Attributes:
        html: For a notebook, without scripts.
        text: For a notebook without HTML, in one line.
        drawn: For a terminal.
    """

    html: str
    text: str
    drawn: RenderableType

    def __repr__(self) -> str:
        """Return the text."""
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def in_notebook() -> bool:
    """Return True in a cell of a notebook. IPython is asked only where it is at work."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and hasattr(shell, "kernel")


@dataclass(frozen=True, kw_only=True, eq=False)
class Plots:
    """The pictures of a run or a sweep, for a notebook or for files.

    Attributes:
        of: The id of the run or the sweep.
        pictures: The pictures.
    """

    of: str
    pictures: Sequence[Picture]

    def save(self, folder: str | Path) -> list[Path]:
        """Write each picture into a PNG file, and return the files.

        Args:
            folder: The folder, which is made where it is missing.

        Raises:
            CommandLineError: A file cannot be written.
        """
        return [picture.save(Path(folder) / f"{picture.name}.png") for picture in self.pictures]

    def __repr__(self) -> str:
        """Return the titles of the pictures."""
        titles = ", ".join(printable_line(picture.title) for picture in self.pictures)
        return f"<Plots of {self.of}: {titles or 'nothing to draw yet'}>"

    def _repr_html_(self) -> str:
        """Return the pictures with their titles and text alternatives for Jupyter."""
        if not self.pictures:
            return f"<p>{_shown(self.of)}: nothing to draw yet</p>"
        return "".join(
            f"<figure><figcaption>{_shown(picture.title)}</figcaption>"
            f'<img src="data:image/png;base64,{b64encode(picture.png()).decode()}" '
            f'alt="{_shown(picture.description)}"></figure>'
            for picture in self.pictures
        )


@contextmanager
def showing(now: Callable[[], Shown], *, wanted: bool | None) -> Iterator[Callable[[], None]]:
    """Show a bar during this block. Yields a function that draws it again.

    Args:
        now: Returns its present state.
        wanted: True to show it at a terminal, too. None to show it in a notebook. False to show it nowhere.
    """
    if wanted is not False and in_notebook():
        yield _shown_in_notebook(now)
        return
    console = PrintableConsole(stderr=True)
    if not wanted or not console.is_terminal or console.is_dumb_terminal:
        yield lambda: None
        return
    with Live(get_renderable=lambda: now().drawn, console=console, transient=True) as live:
        yield live.refresh


def _shown_in_notebook(now: Callable[[], Shown]) -> Callable[[], None]:
    display: Any = importlib.import_module("IPython.display")
    newest = now()
    handle = display.display(newest, display_id=True)

    def draw_again() -> None:
        nonlocal newest
        before, newest = newest, now()
        if newest.html != before.html:
            handle.update(newest)

    return draw_again


def shown_run(run: str, status: RunStatus, *, now: datetime, spinner: Spinner | None = None) -> Shown:
    """Return the bar of a run.

    Args:
        run: Its id.
        status: The facts of the bar.
        now: The time.
        spinner: The sign of work, for a terminal.
    """
    state = "asking" if status.state is None else status.state.value.lower()
    facts = ", ".join(part for part in (state, status.times(now)) if part)
    ended = status.state is not None and status.state.ended
    share = 1.0 if ended and status.share is None else status.share
    words = status.words()
    html = _bar(f"{run}: {facts}", share=share, words=words)
    text = printable_line(f"{run}: {facts}{f', {words}' if words else ''}")
    return Shown(html=html, text=text, drawn=status_bar(status, now=now, spinner=spinner))


def shown_sweep(sweep: Sweep | None, *, name: str, spinner: Spinner) -> Shown:
    """Return the bar of a sweep, with its ended trials.

    Args:
        sweep: Its item. None before it was read.
        name: Its id.
        spinner: The sign of work, for a terminal.
    """
    if sweep is None:
        line, share = f"{name}: asking", None
    else:
        line = sweep_line(sweep)
        counts, most = sweep.counts, SweepRequest.model_validate(sweep.document["sweep"]).most_trials
        ended = counts.completed + counts.failed + counts.stopped
        share = 1.0 if sweep.state.ended else min(1.0, ended / most)
    spinner.update(text=Text(printable_line(line)))
    return Shown(html=_bar(line, share=share, words=""), text=printable_line(line), drawn=spinner)


def _bar(heading: str, *, share: float | None, words: str) -> str:
    value = "" if share is None else f' value="{share:.4f}"'
    percent = "" if share is None else f" {share * 100:.0f}%"
    below = f"<br><code>{_shown(words)}</code>" if words else ""
    bar = f'<progress max="1"{value} aria-label="progress"></progress>{percent}'
    return f"<div>{_shown(heading)}<br>{bar}{below}</div>"


def sweep_line(sweep: Sweep) -> str:
    """Return the state of a sweep in one line."""
    states = states_in_words(sweep.counts)
    best = sweep.best
    parts = [sweep.state.value.lower(), *([states] if states else [])]
    if best is not None:
        parts.append(f"best trial {best.number}: {at_step(best.value, best.step)}")
    return f"{sweep.sweep}: {'; '.join(parts)}"


def run_line(run: Run, *, now: datetime) -> str:
    """Return the state of a run in one line, such as `digits-1a: training, step 40 of 100, 2m 13s`."""
    status = RunStatus()
    status.take_run(run)
    words = "" if status.step is None else status.words()
    parts = [run.state.value.lower(), reason_text(run.end_reason), words, status.times(now)]
    return printable_line(f"{run.run}: {', '.join(part for part in parts if part)}")


def run_table(run: Run, *, metrics: ScriptMetrics | None, now: datetime) -> str:
    """Return HTML without scripts and without styles of its own.

    Args:
        run: The run item.
        metrics: The measurements of its script.
        now: The time.
    """
    reason = reason_text(run.end_reason)
    rows = [
        ("state", f"{run.state.value.lower()}{f', {reason}' if reason else ''}"),
        ("runs on", where(run)),
        ("attempt", str(run.attempt)),
        ("interruptions", str(run.interruptions)),
        ("created", f"{quantities.moment(run.created_at)} UTC"),
    ]
    if run.cost is not None:
        saved = quantities.percent(run.cost.saved_percent, at_most=run.cost.saves_at_most)
        rows.append(("cost", f"{quantities.dollars(run.cost.billed_usd)}, {saved} saved"))
    if run.failure_reason:
        rows.append(("said", run.failure_reason))
    if run.output_uri:
        rows.append(("model", run.output_uri))
    rows.append(("checkpoints", run.checkpoint_uri))
    for name, metric in () if metrics is None else metrics.metrics.items():
        best = "" if metric.best is None else f", best {at_step(metric.best, metric.best_step)}"
        curve = sparkline([value for _, value in metric.points])
        rows.append((name, f"{at_step(metric.last, metric.last_step)}{best} {curve}"))
    status = RunStatus()
    status.take_run(run)
    bar = "" if run.state.ended else shown_run(run.run, status, now=now).html
    return f"{bar}{_facts(run.run, rows)}"


def sweep_tables(sweep: Sweep, trials: Sequence[Trial]) -> str:
    """Return a sweep and its best trials as HTML without scripts and without styles of its own.

    Args:
        sweep: Its item.
        trials: Its trials.
    """
    request = SweepRequest.model_validate(sweep.document["sweep"])
    rows = [
        ("state", f"{sweep.state.value.lower()}{f', {sweep.ended_because}' if sweep.ended_because else ''}"),
        ("trials", f"{sweep.counts.chosen} of {request.most_trials:,}: {states_in_words(sweep.counts)}"),
        ("created", f"{quantities.moment(sweep.created_at)} UTC"),
    ]
    if sweep.best is not None:
        parameters = ", ".join(f"{name}={value_text(value)}" for name, value in sweep.best.parameters.items())
        rows.append(("best", f"trial {sweep.best.number}: {at_step(sweep.best.value, sweep.best.step)}; {parameters}"))
    if sweep.cost is not None:
        rows.append(("cost", quantities.dollars(sweep.cost.billed_usd)))
    shown = in_order(trials, request)[:_MOST_TRIALS]
    names = list(dict.fromkeys(name for trial in shown for name in trial.parameters))
    metric = "value" if request.objective is None else request.objective.metric
    table = html_table(
        ["trial", "state", metric, "step", *names],
        [
            [
                str(trial.number),
                trial.state.value.lower(),
                "" if trial.best is None else f"{trial.best:.6g}",
                "" if trial.step is None else f"{trial.step:,}",
                *(value_text(trial.parameters[name]) if name in trial.parameters else "" for name in names),
            ]
            for trial in shown
        ],
        caption=f"the {len(shown)} best of {len(trials)} trials" if len(shown) < len(trials) else "its trials",
    )
    return f"{_facts(sweep.sweep, rows)}{table if shown else ''}"


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, caption: str) -> str:
    """Return a table of texts.

    Args:
        headings: The headings of its columns.
        rows: Its rows, each with a text a column.
        caption: Its name.
    """
    head = "".join(f'<th scope="col">{_shown(text)}</th>' for text in headings)
    body = "".join(f"<tr>{''.join(f'<td>{_shown(text)}</td>' for text in row)}</tr>" for row in rows)
    return f"<table><caption>{_shown(caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _facts(caption: str, rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(f"<tr><th>{_shown(name)}</th><td>{_shown(text)}</td></tr>" for name, text in rows)
    return f"<table><caption>{_shown(caption)}</caption>{cells}</table>"


def _shown(text: str) -> str:
    return escape(printable_line(text, longest=_LONGEST_TEXT))
