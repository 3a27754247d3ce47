"""One MLflow run through all jobs, with the real library and its store of files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Importing MLflow takes seconds, and warns.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]

RUN = "digits-1a2b3c4d"
SCRIPT = """\
import os, signal, sys
import mlflow
from spotkeep.integrations.mlflow import start_run

begin, end, kill = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "kill"
with start_run(tags={"team": "vision"}):
    for step in range(begin, end):
        mlflow.log_metric("loss", 100 - step, step=step)
    if kill:
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "digits")
    return (tmp_path / "mlruns").as_uri()


def trains(store: str, begin: int, end: int, *, killed: bool = False) -> int:
    given = {"MLFLOW_TRACKING_URI": store, "SPOTKEEP_RUN": RUN}
    words = [sys.executable, "-c", SCRIPT, str(begin), str(end), "kill" if killed else "end"]
    return subprocess.run(words, env={**os.environ, **given}, check=False).returncode


def runs(store: str) -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("digits")
    return list(client.search_runs([experiment.experiment_id]))


def test_a_run_whose_job_was_killed_goes_on_in_its_mlflow_run(store: str) -> None:
    from mlflow import MlflowClient

    assert trains(store, 0, 3, killed=True) == -signal.SIGKILL
    [begun] = runs(store)
    assert begun.info.status == "RUNNING"
    assert trains(store, 2, 5) == 0
    [ended] = runs(store)
    assert (ended.info.run_id, ended.info.status, ended.info.run_name) == (begun.info.run_id, "FINISHED", RUN)
    assert ended.data.tags["team"] == "vision"
    history = MlflowClient(store).get_metric_history(ended.info.run_id, "loss")
    assert {each.step: each.value for each in history} == {step: 100.0 - step for step in range(5)}


def test_another_run_and_a_script_at_home_have_mlflow_runs_of_their_own(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from spotkeep.integrations.mlflow import start_run

    monkeypatch.setenv("MLFLOW_TRACKING_URI", store)
    for run in (RUN, "digits-2b3c4d5e", "", RUN):
        monkeypatch.setenv("SPOTKEEP_RUN", run)
        with start_run():
            pass
    assert sorted(each.data.tags.get("spotkeep.run", "") for each in runs(store)) == ["", RUN, "digits-2b3c4d5e"]


def test_a_rank_other_than_0_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from spotkeep.integrations.mlflow import start_run

    monkeypatch.setenv("RANK", "3")
    with pytest.raises(RuntimeError, match="this is rank 3"):
        start_run()
