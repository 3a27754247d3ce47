"""Sweeps on the command line: one line in ps, one page with the best trial first, pictures, and the next command."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from syrupy.assertion import SnapshotAssertion

from spotkeep import Checkpointer
from spotkeep_cli.errors import ExitCode
from spotkeep_cli.launching.job_file import read_job_file
from spotkeep_cli.launching.judgement import judge_here
from spotkeep_cli.launching.preparation import prepare
from spotkeep_cli.sweeps import sweep_report
from spotkeep_cli.sweeps.sweep_report import SweepStory
from spotkeep_jobs.record.record import Cost, Metric, ScriptMetrics, TrialPlace
from spotkeep_jobs.record.states import SweepState, TrialState
from spotkeep_jobs.record.sweep import BestTrial, Sweep, Trial, TrialCounts
from tests.spotkeep_cli.conftest import NOW, make_cost

SWEEP = "digits-sweep-0f0f0f0f"
PARAMETERS = {"lr": {"log_uniform": [1e-4, 1e-1]}, "depth": [18, 34]}
REQUEST = {
    "parameters": PARAMETERS, "search": "asha", "trials": 9, "parallel": 3,
    "asha": {"min_steps": 100, "max_steps": 900}, "objective": {"metric": "loss", "goal": "minimize"},
}  # fmt: skip


def cost(usd: float) -> Cost:
    return make_cost(
        billed_seconds=600.0, clean_on_demand_seconds=1_500.0, saved_seconds=900.0, saved_percent=60.0,
        usd_per_hour=1.0, billed_usd=usd, clean_on_demand_usd=2.5 * usd, saved_usd=1.5 * usd,
    )  # fmt: skip


def trial(number: int, state: TrialState, loss: float | None = None, **fields: Any) -> Trial:
    rungs = {100: loss * 1.2, 300: loss} if loss is not None else {}
    measured = {} if loss is None else {"best": loss, "best_step": 300, "step": 300, "values": rungs}
    ended = {} if state is TrialState.RUNNING else {
        "ended_at": NOW - timedelta(minutes=100 - 10 * number), "cost": cost(0.1 * number)
    }  # fmt: skip
    parameters = {"lr": 0.001 * number, "depth": 18 if number % 2 else 34}
    return Trial(
        sweep=SWEEP, number=number, run=f"{SWEEP}-{number}", parameters=parameters, state=state,
        **measured | ended | fields,
    )  # fmt: skip


TRIALS = (
    trial(1, TrialState.PAUSED, 0.52),
    trial(2, TrialState.COMPLETED, 0.31),
    trial(3, TrialState.FAILED, failure_reason="SCRIPT_FAILED: AlgorithmError: loss is nan"),
    trial(4, TrialState.RUNNING, 0.4),
    trial(5, TrialState.RUNNING),
)


def sweep(**fields: Any) -> Sweep:
    known: dict[str, Any] = {
        "sweep": SWEEP, "name": "digits-sweep", "owner": "ada", "created_at": NOW - timedelta(hours=2),
        "updated_at": NOW, "token": "token", "counts": TrialCounts(running=2, paused=1, completed=1, failed=1),
        "document": {"name": "digits-sweep", "command": "python train.py", "max_cost": 40, "sweep": REQUEST},
        "best": BestTrial(
            number=2, run=f"{SWEEP}-2", value=0.31, step=300, parameters={"lr": 0.002, "depth": 34}
        ),
        "cost": cost(0.6),
    }  # fmt: skip
    return Sweep(**known | fields)


@pytest.fixture
def with_sweep(deployment: Any) -> Any:
    deployment.dynamodb.add_sweep(sweep(), *TRIALS)
    return deployment


@pytest.mark.parametrize("columns", [110, 60])
def test_a_sweep_is_one_line_of_ps(
    with_sweep: Any, make: Any, spotkeep: Any, snapshot: SnapshotAssertion, columns: int
) -> None:
    with_sweep.dynamodb.add(make.run(f"{SWEEP}-1").model_copy(update={"trial": TrialPlace(sweep=SWEEP, number=1)}))
    result = spotkeep("ps", columns=columns)
    assert result.output == snapshot
    assert f"{SWEEP}-1" not in result.output


def test_a_grid_has_as_many_trials_as_combinations(deployment: Any, spotkeep: Any) -> None:
    grid = {"parameters": {"lr": [0.1, 0.01], "depth": [18, 34, 50]}, "search": "grid"}
    deployment.dynamodb.add_sweep(sweep(document={"name": "digits-sweep", "sweep": grid}, best=None))
    assert "3 of 6, 2 running" in spotkeep("ps", columns=110).output


@pytest.mark.parametrize("columns", [110, 70])
def test_the_page_of_a_sweep_has_the_best_trial_first(
    with_sweep: Any, spotkeep: Any, snapshot: SnapshotAssertion, columns: int
) -> None:
    result = spotkeep("describe", SWEEP, columns=columns)
    assert result.exit_code == ExitCode.DONE
    assert result.output == snapshot


def test_a_sweep_as_json_holds_its_trials(with_sweep: Any, spotkeep: Any) -> None:
    document = json.loads(spotkeep("describe", "digits-sweep", "--json").stdout)
    assert document["sweep"] == SWEEP
    assert [trial["number"] for trial in document["trials"]] == [1, 2, 3, 4, 5]


@pytest.mark.long
def test_a_sweep_is_drawn_as_pictures(with_sweep: Any, spotkeep: Any, tmp_path: Path) -> None:
    result = spotkeep("describe", SWEEP, "--plots", str(tmp_path / "plots"))
    assert result.exit_code == ExitCode.DONE, result.output
    drawn = {path.name: path.read_bytes()[:8] for path in (tmp_path / "plots").iterdir()}
    assert drawn == dict.fromkeys(("cost.png", "objective.png", "parameters.png", "rungs.png"), b"\x89PNG\r\n\x1a\n")


def test_pictures_of_a_sweep_without_values_are_refused(deployment: Any, spotkeep: Any, tmp_path: Path) -> None:
    deployment.dynamodb.add_sweep(sweep(best=None), trial(1, TrialState.RUNNING))
    result = spotkeep("describe", SWEEP, "--plots", str(tmp_path))
    assert result.exit_code == ExitCode.USAGE
    assert "no trial has reported the objective yet" in result.output


def add_run(deployment: Any, make: Any, number: int, *, interruptions: int = 0, points: int = 3) -> None:
    """Record the run of a trial, with a curve of its objective."""
    place = TrialPlace(sweep=SWEEP, number=number)
    run = make.run(f"{SWEEP}-{number}").model_copy(update={"trial": place, "interruptions": interruptions})
    curve = tuple((100 * (at + 1), 0.9 / (at + number)) for at in range(points))
    metric = Metric(goal="minimize", last=curve[-1][1], last_step=curve[-1][0], points=curve)
    deployment.dynamodb.add(run, attempts=[make.attempt(run.run)], metrics=ScriptMetrics(metrics={"loss": metric}))


@pytest.mark.long
def test_a_sweep_is_written_as_a_page(
    with_sweep: Any, make: Any, spotkeep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2, 4):
        add_run(with_sweep, make, number, interruptions=number // 2)
    result = spotkeep("describe", SWEEP, "--html")
    assert result.exit_code == ExitCode.DONE, result.output
    assert f"page: {SWEEP}.html" in result.output
    page = Path(f"{SWEEP}.html").read_text()
    assert f"spotkeep best {SWEEP} --export best" in page
    assert "Learning curves" in page
    assert "Trial 2 went from 0.45 at step 100" in page
    document = json.loads(spotkeep("describe", SWEEP, "--html", "--json").stdout)
    assert document["page"] == f"{SWEEP}.html"


def test_of_many_trials_the_runs_of_the_best_are_read(
    with_sweep: Any, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in (1, 2, 4):
        add_run(with_sweep, make, number)
    # A run that only has such an id is no trial's.
    with_sweep.dynamodb.add(make.run(f"{SWEEP}-3"))
    table = with_sweep.table
    story = SweepStory.read(sweep(), TRIALS, runs=table.runs)
    assert sorted(story.curves) == [1, 2, 4]
    assert sorted(story.interruptions) == [1, 2, 4]
    monkeypatch.setattr(sweep_report, "MOST_CURVES", 2)
    assert sorted(SweepStory.read(sweep(), TRIALS, runs=table.runs).curves) == [2, 4]


def test_the_run_of_a_trial_that_cannot_be_read_is_left_out_of_the_page_and_said(
    with_sweep: Any, make: Any, spotkeep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sweep_report, "can_draw", lambda: False)
    for number in (1, 2):
        add_run(with_sweep, make, number)
    with_sweep.dynamodb.items[f"run#{SWEEP}-2", "item"]["form"] = {"N": "2"}
    result = spotkeep("describe", SWEEP, "--html")
    assert result.exit_code == ExitCode.DONE, result.output
    assert f"! 1 record could not be read:\n  (record of run {SWEEP}-2): was written by a newer" in result.stderr
    assert Path(f"{SWEEP}.html").is_file()


def test_a_page_that_cannot_be_written_is_said(
    with_sweep: Any, spotkeep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(f"{SWEEP}.html").mkdir()
    result = spotkeep("describe", SWEEP, "--html")
    assert f"{SWEEP}.html cannot be written: Is a directory" in result.output
    assert result.exit_code != ExitCode.DONE


def test_a_trial_is_named_by_its_sweep_and_its_number(with_sweep: Any, make: Any, spotkeep: Any) -> None:
    run = make.run(f"{SWEEP}-4").model_copy(update={"trial": TrialPlace(sweep=SWEEP, number=4)})
    with_sweep.dynamodb.add(run, attempts=[make.attempt(run.run)])
    assert f"{SWEEP}-4" in spotkeep("describe", "digits-sweep/4").output
    result = spotkeep("logs", f"{SWEEP}/77")
    assert result.exit_code == ExitCode.NOT_FOUND
    assert f"{SWEEP} has no trial 77: 5 were begun" in result.output


@pytest.mark.parametrize("verb", ["logs", "startup", "shell", "notifications ls", "checkpoints ls"])
def test_a_sweep_where_one_run_is_meant_leads_to_its_trials(
    with_sweep: Any, make: Any, spotkeep: Any, verb: str
) -> None:
    with_sweep.dynamodb.add(make.run(f"{SWEEP}-longer"))
    result = spotkeep(*verb.split(), SWEEP)
    assert result.exit_code == ExitCode.NOT_FOUND
    assert f"{SWEEP} is a sweep, and this is of one run" in result.output
    assert f"name a trial, such as {SWEEP}/1. `spotkeep describe {SWEEP}` lists them" in result.output


def test_a_run_that_is_only_called_like_a_trial_is_none(with_sweep: Any, make: Any, spotkeep: Any) -> None:
    for number, place in (
        (4, None),
        (5, TrialPlace(sweep="another", number=5)),
        (3, TrialPlace(sweep=SWEEP, number=4)),
    ):
        run = make.run(f"{SWEEP}-{number}").model_copy(update={"trial": place})
        with_sweep.dynamodb.add(run, attempts=[make.attempt(run.run)])
        result = spotkeep("describe", f"{SWEEP}/{number}")
        assert result.exit_code == ExitCode.NOT_FOUND, result.output
        assert f"{SWEEP} has no trial {number}" in result.output
    with_sweep.dynamodb.add(make.run(f"{SWEEP}-2"), attempts=[make.attempt(f"{SWEEP}-2")])
    result = spotkeep("best", SWEEP, "--export", "best")
    assert f"what is called {SWEEP}-2 now is no trial of {SWEEP}" in result.output
    assert not Path("best").exists()


@pytest.mark.parametrize("verb", ["stop", "pause"])
def test_a_sweep_is_stopped_and_paused_as_a_whole(
    with_sweep: Any, spotkeep: Any, snapshot: SnapshotAssertion, verb: str
) -> None:
    with_sweep.answers[verb] = {"ok": True, "sweep": SWEEP, "state": "STOPPING", "trials": {"running": 2}}
    result = spotkeep(verb, SWEEP, "-y")
    assert result.output == snapshot
    assert with_sweep.invocations == [{"action": verb, "sweep": SWEEP}]


@pytest.mark.parametrize("verb", ["stop", "pause"])
def test_a_paused_sweep_has_nothing_to_stop_or_pause(deployment: Any, spotkeep: Any, verb: str) -> None:
    deployment.dynamodb.add_sweep(sweep(state=SweepState.PAUSED, ended_at=NOW), *TRIALS)
    result = spotkeep(verb, SWEEP, "-y")
    assert result.exit_code == ExitCode.DONE
    assert f"{SWEEP} runs no trial (paused); there is nothing to {verb}." in result.output
    assert f"spotkeep best {SWEEP}" in result.output
    assert deployment.invocations == []


def test_a_paused_sweep_goes_on_with_what_has_changed(deployment: Any, spotkeep: Any) -> None:
    deployment.dynamodb.add_sweep(sweep(state=SweepState.PAUSED, ended_at=NOW), *TRIALS)
    deployment.answers["resume"] = {"ok": True, "sweep": SWEEP, "state": "RUNNING", "trials": {"running": 3}}
    result = spotkeep("resume", SWEEP, "-y", "--set", "sweep.parallel=6", "--set", "max_cost=60")
    assert result.exit_code == ExitCode.DONE, result.output
    assert deployment.invocations == [
        {"action": "resume", "sweep": SWEEP, "changes": {"sweep": {**REQUEST, "parallel": 6}, "max_cost": 60}}
    ]
    assert "3 trials run or are about to" in result.output


def test_the_failed_trials_of_a_sweep_are_tried_again_with_fixed_code(
    deployment: Any, spotkeep: Any, tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    (tmp_path / "train.py").write_text("print('fixed')")
    counts = TrialCounts(completed=2, failed=30)
    deployment.dynamodb.add_sweep(sweep(state=SweepState.COMPLETED, ended_at=NOW, counts=counts), *TRIALS[:3])
    trials = {"running": 4, "completed": 2, "failed": 26}
    deployment.answers["resume"] = {"ok": True, "sweep": SWEEP, "state": "RUNNING", "trials": trials}
    result = spotkeep("resume", SWEEP, "-y", "--source", str(tmp_path), "--set", "max_run=2h")
    assert result.exit_code == ExitCode.DONE, result.output
    assert result.output == snapshot
    [invocation] = deployment.invocations
    [key] = deployment.uploads
    assert key.startswith(f"sources/{SWEEP}/")
    assert invocation["changes"].keys() == {"source", "max_run"}
    assert invocation["changes"]["source"]["uri"].endswith(key)


def test_a_sweep_whose_trials_failed_says_how_to_try_them_again(deployment: Any, spotkeep: Any) -> None:
    counts = TrialCounts(completed=2, failed=30)
    deployment.dynamodb.add_sweep(sweep(state=SweepState.COMPLETED, ended_at=NOW, counts=counts), *TRIALS[:3])
    output = spotkeep("describe", SWEEP, columns=110).output
    assert f"spotkeep resume {SWEEP}" in output
    assert "try what failed again" in output


def test_a_running_sweep_has_nothing_to_resume(with_sweep: Any, spotkeep: Any) -> None:
    result = spotkeep("resume", SWEEP, "-y")
    assert result.exit_code == ExitCode.REFUSED
    assert "has not ended (running)" in result.output


def test_the_best_trial_is_shown_with_its_parameters(
    with_sweep: Any, spotkeep: Any, snapshot: SnapshotAssertion
) -> None:
    assert spotkeep("best", SWEEP).output == snapshot
    assert json.loads(spotkeep("best", SWEEP, "--json").stdout)["parameters"] == {"lr": 0.002, "depth": 34}


def test_a_sweep_without_values_has_no_best_trial(deployment: Any, spotkeep: Any) -> None:
    deployment.dynamodb.add_sweep(sweep(best=None))
    result = spotkeep("best", SWEEP)
    assert result.exit_code == ExitCode.USAGE
    assert "has no best trial yet" in result.output


def test_a_launch_shows_the_sweep_and_its_first_trial(
    deployment: Any, spotkeep: Any, tmp_path: Path, snapshot: SnapshotAssertion,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    document = {"name": "digits-sweep", "run": "digits", "command": "python train.py", "sweep": REQUEST}
    Path("sweep.yaml").write_text(json.dumps(document))
    request = {"name": "digits-sweep", "run": "digits-1", "command": ["python", "train.py"], "max_run": 3600,
               "instance_types": ["ml.m5.xlarge"], "hyperparameters": {"lr": "0.001"}}  # fmt: skip
    deployment.answers["validate"] = {
        "ok": True, "request": request, "sweep": REQUEST, "most_trials": 9, "worst_case_usd": 12.5, "warnings": [],
        "usd_per_hour": 0.23,
    }  # fmt: skip
    deployment.answers["launch"] = {
        "ok": True, "sweep": "digits", "state": "RUNNING", "trials": {"running": 3}, "replayed": False,
        "refused": {}, "warnings": [], "next": [],
    }  # fmt: skip
    result = spotkeep("launch", "sweep.yaml", "-y")
    assert result.exit_code == ExitCode.DONE, result.output
    assert result.output == snapshot


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    path = tmp_path / "sweep.yaml"
    path.write_text(json.dumps({"name": "a", "command": "python train.py", "max_run": "1h", "sweep": REQUEST}))
    return path


def test_a_sweep_is_judged_without_a_deployment(spotkeep: Any, sweep_file: Path) -> None:
    result = spotkeep("doctor", str(sweep_file), "--set", "sweep.parallel=0", reachable=False)
    assert result.exit_code == ExitCode.REFUSED
    assert "sweep.parallel" in result.output


def test_the_next_command_for_a_sweep_rehearses_a_sweep(spotkeep: Any, sweep_file: Path) -> None:
    result = spotkeep("doctor", str(sweep_file), reachable=False, columns=200)
    assert result.exit_code == ExitCode.DONE, result.output
    assert f"spotkeep rehearse-sweep {sweep_file}" in result.output


def test_no_image_is_made_up_for_a_sweep_that_is_judged_without_a_deployment(sweep_file: Path) -> None:
    prepared = prepare(read_job_file(sweep_file), deployment=None, new_token=lambda: "token")
    assert "image" not in judge_here(prepared, now=NOW).request


def test_the_page_of_asha_without_a_whole_training_names_the_warning_and_the_command(
    deployment: Any, spotkeep: Any
) -> None:
    best = BestTrial(number=1, run=f"{SWEEP}-1", value=0.5, step=300, parameters={"lr": 0.001})
    ended = {"state": SweepState.COMPLETED, "ended_at": NOW, "best": best, "counts": TrialCounts(paused=1)}
    deployment.dynamodb.add_sweep(sweep(**ended, warning="trial 2 did not pause"), TRIALS[0])
    output = spotkeep("describe", SWEEP, columns=140).output
    assert "warning" in output
    assert "trial 2 did not pause" in output
    assert f"spotkeep resume {SWEEP}-1 --set pause_at_step=" in output


def test_what_best_exports_goes_back_into_the_objects_of_the_script(
    with_sweep: Any, make: Any, spotkeep: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {"weights": [1.5, 2.5]}
    with Checkpointer({"model": values}, tmp_path / "trained", every_steps=1) as checkpointer:
        for _ in checkpointer.steps(3):
            pass
    run = make.run(f"{SWEEP}-2").model_copy(update={"trial": TrialPlace(sweep=SWEEP, number=2)})
    with_sweep.dynamodb.add(run)
    prefix = run.checkpoint_uri.partition("//")[2].partition("/")[2]
    for path in (tmp_path / "trained" / "step-3").iterdir():
        with_sweep.s3.contents[f"{prefix}step-3/{path.name}"] = path.read_bytes()
    result = spotkeep("best", SWEEP, "--export", "best", columns=120)
    assert result.exit_code == ExitCode.DONE, result.output
    kept = tmp_path / "best" / "checkpoints"
    assert f'spotkeep.Checkpointer({{"model": model}}, "{kept}").restore()' in result.output
    model: dict[str, Any] = {"weights": [0.0, 0.0]}
    assert Checkpointer({"model": model}, kept).restore() == 3
    assert model == values
    assert [path.name for path in Path("best", "checkpoints").iterdir()] == ["step-3"]


def test_a_best_trial_with_checkpoints_of_its_own_is_fetched_by_aws(with_sweep: Any, make: Any, spotkeep: Any) -> None:
    run = make.completed(f"{SWEEP}-2").model_copy(update={"trial": TrialPlace(sweep=SWEEP, number=2)})
    with_sweep.dynamodb.add(run)
    said = spotkeep("best", SWEEP, "--export", "best", columns=300).stderr
    assert f"aws s3 cp --recursive {run.checkpoint_uri} best/; aws s3 cp {run.output_uri} best/" in said
