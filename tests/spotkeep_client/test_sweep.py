"""What a notebook does with a sweep: launch it, wait for its search, read its trials and its best one, stop it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from spotkeep_client import (
    NoConnectionError,
    RunFailedError,
    RunNotFoundError,
    RunStoppedError,
    Spotkeep,
    Sweep,
    UsageError,
)
from spotkeep_jobs.record.states import SweepState
from spotkeep_jobs.record.sweep import TrialCounts
from tests.spotkeep_cli.sweeps.test_sweep_commands import NOW, REQUEST, SWEEP, TRIALS, sweep

JOB = {"name": "digits-sweep", "command": "python train.py"}


@pytest.fixture
def found(deployment: Any, client: Spotkeep) -> Sweep:
    deployment.dynamodb.add_sweep(sweep(), *TRIALS)
    return client.sweep("digits")


def test_it_is_launched_and_found_again(deployment: Any, client: Spotkeep) -> None:
    deployment.answers["validate"] = {"ok": True, "warnings": []}
    deployment.answers["launch"] = {"ok": True, "sweep": SWEEP, "trials": {"running": 3}}
    assert client.launch_sweep(JOB, sweep=REQUEST, max_cost=40).id == SWEEP
    launch = deployment.invocations[-1]
    assert (launch["sweep"]["trials"], launch["max_cost"]) == (9, 40)
    deployment.dynamodb.add_sweep(sweep())
    assert client.sweep("digits").id == SWEEP
    with pytest.raises(RunNotFoundError, match="no sweep 'dogits'"):
        client.sweep("dogits")


def test_a_run_is_no_sweep_and_a_sweep_no_run(deployment: Any, client: Spotkeep) -> None:
    with pytest.raises(UsageError, match="has no field sweep"):
        client.launch_sweep(JOB)
    with pytest.raises(UsageError, match="is a sweep") as refused:
        client.launch(JOB, sweep=REQUEST)
    assert refused.value.__notes__ == ["Hint: call launch_sweep"]
    with pytest.raises(UsageError, match="has a schedule"):
        client.launch_sweep(JOB, sweep=REQUEST, schedule="rate(1 day)")
    assert deployment.invocations == []


def test_waiting_shows_each_change_once_and_ends_with_the_search(
    deployment: Any, found: Sweep, meanwhile: list[Callable[[], object]]
) -> None:
    over = sweep(state=SweepState.COMPLETED, ended_at=NOW, counts=TrialCounts(paused=6, completed=3))
    meanwhile += [lambda: None, lambda: setattr(deployment.dynamodb, "lost_connections", 2)]
    meanwhile += [lambda: None, lambda: deployment.dynamodb.add_sweep(over)]
    lines: list[str] = []
    assert found.wait(show=lines.append) is found
    assert lines == [
        f"{SWEEP}: running; 2 running, 1 paused, 1 completed, 1 failed; best trial 2: 0.31 at step 300",
        f"{SWEEP}: completed; 6 paused, 3 completed; best trial 2: 0.31 at step 300",
    ]
    assert found.state == "COMPLETED"
    assert repr(found) == f"<Sweep {lines[-1]}>"


def test_waiting_gives_up_where_the_deployment_stays_out_of_reach(deployment: Any, found: Sweep) -> None:
    deployment.dynamodb.lost_connections = 1_000
    with pytest.raises(NoConnectionError):
        found.wait()


@pytest.mark.parametrize(
    ("state", "error"),
    [
        (SweepState.FAILED, RunFailedError),
        (SweepState.STOPPED, RunStoppedError),
        (SweepState.PAUSED, RunStoppedError),
    ],
)
def test_waiting_raises_where_the_search_is_not_over(
    deployment: Any, client: Spotkeep, state: SweepState, error: type[Exception]
) -> None:
    deployment.dynamodb.add_sweep(sweep(state=state, ended_at=NOW, ended_because="its max_cost of $40.00 is spent"))
    with pytest.raises(error, match=f"is {state.value.lower()}, its max_cost"):
        client.sweep(SWEEP).wait()


def test_trials_are_a_frame_by_number_and_the_best_one_is_a_run(
    deployment: Any, client: Spotkeep, found: Sweep, make: Any
) -> None:
    frame = found.trials()
    assert frame.index.name == "trial"
    assert list(frame.index) == [1, 2, 3, 4, 5]
    assert frame["state"].tolist() == ["PAUSED", "COMPLETED", "FAILED", "RUNNING", "RUNNING"]
    assert frame.loc[4, ["best", "best_step", "parameters.lr", "parameters.depth"]].tolist() == [0.4, 300, 0.004, 34]
    best = found.best()
    assert (best.number, best.value, best.parameters["depth"]) == (2, 0.31, 34)
    deployment.dynamodb.add(make.run(run=best.run))
    assert client.run(best.run).id == frame.loc[2, "run"]


def test_a_sweep_that_has_measured_nothing_has_no_best_trial(deployment: Any, client: Spotkeep) -> None:
    deployment.dynamodb.add_sweep(sweep(best=None))
    with pytest.raises(UsageError, match="has no best trial yet"):
        client.sweep(SWEEP).best()
    assert client.sweep(SWEEP).trials().empty


def test_its_failed_trials_are_tried_again_with_fixed_code(deployment: Any, found: Sweep, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('fixed')")
    deployment.answers["resume"] = {"ok": True, "sweep": SWEEP, "state": "RUNNING", "trials": {"running": 2}}
    assert found.resume(source=tmp_path, max_cost=60) is found
    [invocation] = deployment.invocations
    [key] = deployment.uploads
    assert key.startswith(f"sources/{SWEEP}/")
    assert (invocation["action"], invocation["sweep"]) == ("resume", SWEEP)
    assert invocation["changes"]["max_cost"] == 60
    assert invocation["changes"]["source"]["uri"].endswith(key)


def test_it_is_stopped(deployment: Any, found: Sweep) -> None:
    deployment.answers["stop"] = {"ok": True, "sweep": SWEEP, "state": "STOPPING"}
    assert found.stop() is found
    assert deployment.invocations == [{"action": "stop", "sweep": SWEEP}]
