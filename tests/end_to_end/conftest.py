"""The app, deployed once for all end-to-end tests by the real CDK CLI; each worker has a copy of that local AWS."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import tarfile
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import pytest
from botocore.config import Config
from click.testing import Result
from typer.testing import CliRunner

from spotkeep.events import EVENT_PREFIX
from spotkeep_cli.account.local_people import let_developer_train
from spotkeep_cli.aws.calls import Connection
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.aws.deployment import DeploymentClient
from spotkeep_cli.main import app as command_line
from spotkeep_cli.seams import Seams
from spotkeep_fleet.tags import RUN_TAG
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_local import cdk, lifecycle
from spotkeep_local.control import FleetControl, LocalControl
from spotkeep_local.daemon.state_directory import StateDirectory
from spotkeep_local.hosts.host_platform import job_isolation
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.options import ServerOptions
from tests.discarding import discard
from tests.permissions import control

PROJECT = Path(__file__).parents[2]
QUEUED_TYPE = "ml.m5.large"
_QUEUES = {
    "cpu": {
        "types": {QUEUED_TYPE: 2},
        # `others` is the share that a rehearsal of a sweep takes instances back with.
        "shares": {"vision": {"types": {QUEUED_TYPE: 1}}, "others": {"types": {QUEUED_TYPE: 1}, "lending": "lend"}},
    }
}
CONTEXT = {"drills": "true", "shells": "true", "tpe_search": "true", "queues": json.dumps(_QUEUES)}
"""What the deployment of all tests is made with: one deployment with everything in it is cheaper than one for each."""
ENVIRONMENTS_ARE_KEPT = job_isolation(Isolation.AUTO) is Isolation.NAMESPACE
"""Elsewhere each host has another path for the packages of a script, and installs them anew."""
_PATIENCE_SECONDS = 600.0
_SECONDS_BETWEEN_PASSES = 5.0
"""Five minutes, as time runs in these tests."""
_SECONDS_BETWEEN_QUESTIONS = 0.5
_LONGEST_INVOCATION = Config(read_timeout=600)
"""A function may take its own time and, on a busy machine, minutes to start. botocore waits a minute for the answer and
then invokes the function again: a test would see what the second invocation answers."""
_QUICK_PIP = {"PIP_NO_WARN_CONFLICTS": "1"}
"""With all that the tests of the frameworks need beside it, pip reads for seconds whether it fits together."""
_COUNT = """\
import argparse, getpass, os, pathlib, time
from spotkeep import Checkpointer

print("trained by", getpass.getuser(), flush=True)
options = argparse.ArgumentParser()
options.add_argument("steps", type=int)
options.add_argument("--pause", type=float, default=0.05)
options.add_argument("--hurry", action="store_true", help="do not pause once it has resumed")
options.add_argument("--hold-at", type=int, help="wait here in the first process: only what happens to it goes on")
given = options.parse_args()
done = {"count": 0}
with Checkpointer({"done": done}, every_steps=5) as checkpointer:
    resumed = checkpointer.step > 0
    for step in checkpointer.steps(given.steps):
        if step == given.hold_at and not resumed:
            time.sleep(600)
        done["count"] += 1
        time.sleep(0 if given.hurry and resumed else given.pause)
pathlib.Path(os.environ["SM_MODEL_DIR"], "count.txt").write_text(str(done["count"]))
"""


_T = TypeVar("_T")


def until(found: Callable[[], _T], what: Callable[[], str], *, pause_seconds: float = 0.3) -> _T:
    """Wait until something is found, and return it; `what` says what was not."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (it := found()):
        assert time.monotonic() < deadline, f"waited in vain for {what()}"
        time.sleep(pause_seconds)
    return it


@cache
def _wheel_that_imports(module: str) -> bytes:
    """Return a package `needed` that imports a module: made once, since an archive holds the time of its making."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as packed:
        packed.writestr("needed.py", f"import {module}\n")
        info = "needed-1.0.dist-info"
        packed.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: needed\nVersion: 1.0\n")
        packed.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        packed.writestr(f"{info}/RECORD", "")
    return content.getvalue()


@dataclass
class DeployedApp:
    """The app on a local AWS."""

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

    @cached_property
    def as_a_user(self) -> DeploymentClient:
        """The deployment, as the command line reaches it with a user's permissions."""
        return DeploymentClient(
            connection=Connection.model_validate(self.connection),
            client=self.local.session(key=self.local.keys.developer).client,
            options=ConnectionOptions(),
        )

    def spotkeep(self, *words: str) -> Result:
        """Run the command line in this process, with a user's permissions."""
        seams = Seams(
            connect=lambda _options: self.as_a_user, spot_market=lambda _options: pytest.fail("no plan is made here")
        )
        return CliRunner().invoke(command_line, list(words), obj=seams)

    @property
    def table(self) -> RunTable:
        return RunTable.of(client=self.client("dynamodb"), table_name=self.connection["run_table"])

    def client(self, service: str) -> Any:
        # Making one takes longer than most calls, and what waits asks twice a second.
        if service not in self._clients:
            config = _LONGEST_INVOCATION if service == "lambda" else None
            self._clients[service] = self.local.session().client(service, config=config)
        return self._clients[service]

    def run(self, name: str) -> Run:
        """Return a run's record."""
        found = self.table.runs.get(name)
        assert found is not None, f"{name} is not in the run table"
        return found

    def invoke(self, function: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        answer = self.client("lambda").invoke(
            FunctionName=self.connection[f"{function}_function"], Payload=json.dumps(payload).encode()
        )
        body = json.loads(answer["Payload"].read())
        assert "FunctionError" not in answer, body
        return dict(body)

    def upload_source(self, run: str, files: Mapping[str, str | bytes]) -> str:
        """Put a source archive where a run's source belongs, and return its URI: the same files have the same hash."""
        unpacked = io.BytesIO()
        with tarfile.open(fileobj=unpacked, mode="w") as tar:
            for name, given in files.items():
                content = given.encode() if isinstance(given, str) else given
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        archive = gzip.compress(unpacked.getvalue(), mtime=0)
        sha256 = hashlib.sha256(archive).hexdigest()
        bucket, key = self.connection["checkpoint_bucket"], f"sources/{run}/{sha256}.tar.gz"
        self.client("s3").put_object(Bucket=bucket, Key=key, Body=archive)
        return f"s3://{bucket}/{key}"

    def counting(
        self,
        command: str,
        /,
        *,
        files: Mapping[str, str | bytes] | None = None,
        environment: Mapping[str, str] | None = None,
        needs_a_package: bool = False,
        **fields: Any,
    ) -> dict[str, Any]:
        """Give the document of a job that counts, with its script and further files where the launcher finds them.

        Args:
            command: What its script is called with.
            files: Further files of its source.
            environment: Further variables.
            needs_a_package: Whether it is a package that starts the script, which its image lacks.
            fields: Further fields of the document.
        """
        run = f"counting-{uuid.uuid4().hex[:8]}"
        own_files: dict[str, str | bytes] = {"count.py": _COUNT, **(files or {})}
        own_environment = {"SPOTKEEP_PROGRESS_SECONDS": "0", **(environment or {})}
        words: str | list[str] = f"python3 count.py {command}"
        if needs_a_package:
            own_files |= {
                "requirements.txt": "--no-index\n--find-links wheels\nneeded==1.0\n",
                "wheels/needed-1.0-py3-none-any.whl": _wheel_that_imports("count"),
            }
            own_environment |= _QUICK_PIP
            words = ["python", "-c", f"import sys; sys.argv[1:] = {command.split()}; import needed"]
        return {
            "name": "counting",
            "run": run,
            "command": words,
            "source": self.upload_source(run, own_files),
            "environment": own_environment,
            "max_run": "10m",
            **fields,
        }

    def installed(self, job_name: str) -> list[str]:
        """Say from where each process of a job has the packages that it needs, as its log does."""
        found = self.client("logs").filter_log_events(
            logGroupName="/aws/sagemaker/TrainingJobs", filterPattern='"installed"'
        )
        # ministack gives the events of all streams, whatever prefix is asked for.
        lines = [each["message"] for each in found["events"] if each["logStreamName"].startswith(f"{job_name}/")]
        return [
            json.loads(line.removeprefix(EVENT_PREFIX))["reason"] for line in lines if line.startswith(EVENT_PREFIX)
        ]

    def launch(self, **fields: Any) -> dict[str, Any]:
        """Launch a run through the launcher Lambda."""
        answer = self.invoke("launcher", {"token": uuid.uuid4().hex, **fields})
        assert answer["ok"], answer
        return answer

    def wait_until(
        self,
        run: str,
        happened: Callable[[Run], bool],
        *,
        passes: bool = False,
        pause_seconds: float = _SECONDS_BETWEEN_QUESTIONS,
    ) -> Run:
        """Wait until a run's record says something; with `passes`, the controller passes meanwhile."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        next_pass = time.monotonic()
        while time.monotonic() < deadline:
            if happened(run_item := self.run(run)):
                return run_item
            if passes and time.monotonic() >= next_pass:
                self.invoke("controller", {})
                next_pass = time.monotonic() + _SECONDS_BETWEEN_PASSES
            time.sleep(pause_seconds)
        raise AssertionError(f"{run} is still {run_item.state} after {_PATIENCE_SECONDS} s")

    def wait_until_ended(self, run: str, *, passes: bool = False) -> Run:
        # Nothing has to be done in time then. Several tests wait at once, and what they wait for needs the processor.
        pause_seconds = 2 * _SECONDS_BETWEEN_QUESTIONS
        return self.wait_until(run, lambda item: item.state.ended, passes=passes, pause_seconds=pause_seconds)


class OnEc2:
    """Runs on EC2, as their user and as EC2 see them."""

    def __init__(self, app: DeployedApp) -> None:
        self.app = app
        self.ec2 = app.client("ec2")
        self.control = FleetControl(app.local)

    def launch(self, command: str, *, environment: Mapping[str, str] | None = None, **fields: Any) -> str:
        # Slow until it is interrupted, so that there is time to do it. EC2 keeps the last 64 KB of a console: with a
        # line for each step, what an instance says first would be lost.
        document = self.app.counting(
            f"{command} --hurry",
            environment={"SPOTKEEP_PROGRESS_SECONDS": "10", **(environment or {})},
            backend="ec2",
            instance_types=["m5.large", "m6i.large"],
            volume={"size_gb": 1, "when_done": "delete"},
            **{"notify": ["completed", "failed", "stopped", "interrupted", "resumed"], **fields},
        )
        return str(self.app.launch(**document)["run"])

    def instances(self, run: str) -> list[dict[str, Any]]:
        found = self.ec2.describe_instances(Filters=[{"Name": f"tag:{RUN_TAG}", "Values": [run]}])
        return [each for reservation in found["Reservations"] for each in reservation["Instances"]]

    def said(self, run: str) -> str:
        return "\n".join(
            self.ec2.get_console_output(InstanceId=each["InstanceId"]).get("Output", "") for each in self.instances(run)
        )

    def wait_for(self, run: str, text: str) -> None:
        until(lambda: text in self.said(run), lambda: f"{text} in\n{self.said(run)}")

    def wait_until_no_volume_is_left(self, run: str) -> None:
        """EC2 lets go of a volume when its instance is terminated; a pass deletes it then."""
        until(lambda: self.app.invoke("controller", {}) and not self.volumes(run), lambda: "the volume's end")

    def volumes(self, run: str) -> list[str]:
        found = self.ec2.describe_volumes(Filters=[{"Name": f"tag:{RUN_TAG}", "Values": [run]}])
        return [volume["VolumeId"] for volume in found["Volumes"]]

    def live_fleets(self) -> list[str]:
        found = self.ec2.describe_fleets(Filters=[{"Name": "fleet-state", "Values": ["active"]}])
        return [fleet["FleetId"] for fleet in found["Fleets"]]


@contextmanager
def _local_aws(
    state_dir: Path, *, kept: bool = False, start: Callable[..., lifecycle.LocalAws] = lifecycle.start
) -> Iterator[DeployedApp]:
    local = start(state_dir, port=lifecycle.free_port(), options=ServerOptions.fast())
    app = DeployedApp(state_dir, local)
    try:
        yield app
    finally:
        if kept:
            lifecycle.stop(state_dir)
        else:
            discard(app.local)


@pytest.fixture(scope="session")
def deployment(shared_directory: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """The state of a local AWS to which the app was deployed, once for all workers; a test starts a copy of it."""

    def deploy(state_dir: Path) -> None:
        with _local_aws(state_dir, kept=True) as app:
            cdk.bootstrap(app.local, project_dir=PROJECT)
            cdk.deploy(app.local, project_dir=PROJECT, context=CONTEXT)
            let_developer_train(app.local, deployment=CONTEXT.get("deployment", "spotkeep"))
            # Now the functions' archive and layer are unpacked and compiled, and not once more in each copy.
            app.invoke("launcher", {"action": "pools"})

    return shared_directory("deployment", deploy)


@contextmanager
def _copied(
    deployment: Path, state_dir: Path, *, start: Callable[..., lifecycle.LocalAws] = lifecycle.start
) -> Iterator[DeployedApp]:
    unpacked = StateDirectory(deployment).unpacked

    def copy(source: str, target: str) -> None:
        (os.link if Path(source).is_relative_to(unpacked) else shutil.copy2)(source, target)

    shutil.copytree(deployment, state_dir, copy_function=copy)
    with _local_aws(state_dir, start=start) as app:
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
def withholding_app(deployment: Path, tmp_path: Path) -> Iterator[DeployedApp]:
    """A deployed app of one test's own, from which grants can be taken away."""
    with _copied(deployment, tmp_path / "local", start=control.start) as app:
        yield app


@pytest.fixture
def empty_aws(tmp_path: Path) -> Iterator[DeployedApp]:
    """A local AWS to which a rehearsal deploys the app."""
    with _local_aws(tmp_path / "local") as app:
        yield app


@pytest.fixture
def on_ec2(deployed_app: DeployedApp) -> Iterator[OnEc2]:
    on_ec2 = OnEc2(deployed_app)
    yield on_ec2
    if left := on_ec2.live_fleets():
        on_ec2.ec2.delete_fleets(FleetIds=left, TerminateInstances=True)
