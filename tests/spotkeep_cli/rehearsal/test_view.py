"""What a person reads at the end of a rehearsal: the headline says what happened to the script, and no more."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import pytest
from rich.console import Console

from spotkeep_cli.rehearsal.evidence import CapacityLoss, ReceivedNotification, RehearsedHost, RunEvidence
from spotkeep_cli.rehearsal.report import InterruptionReport
from spotkeep_cli.rehearsal.verdict import Verdict
from spotkeep_cli.rehearsal.view import RehearsalView, Stage, drawn
from tests.spotkeep_cli.conftest import make_completed

LOSS = CapacityLoss(
    when="2026-11-25T03:00:00.000+00:00",
    at_step=None,
    notice=True,
    durable_step=0,
    resumed_from_step=None,
    steps_repeated=None,
    seconds_to_resume=1.8,
    seconds_trained=88.04,
    stored_files=("checkpoint-50/a", "checkpoint-50/b", "checkpoint-57/a", "checkpoint-57/b"),
    read_files=("checkpoint-50/a", "checkpoint-57/a", "checkpoint-57/b"),
)
RUN = RunEvidence(run="plain-1", state="COMPLETED", failure=None, attempts=1, lives=())
PASSED = Verdict(
    reasons=(),
    interruptions=(LOSS,),
    identical_to_uninterrupted=False,
    equal_to_uninterrupted=False,
    remarks=("the final model is no evidence",),
)


def shown(verdict: Verdict, *, before_verdict: Sequence[str] = ()) -> str:
    console = Console(file=io.StringIO(), width=120)
    ending = ReceivedNotification(
        run=RUN.run, status="completed", subject="plain-1 completed", body="Your run is done.", received_at=""
    )
    report = InterruptionReport(
        verdict=verdict, run=RUN, reference=RUN, notifications=(ending,), compared=(), record=make_completed()
    )
    for part in drawn(report, before_verdict=before_verdict):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_script_without_steps_is_shown_by_its_time_and_by_what_it_read_again() -> None:
    text = shown(PASSED)
    assert "88.0 s  SIGTERM                       4  checkpoint-57 and 1 more       1.8 s" in text
    assert "at step" not in text
    assert "PASS  The job went on from its own checkpoint after each interruption." in text
    assert "! the final model is no evidence" in text


HOSTS = (
    RehearsedHost(name="algo-1", uploads=9, not_copied=0),
    RehearsedHost(name="algo-2", uploads=7, not_copied=1),
)


def test_of_several_hosts_the_copies_of_each_are_shown() -> None:
    text = shown(replace(PASSED, interruptions=(replace(LOSS, hosts=HOSTS),)))
    assert "not copied, by host" in text
    assert "algo-1 0 files, algo-2 1 file" in text
    of_steps = replace(LOSS, at_step=8, resumed_from_step=4, read_files=None, hosts=HOSTS)
    assert "algo-1 0 files, algo-2 1 file" in shown(replace(PASSED, interruptions=(of_steps,)))
    assert "by host" not in shown(replace(PASSED, interruptions=(replace(LOSS, hosts=HOSTS[:1]),)))


@pytest.mark.parametrize(
    ("changes", "headline"),
    [
        ({}, "FAIL  This job would not survive on spot capacity:"),
        ({"fails_alone": True}, "FAIL  This job does not end well even when nothing is taken from it:"),
        ({"not_shown": ("why",)}, "FAIL  Nothing shows that this job survives on spot capacity:"),
        (
            {"other_model": ("why",)},
            "FAIL  This job goes on after an interruption, and ends with another model than one left alone:",
        ),
    ],
)
def test_the_headline_of_a_failed_verdict_says_what_failed(changes: dict[str, object], headline: str) -> None:
    text = shown(replace(PASSED, reasons=("why",), **changes))  # type: ignore[arg-type]
    assert headline in text
    assert "  - why" in text


def test_the_verdict_comes_last_and_a_failed_one_leaves_the_bill_and_the_notification_to_the_report() -> None:
    failed = shown(replace(PASSED, reasons=("it does not load what it saved",)), before_verdict=("Report: a.json",))
    assert failed.index("Report: a.json") < failed.index("FAIL  ")
    assert failed.rstrip().endswith("- it does not load what it saved")
    assert "The bill" not in failed
    assert "plain-1 completed" not in failed
    passed = shown(PASSED, before_verdict=("Report: a.json",))
    assert passed.index("The bill") < passed.index("Report: a.json") < passed.index("PASS  ")
    assert "plain-1 completed" not in passed


def test_of_what_a_script_prints_the_first_and_the_last_lines_of_a_stage_are_shown() -> None:
    console = Console(file=io.StringIO(), width=120)
    with RehearsalView(console) as view:
        with view.stage(Stage.TRAINING):
            for number in range(40):
                view.job_said(f"epoch {number}")
            view.note("capacity taken")
        with view.stage(Stage.ONCE_MORE):
            view.job_said("epoch 0")
    assert isinstance(console.file, io.StringIO)
    lines = [line.strip() for line in console.file.getvalue().splitlines()]
    assert lines[:3] == ["epoch 0", "epoch 1", "epoch 2"]
    assert lines[3] == "... 36 lines"
    assert lines[4:6] == ["epoch 39", "capacity taken"]
    assert lines[7] == "epoch 0"
    assert view.said == [f"epoch {number}" for number in range(40)] + ["epoch 0"]


@pytest.mark.parametrize(("columns", "widest"), [(80, 80), (180, 100)])
def test_no_line_of_a_stage_is_wider_than_the_terminal_or_100_columns(columns: int, widest: int) -> None:
    console = Console(file=io.StringIO(), width=columns)
    with RehearsalView(console) as view, view.stage(Stage.TRAINING) as outcome:
        view.job_said("epoch 1 " + "loss 0.5 " * 40)
        view.note("the script reports no steps: once more; the capacity goes after 2 uploads, and again after 3 s " * 2)
        outcome.append("digits-20261125-120000-1a2b3c, and digits-20261125-120000-1a2b3c-untouched to compare with")
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= widest
    assert lines[0].endswith("…")
    assert all(line.startswith(("✓ training", " " * 10)) for line in lines)
    assert "untouched to compare with" in " ".join(" ".join(lines).split())


def test_at_a_terminal_the_stage_at_work_has_a_bar_with_the_last_line_of_the_script() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True, color_system=None)
    with RehearsalView(console) as view, view.stage(Stage.TRAINING):
        for number in range(40):
            view.job_said(f"epoch {number} [bold]\x1b[2J")
        view.progress(done=0, total=None, text="training")
        assert view._progress is not None
        view._progress.refresh()
    assert isinstance(console.file, io.StringIO)
    output = console.file.getvalue()
    assert "training" in output
    assert r"epoch 39 [bold]\x1b[2J 0:00:0" in output
