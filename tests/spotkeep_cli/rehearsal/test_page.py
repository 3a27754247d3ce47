"""The page of a rehearsal has what its report has, the verdict first, and everybody can read it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_cli.rehearsal.evidence import (
    CapacityLoss,
    ProcessEnding,
    ReceivedNotification,
    RehearsedHost,
    RehearsedProcess,
    RunEvidence,
)
from spotkeep_cli.rehearsal.fleet_verdict import judge_fleet
from spotkeep_cli.rehearsal.page import Circumstances, report_page
from spotkeep_cli.rehearsal.pool_verdict import judge_pool
from spotkeep_cli.rehearsal.report import FleetReport, InterruptionReport, PoolReport, Report, SweepReport
from spotkeep_cli.rehearsal.sweep_verdict import judge_sweep
from spotkeep_cli.rehearsal.verdict import Verdict, interruptions_of
from spotkeep_cli.terminal import NextStep
from spotkeep_jobs.record.fields import with_changes
from spotkeep_local.iam.report import Called, Denied, Grant, IdentityReport
from tests.html import HOSTILE, Parsed, assert_harmless
from tests.spotkeep_cli.conftest import make_completed
from tests.spotkeep_cli.rehearsal import test_fleet_verdict, test_pool_verdict, test_sweep_verdict
from tests.spotkeep_cli.rendering.example_runs import METRICS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.browser import Browser

BEGAN = 1_795_262_400.0


def life(begin: float, end: float, first: int | None, last: int | None, **fields: Any) -> RehearsedProcess:
    facts: dict[str, Any] = {
        "started_at": BEGAN + begin, "ended_at": BEGAN + end, "ending": ProcessEnding.EXITED,
        "resumed_from_step": first, "last_step": last, "saved_steps": (), "durable_step": 0,
    }  # fmt: skip
    return RehearsedProcess(**facts | fields)


RUN = RunEvidence(
    run="digits-1",
    state="COMPLETED",
    failure=None,
    attempts=1,
    lives=(
        life(0, 14, 0, 106, ending=ProcessEnding.NOTICE, saved_steps=(50, 100), durable_step=100),
        life(16, 22, 100, 210, ending=ProcessEnding.NO_NOTICE, saved_steps=(150, 200), durable_step=150),
        life(24, 30, 150, 300, saved_steps=(250, 300)),
    ),
)
ALONE = RunEvidence(run="digits-2", state="COMPLETED", failure=None, attempts=1, lives=(life(0, 20, 0, 300),))
ENDING = ReceivedNotification(
    run="digits-1", status="completed", subject="digits-1 completed, 66 % saved", body="Your run digits is done.",
    received_at="2026-11-29T14:28:51.000Z",
)  # fmt: skip
OTHER = replace(ENDING, run="digits-2", subject="digits-2 completed")
ROLE = IdentityReport(
    name="spotkeep-LauncherRole12345678-AbCdEfGhIjKl",
    granted=(
        Called(operation="dynamodb.GetItem", action="dynamodb:GetItem", times=12, example="arn", statements=("runs",)),
    ),
    denied=(),
    unused=(Grant(statement="runs", action="dynamodb:DeleteItem"),),
)
DENIED = Denied(
    operation="s3.PutObject",
    action="s3:PutObject",
    times=2,
    example="arn:aws:s3:::other",
    statements=(),
    reason="no statement",
)


def of_run(**changes: Any) -> InterruptionReport:
    verdict = Verdict(
        reasons=(), interruptions=interruptions_of(RUN), identical_to_uninterrupted=True, equal_to_uninterrupted=True
    )
    facts: dict[str, Any] = {
        "verdict": verdict, "run": RUN, "reference": ALONE, "notifications": (OTHER, ENDING), "compared": (),
        "record": make_completed("digits-1"), "metrics": METRICS, "permissions": (ROLE,),
        "seconds": {"local_aws": 3.0, "deploy": 37.2, "total": 89.0},
    }  # fmt: skip
    return InterruptionReport(**facts | changes)


def failed(*reasons: str) -> InterruptionReport:
    return of_run(verdict=replace(of_run().verdict, reasons=reasons, remarks=("the model is no evidence",)))


def of_fleet() -> FleetReport:
    evidence = test_fleet_verdict.GOOD
    return FleetReport(**{**vars(of_run()), "checks": judge_fleet(evidence)}, evidence=evidence)


def of_pool() -> PoolReport:
    evidence = test_pool_verdict.GOOD
    return PoolReport(checks=judge_pool(evidence), evidence=evidence, faster=60.0)


def of_sweep() -> SweepReport:
    evidence = test_sweep_verdict.GOOD
    document = {
        "sweep": {
            "parameters": {"lr": {"uniform": [0.1, 1.0]}},
            "objective": {"metric": "loss", "goal": "minimize"},
            "trials": 2,
        }
    }
    evidence = replace(evidence, sweep=with_changes(evidence.sweep, document=document))
    return SweepReport(checks=judge_sweep(evidence), evidence=evidence, seed=1)


def page_of(report: Report, *, said: tuple[str, ...] = ("epoch 1", "epoch 2"), hint: str | None = None) -> str:
    circumstances = Circumstances(
        job_file="job.yaml",
        said=said,
        hint=hint,
        steps=[NextStep(command="spotkeep launch job.yaml", what="launch it")],
        footer="Written today",
    )
    return report_page(report, circumstances)


def words(page: str) -> str:
    return " ".join(Parsed(page).text.split())


def pictures(page: str) -> list[str]:
    return [str(of["aria-label"]) for tag, of in Parsed(page).tags if tag == "svg" and "aria-label" in of]


ALL = {"run": of_run, "fleet": of_fleet, "pool": of_pool, "sweep": of_sweep}


@pytest.mark.parametrize("kind", ALL)
def test_each_kind_of_rehearsal_has_a_page_with_its_verdict_and_its_promises(kind: str) -> None:
    report = ALL[kind]()
    assert report.passed
    found = words(page_of(report))
    assert "PASS" in found
    assert report.headline in found
    for check in report.checks:
        assert " ".join(f"kept{check.expected}{check.found}".split()) in found
    assert "spotkeep launch job.yaml" in found


def test_a_failed_rehearsal_says_first_why_and_what_to_do() -> None:
    report = failed("interruption 1: the script began anew", "it printed <nothing>")
    text = Parsed(page_of(report, hint="docs/training-scripts.md shows how")).text
    parts = ("FAIL", report.headline, "Interruption 1: the script", "It printed <nothing>", "docs/training-scripts.md",
             "The model is no evidence", "Timeline")  # fmt: skip
    places = [text.index(part) for part in parts]
    assert places == sorted(places)


def test_a_promise_that_was_broken_stands_first() -> None:
    evidence = replace(test_pool_verdict.GOOD, extended_seconds=0.0)
    report = PoolReport(checks=judge_pool(evidence), evidence=evidence, faster=60.0)
    found = words(page_of(report))
    assert "1 of 7 did not hold." in found
    table = found[found.index("Each promise, and the fact") :]
    assert table.index("broken") < table.index("kept")


def test_a_call_that_aws_would_deny_makes_the_page_fail() -> None:
    report = of_run(permissions=(replace(ROLE, denied=(DENIED,)),))
    assert report.passed
    found = words(page_of(report))
    assert "FAIL" in found
    assert "PASS" not in found
    assert "was denied s3:PutObject on arn:aws:s3:::other" in found


def test_a_script_that_could_not_begin_is_not_judged() -> None:
    report = of_run(verdict=replace(of_run().verdict, reasons=("no torch",), missing_module="torch"))
    assert "NOT JUDGED" in words(page_of(report))


def test_the_timeline_shows_what_was_saved_repeated_and_lost() -> None:
    time, alone, *steps = pictures(page_of(of_run(metrics=None)))
    assert time == (
        "at work for 14.0 s; lost its capacity after 14.0 s; waited for capacity for 2.0 s; at work for 6.0 s;"
        " lost its capacity after 22.0 s; waited for capacity for 2.0 s; at work for 6.0 s"
    )
    assert alone == "at work for 20.0 s"
    assert steps == [
        "steps 0 to 106; saved step 50; saved step 100; lost its capacity at step 106",
        "steps 100 to 106 a second time; steps 106 to 210; saved step 150; saved step 200;"
        " lost its capacity at step 210",
        "steps 150 to 210 a second time; steps 210 to 300; saved step 250; saved step 300",
    ]


def test_a_script_without_steps_has_a_timeline_by_time_and_its_losses_by_files() -> None:
    lives = tuple(replace(each, resumed_from_step=None, last_step=None, stored_files=("a.pt",)) for each in RUN.lives)
    loss = CapacityLoss(
        when="", at_step=None, notice=True, durable_step=0, resumed_from_step=None, steps_repeated=None,
        seconds_to_resume=1.8, seconds_trained=14.0, stored_files=("a.pt",), read_files=("a.pt",),
    )  # fmt: skip
    verdict = replace(of_run().verdict, interruptions=(loss,))
    page = page_of(of_run(run=replace(RUN, lives=lives), verdict=verdict, metrics=None))
    assert len(pictures(page)) == 2
    assert "checkpoint files in S3" in words(page)


def test_the_page_of_several_hosts_names_their_number_and_the_copies_of_each() -> None:
    record = make_completed("digits-1")
    record = with_changes(record, place=with_changes(record.place, instance_count=2))
    first, second = (RehearsedHost(name=f"algo-{number}", uploads=9, not_copied=2 * number - 2) for number in (1, 2))
    losses = tuple(replace(loss, hosts=(first, second)) for loss in interruptions_of(RUN))
    report = of_run(record=record, verdict=replace(of_run().verdict, interruptions=losses))
    text = words(page_of(report))
    assert "Hosts2which come and go together" in text
    assert "algo-1 0 files, algo-2 2 files" in text
    assert report.to_document()["hosts"] == 2
    assert "which come and go together" not in words(page_of(of_run()))


def test_a_run_that_lost_nothing_and_ran_nowhere_has_a_page() -> None:
    nothing = replace(RUN, lives=(), state="FAILED", failure="refused")
    verdict = replace(of_run().verdict, interruptions=(), reasons=("refused",), fails_alone=True)
    found = words(page_of(of_run(run=nothing, reference=nothing, verdict=verdict, notifications=()), said=()))
    assert "Nothing was taken." in found
    assert "Timeline" not in found
    assert "Output" not in found


def test_the_notification_of_the_rehearsed_run_comes_first_as_it_was_received() -> None:
    text = Parsed(page_of(of_run())).text
    assert "Subject: digits-1 completed, 66 % saved\n\nYour run digits is done." in text
    assert "Received 2026-11-29 14:28:51 UTC" in text
    assert text.index("Subject: digits-1") < text.index("Subject: digits-2")


def test_the_permissions_are_folded_with_the_calls_of_each_role() -> None:
    page = page_of(of_run())
    found = words(page)
    assert "spotkeep-LauncherRole" in found
    assert "dynamodb.GetItem" in found
    assert "12345678-AbCdEfGhIjKl" not in found
    assert Parsed(page).names.count("details") == 4, "a notification, the output, the permissions and a role"


def test_only_the_last_lines_of_a_long_output_are_shown() -> None:
    found = words(page_of(of_run(), said=tuple(f"line {number};" for number in range(1, 101))))
    assert "The last 60 of 100 lines." in found
    assert "line 41;" in found
    assert "line 40;" not in found


def test_texts_of_the_script_and_of_aws_stay_text() -> None:
    def full(text: str) -> str:
        message = replace(ENDING, subject=text, body=text)
        role = replace(ROLE, name=text, denied=(replace(DENIED, reason=text),))
        report = failed(text, f"z{text}")
        return page_of(replace(report, notifications=(message, message), permissions=(role,)), said=(text,), hint=text)

    assert_harmless(full(HOSTILE), plain=full("plain"))


@pytest.mark.long
@pytest.mark.parametrize("kind", ALL)
def test_everybody_can_read_each_kind(kind: str, browser: Browser, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(page_of(ALL[kind]()), encoding="utf-8")
    for seen in browser.check(tmp_path / "report.html", name=f"rehearsal-of-a-{kind}"):
        assert seen.requests == []


def test_everybody_can_read_a_failed_one(browser: Browser, tmp_path: Path) -> None:
    report = failed("interruption 1: the script began anew. It does not load what it saved")
    (tmp_path / "report.html").write_text(page_of(report, hint="docs/training-scripts.md shows how"), encoding="utf-8")
    for seen in browser.check(tmp_path / "report.html", name="rehearsal-failed"):
        assert seen.requests == []
        assert "Interruption 1: the script began anew." in seen.text
