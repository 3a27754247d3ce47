"""One MLflow run through all jobs, with the real library and its store of files."""

from __future__ import annotations

import ast
import contextlib
import json
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

from tests.forked_scripts import Runs
from tests.ports import free_ports

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
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


SHOWS = """\
import json, sys
from mlflow import MlflowClient

client = MlflowClient(sys.argv[1])
for run in client.search_runs([client.get_experiment_by_name(sys.argv[2]).experiment_id]):
    loss = [(each.step, each.value) for each in client.get_metric_history(run.info.run_id, "loss")]
    shown = {"id": run.info.run_id, "status": run.info.status, "name": run.info.run_name, "tags": run.data.tags}
    print(json.dumps({"shown": shown | {"loss": loss, "params": run.data.params}}))
"""


@pytest.fixture(scope="module")
def scripts(make_runs: Callable[..., Runs]) -> Runs:
    """Runs scripts, each a process of its own, as in a job; MLflow is imported once, for that takes seconds."""
    with pytest.MonkeyPatch.context() as environment:
        for name, value in AT_HOME.items():
            environment.setenv(name, value)
        return make_runs("mlflow", "spotkeep.integrations.mlflow")


@pytest.fixture
def run_script(scripts: Runs, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    """Runs a text as a script in the environment of a job, and gives its exit code and what it printed."""

    def run(text: str, *words: str, **given: str) -> tuple[int, str]:
        script = tmp_path / "train.py"
        script.write_text(text)
        environment = {"MLFLOW_TRACKING_URI": (tmp_path / "mlruns").as_uri(), "MLFLOW_EXPERIMENT_NAME": "digits"}
        return scripts.run(script, tmp_path, *words, **{**environment, "SPOTKEEP_RUN": RUN, **given})

    return run


@pytest.fixture
def runs(run_script: Callable[..., tuple[int, str]], tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Gives the MLflow runs of an experiment."""

    def runs(experiment: str = "digits") -> list[dict[str, Any]]:
        code, said = run_script(SHOWS, (tmp_path / "mlruns").as_uri(), experiment)
        assert code == 0, said
        return [json.loads(line)["shown"] for line in said.splitlines() if line.startswith('{"shown"')]

    return runs


def test_a_run_whose_job_was_killed_goes_on_in_its_mlflow_run(
    run_script: Callable[..., tuple[int, str]], runs: Callable[..., list[dict[str, Any]]]
) -> None:
    assert run_script(SCRIPT, "0", "3", "kill")[0] == -signal.SIGKILL
    [begun] = runs()
    assert begun["status"] == "RUNNING"
    assert run_script(SCRIPT, "2", "5", "end")[0] == 0
    [ended] = runs()
    assert (ended["id"], ended["status"], ended["name"]) == (begun["id"], "FINISHED", RUN)
    assert ended["tags"]["team"] == "vision"
    assert dict(ended["loss"]) == {step: 100.0 - step for step in range(5)}


LOGS_PARAMETERS = """\
import json, os, sys
import mlflow
from spotkeep.integrations.mlflow import start_run

with start_run():
    mlflow.log_metric("loss", 1.0, step=int(sys.argv[1]))
    if sys.argv[2:]:
        mlflow.log_params(json.loads(os.environ["SM_HPS"]))
"""


def test_a_resume_with_other_hyperparameters_has_its_parameters_in_an_mlflow_run_below_the_first(
    run_script: Callable[..., tuple[int, str]], runs: Callable[..., list[dict[str, Any]]]
) -> None:
    for step, lr in enumerate(["0.1", "0.1", "0.01", "0.01"]):
        code, said = run_script(LOGS_PARAMETERS, str(step), "parameters", SM_HPS=f'{{"epochs":3,"lr":{lr}}}')
        assert code == 0, said
    changed, first = runs()
    assert [each["params"]["lr"] for each in (first, changed)] == ["0.1", "0.01"]
    assert [[step for step, _ in each["loss"]] for each in (first, changed)] == [[0, 1], [2, 3]]
    assert changed["tags"]["mlflow.parentRunId"] == first["id"]
    assert changed["tags"]["spotkeep.run"] == first["tags"]["spotkeep.run"] == RUN


def test_a_script_that_logs_no_parameters_has_one_mlflow_run_whatever_its_hyperparameters(
    run_script: Callable[..., tuple[int, str]], runs: Callable[..., list[dict[str, Any]]]
) -> None:
    for step, lr in enumerate(["0.1", "0.01"]):
        assert run_script(LOGS_PARAMETERS, str(step), SM_HPS=f'{{"lr":{lr}}}')[0] == 0
    [only] = runs()
    assert [step for step, _ in only["loss"]] == [0, 1]


OTHERS = """\
import os, sys
from spotkeep.integrations.mlflow import start_run

for run in sys.argv[1:]:
    os.environ["SPOTKEEP_RUN"] = run
    with start_run():
        pass
os.environ["RANK"] = "3"
try:
    start_run()
except RuntimeError as refused:
    print(refused)
"""


def test_another_run_and_a_script_at_home_have_mlflow_runs_of_their_own_and_other_ranks_have_none(
    run_script: Callable[..., tuple[int, str]], runs: Callable[..., list[dict[str, Any]]]
) -> None:
    code, said = run_script(OTHERS, RUN, "digits-2b3c4d5e", "", RUN)
    assert code == 0, said
    assert "this is rank 3" in said
    assert sorted(each["tags"].get("spotkeep.run", "") for each in runs()) == ["", RUN, "digits-2b3c4d5e"]


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

    def __init__(self, tracking_port: int) -> None:
        super().__init__(("127.0.0.1", 0), _Forwarding)
        self.tracking_port = tracking_port
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


@pytest.fixture
def endpoint(tmp_path: Path) -> Iterator[Endpoint]:
    """A real tracking server behind an endpoint of SageMaker's."""
    port, log_file = free_ports(), tmp_path / "server.log"
    words = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    environment = os.environ | AT_HOME
    with log_file.open("w") as log:
        server = subprocess.Popen(
            [*words, "--backend-store-uri", (tmp_path / "mlruns").as_uri()], env=environment, stdout=log, stderr=log
        )
    endpoint = Endpoint(port)
    threading.Thread(target=endpoint.serve_forever, daemon=True).start()
    try:
        while not listens(port):
            assert server.poll() is None, log_file.read_text()
            time.sleep(0.1)
        yield endpoint
    finally:
        endpoint.shutdown()
        endpoint.server_close()
        server.terminate()
        server.wait()


def allowed_by_a_jobs_role() -> set[str]:
    """Read from the source: to import it starts Node, which takes seconds."""
    tree = ast.parse((ROOT / "constructs" / "spotkeep_constructs" / "training_jobs.py").read_text())
    [actions] = [
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "MLFLOW_LOGGING"
    ]
    return set(ast.literal_eval(actions))


def test_with_sagemakers_mlflow_a_run_makes_the_calls_that_a_jobs_role_may_and_all_of_them(
    endpoint: Endpoint, run_script: Callable[..., tuple[int, str]], runs: Callable[..., list[dict[str, Any]]]
) -> None:
    def logs(kind: str) -> None:
        code, said = run_script(
            LOGS,
            MLFLOW_TRACKING_URI=ARN.format(kind),
            MLFLOW_EXPERIMENT_NAME=kind,
            SAGEMAKER_MLFLOW_CUSTOM_ENDPOINT=f"http://127.0.0.1:{endpoint.server_port}",
            AWS_ACCESS_KEY_ID="job",
            AWS_SECRET_ACCESS_KEY="secret",
            AWS_DEFAULT_REGION="us-east-1",
        )
        assert code == 0, said

    logs("tracking-server")
    logs("tracking-server")
    assert {f"sagemaker-mlflow:{ACTIONS[call]}" for call in endpoint.calls} == allowed_by_a_jobs_role()
    assert (endpoint.signed_for, endpoint.named) == ({"sagemaker-mlflow"}, {ARN.format("tracking-server")})
    [logged] = runs("tracking-server")
    assert logged["tags"]["spotkeep.run"] == RUN

    endpoint.signed_for.clear()
    endpoint.named.clear()
    logs("app")
    assert (endpoint.signed_for, endpoint.named) == ({"sagemaker"}, {ARN.format("app")})
