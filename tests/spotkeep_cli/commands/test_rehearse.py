"""What a rehearsal does before anything is started, and how it launches; the whole way is in tests/end_to_end."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from spotkeep_cli.aws import connection
from spotkeep_cli.errors import ExitCode
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.rehearsal import command, engine
from spotkeep_cli.rehearsal.deployment import RehearsedDeployment
from spotkeep_cli.rehearsal.evidence import RehearsalTimeoutError, RehearsedRunFailedError, RunEvidence
from spotkeep_cli.rehearsal.report import InterruptionReport, Report
from spotkeep_cli.rehearsal.verdict import Verdict
from spotkeep_cli.rehearsal.view import RehearsalView, Stage
from spotkeep_local.errors import StartError
from spotkeep_local.iam.report import IdentityReport
from spotkeep_local.iam.uses import JudgingTime
from tests.html import Parsed
from tests.spotkeep_cli.conftest import make_completed


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The plans that were carried out; each rehearsal then runs out of time."""
    plans: list[Any] = []

    def rehearse(plan: Any, **_: Any) -> None:
        plans.append(plan)
        raise RehearsalTimeoutError(seconds=1, states={"digits-1121": "TRAINING"})

    monkeypatch.setattr(engine, "rehearse", rehearse)
    return plans


def test_a_job_that_would_be_refused_is_refused_before_anything_is_started(
    rehearsed: list[Any], spotkeep: Any, job_file: Path
) -> None:
    result = spotkeep("rehearse", str(job_file), "--set", "max_run=40d", "--set", "source=nowhere", "--set", "nmae=x")
    assert result.exit_code == ExitCode.REFUSED
    assert rehearsed == []
    for problem in ("40d", "there is no directory nowhere", "Did you mean `name`?"):
        assert problem in result.output


@pytest.mark.parametrize(("command", "other"), [("rehearse", "rehearse-sweep"), ("rehearse-sweep", "rehearse")])
def test_a_sweep_and_a_single_job_have_a_rehearsal_each(
    rehearsed: list[Any], spotkeep: Any, job_file: Path, command: str, other: str
) -> None:
    sweep = Path(__file__).parents[3] / "examples" / "digits" / "sweep.yaml"
    result = spotkeep(command, str(sweep if command == "rehearse" else job_file), columns=200)
    assert (result.exit_code, rehearsed) == (ExitCode.USAGE, [])
    assert f"spotkeep {other} " in result.stderr


def test_a_job_without_a_command_is_not_rehearsed_and_the_way_to_run_it_is_named(
    rehearsed: list[Any], spotkeep: Any, tmp_path: Path
) -> None:
    job_file = tmp_path / "trees.yaml"
    job_file.write_text("name: trees\nalgorithm: xgboost\nchannels: {train: s3://data/}\n")
    result = spotkeep("rehearse", str(job_file))
    assert result.exit_code == ExitCode.USAGE
    assert rehearsed == []
    assert "spotkeep local image" in result.output


@pytest.mark.parametrize("in_the_report", [True, False])
def test_a_package_that_is_not_installed_has_an_outcome_of_its_own(
    spotkeep: Any, job_file: Path, monkeypatch: pytest.MonkeyPatch, *, in_the_report: bool
) -> None:
    def rehearse(_: Any, **__: Any) -> Report:
        if in_the_report:
            failing = _failing("ModuleNotFoundError: No module named 'sklearn'")
            return replace(failing, verdict=replace(failing.verdict, missing_module="sklearn"))
        raise RehearsedRunFailedError(run="digits-1", failure="ModuleNotFoundError: No module named 'sklearn'")

    monkeypatch.setattr(engine, "rehearse", rehearse)
    report = job_file.parent / "report.json"
    result = spotkeep("rehearse", str(job_file), "--json", "--report", str(report), columns=200)
    assert result.exit_code == ExitCode.MISSING_MODULE
    assert "the script imports 'sklearn'" in result.stderr
    assert f"{sys.prefix}/bin/python -m pip install scikit-learn" in result.stderr
    if in_the_report:
        assert json.loads(report.read_text()) == json.loads(result.stdout)
        assert "NOT JUDGED" in report.with_suffix(".html").read_text()


def _failing(failure: str) -> InterruptionReport:
    """A report of a script that fails although nothing was taken from it."""
    alone = RunEvidence(run="digits-1-untouched", state="FAILED", failure=failure, attempts=1, lives=())
    verdict = Verdict(
        reasons=(f"the run left alone {alone.run} ended as FAILED, not COMPLETED: {failure}",),
        interruptions=(),
        identical_to_uninterrupted=False,
        equal_to_uninterrupted=False,
        fails_alone=True,
    )
    return InterruptionReport(
        verdict=verdict,
        run=replace(alone, run="digits-1"),
        reference=alone,
        notifications=(),
        compared=(),
        record=make_completed("digits-1"),
        permissions=[IdentityReport(name="Spotkeep-Jobs-LauncherRole", granted=(), denied=(), unused=())],
        judging=JudgingTime(calls=1_583, seconds=0.54, slowest_seconds=0.04),
    )


def test_the_report_is_beside_the_state_of_the_local_aws_that_is_named(
    spotkeep: Any, job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "rehearse", lambda _, **__: _failing("Killed"))
    monkeypatch.setenv("SPOTKEEP_LOCAL_STATE", str(tmp_path / "state"))
    spotkeep("rehearse", str(job_file))
    written = {path.name for path in (tmp_path / "state" / "rehearsal").iterdir()}
    assert written >= {"report.json", "report.html", "permissions.json"}
    assert not (job_file.parent / ".spotkeep").exists()
    assert "Spotkeep-Jobs-LauncherRole" in spotkeep("doctor", "--permissions").stdout


def test_a_failed_rehearsal_ends_with_its_verdict_on_one_screen_and_names_the_mistake_in_the_job_file(
    spotkeep: Any, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rehearse(_: Any, *, view: RehearsalView) -> InterruptionReport:
        with view.stage(Stage.TRAINING):
            for number in range(200):
                view.job_said(f"line {number}")
        return _failing("python: can't open file '/tmp/ml/source/tran.py': [Errno 2] No such file or directory")

    monkeypatch.setattr(engine, "rehearse", rehearse)
    report = job_file.parent / "found" / "report.json"
    result = spotkeep("rehearse", str(job_file), "--report", str(report))
    assert result.exit_code == ExitCode.REHEARSAL_FAILED
    lines = result.stdout.splitlines()
    assert len(lines) < 30
    [verdict] = [number for number, line in enumerate(lines) if line.startswith("FAIL  ")]
    assert all(line.startswith("  - ") for line in lines[verdict + 1 : verdict + 2])
    assert "Report: found/report.html" in lines[:verdict]
    assert "For programs: found/report.json" in lines[:verdict]
    page = Parsed((report.parent / "report.html").read_text(encoding="utf-8")).text
    assert "can't open file '/tmp/ml/source/tran.py'" in page
    assert "line 199" in page
    assert f"Rehearse it againspotkeep rehearse {job_file}" in page
    assert "LauncherRole" not in result.output
    assert "names tran.py, which is not in the source" in result.stderr
    assert (report.parent / "output.log").read_text().splitlines() == [f"line {number}" for number in range(200)]
    assert json.loads(report.read_text())["permissions"] == [
        {"identity": "Spotkeep-Jobs-LauncherRole", "calls": 0, "denied": 0, "unused_grants": 0}
    ]


def test_what_doctor_warns_of_is_said_before_the_deployment(
    rehearsed: list[Any], spotkeep: Any, job_file: Path
) -> None:
    (job_file.parent / "train.py").write_text("print('no checkpoint')\n")
    result = spotkeep("rehearse", str(job_file))
    assert len(rehearsed) == 1
    assert "job.yaml: 1 warning" in result.stdout
    assert "seems to save a checkpoint" in result.stdout


def test_what_the_shipped_examples_need_is_installed_by_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "INSTALLED_FROM", tmp_path)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    monkeypatch.chdir(tmp_path)
    assert command.installation("torch") == "install it: make setup-torch"
    monkeypatch.chdir("/")
    assert command.installation("torch") == f"install it: make -C {tmp_path} setup-torch"
    assert command.installation("rich").endswith(f"{tmp_path}/.venv/bin/python -m pip install rich")


def test_it_deploys_the_app_it_is_installed_from_under_the_name_it_then_looks_for_unless_this_was_done(
    rehearsed: list[Any], spotkeep: Any, job_file: Path
) -> None:
    spotkeep("rehearse", job_file.name, "--deployment", "lab")
    spotkeep("rehearse", job_file.name, "--no-deploy")
    assert [(plan.project_dir / "app.py").is_file() for plan in rehearsed] == [True, True]
    assert [plan.invocation.options.deployment for plan in rehearsed] == ["lab", "spotkeep"]
    assert [plan.deploy for plan in rehearsed] == [True, False]


def test_a_command_that_was_installed_from_a_wheel_deploys_the_app_that_the_wheel_carries(
    rehearsed: list[Any], spotkeep: Any, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "INSTALLED_FROM", None)
    spotkeep("rehearse", job_file.name)
    assert [plan.project_dir for plan in rehearsed] == [job_file.parent.resolve() / ".spotkeep" / "app"]


@pytest.mark.parametrize(
    ("problem", "code", "error", "hint"),
    [
        (
            RehearsalTimeoutError(seconds=1, states={"digits-1121": "TRAINING"}),
            ExitCode.REHEARSAL_NOT_JUDGED,
            "the runs did not end within 1 s: digits-1121 is training",
            "give it longer with --timeout",
        ),
        (
            StartError("it ended while it started", log_tail=["OSError: disk full"], log_path="server.log"),
            ExitCode.LOCAL_AWS_FAILED,
            "the local AWS did not start: it ended while it started. Last lines of server.log",
            "disk full",
        ),
    ],
)
def test_a_rehearsal_without_a_verdict_ends_in_one_line_and_a_hint(
    spotkeep: Any, job_file: Path, monkeypatch: pytest.MonkeyPatch, problem: Exception, code: int, error: str, hint: str
) -> None:
    def rehearse(*_: Any, **__: Any) -> None:
        raise problem

    monkeypatch.setattr(engine, "rehearse", rehearse)
    result = spotkeep("rehearse", str(job_file), columns=200)
    assert result.exit_code == code
    first, second = result.stderr.splitlines()
    assert first == f"Error: {error}"
    assert hint in second


def test_a_rehearsal_without_a_verdict_keeps_what_the_script_printed(
    spotkeep: Any, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rehearse(*_: Any, view: RehearsalView, **__: Any) -> None:
        view.job_said("rank 2 waits")
        raise RehearsalTimeoutError(seconds=1, states={"digits-1121": "TRAINING"})

    monkeypatch.setattr(engine, "rehearse", rehearse)
    report = job_file.parent / "reports" / "report.json"
    output = report.with_name("output.log")
    result = spotkeep("rehearse", str(job_file), "--report", str(report), columns=200)
    assert result.exit_code == ExitCode.REHEARSAL_NOT_JUDGED
    assert output.read_text() == "rank 2 waits\n"
    assert "The script's output: reports/output.log" in result.stdout
    assert not report.exists()


def test_sigterm_ends_it_as_ctrl_c_does_with_what_it_started(
    spotkeep: Any, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cleaned_up = []

    def rehearse(*_: Any, **__: Any) -> None:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        finally:
            cleaned_up.append("the local AWS")

    monkeypatch.setattr(engine, "rehearse", rehearse)
    before = signal.getsignal(signal.SIGTERM)
    result = spotkeep("rehearse", str(job_file))
    assert (result.exit_code, cleaned_up) == (143, ["the local AWS"])
    assert signal.getsignal(signal.SIGTERM) == before


def test_each_of_the_two_runs_has_a_token_and_a_checkpoint_prefix_of_its_own(deployment: Any, job_file: Path) -> None:
    job_file.write_text(
        job_file.read_text() + "token: once\nrun: mine\ncheckpoint_prefix: s3://my-bucket/runs/mine/checkpoints/\n"
    )
    deployment.answers["launch"] = {"ok": True}
    tokens = iter("ab")
    twice = RehearsedDeployment(deployment, document=read_job_file(job_file), new_token=lambda: next(tokens))
    for run in ("digits-1", "digits-1-untouched"):
        twice.launch(run=run)
    assert [call["run"] for call in deployment.invocations] == ["digits-1", "digits-1-untouched"]
    assert [call["token"] for call in deployment.invocations] == ["a", "b"]
    assert not [call for call in deployment.invocations if "checkpoint_prefix" in call]
    assert len(deployment.uploads) == 2
