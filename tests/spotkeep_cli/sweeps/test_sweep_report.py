"""The page of a sweep: readable by everybody, of any sweep, and with the commands that come next."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.seams import Invocation, Seams
from spotkeep_cli.sweeps import sweep_report
from spotkeep_cli.sweeps.sweep_report import SweepStory, sweep_html
from spotkeep_jobs.record.states import SweepState
from spotkeep_jobs.sweeps.document import SweepRequest
from tests.spotkeep_cli.conftest import NOW
from tests.spotkeep_cli.sweeps.example_sweeps import NAME, SPACE, cost, example

if TYPE_CHECKING:
    from tests.browser import Browser


def not_asked(*_arguments: object) -> Any:
    raise AssertionError("a page is made of records")


def html(story: SweepStory) -> str:
    seams = Seams(connect=not_asked, spot_market=not_asked)
    invocation = Invocation(options=ConnectionOptions(), seams=seams)
    return sweep_html(story, invocation=invocation, now=NOW)


def changed(story: SweepStory, **fields: Any) -> SweepStory:
    return dataclasses.replace(story, sweep=story.sweep.model_copy(update=fields))


HOSTILE = "</title><script>document.title='owned'</script><img src=https://x.invalid/a>"
WITHOUT_OBJECTIVE = {"parameters": {"seed": {"range": [0, 3]}}, "search": "grid"}


def without_objective() -> SweepStory:
    story = changed(
        example(3, space={"seed": {"range": [0, 3]}}, search="random"),
        document={"name": "seeds", "command": "python train.py", "sweep": WITHOUT_OBJECTIVE}, best=None,
    )  # fmt: skip
    trials = [trial.model_copy(update={"best": None, "best_step": None}) for trial in story.trials]
    return dataclasses.replace(story, trials=trials, curves={})


PAGES = {
    "asha": lambda: example(40),
    "many": lambda: example(200),
    "maximize": lambda: example(6, goal="maximize", search="random", metric="accuracy"),
    "one-trial": lambda: example(1, search="random"),
    "running": lambda: example(8, ended=False, search="random"),
    "tiny-values": lambda: example(12, scale=1e-9, search="random"),
    "constant": lambda: example(12, constant=True, search="random"),
    "categories": lambda: example(
        20, space={"optimizer": ["adam", "sgd"], "augment": [True, False]}, search="random"
    ),
    "many-parameters": lambda: example(
        30, space=SPACE | {f"parameter_{n}": {"uniform": [0, n]} for n in range(1, 9)}, search="random"
    ),
    "without-objective": without_objective,
    "hostile": lambda: changed(
        example(6, space={"lr": {"log_uniform": [1e-4, 1]}, "kind": [HOSTILE, "b"]}, search="random"),
        ended_because=HOSTILE, state=SweepState.FAILED,
    ),
}  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("kind", PAGES)
def test_everybody_can_read_the_page_of_any_sweep(kind: str, browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / f"{kind}.html"
    path.write_text(html(PAGES[kind]()), encoding="utf-8")
    assert path.stat().st_size < 1_500_000
    for seen in browser.check(path, name=f"sweep-{kind}"):
        assert seen.requests == []
        assert NAME in seen.text


@pytest.mark.long
def test_a_trial_that_is_chosen_in_the_table_stands_out_in_all_pictures(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "sweep.html"
    path.write_text(html(example(30)), encoding="utf-8")
    widths = "[...document.querySelectorAll('.trial-%d path')].map(path => getComputedStyle(path).strokeWidth)"
    with browser.open_page(path, name="sweep-chosen-trial") as opened:
        before = opened.value(widths % 9)
        assert len(before) >= 3
        assert "3px" not in before
        opened.value("document.querySelector('#trial-9 a').click(); true")
        assert set(opened.value(widths % 9)) == {"3px"}
        assert "3px" not in opened.value(widths % 8)
        assert opened.look(width=1280).axe == []


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are written as without matplotlib, which is quicker."""
    monkeypatch.setattr(sweep_report, "can_draw", lambda: False)


@pytest.mark.usefixtures("without_pictures")
def test_the_page_begins_with_the_best_trial_and_its_commands() -> None:
    page = html(example(12))
    sweep = example(12).sweep
    assert sweep.best is not None
    assert f"Trial {sweep.best.number} has the best validation_loss: <strong>" in page
    assert f"spotkeep best {NAME} --export best" in page
    assert page.count(f"spotkeep best {NAME} --export best") == 1


@pytest.mark.usefixtures("without_pictures")
def test_a_search_without_a_whole_training_says_how_to_finish_its_best_trial() -> None:
    story = example(12)
    counts = story.sweep.counts.model_copy(update={"completed": 0, "paused": 12})
    assert story.sweep.best is not None
    page = html(changed(story, counts=counts))
    assert f"spotkeep resume {story.sweep.best.run} --set pause_at_step= --set max_cost=60" in page


@pytest.mark.usefixtures("without_pictures")
def test_each_trial_is_in_the_table_with_its_interruptions(monkeypatch: pytest.MonkeyPatch) -> None:
    story = example(12, search="random")
    page = html(story)
    for trial in story.trials:
        link = f'<a href="#trial-{trial.number}">{trial.number}</a>'
        assert f'<tr id="trial-{trial.number}"><th scope="row" class="number">{link}</th>' in page
    assert ">interrupted<" in page
    assert "of 4 trials" in page
    monkeypatch.setattr(sweep_report, "MOST_ROWS", 5)
    assert f"And 7 more. This command lists them: <code>spotkeep describe {NAME} --all</code>" in html(story)


def test_a_cost_that_is_not_known_is_said() -> None:
    story = example(4, search="random")
    trials = [trial.model_copy(update={"cost": cost(None)}) if trial.number == 1 else trial for trial in story.trials]
    page = html(dataclasses.replace(story, trials=trials))
    assert "The cost of a trial is not known, so no picture shows the objective over money." in page


@pytest.mark.usefixtures("without_pictures")
def test_without_matplotlib_the_page_says_how_to_get_its_pictures() -> None:
    page = html(example(5, search="random"))
    assert "<svg" not in page
    assert "Pictures need matplotlib." in page
    assert "planner" in page
    assert "All trials" in page


def test_sweeps_without_a_best_trial_say_why() -> None:
    assert "This sweep has no objective, so no trial is the best one." in html(without_objective())
    assert "No trial has reported validation_loss yet." in html(changed(example(2, search="random"), best=None))
    SweepRequest.model_validate(WITHOUT_OBJECTIVE)


def test_no_text_of_a_sweep_is_markup() -> None:
    page = html(PAGES["hostile"]())
    assert "<script" not in page
    assert "<img" not in page
    assert "&lt;script&gt;" in page
