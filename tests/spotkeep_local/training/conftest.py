"""A training service of the test's own, on the S3 and the logs of the shared local AWS."""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_local.capacity import CapacityScript
from spotkeep_local.daemon.state_directory import CONTROL_TARGET
from spotkeep_local.options import ServerOptions
from spotkeep_local.service_base.aws_service import HttpRequest, control_service
from spotkeep_local.training.file_systems import FileSystems
from spotkeep_local.training.job import LocalJobFacts
from spotkeep_local.training.service import TrainingService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from spotkeep_local.lifecycle import LocalAws
    from spotkeep_local.principals import AccessKey

PATIENCE_SECONDS = 300.0
"""Longer than anything takes on a busy machine."""
ENDED = ("Completed", "Failed", "Stopped")

RESUMING_SCRIPT = """
import json, os, pathlib, sys, time

base = pathlib.Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
steps, seconds = int(sys.argv[1]), float(sys.argv[2])
last, mark = (int(sys.argv[3]), pathlib.Path(sys.argv[4])) if len(sys.argv) > 3 else (steps, None)
saved = base / "checkpoints" / "step"

def say(**event):
    print("spotkeep-event: " + json.dumps(event))

first = int(saved.read_text()) if saved.exists() else 0
say(event="resume", step=first)
for step in range(first + 1, steps + 1):
    time.sleep(seconds)
    draft = base / "draft"  # A copy of the folder never has it.
    draft.write_text(str(step))
    draft.rename(saved)
    waits = mark is not None and step == last and not mark.exists()
    if waits:
        mark.touch()
    say(event="progress", step=step, total_steps=steps)
    if waits:
        time.sleep(600)
(base / "model" / "weights").write_text(str(steps))
"""
"""Its words are the number of steps, and the seconds of each. A third is a step after which it waits to be taken away,
in the life that reports it first: the test may be slow. A fourth is a file outside the job, which shows that one has.
"""


class RefusedError(Exception):
    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


@dataclass
class Events:
    """What the service published, in order."""

    details: list[dict[str, Any]] = field(default_factory=list)
    arrived: threading.Condition = field(default_factory=threading.Condition)

    def publish(self, detail: dict[str, Any], detail_type: str, resources: list[str]) -> None:
        assert detail_type == "SageMaker Training Job State Change"
        assert resources == [detail["TrainingJobArn"]]
        with self.arrived:
            self.details.append(detail)
            self.arrived.notify_all()

    def wait_for(self, count: int) -> list[str]:
        with self.arrived:
            assert self.arrived.wait_for(lambda: len(self.details) >= count, PATIENCE_SECONDS)
            return [detail["SecondaryStatus"] for detail in self.details]


class OwnKey:
    """The service runs in this process, beside the local AWS: its jobs get what the local AWS gave to this process."""

    def __init__(self, local: LocalAws) -> None:
        self.own = local.access_key

    def of_role(self, role: str, *, session: str, holder: str) -> AccessKey:
        return self.own

    def revoke(self, holder: str) -> None:
        pass


class Training:
    """Drives one TrainingService as a client would, without HTTP in between."""

    resuming_script = RESUMING_SCRIPT

    def __init__(self, *, local: LocalAws, folder: Path, options: ServerOptions) -> None:
        self.local = local
        self.folder = folder
        self.options = options
        self.events = Events()
        self.bucket = f"training-{uuid.uuid4().hex[:12]}"
        self.s3 = local.session().client("s3")
        self.s3.create_bucket(Bucket=self.bucket)
        self.file_systems = FileSystems(
            folder=folder / "file-systems", session=local.session(), account_id=12 * "0", region="us-east-1"
        )
        self.service = self._start()

    def _start(self) -> TrainingService:
        service = TrainingService(
            state_dir=self.folder,
            endpoint_url=self.local.endpoint_url,
            credentials=OwnKey(self.local),
            options=self.options,
            file_systems=self.file_systems,
            publish_event=self.events.publish,
        )
        service.start()
        return service

    def restart(self) -> None:
        self.service.stop()
        self.service = self._start()

    def call(self, operation: str, target: str = "SageMaker", /, **request: Any) -> dict[str, Any]:
        control = control_service(CONTROL_TARGET, self.service.control_operations)
        service = control if target == CONTROL_TARGET else self.service.api
        asked = HttpRequest(headers={"x-amz-target": f"{target}.{operation}"}, body=json.dumps(request).encode())
        status, _, body = service.answer(asked)
        answer: dict[str, Any] = json.loads(body)
        if status != 200:
            raise RefusedError(answer["__type"], answer["message"])
        return answer

    def refusal(self, operation: str, target: str = "SageMaker", /, **request: Any) -> tuple[str, str]:
        """The error code and the message of a request that must be refused."""
        with pytest.raises(RefusedError) as refused:
            self.call(operation, target, **request)
        return refused.value.code, refused.value.message

    def put(self, key: str, content: str) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=content.encode())

    def objects(self, prefix: str = "") -> dict[str, bytes]:
        listed = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])
        return {
            entry["Key"]: self.s3.get_object(Bucket=self.bucket, Key=entry["Key"])["Body"].read() for entry in listed
        }

    def request(self, name: str, *arguments: object, spot: bool = True, **changes: Any) -> dict[str, Any]:
        """A request whose script is the object `code/train.py`."""
        request = {
            "TrainingJobName": name,
            "AlgorithmSpecification": {
                "TrainingImage": "123456789012.dkr.ecr.us-east-1.amazonaws.com/image:1",
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["python3", "/opt/ml/input/data/code/train.py"],
            },
            "RoleArn": "arn:aws:iam::000000000000:role/training-role",
            "InputDataConfig": [self.channel("code", "code/")],
            "OutputDataConfig": {"S3OutputPath": f"s3://{self.bucket}/out"},
            "CheckpointConfig": {"S3Uri": f"s3://{self.bucket}/checkpoints/"},
            "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 10},
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        }
        if spot:
            request["EnableManagedSpotTraining"] = True
            request["StoppingCondition"]["MaxWaitTimeInSeconds"] = 1200
        if arguments:
            request["AlgorithmSpecification"]["ContainerArguments"] = [str(item) for item in arguments]
        return request | changes

    def channel(self, name: str, key: str, kind: str = "S3Prefix", **changes: Any) -> dict[str, Any]:
        source = {"S3DataType": kind, "S3Uri": f"s3://{self.bucket}/{key}"}
        return {"ChannelName": name, "DataSource": {"S3DataSource": source}} | changes

    def create(self, name: str, script: str, *arguments: object, **changes: Any) -> None:
        self.put("code/train.py", script)
        self.call("CreateTrainingJob", **self.request(name, *arguments, **changes))

    def describe(self, name: str) -> dict[str, Any]:
        return self.call("DescribeTrainingJob", TrainingJobName=name)

    def stop(self, name: str) -> None:
        self.call("StopTrainingJob", TrainingJobName=name)

    def script_capacity(self, run: str, script: CapacityScript) -> list[str]:
        answer = self.call("ScriptCapacity", CONTROL_TARGET, run=run, script=script.to_document())
        names: list[str] = answer["training_jobs"]
        return names

    def facts(self, name: str) -> LocalJobFacts:
        return LocalJobFacts.from_document(self.call("JobFacts", CONTROL_TARGET, job_name=name))

    def wait_ended(self, name: str) -> dict[str, Any]:
        wait_until(lambda: self.describe(name)["TrainingJobStatus"] in ENDED)
        return self.describe(name)

    def wait_for_step(self, name: str, step: int) -> None:
        wait_until(lambda: bool(facts := self.facts(name).lifetimes) and (facts[-1].last_step_seen or 0) >= step)

    def path(self, name: str) -> list[str]:
        """Every secondary status the job went through."""
        return [transition["Status"] for transition in self.describe(name)["SecondaryStatusTransitions"]]

    def wait_until(self, condition: Callable[[], bool]) -> None:
        wait_until(condition)

    def log(self, name: str) -> list[str]:
        logs = self.local.session().client("logs")
        group = "/aws/sagemaker/TrainingJobs"
        streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=f"{name}/")["logStreams"]
        return [
            event["message"]
            for stream in streams
            for event in logs.get_log_events(
                logGroupName=group, logStreamName=stream["logStreamName"], startFromHead=True
            )["events"]
        ]


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.05)


@pytest.fixture
def make_training(local_aws: LocalAws, tmp_path: Path) -> Iterator[Callable[..., Training]]:
    """Makes a service with options other than the fast ones."""
    made: list[Training] = []

    def make(**changes: Any) -> Training:
        options = ServerOptions(sync_interval_seconds=0.05, stop_grace_seconds=5.0)
        options = ServerOptions(**{**options.__dict__, **changes})
        made.append(Training(local=local_aws, folder=tmp_path / f"service-{len(made)}", options=options))
        return made[-1]

    yield make
    for training in made:
        training.service.stop()


@pytest.fixture
def training(make_training: Callable[..., Training]) -> Training:
    return make_training()
