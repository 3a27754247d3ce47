"""A notebook shows a bar while it waits, and pages of runs and sweeps in which no text of a stranger runs."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from spotkeep_cli.rendering.printable import PrintableConsole
from spotkeep_client import Spotkeep, SweepHandle, displays
from spotkeep_jobs.record.states import SweepState
from spotkeep_jobs.record.sweep import TrialCounts
from tests.spotkeep_cli.sweeps.test_sweep_commands import SWEEP, TRIALS, sweep

from .conftest import RUN
from .test_client import MEASURED, event

HOSTILE = "<script>alert(1)</script>\x1b[31m"


class Cell:
    """The output of a notebook's cell, as a list of the states of its only display."""

    def __init__(self) -> None:
        self.displayed: list[Any] = []

    def display(self, shown: Any, *, display_id: bool) -> Any:
        assert display_id, "a display without an id cannot be replaced"
        assert not self.displayed, "the bar is displayed once"
        self.displayed.append(shown)
        return SimpleNamespace(update=self.displayed.append)

    @property
    def pages(self) -> list[str]:
        return [shown._repr_html_() for shown in self.displayed]

    @property
    def texts(self) -> list[str]:
        return [repr(shown) for shown in self.displayed]


@pytest.fixture
def cell(monkeypatch: pytest.MonkeyPatch) -> Cell:
    cell = Cell()
    ipython, display = ModuleType("IPython"), ModuleType("IPython.display")
    ipython.get_ipython = lambda: SimpleNamespace(kernel=object())  # type: ignore[attr-defined]
    display.display = cell.display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    return cell


class Page(HTMLParser):
    """The tags of a page. One with a script, or with a handler of an event, is refused."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.open: list[str] = []
        self.feed(page)
        assert not self.open, "each element is closed"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert {name for name, _ in attrs} <= {"max", "value", "aria-label", "scope", "src", "alt"}
        self.tags.add(tag)
        if tag not in {"br", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_waiting_for_a_run_has_a_bar_from_its_first_moment_to_its_end(
    deployment: Any, client: Spotkeep, make: Any, cell: Cell, meanwhile: list[Callable[[], object]]
) -> None:
    deployment.dynamodb.add(make.run(), make.run(), make.run(), make.completed(version=9))
    deployment.logs.later[f"{RUN}-1"] = [
        [f"epoch 1 {HOSTILE}"],
        [event("progress", step=40, total_steps=100, metrics={"loss": 0.25})],
    ]
    assert client.run(RUN).wait().state == "COMPLETED"
    for page in cell.pages:
        assert "script" not in Page(page).tags
    assert cell.texts[0] == f"{RUN}: asking"
    assert cell.texts[1] == f"{RUN}: training, 18m, epoch 1 <script>alert(1)</script>"
    assert "<code>epoch 1 &lt;script&gt;alert(1)&lt;/script&gt;</code>" in cell.pages[1]
    assert cell.texts[2] == f"{RUN}: training, 18m, step 40 of 100  loss 0.25"
    assert '<progress max="1" value="0.4000" aria-label="progress"></progress> 40%' in cell.pages[2]
    assert cell.texts[-1].startswith(f"{RUN}: completed, 14m")


def test_a_script_without_steps_has_a_bar_without_an_end_until_it_has_ended(
    deployment: Any, client: Spotkeep, make: Any, cell: Cell
) -> None:
    deployment.dynamodb.add(make.run(), make.completed(version=9))
    client.run(RUN).wait()
    assert '<progress max="1" aria-label="progress"></progress>' in cell.pages[0]
    assert '<progress max="1" value="1.0000"' in cell.pages[-1]


def test_waiting_for_a_sweep_has_a_bar_of_its_ended_trials(
    deployment: Any, client: Spotkeep, cell: Cell, meanwhile: list[Callable[[], object]]
) -> None:
    deployment.dynamodb.add_sweep(sweep(counts=TrialCounts(running=6, completed=3)))
    ended = sweep(state=SweepState.COMPLETED, counts=TrialCounts(completed=9))
    meanwhile.append(lambda: deployment.dynamodb.add_sweep(ended))
    client.sweep("digits").wait()
    assert [page.partition(' value="')[2][:6] for page in cell.pages] == ["", "0.3333", "1.0000"]
    assert f"{SWEEP}: running; 6 running, 3 completed" in cell.texts[1]


@pytest.mark.parametrize("wanted", [None, False])
def test_a_script_and_a_cell_that_wants_no_bar_show_nothing(
    deployment: Any, client: Spotkeep, make: Any, wanted: bool | None, capfd: Any, request: pytest.FixtureRequest
) -> None:
    shown = request.getfixturevalue("cell").displayed if wanted is False else []
    deployment.dynamodb.add(make.run(), make.completed(version=9))
    client.run(RUN).wait(bar=wanted)
    assert capfd.readouterr() == ("", "")
    assert shown == []


def at_terminal(monkeypatch: pytest.MonkeyPatch, *, is_terminal: bool) -> io.StringIO:
    written = io.StringIO()

    def console(*, stderr: bool) -> PrintableConsole:
        assert stderr, "standard output belongs to the script"
        made = PrintableConsole(stderr=True)
        made.file = written
        made._force_terminal = made.is_interactive = is_terminal
        return made

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(displays, "PrintableConsole", console)
    return written


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_script_that_asks_for_a_bar_has_it_at_a_terminal(
    deployment: Any, client: Spotkeep, make: Any, monkeypatch: pytest.MonkeyPatch, is_terminal: bool
) -> None:
    written = at_terminal(monkeypatch, is_terminal=is_terminal)
    deployment.dynamodb.add(make.run(), make.completed(version=9))
    client.run(RUN).wait(bar=True)
    deployment.dynamodb.add_sweep(sweep(state=SweepState.COMPLETED, counts=TrialCounts(completed=9)))
    client.sweep("digits").wait(bar=True)
    assert ("completed" in written.getvalue()) is is_terminal
    assert (f"{SWEEP}: completed; 9 completed" in written.getvalue()) is is_terminal


@pytest.fixture
def found(deployment: Any, client: Spotkeep) -> SweepHandle:
    deployment.dynamodb.add_sweep(sweep(ended_because=HOSTILE), *TRIALS)
    return client.sweep("digits")


def test_the_page_of_a_sweep_has_its_best_trials_and_runs_nothing_of_a_stranger(found: SweepHandle) -> None:
    page = found._repr_html_()
    assert Page(page).tags == {"table", "caption", "thead", "tbody", "tr", "th", "td"}
    assert "<td>2</td>" in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;\\x1b[31m" in page


def test_the_pictures_of_a_run_are_its_metrics(deployment: Any, client: Spotkeep, make: Any) -> None:
    pytest.importorskip("matplotlib")
    deployment.dynamodb.add(make.completed(), metrics=MEASURED, timeline=make.timeline())
    plots = client.run(RUN).plot()
    assert repr(plots) == f"<Plots of {RUN}: loss, rate>"
    assert plots._repr_html_().count("data:image/png;base64,iVBORw0KGgo") == 2
    deployment.dynamodb.add(make.run("digits-2"))
    assert "nothing to draw yet" in client.run("digits-2").plot()._repr_html_()


def test_the_pictures_of_a_sweep_are_shown_and_saved(found: SweepHandle, tmp_path: Any) -> None:
    pytest.importorskip("matplotlib")
    plots = found.plot()
    page = plots._repr_html_()
    assert Page(page).tags == {"figure", "figcaption", "img"}
    assert page.count("data:image/png;base64,iVBORw0KGgo") == len(plots.pictures) > 0
    assert all(picture.title in repr(plots) for picture in plots.pictures)
    saved = plots.save(tmp_path / "plots")
    assert [path.read_bytes()[:4] for path in saved] == [b"\x89PNG"] * len(plots.pictures)
