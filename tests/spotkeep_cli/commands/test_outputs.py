"""What each command prints, as a person sees it: 80 columns, and a narrow window."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion
from typer.testing import CliRunner

from spotkeep_cli.errors import ExitCode
from spotkeep_cli.main import app
from spotkeep_cli.seams import Seams
from spotkeep_jobs.record.fields import Caller, with_changes
from spotkeep_jobs.record.record import Metric, QuotaWait, ScriptMetrics
from spotkeep_jobs.record.states import EndReason, NotificationKind, RunState
from tests.html import Parsed
from tests.models.clock import NOON
from tests.spotkeep_cli.rendering.example_runs import notification


def event(kind: str, **fields: object) -> str:
    return "spotkeep-event: " + json.dumps({"event": kind, "time": 1_795_262_400.0, **fields})


@pytest.fixture
def a_week(deployment: Any, make: Any) -> Any:
    """Four runs: completed after an interruption, training, failed, and one from long ago."""
    deployment.dynamodb.add(make.completed(), timeline=make.timeline(), attempts=[make.attempt()])
    deployment.dynamodb.add(
        make.run(
            "resnet50-cifar10-9f8e7d6c",
            instance_type="ml.g5.2xlarge",
            instance_count=2,
            owner="grace@example.com",
            created_at=make.now - timedelta(hours=3),
            started_at=None,
            state=RunState.WAITING,
        )
    )
    deployment.dynamodb.add(
        make.run(
            "bert-base-77665544",
            state=RunState.FAILED,
            end_reason=EndReason.SCRIPT_FAILED,
            failure_reason="AlgorithmError: RuntimeError: CUDA out of memory",
            created_at=make.now - timedelta(hours=30),
            started_at=make.now - timedelta(hours=29),
            ended_at=make.now - timedelta(hours=5),
            attempt=2,
            job_name="bert-base-77665544-2",
            cost=make.cost(
                usd_per_hour=None,
                billed_usd=None,
                clean_on_demand_usd=None,
                saved_usd=None,
                redone_steps=None,
                redone_seconds=None,
            ),
        ),
        attempts=[
            make.attempt("bert-base-77665544", state=RunState.FAILED, interruptions=0),
            make.attempt("bert-base-77665544", attempt=2, job_name="bert-base-77665544-2", state=RunState.FAILED),
        ],
    )
    deployment.dynamodb.add(
        make.completed("old-00000000", created_at=make.now - timedelta(days=9), ended_at=make.now - timedelta(days=8))
    )
    deployment.logs.later["digits-1a2b3c4d-1"] = [
        [
            event("start", python="3.12.4", spotkeep="0.1.0"),
            event("resume", step=0),
            "epoch 1: loss 2.302",
            event("progress", step=100, total_steps=1000, metrics={"loss": 2.302, "epoch": 1}),
            event("saved", step=410, bytes=34_100, seconds=0.021, reason="every_steps"),
            event("notice", source="sigterm", seconds_left=120),
            event("start", python="3.12.4", spotkeep="0.1.0"),
            event("fallback", step=410, problem="the checksum of weights.bin does not match"),
            event("resume", step=400, checkpoint="step-400"),
            event("finish", step=1000),
            event("exit", code=0),
        ]
    ]
    return deployment


COMMANDS = [
    "ps",
    "ps --all",
    "ps --owner nell",
    "describe digits",
    "describe bert",
    "describe resnet",
    "logs digits",
    "logs digits --raw",
    "logs resnet",
    "savings",
    "savings --by week",
    "savings --since 2d",
    "savings --since 1m",
    "stop digits",
]


NARROW = ["ps --all", "describe digits", "describe bert", "logs digits", "savings"]


@pytest.mark.parametrize(
    ("command", "columns"), [*((command, 80) for command in COMMANDS), *((command, 48) for command in NARROW)]
)
def test_what_it_prints(a_week: Any, spotkeep: Any, snapshot: SnapshotAssertion, command: str, columns: int) -> None:
    result = spotkeep(*command.split(), columns=columns)
    assert result.exit_code == 0, result.output
    assert result.output == snapshot
    assert "\x1b" not in result.output, "there is no terminal"
    assert [line for line in result.output.splitlines() if line != line.rstrip()] == []


def test_metrics_are_shown_and_given_to_programs(deployment: Any, spotkeep: Any, make: Any) -> None:
    loss = Metric(goal="minimize", last_step=20, last=0.5, best_step=10, best=0.25, points=((10, 0.25), (20, 0.5)))
    measured = ScriptMetrics(metrics={"loss": loss}, left_out=True)
    deployment.dynamodb.add(make.run("measured-1"), metrics=measured)
    page = spotkeep("describe", "measured-1", columns=120).stdout
    assert "0.25 at step 10" in page
    assert "the script reports more than are kept" in page
    document = json.loads(spotkeep("describe", "measured-1", "--json").stdout)
    assert document["metrics"]["loss"]["best"] == 0.25


def test_a_run_has_a_page_and_programs_get_its_notifications(
    deployment: Any, spotkeep: Any, make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sent = notification(NotificationKind.COMPLETED, "seen-1 completed", "It is done.")
    sent = with_changes(sent, notification_id="seen-1/completed/1", subject_id="seen-1")
    deployment.dynamodb.add(make.completed("seen-1"), timeline=make.timeline("seen-1"), notifications=[sent])
    result = spotkeep("describe", "seen-1", "--html")
    assert "page: seen-1.html" in result.stderr
    assert "seen-1" in result.stdout
    text = Parsed((tmp_path / "seen-1.html").read_text(encoding="utf-8")).text
    assert "It is done." in text
    assert "spotkeep savings" in text, "a next command"
    assert "spotkeep describe seen-1 --html" in text
    document = json.loads(spotkeep("describe", "seen-1", "--html", "--json").stdout)
    assert document["page"] == "seen-1.html"
    assert [each["body"] for each in document["notifications"]] == ["It is done."]
    (tmp_path / "seen-1.html").unlink()
    (tmp_path / "seen-1.html").mkdir()
    refused = spotkeep("describe", "seen-1", "--html")
    assert "seen-1.html cannot be written" in refused.stderr
    assert refused.exit_code == 1


@pytest.mark.parametrize(
    ("arguments", "page"),
    [
        (("seen-1", "--html", "shown/mine.html"), "shown/mine.html"),
        (("--html", "shown/mine.html", "seen-1"), "shown/mine.html"),
        (("seen-1", "--html=shown/mine"), "shown/mine"),
        (("--html", "seen-1"), "seen-1.html"),
        (("--html",), "seen-1.html"),
    ],
)
def test_a_page_is_written_to_the_file_that_is_named(
    deployment: Any,
    spotkeep: Any,
    make: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    page: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shown").mkdir()
    deployment.dynamodb.add(make.completed("seen-1"))
    result = spotkeep("describe", *arguments)
    assert f"page: {page}" in result.stderr
    assert {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()} == {Path(page)}


def test_the_console_page_of_the_training_job_is_shown_except_on_the_local_aws(
    deployment: Any, spotkeep: Any, make: Any
) -> None:
    arn = "arn:aws:sagemaker:eu-central-1:123456789012:training-job/seen-1-1"
    deployment.dynamodb.add(make.run("seen-1", job_name="seen-1-1", job_id=arn))
    page = "https://eu-central-1.console.aws.amazon.com/sagemaker/home?region=eu-central-1#/jobs/seen-1-1"
    assert f"console       {page}" in spotkeep("describe", "seen-1").stdout
    assert json.loads(spotkeep("describe", "seen-1", "--json").stdout)["console_url"] == page
    assert page not in spotkeep("--local", "describe", "seen-1").stdout
    assert json.loads(spotkeep("--local", "describe", "seen-1", "--json").stdout)["console_url"] is None


def test_a_run_that_waits_on_ec2_says_why_until_it_ends(deployment: Any, spotkeep: Any, make: Any) -> None:
    because = "allLaunchSpecsTemporarilyBlacklisted: there is no spot capacity"
    waits = make.run("waits-1", backend="ec2", state=RunState.WAITING, started_at=None, waits_because=because)
    deployment.dynamodb.add(waits)
    deployment.dynamodb.add(waits.model_copy(update={"run": "ended-1", "state": RunState.STOPPED}))
    assert f"waits, says EC2  {because}" in spotkeep("describe", "waits-1", columns=120).stdout
    assert because not in spotkeep("describe", "ended-1", columns=120).stdout


def test_a_run_that_waits_for_quota_says_since_when_and_which(deployment: Any, spotkeep: Any, make: Any) -> None:
    wait = QuotaWait(since=NOON, refused_at=NOON, reason="the limit 'ml.g5.xlarge' is 1 Instances")
    deployment.dynamodb.add(make.run("full-1", state=RunState.WAITING, started_at=None, quota_wait=wait))
    shown = spotkeep("describe", "full-1", columns=120).stdout
    assert re.search(r"waits for quota +.+, says SageMaker: the limit 'ml.g5.xlarge' is 1 Instances", shown)


@pytest.mark.parametrize(
    ("name", "verified", "shown"),
    [("ada", True, []), ("op", True, ["op"]), ("op", False, ["op, whom AWS did not confirm"])],
)
def test_who_launched_a_run_is_shown_where_it_is_not_its_owner(
    deployment: Any, spotkeep: Any, make: Any, name: str, verified: bool, shown: list[str]
) -> None:
    caller = Caller(arn=f"arn:aws:sts::111122223333:assumed-role/People/{name}", name=name, verified=verified)
    deployment.dynamodb.add(make.run("hers-1", launched_by=caller))
    lines = spotkeep("describe", "hers-1").stdout.splitlines()
    assert [line.partition("launched by")[2].strip() for line in lines if "launched by" in line] == shown


@pytest.mark.parametrize("command", ["describe digits", "stop digits", "stop resnet -y"])
def test_json_is_alone_on_standard_output(a_week: Any, spotkeep: Any, command: str) -> None:
    a_week.answers["stop"] = {"ok": True, "run": "resnet50-cifar10-9f8e7d6c"}
    result = spotkeep(*command.split(), "--json")
    assert result.exit_code == 0
    json.loads(result.stdout)


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("ls", "ps"),
        ("list", "ps"),
        ("status", "ps"),
        ("status digits", "describe digits"),
        ("cancel digits", "stop digits"),
        ("describe", "describe resnet"),
        ("logs --raw", "logs resnet --raw"),
    ],
)
def test_words_of_other_launchers_and_commands_without_a_run_do_the_same(
    a_week: Any, spotkeep: Any, make: Any, word: str, command: str
) -> None:
    if word in ("describe", "logs --raw"):
        run = make.run("resnet50-cifar10-9f8e7d6c", created_at=make.now)
        a_week.dynamodb.add(run, attempts=[make.attempt(run.run)])
    done, same = spotkeep(*word.split()), spotkeep(*command.split())
    assert done.exit_code == same.exit_code == 0, done.output
    assert done.output == same.output


@pytest.mark.parametrize("word", ["run", "submit"])
def test_run_and_submit_launch(spotkeep: Any, word: str) -> None:
    assert spotkeep(word, "nowhere.yaml").output == spotkeep("launch", "nowhere.yaml").output


@pytest.mark.parametrize("group", ["pool", "schedules", "checkpoints", "notifications", "local", "local ec2", ""])
def test_a_group_without_a_verb_shows_its_help_and_nothing_is_wrong(spotkeep: Any, group: str) -> None:
    result = spotkeep(*group.split())
    assert result.exit_code == 0
    assert "Usage: spotkeep" in result.stdout
    assert result.stderr == ""


def test_rehearsals_are_listed_only_when_they_are_asked_for(deployment: Any, spotkeep: Any, make: Any) -> None:
    deployment.dynamodb.add(make.run("rehearsed-1", token="rehearsal-0123"))
    nothing = spotkeep("ps").output
    assert "No runs yet." in nothing
    assert "spotkeep ps --rehearsals" in nothing
    assert "rehearsed-1" in spotkeep("ps", "--rehearsals").output
    deployment.dynamodb.add(make.run("launched-1"))
    assert "rehearsed-1" not in spotkeep("ps", "--json").stdout


def test_the_last_lines_of_a_log_are_those_of_all_attempts(deployment: Any, spotkeep: Any, make: Any) -> None:
    run = make.completed("digits-1", attempt=2, job_name="digits-1-2")
    deployment.dynamodb.add(
        run, attempts=[make.attempt("digits-1"), make.attempt("digits-1", attempt=2, job_name="digits-1-2")]
    )
    for job, lines in (("digits-1-1", ["a", "b", "c"]), ("digits-1-2", ["d", "e"])):
        deployment.logs.later[job] = [lines]
    shown = spotkeep("logs", "digits-1", "--tail", "3").stdout
    assert [line.split()[-1] for line in shown.splitlines()[:3]] == ["c", "d", "e"]
    assert "never had instances" not in spotkeep("logs", "digits-1", "-n", "0").output


def test_a_shell_completes_the_ids_of_runs(deployment: Any, make: Any) -> None:
    deployment.dynamodb.add(make.run("digits-1"))
    deployment.dynamodb.add(make.run("resnet-1"))
    seams = Seams(connect=lambda _: deployment, spot_market=lambda _: pytest.fail("no need"))
    environment = {
        "_SPOTKEEP_COMPLETE": "complete_bash",
        "COMP_WORDS": "spotkeep describe dig",
        "COMP_CWORD": "2",
    }
    found = CliRunner().invoke(app, [], obj=seams, env=environment, prog_name="spotkeep")
    assert found.output.split() == ["digits-1"]


def test_a_stop_says_what_the_end_waits_for(a_week: Any, spotkeep: Any, make: Any) -> None:
    a_week.answers["stop"] = {"ok": True}
    a_week.dynamodb.add(make.run("trains-1"))
    trains = " ".join(spotkeep("stop", "trains-1", "-y").output.split())
    assert "SageMaker sends SIGTERM, and the script has two minutes to save. The job ends after them" in trains
    assert "Its instance is billed until then." in trains
    waits = spotkeep("stop", "resnet", "-y").output
    assert "It does not train now, so there is nothing to save." in " ".join(waits.split())
    assert "billed" not in waits


def test_ps_json_is_the_record(a_week: Any, spotkeep: Any) -> None:
    listed = json.loads(spotkeep("ps", "--json").stdout)
    assert [run["run"] for run in listed] == ["digits-1a2b3c4d", "resnet50-cifar10-9f8e7d6c", "bert-base-77665544"]
    assert listed[0]["cost"]["saved_seconds"] == 400
    assert listed[1]["state"] == "WAITING"


def test_the_first_day_shows_how_to_begin(spotkeep: Any, snapshot: SnapshotAssertion) -> None:
    assert spotkeep("ps").output == snapshot(name="ps")
    assert spotkeep("savings").output == snapshot(name="savings")


def test_next_commands_mean_the_same_deployment(a_week: Any, spotkeep: Any) -> None:
    output = spotkeep("--deployment", "research", "--region", "eu-west-1", "ps").output
    assert "spotkeep --deployment research --region eu-west-1 logs resnet50-cifar10-9f8e7d6c -f" in output
    assert "Next: spotkeep --local logs" in spotkeep("ps", "--local").output


def test_the_whole_log_of_one_attempt(a_week: Any, spotkeep: Any) -> None:
    a_week.logs.later["bert-base-77665544-1"] = [["first"]]
    a_week.logs.later["bert-base-77665544-2"] = [["second"]]
    assert "second" in spotkeep("logs", "bert", "--raw").stdout
    assert spotkeep("logs", "bert", "--raw", "--attempt", "1").stdout == "first\n"


def test_logs_follow_into_the_next_attempt_and_end_with_the_run(deployment: Any, make: Any, spotkeep: Any) -> None:
    running = make.run(version=1)
    resumed = make.run(version=2, attempt=2, job_name="digits-1a2b3c4d-2")
    deployment.dynamodb.add(
        running, running, resumed, make.completed(job_name="digits-1a2b3c4d-2"), attempts=[make.attempt()]
    )
    deployment.logs.later["digits-1a2b3c4d-1"] = [["one"], ["two"]]
    deployment.logs.later["digits-1a2b3c4d-2"] = [["three"], ["four"]]
    assert spotkeep("logs", "digits-1a2b3c4d", "-f", "--raw").stdout == "one\ntwo\nthree\nfour\n"


def test_help_is_for_people(spotkeep: Any, snapshot: SnapshotAssertion) -> None:
    assert spotkeep("--help").output == snapshot


def test_an_attempt_that_never_was_is_said(deployment: Any, spotkeep: Any, make: Any) -> None:
    run = make.completed("digits-1")
    deployment.dynamodb.add(run, attempts=[make.attempt("digits-1")])
    result = spotkeep("logs", "digits-1", "--attempt", "9")
    assert result.exit_code == ExitCode.USAGE
    assert "digits-1 has no attempt 9: its last one is 1" in result.stderr


def test_a_refusal_is_json_too(deployment: Any, spotkeep: Any, job_file: Path) -> None:
    problem = {"field": "max_run", "found": "'40d'", "problem": "is out of range", "fix": "Choose less."}
    deployment.answers["validate"] = {"ok": False, "problems": [problem], "warnings": []}
    result = spotkeep("launch", str(job_file), "--json", "--set", "max_run=40d")
    assert result.exit_code == ExitCode.REFUSED
    document = json.loads(result.stdout)
    assert document["ok"] is False
    assert [found["field"] for found in document["problems"]] == ["max_run"]
    assert "max_run" in result.stderr


def test_a_refused_stop_is_json_too(deployment: Any, spotkeep: Any, make: Any) -> None:
    deployment.dynamodb.add(make.run("digits-1"))
    deployment.answers["stop"] = {"ok": False, "problems": [], "message": "not now"}
    result = spotkeep("stop", "digits-1", "-y", "--json")
    assert json.loads(result.stdout) == {"ok": False, "error": "digits-1 was not stopped: not now", "problems": []}


def test_a_record_that_cannot_be_read_is_left_out_of_lists_and_said(spotkeep: Any, deployment: Any, make: Any) -> None:
    for run in ("digits-1a2b3c4d", "digits-22222222"):
        deployment.dynamodb.add(make.run(run))
    deployment.dynamodb.items["run#digits-22222222", "item"]["form"] = {"N": "2"}
    listed = spotkeep("ps", "--json")
    assert [run["run"] for run in json.loads(listed.stdout)] == ["digits-1a2b3c4d"]
    assert "! 1 record could not be read:\n  (record of run digits-22222222): was written by a newer" in listed.stderr
    alone = spotkeep("describe", "digits-22222222")
    assert (alone.exit_code, alone.stdout) == (ExitCode.UNEXPECTED, "")
    assert "found form 2; this version reads 1" in alone.stderr
    assert "update this command line" in alone.stderr
