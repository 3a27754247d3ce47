"""Launching: the plan first, one token, every problem at once, followed to its end, left with Ctrl-C."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from spotkeep_cli.errors import ExitCode
from spotkeep_jobs.record.states import EndReason, RunState

RUN = "digits-9f9f5111"


def event(kind: str, **fields: object) -> str:
    return "spotkeep-event: " + json.dumps({"event": kind, "time": 1_795_262_400.0, **fields})


@pytest.fixture
def launchable(deployment: Any, make: Any) -> Any:
    """A launcher that accepts, and a run that is interrupted once and completes."""
    deployment.answers["validate"] = {"ok": True, "warnings": [], "usd_per_hour": 0.23}
    deployment.answers["launch"] = {
        "ok": True,
        "run": RUN,
        "job_name": f"{RUN}-1",
        "attempt": 1,
        "replayed": False,
        "warnings": [],
        "next": [],
    }
    story = make.timeline(RUN)
    deployment.dynamodb.add(
        make.run(RUN, version=1),
        make.run(RUN, version=2, state=RunState.INTERRUPTED),
        make.completed(RUN, version=3),
        timeline=story,
        attempts=[make.attempt(RUN)],
    )
    deployment.logs.later[f"{RUN}-1"] = [
        [event("start"), event("resume", step=0), "epoch 1", event("progress", step=100, total_steps=1000)],
        [event("progress", step=410, total_steps=1000, metrics={"loss": 0.9}), event("notice", seconds_left=120)],
        [event("resume", step=410, checkpoint="step-410"), event("progress", step=1000, total_steps=1000)],
    ]
    return deployment


def test_a_run_from_plan_to_bill(launchable: Any, spotkeep: Any, job_file: Path, snapshot: SnapshotAssertion) -> None:
    result = spotkeep("launch", "job.yaml", "-y")
    assert result.exit_code == ExitCode.DONE
    assert result.output == snapshot


def test_the_source_travels_to_where_the_document_says_and_json_is_the_answer(
    launchable: Any, spotkeep: Any, job_file: Path
) -> None:
    result = spotkeep("launch", str(job_file), "-y", "--detach", "--json")
    assert json.loads(result.stdout) == launchable.answers["launch"]
    assert "would be launched" in result.stderr
    validated, launched = launchable.invocations
    assert validated == {"action": "validate", **launched}
    assert launched["run"] == RUN
    assert launched["token"] == "0123456789abcdef"
    assert launched["hyperparameters"] == {"lr": "1e-3"}
    [key] = launchable.uploads
    assert launched["source"] == f"s3://{launchable.checkpoint_bucket}/{key}"
    assert key.startswith(f"sources/{RUN}/")


def test_a_source_of_set_is_relative_to_where_one_stands(
    launchable: Any, spotkeep: Any, job_file: Path, tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "train.py").write_text("pass")
    monkeypatch.chdir(elsewhere)
    result = spotkeep("launch", str(job_file), "-y", "--detach", "--set", "source=.")
    assert ". (1 file," in result.stdout


@pytest.mark.parametrize("command", [["launch", "-y", "--detach"], ["doctor"]])
def test_what_stays_behind_is_named(launchable: Any, spotkeep: Any, job_file: Path, command: list[str]) -> None:
    (job_file.parent / "shared").symlink_to(job_file.parent)
    result = spotkeep(*command, str(job_file))
    assert "found shared" in result.stdout
    assert "stays behind" in result.stdout


@pytest.mark.parametrize(
    "source",
    [
        f"s3://code/{'0' * 64}.tar.gz",
        {"uri": "s3://code/train.tar.gz", "sha256": "0" * 64},
        {"git": "https://example.com/a/b.git", "commit": "0" * 40},
    ],
)
def test_a_source_elsewhere_is_left_alone(launchable: Any, spotkeep: Any, job_file: Path, source: object) -> None:
    spotkeep("launch", str(job_file), "-y", "--detach", "--set", f"source={json.dumps(source)}")
    assert launchable.invocations[-1]["source"] == source
    assert launchable.uploads == {}


def test_every_problem_is_shown_with_its_line_and_nothing_happens(
    launchable: Any, spotkeep: Any, job_file: Path, snapshot: SnapshotAssertion
) -> None:
    launchable.answers["validate"] = {
        "ok": False,
        "error": "refused",
        "problems": [
            {"field": "max_wait", "found": "1h", "problem": "is not above max_run (4h)", "fix": "Raise it above 4h."},
            {"field": "max_run", "found": "'4 h'", "problem": "is not a duration", "fix": "Write 4h."},
            {"field": "hyperparameters.lr", "found": "text", "problem": "is too long", "fix": "Shorten it."},
        ],
        "warnings": [],
    }
    result = spotkeep("launch", "job.yaml", "-y")
    assert result.exit_code == ExitCode.REFUSED
    assert result.stdout == ""
    assert result.stderr == snapshot
    assert launchable.uploads == {}
    assert [call["action"] for call in launchable.invocations] == ["validate"]


def test_the_record_may_still_refuse_after_the_plan(launchable: Any, spotkeep: Any, job_file: Path) -> None:
    launchable.answers["launch"] = {
        "ok": False,
        "error": "refused",
        "problems": [{"field": "run", "found": RUN, "problem": "exists already", "fix": "Choose another id."}],
    }
    result = spotkeep("launch", str(job_file), "-y")
    assert result.exit_code == ExitCode.REFUSED
    assert "exists already" in result.stderr


@pytest.mark.parametrize(
    ("state", "reason", "code"),
    [
        (RunState.FAILED, EndReason.SCRIPT_FAILED, ExitCode.RUN_FAILED),
        (RunState.STOPPED, EndReason.STOPPED_BY_USER, ExitCode.RUN_STOPPED),
    ],
)
def test_it_ends_as_the_run_ended(
    launchable: Any, make: Any, spotkeep: Any, job_file: Path, state: RunState, reason: EndReason, code: ExitCode
) -> None:
    said = "it said so:\nno data"
    launchable.dynamodb.add(make.completed(RUN, state=state, end_reason=reason, failure_reason=said))
    result = spotkeep("launch", str(job_file), "-y", columns=200)
    assert result.exit_code == code
    assert "no data" in result.stdout
    error, hint = result.stderr.splitlines()
    assert error.startswith(f"Error: {RUN} ")
    assert f"spotkeep resume {RUN}" in hint


def test_a_run_that_paused_as_it_was_asked_to_is_no_error_and_the_next_commands_go_on(
    launchable: Any, make: Any, spotkeep: Any, job_file: Path
) -> None:
    paused = {"state": RunState.STOPPED, "end_reason": EndReason.PAUSED, "paused_at_step": 1000}
    launchable.dynamodb.add(make.completed(RUN, **paused))
    result = spotkeep("launch", str(job_file), "-y", columns=200)
    assert (result.exit_code, result.stderr) == (ExitCode.DONE, "")
    assert f"stopped  {RUN}, paused at step 1,000, " in result.stdout
    assert f"spotkeep resume {RUN} --set pause_at_step=2000" in result.stdout
    assert f"spotkeep resume {RUN} --set pause_at_step= " in result.stdout


@pytest.mark.parametrize(("text", "step"), [("2000", 2000), ("", None), ("null", None)])
def test_a_paused_run_goes_on_to_a_later_step_or_to_the_end(
    deployment: Any, make: Any, spotkeep: Any, text: str, step: int | None
) -> None:
    paused = make.completed(state=RunState.STOPPED, end_reason=EndReason.PAUSED, paused_at_step=1000)
    deployment.dynamodb.add(paused.model_copy(update={"request": {**paused.request, "pause_at_step": 1000}}))
    deployment.answers["resume"] = {"ok": True, "run": "digits-1a2b3c4d", "job_name": "digits-1a2b3c4d-2", "attempt": 2}
    result = spotkeep("resume", "digits", "-yd", "--set", f"pause_at_step={text}")
    assert result.exit_code == ExitCode.DONE, result.output
    assert deployment.invocations[0]["changes"] == {"pause_at_step": step}


def test_ctrl_c_leaves_the_run_and_says_how_to_come_back(
    launchable: Any, spotkeep: Any, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_job_name: str, *, backend: str) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(launchable, "job_log", interrupted)
    result = spotkeep("launch", str(job_file), "-y")
    assert result.exit_code == ExitCode.DONE
    assert f"Detached. {RUN} goes on without you." in result.stdout
    assert f"spotkeep logs {RUN} -f" in result.stdout
    assert [call.get("action") for call in launchable.invocations] == ["validate", None]


def test_a_lost_connection_is_waited_out(launchable: Any, spotkeep: Any, job_file: Path) -> None:
    launchable.dynamodb.lost_connections = 3
    result = spotkeep("launch", str(job_file), "-y")
    assert result.exit_code == ExitCode.DONE
    assert result.stdout.count("the run goes on, trying again") == 1
    assert result.stdout.count("connected again") == 1


def several(count: int, **fields: Any) -> dict[str, Any]:
    runs = [
        {"run": f"{RUN}-{number}", "job_name": f"{RUN}-{number}-1", "job_id": f"fleet-{number}", "state": "LAUNCHING",
         "attempt": 1, "capacity": "on-demand" if number == 1 else "spot"}
        for number in range(1, count + 1)
    ]  # fmt: skip
    return {"ok": True, "group": RUN, "runs": runs, "replayed": False, "warnings": [], "next": [], **fields}


SEVERAL = ("--set", "backend=ec2", "--set", "instance_type=g5.xlarge", "--set", "runs=3", "--set", "on_demand_base=1")


def test_several_runs_are_planned_and_printed_all_of_them(
    launchable: Any, spotkeep: Any, job_file: Path, snapshot: SnapshotAssertion
) -> None:
    launchable.answers["launch"] = several(3, warnings=[f"{RUN}-3 was refused by EC2, the others were not: no"])
    result = spotkeep("launch", "job.yaml", "-y", *SEVERAL)
    assert result.exit_code == ExitCode.DONE
    assert result.output == snapshot
    [key] = launchable.uploads
    assert key.startswith(f"sources/{RUN}-1/"), "where a run is recorded, and not below the id that none has"


@pytest.mark.parametrize(
    ("given_token", "words"), [(True, "was launched before with this token"), (False, "launched (")]
)
def test_only_a_token_of_the_user_can_mean_an_earlier_launch(
    launchable: Any, spotkeep: Any, job_file: Path, given_token: bool, words: str
) -> None:
    launchable.answers["launch"]["replayed"] = True
    more = ["--set", "token=mine"] if given_token else []
    assert words in spotkeep("launch", str(job_file), "-y", "--detach", *more).stdout


def test_an_unknown_price_is_said(launchable: Any, spotkeep: Any, job_file: Path) -> None:
    del launchable.answers["validate"]["usd_per_hour"]
    assert "costs        not known" in spotkeep("launch", str(job_file), "-y", "--detach").stdout


def test_stop_asks_and_invokes(deployment: Any, make: Any, spotkeep: Any) -> None:
    deployment.dynamodb.add(make.run())
    deployment.answers["stop"] = {"ok": True}
    assert spotkeep("stop", "digits").exit_code == ExitCode.USAGE
    assert deployment.invocations == []
    result = spotkeep("stop", "digits", "-y")
    assert result.exit_code == ExitCode.DONE
    assert deployment.invocations == [{"action": "stop", "run": "digits-1a2b3c4d"}]


def test_a_second_stop_does_not_say_that_nothing_is_saved(deployment: Any, make: Any, spotkeep: Any) -> None:
    """Between the first one and the end the script saves."""
    deployment.dynamodb.add(make.run(state=RunState.STOPPING))
    deployment.answers["stop"] = {"ok": True}
    result = spotkeep("stop", "digits", "-y")
    assert "digits-1a2b3c4d is stopping. It was asked to before." in result.stdout


def test_a_pause_of_a_run_names_the_commands_that_do_the_same(deployment: Any, make: Any, spotkeep: Any) -> None:
    deployment.dynamodb.add(make.run())
    refused = spotkeep("pause", "digits-1a2b3c4d", "-y")
    assert refused.exit_code == ExitCode.NOT_FOUND
    assert "`spotkeep stop digits-1a2b3c4d` saves it" in " ".join(refused.stderr.split())
    assert deployment.invocations == []


def test_resume_is_for_ended_runs_and_follows(deployment: Any, make: Any, spotkeep: Any) -> None:
    deployment.dynamodb.add(make.run())
    refused = spotkeep("resume", "digits", "-y")
    assert refused.exit_code == ExitCode.REFUSED
    assert "SageMaker brings a spot job back by itself" in refused.stderr
    changed = spotkeep("resume", "digits", "--set", "max_run=2h", "-y")
    assert "Hint: to go on with changes, end it first: spotkeep stop digits-1a2b3c4d" in changed.stderr

    stopped = make.completed(state=RunState.STOPPED, end_reason=EndReason.STOPPED_BY_USER)
    again = make.run(version=9, attempt=2, job_name="digits-1a2b3c4d-2")
    deployment.dynamodb.add(stopped, again, make.completed(version=10, attempt=2, job_name="digits-1a2b3c4d-2"))
    deployment.answers["resume"] = {"ok": True, "run": "digits-1a2b3c4d", "job_name": "digits-1a2b3c4d-2", "attempt": 2}
    result = spotkeep("resume", "digits-1a2b3c4d", "-y")
    assert result.exit_code == ExitCode.DONE
    assert "resumed as attempt 2" in result.stdout
    assert deployment.invocations == [{"action": "resume", "run": "digits-1a2b3c4d"}]


def test_resume_with_fixed_code_uploads_it_below_the_run_and_says_what_changes(
    deployment: Any, make: Any, spotkeep: Any, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("print('fixed')")
    (tmp_path / "shared").symlink_to(tmp_path)
    failed = make.completed(state=RunState.FAILED, end_reason=EndReason.SCRIPT_FAILED)
    failed = failed.model_copy(update={"request": {**failed.request, "hyperparameters": {"lr": "0.1", "epochs": "3"}}})
    deployment.dynamodb.add(failed)
    deployment.answers["resume"] = {"ok": True, "run": "digits-1a2b3c4d", "job_name": "digits-1a2b3c4d-2", "attempt": 2}
    result = spotkeep("resume", "digits", "-yd", "--source", str(tmp_path), "--set", "hyperparameters.lr=0.01")
    assert result.exit_code == ExitCode.DONE, result.output
    assert "found shared" in result.stdout
    [invocation] = deployment.invocations
    source = invocation["changes"]["source"]
    [(key, content)] = deployment.uploads.items()
    assert source == {"uri": f"s3://{deployment.checkpoint_bucket}/{key}", "sha256": sha256(content).hexdigest()}
    assert key.startswith("sources/digits-1a2b3c4d/")
    assert invocation["changes"]["hyperparameters"] == {"lr": 0.01, "epochs": "3"}
    assert invocation["changes"].keys() == {"source", "hyperparameters"}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--source", "nowhere"], "there is no directory nowhere"),
        (["--source", ".", "--set", "source=."], "given twice"),
        (["--set", "command"], "--set takes field=value"),
    ],
)
def test_a_resume_that_cannot_be_understood_asks_for_nothing(
    deployment: Any, make: Any, spotkeep: Any, arguments: list[str], says: str
) -> None:
    deployment.dynamodb.add(make.completed(state=RunState.FAILED, end_reason=EndReason.SCRIPT_FAILED))
    result = spotkeep("resume", "digits", "-y", *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert says in result.stderr
    assert deployment.invocations == []
