"""One MLflow run through all jobs, with the real library and its store of files."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from spotkeep_local.lifecycle import free_port
from tests.forked_scripts import Runs

# Importing MLflow takes seconds, and warns.
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]

RUN = "digits-1a2b3c4d"
AT_HOME = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
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


@pytest.fixture(scope="module")
def scripts(make_runs: Callable[..., Runs]) -> Runs:
    """Runs scripts, each a process of its own, as in a job; MLflow is imported once, for that takes seconds."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in AT_HOME.items():
            environment.setenv(name, value)
        return make_runs("mlflow", "spotkeep.integrations.mlflow")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in AT_HOME.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "digits")
    return (tmp_path / "mlruns").as_uri()


def runs(store: str, experiment_name: str = "digits") -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(store)
    experiment = client.get_experiment_by_name(experiment_name)
    return list(client.search_runs([experiment.experiment_id]))


def test_a_run_whose_job_was_killed_goes_on_in_its_mlflow_run(scripts: Runs, store: str, tmp_path: Path) -> None:
    from mlflow import MlflowClient

    script = tmp_path / "train.py"
    script.write_text(SCRIPT)

    def trains(begin: int, end: int, *, killed: bool = False) -> int:
        words = (str(begin), str(end), "kill" if killed else "end")
        given = {"MLFLOW_TRACKING_URI": store, "MLFLOW_EXPERIMENT_NAME": "digits", "SPOTKEEP_RUN": RUN}
        return scripts.run(script, tmp_path, *words, **given)[0]

    assert trains(0, 3, killed=True) == -signal.SIGKILL
    [begun] = runs(store)
    assert begun.info.status == "RUNNING"
    assert trains(2, 5) == 0
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


ARN = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-{}/experiments"
ACTIONS = {
    "experiments/create": "CreateExperiment",
    "experiments/get-by-name": "GetExperimentByName",
    "runs/create": "CreateRun",
    "runs/get": "GetRun",
    "runs/log-batch": "LogBatch",
    "runs/log-metric": "LogMetric",
    "runs/log-parameter": "LogParam",
    "runs/search": "SearchRuns",
    "runs/set-tag": "SetTag",
    "runs/update": "UpdateRun",
}
"""Which permission each call of MLflow's REST API asks for.

Source: https://docs.aws.amazon.com/sagemaker/latest/dg/mlflow-create-tracking-server-iam.html (IAM actions supported)
"""
LOGS = """\
import mlflow
from spotkeep.integrations.mlflow import start_run

with start_run(tags={"team": "vision"}):
    mlflow.log_param("layers", 3)
    mlflow.log_params({"width": 64, "lr": 0.1})
    mlflow.log_metric("loss", 1.0, step=1)
    mlflow.log_metrics({"accuracy": 0.5, "f1": 0.4}, step=1)
    mlflow.set_tag("stage", "first")
    mlflow.set_tags({"stage": "second"})
"""


class Endpoint(ThreadingHTTPServer):
    """What stands before a tracking server in SageMaker: notes each call, and whose signature it bears."""

    def __init__(self, tracking_port: int, *, store: str) -> None:
        super().__init__(("127.0.0.1", 0), _Forwarding)
        self.tracking_port = tracking_port
        self.store = store
        self.calls: list[str] = []
        self.signed_for: set[str] = set()
        self.named: set[str | None] = set()


class _Forwarding(BaseHTTPRequestHandler):
    server: Endpoint

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.calls.append(self.path.partition("?")[0].removeprefix("/api/2.0/mlflow/"))
        self.server.signed_for.add(self.headers["authorization"].partition("Credential=")[2].split("/")[3])
        header = "x-mlflow-sm-tracking-server-arn"
        self.server.named.add(self.headers.get(header) or self.headers.get("x-sm-mlflow-app-arn"))
        tracking = HTTPConnection("127.0.0.1", self.server.tracking_port)
        tracking.request(self.command, self.path, body or None, {"content-type": "application/json"})
        answer = tracking.getresponse()
        content = answer.read()
        tracking.close()
        self.send_response(answer.status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = _forward  # noqa: N815 - as the library spells them

    def log_message(self, *_: object) -> None:
        pass


def listens(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """A real tracking server behind an endpoint of SageMaker's."""
    port, folder = free_port(), tmp_path_factory.mktemp("tracking")
    words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    environment = os.environ | AT_HOME
    with (folder / "server.log").open("w") as log:
        server = subprocess.Popen(
            [*words, "--backend-store-uri", (folder / "mlruns").as_uri()], env=environment, stdout=log, stderr=log
        )
    endpoint = Endpoint(port, store=(folder / "mlruns").as_uri())
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    try:
        while not listens(port):
            assert server.poll() is None, (folder / "server.log").read_text()
            time.sleep(0.1)
        yield endpoint
    finally:
        endpoint.shutdown()
        endpoint.server_close()
        server.terminate()
        server.wait()


@pytest.mark.parametrize(("kind", "service"), [("tracking-server", "sagemaker-mlflow"), ("app", "sagemaker")])
def test_with_sagemakers_mlflow_a_run_makes_the_calls_that_a_jobs_role_may_and_all_of_them(
    endpoint: Endpoint, scripts: Runs, store: str, tmp_path: Path, kind: str, service: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(LOGS)
    arn = ARN.format(kind)
    for noted in (endpoint.calls, endpoint.signed_for, endpoint.named):
        noted.clear()
    given = {
        "MLFLOW_TRACKING_URI": arn,
        "MLFLOW_EXPERIMENT_NAME": kind,
        "SPOTKEEP_RUN": RUN,
        "SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT": f"http://127.0.0.1:{endpoint.server_port}",
        "AWS_ACCESS_KEY_ID": "job",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for _ in range(2):
        code, said = scripts.run(script, tmp_path, **given)
        assert code == 0, said
    # Here, because it starts Node, which takes seconds in each process that collects this file.
    from spotkeep_constructs.execution_role import MLFLOW_LOGGING

    assert {f"sagemaker-mlflow:{ACTIONS[call]}" for call in endpoint.calls} == set(MLFLOW_LOGGING)
    assert (endpoint.signed_for, endpoint.named) == ({service}, {arn})
    [logged] = runs(endpoint.store, kind)
    assert logged.data.tags["spotkeep.run"] == RUN
