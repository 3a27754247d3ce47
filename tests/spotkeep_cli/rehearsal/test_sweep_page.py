"""The page of a rehearsed sweep shows the losses of its trials over time, and no command for a sweep that is gone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from spotkeep_cli.rehearsal.sweep_page import rehearsed_sweep_sections
from spotkeep_cli.rehearsal.sweep_verdict import SweepEvidence
from spotkeep_cli.sweeps import sweep_report
from spotkeep_jobs.record.states import TrialState
from spotkeep_pages.page import page
from tests.spotkeep_cli.rehearsal.test_sweep_verdict import GOOD, QUEUED

if TYPE_CHECKING:
    from tests.browser import Browser

DOCUMENT = {
    "name": "s", "command": "python train.py",
    "sweep": {
        "parameters": {"lr": {"uniform": [0, 1]}}, "search": "random", "trials": 2,
        "objective": {"metric": "loss", "goal": "minimize"},
    },
}  # fmt: skip


def evidence(of: SweepEvidence) -> SweepEvidence:
    trials = [
        replace(each, trial=each.trial.model_copy(update={"best": min(each.curve.values()), "best_step": 3}))
        for each in of.trials
    ]
    return replace(of, trials=trials, sweep=of.sweep.model_copy(update={"document": DOCUMENT}))


def html(of: SweepEvidence) -> str:
    sections = rehearsed_sweep_sections(of)
    return page(kind="Rehearsal", title="s", lead=[], sections=sections, footer="spotkeep rehearse-sweep")


@pytest.fixture(autouse=True)
def without_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages are written as without matplotlib, which is quicker, unless a browser looks at them."""
    if "browser" not in request.fixturenames:
        monkeypatch.setattr(sweep_report, "can_draw", lambda: False)


def test_a_loss_of_capacity_is_on_the_bar_of_its_trial() -> None:
    shown = html(evidence(GOOD))
    assert "trial 1, paused" in shown
    assert shown.count("lost its capacity without a notice") >= 1
    assert "trained 1 step again, from step 1" in shown
    assert "trained from step 2 to step 3" in shown
    assert "trained from step 3 to step 5" in shown


def test_no_command_is_offered_for_a_sweep_that_is_gone() -> None:
    assert "spotkeep best" not in html(evidence(GOOD))


def test_a_sweep_without_a_beginning_has_no_bars() -> None:
    good = evidence(GOOD)
    none = replace(good, trials=[replace(each, jobs=()) for each in good.trials])
    assert "No trial began." in html(none)


def test_of_many_trials_those_that_lost_their_capacity_have_bars() -> None:
    good = evidence(GOOD)
    taken, quiet = good.trials
    many = [
        replace(quiet, trial=quiet.trial.model_copy(update={"number": at, "state": TrialState.COMPLETED}))
        for at in range(1, 60)
    ]
    last = replace(taken, trial=taken.trial.model_copy(update={"number": 60}))
    shown = html(replace(good, trials=[*many, last]))
    assert "trial 60, paused" in shown
    assert "And 20 trials more." in shown


@pytest.mark.long
@pytest.mark.parametrize("kind", ["spot", "queue"])
def test_everybody_can_read_it(kind: str, browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "sweep.html"
    path.write_text(html(evidence(GOOD if kind == "spot" else QUEUED)), encoding="utf-8")
    for seen in browser.check(path, name=f"rehearsed-sweep-{kind}"):
        assert "Trials over time" in seen.text
