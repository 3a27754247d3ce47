"""The page of a rehearsal says what its text says, and everybody can read it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import spotkeep
import spotkeep_pages
from spotkeep_rehearsal.evidence import FileWrite, Life, LifeEnding, OutputLine, RunFacts
from spotkeep_rehearsal.page import page_of
from spotkeep_rehearsal.report import loss_headings, loss_rows
from spotkeep_rehearsal.verdict import Going, LossFacts, Status, Verdict
from tests.html import HOSTILE, Parsed, assert_harmless

if TYPE_CHECKING:
    from tests.browser import Browser


def life(seconds: float, ending: LifeEnding = LifeEnding.EXITED, *, text: str = "epoch 1: loss 0.5") -> Life:
    writes = tuple(FileWrite(at * 4.0, "newest.pt") for at in range(1, int(seconds / 4) + 1))
    return Life(ending=ending, seconds=seconds, exit_code=None, lines=(OutputLine(1.0, text),), writes=writes)


def runs(text: str = "epoch 1: loss 0.5") -> list[RunFacts]:
    lives = (
        life(13.0, LifeEnding.NOTICE, text=text),
        life(22.0, LifeEnding.NO_NOTICE, text=text),
        life(18.0, text=text),
    )
    return [
        RunFacts("alone", (life(40.0, text=text),)),
        RunFacts("again", (life(41.0),)),
        RunFacts("interrupted", lives),
        RunFacts("finished", (life(2.0),)),
    ]


def loss(*, repeated: int | None, notice: bool = False, name: str = "newest.pt", **more: object) -> LossFacts:
    facts = LossFacts(
        notice=notice,
        seconds=13.0,
        at_step=12,
        resumed_from=None if repeated is None else 12 - repeated,
        repeated=repeated,
        going=Going.ANEW if repeated == 12 else Going.ON,
        found_files=(name, "log.txt"),
        read_files=(name,),
        seconds_to_catch_up=None if repeated is None else repeated * 0.8,
    )
    return replace(facts, **more)  # type: ignore[arg-type]


FAILED = Verdict(
    Status.FAIL,
    "It begins anew after an interruption.",
    reasons=(
        "interruption 2: newest.pt of the checkpoint folder came back. The script began anew.\n12 steps",
        "the end",
    ),
    losses=(loss(repeated=0, notice=True), loss(repeated=12)),
    remarks=("the script's Python has no spotkeep, so steps are counted by what it prints",),
    change="train.py:12: load the newest checkpoint before the training loop",
    counted_by="lines",
)


def shown(verdict: Verdict = FAILED, *, words: tuple[str, ...] = ("python", "train.py"), text: str = "loss 1") -> str:
    return page_of(
        verdict,
        words=words,
        runs=runs(text),
        seconds=140.25,
        checkpoints="ckpt/",
        next_step=("spotkeep rehearse -- python train.py", "judges it again"),
        footer="written today",
    )


def test_a_page_says_what_the_text_says() -> None:
    found = " ".join(Parsed(shown()).text.split()).lower()
    headings, rows = loss_headings(FAILED), loss_rows(FAILED)
    for text in (FAILED.headline, *FAILED.reasons, *FAILED.remarks, str(FAILED.change), *headings, *rows[0], *rows[1]):
        for line in text.splitlines():
            assert line.lower() in found
    assert "spotkeep rehearse -- python train.py" in found


def test_the_verdict_comes_first_then_the_reasons_then_the_change() -> None:
    text = Parsed(shown()).text
    places = [text.index(each) for each in ("FAIL", "It begins anew", "Interruption 2:", "train.py:12", "Timeline")]
    assert places == sorted(places)


def test_the_timeline_shows_when_the_machine_went_and_what_was_repeated() -> None:
    pictures = [
        attributes["aria-label"]
        for tag, attributes in Parsed(shown()).tags
        if tag == "svg" and "aria-label" in attributes
    ]
    assert len(pictures) == 4
    assert pictures[2] == (
        "13.0 s at work; machine taken with a notice after 13.0 s; 22.0 s at work; machine taken without notice after"
        " 35.0 s; 9.6 s until it was where it had been; 8.4 s at work; wrote a checkpoint file 12 times"
    )
    assert pictures[3] == "2.0 s at work"


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(Status.PASS, "The final model equals that of a run that was left alone."),
        Verdict(Status.NOT_JUDGED, "the command does not end well", reasons=("the command does not end well",)),
        replace(
            FAILED, losses=(loss(repeated=None, at_step=None, read_files=None, found_files=()),), counted_by="time"
        ),
    ],
)
def test_a_verdict_with_little_to_show_has_a_page(verdict: Verdict) -> None:
    found = Parsed(shown(verdict)).text
    assert verdict.status.value in found
    assert verdict.headline[1:] in found


def test_a_rehearsal_that_never_ran_has_a_page_without_a_timeline() -> None:
    page = page_of(
        Verdict(Status.NOT_JUDGED, "the command was not found"),
        words=["nothing"],
        runs=[],
        seconds=0.1,
        checkpoints=None,
        next_step=("spotkeep rehearse -- nothing", "judges it again"),
        footer="",
    )
    assert "Timeline" not in Parsed(page).text
    assert "svg" not in Parsed(page).names


def test_what_a_command_prints_and_calls_its_files_is_text() -> None:
    def full(text: str) -> str:
        verdict = replace(
            FAILED,
            headline=f"z{text}",
            reasons=(f"z{text}\n{text}",),
            remarks=(text,),
            change=text,
            losses=(loss(repeated=0, name=text), loss(repeated=12)),
        )
        return shown(verdict, words=("python", text), text=text)

    assert_harmless(full(HOSTILE), plain=full("plain"))


def test_a_page_needs_the_standard_library_alone() -> None:
    folders = {str(Path(each.__path__[0]).parent) for each in (spotkeep, spotkeep_pages)}
    ended = subprocess.run(
        [sys.executable, "-S", "-c", "import spotkeep_rehearsal.page"],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": os.pathsep.join(folders)},
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_everybody_can_read_it(browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(shown(), encoding="utf-8")
    for seen in browser.check(tmp_path / "report.html", name="rehearsal-of-a-command"):
        assert seen.requests == []
        assert "It begins anew after an interruption." in seen.text
