"""The app, deployed once for all end-to-end tests by the real CDK CLI; each worker has a copy of that local AWS."""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import shutil
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest

from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_local import cdk, lifecycle
from spotkeep_local.control import LocalControl
from spotkeep_local.options import ServerOptions

PROJECT = Path(__file__).parents[2]
CONTEXT = {"drills": "true"}
"""What the deployment of all tests is made with."""
_PATIENCE_SECONDS = 600.0


@dataclass
class DeployedApp:
    """The app on a local AWS, which may be another process after a crash."""

    state_dir: Path
    local: lifecycle.LocalAws
    _clients: dict[str, Any] = field(default_factory=dict)

    @property
    def control(self) -> LocalControl:
        return LocalControl(self.local)

    @cached_property
    def connection(self) -> dict[str, Any]:
        value = self.client("ssm").get_parameter(Name="/spotkeep/connection")["Parameter"]["Value"]
        return dict(json.loads(value))

    @property
    def runs(self) -> RunTable:
        return RunTable(client=self.client("dynamodb"), table_name=self.connection["run_table"])

    def client(self, service: str) -> Any:
        # Making one takes longer than most calls, and what waits asks five times a second.
        if service not in self._clients:
            self._clients[service] = self.local.session().client(service)
        return self._clients[service]

    def invoke(self, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.client("lambda").invoke(
            FunctionName=self.connection[f"{function}_function"], Payload=json.dumps(payload).encode()
        )
        body = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, body
        return dict(body)

    def upload_source(self, run: str, files: Mapping[str, str]) -> str:
        """Put a source archive where a run's source belongs, and return its URI."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            for name, text in files.items():
                member = tarfile.TarInfo(name)
                member.size = len(text.encode())
                tar.addfile(member, io.BytesIO(text.encode()))
        sha256 = hashlib.sha256(archive.getvalue()).hexdigest()
        bucket, key = self.connection["checkpoint_bucket"], f"runs/{run}/source/{sha256}.tar.gz"
        self.client("s3").put_object(Bucket=bucket, Key=key, Body=archive.getvalue())
        return f"s3://{bucket}/{key}"

    def launch(self, **fields: Any) -> dict[str, Any]:
        """Launch a run through the launcher Lambda."""
        answer = self.invoke("launcher", {"token": uuid.uuid4().hex, **fields})
        assert answer["ok"], answer
        return answer

    def wait_until(self, run: str, happened: Callable[[Run], bool], *, sweep: bool = False) -> Run:
        """Wait until a run's record says something; `sweep` invokes the controller meanwhile, as its schedule would."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            run_item = self.runs.get(run)
            assert run_item is not None, f"{run} is not in the run table"
            if happened(run_item):
                return run_item
            if sweep:
                self.invoke("controller", {})
            time.sleep(0.2)
        raise AssertionError(f"{run} is still {run_item.state} after {_PATIENCE_SECONDS} s")

    def wait_until_ended(self, run: str, *, sweep: bool = False) -> Run:
        return self.wait_until(run, lambda run_item: run_item.state.ended, sweep=sweep)

    def restart(self) -> None:
        """Stop the local AWS and start one on what it saved."""
        lifecycle.stop(self.state_dir)
        self.local = lifecycle.start(self.state_dir, options=ServerOptions.fast())
        self._clients.clear()


@contextmanager
def _local_aws(state_dir: Path) -> Iterator[DeployedApp]:
    local = lifecycle.start(state_dir, port=lifecycle.free_port(), options=ServerOptions.fast())
    try:
        yield DeployedApp(state_dir, local)
    finally:
        lifecycle.stop(state_dir)


@pytest.fixture(scope="session")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The state of a local AWS to which the app was deployed, once for all workers; a test starts a copy of it."""
    of_worker = tmp_path_factory.getbasetemp()
    of_all = of_worker.parent if "PYTEST_XDIST_WORKER" in os.environ else of_worker
    state_dir, done = of_all / "deployment", of_all / "deployment.done"
    with (of_all / "deployment.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not done.exists():
            with _local_aws(state_dir) as app:
                cdk.bootstrap(app.local, project_dir=PROJECT)
                cdk.deploy(app.local, project_dir=PROJECT, context=CONTEXT)
            done.touch()
    return state_dir


@contextmanager
def _copied(deployment: Path, state_dir: Path) -> Iterator[DeployedApp]:
    shutil.copytree(deployment, state_dir)
    with _local_aws(state_dir) as app:
        yield app


@pytest.fixture(scope="session")
def deployed_app(deployment: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedApp]:
    """The deployed app of one worker."""
    with _copied(deployment, tmp_path_factory.mktemp("deployed") / "local") as app:
        yield app


@pytest.fixture
def own_app(deployment: Path, tmp_path: Path) -> Iterator[DeployedApp]:
    """A deployed app of one test's own: to count in, to deploy over, to destroy."""
    with _copied(deployment, tmp_path / "local") as app:
        yield app


@pytest.fixture
def empty_aws(tmp_path: Path) -> Iterator[DeployedApp]:
    """A local AWS to which a rehearsal deploys the app."""
    with _local_aws(tmp_path / "local") as app:
        yield app
