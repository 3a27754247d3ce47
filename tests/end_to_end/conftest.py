"""One deployed app for all end-to-end tests: the real CDK CLI, the real functions, a local AWS of its own."""

from __future__ import annotations

import io
import json
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from spotkeep_jobs.aws.run_table import RunTable
from spotkeep_jobs.facts.record import Run
from spotkeep_local import cdk, lifecycle
from spotkeep_local.control import LocalControl
from spotkeep_local.options import ServerOptions

PROJECT = Path(__file__).parents[2]
_PATIENCE_SECONDS = 600.0


@dataclass
class DeployedApp:
    """The app on a local AWS, which may be another process after a crash."""

    state_dir: Path
    local: lifecycle.LocalAws

    @property
    def control(self) -> LocalControl:
        return LocalControl(self.local.endpoint_url)

    @property
    def connection(self) -> dict[str, Any]:
        value = self.client("ssm").get_parameter(Name="/spotkeep/connection")["Parameter"]["Value"]
        return dict(json.loads(value))

    @property
    def runs(self) -> RunTable:
        return RunTable(client=self.client("dynamodb"), table_name=self.connection["run_table"])

    def client(self, service: str) -> Any:
        return self.local.session().client(service)

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
        bucket, key = self.connection["checkpoint_bucket"], f"runs/{run}/source/source.tar.gz"
        self.client("s3").put_object(Bucket=bucket, Key=key, Body=archive.getvalue())
        return f"s3://{bucket}/{key}"

    def launch(self, **fields: Any) -> dict[str, Any]:
        """Launch a run through the launcher Lambda."""
        answer = self.invoke("launcher", {"token": uuid.uuid4().hex, **fields})
        assert answer["ok"], answer
        return answer

    def wait_until(self, run: str, happened: Callable[[Run], bool], *, sweep: bool = False) -> Run:
        """Wait until a run's record says something; `sweep` runs the reconciler meanwhile, as its schedule would."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            head = self.runs.get(run)
            assert head is not None, f"{run} is not in the run table"
            if happened(head):
                return head
            if sweep:
                self.invoke("reconciler", {})
            time.sleep(0.2)
        raise AssertionError(f"{run} is still {head.state} after {_PATIENCE_SECONDS} s")

    def wait_until_ended(self, run: str, *, sweep: bool = False) -> Run:
        return self.wait_until(run, lambda head: head.state.ended, sweep=sweep)

    def restart_after_crash(self) -> None:
        """Start a local AWS on what a killed one left behind."""
        self.local = lifecycle.start(self.state_dir, options=ServerOptions.fast())


@contextmanager
def _local_aws(state_dir: Path) -> Iterator[DeployedApp]:
    local = lifecycle.start(state_dir, port=lifecycle.free_port(), options=ServerOptions.fast())
    try:
        yield DeployedApp(state_dir, local)
    finally:
        lifecycle.stop(state_dir)


def _deploy(app: DeployedApp, **context: str) -> None:
    cdk.bootstrap(app.local, project_dir=PROJECT)
    cdk.deploy(app.local, project_dir=PROJECT, context=context)


@pytest.fixture(scope="session")
def deployed_app(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedApp]:
    with _local_aws(tmp_path_factory.mktemp("deployed")) as app:
        _deploy(app, drills="true")
        yield app


@pytest.fixture(scope="module")
def empty_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DeployedApp]:
    """A local AWS to which a rehearsal deploys the app, with the settings of its own."""
    with _local_aws(tmp_path_factory.mktemp("empty")) as app:
        yield app


@pytest.fixture
def rehearsed_app(empty_aws: DeployedApp) -> DeployedApp:
    """The app as a rehearsal left it, or deployed now."""
    if not empty_aws.client("ssm").get_parameters(Names=["/spotkeep/connection"])["Parameters"]:
        _deploy(empty_aws)
    return empty_aws
