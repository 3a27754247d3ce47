"""A Batch of the test's own, on a SageMaker whose training jobs the test takes from one status to the next."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from spotkeep_local.batch.service import BatchService
from spotkeep_local.options import ServerOptions
from spotkeep_local.service_base.aws_service import HttpRequest
from spotkeep_local.service_base.clients import service_model
from spotkeep_local.training.job import SecondaryStatus, TrainingJob, advance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE_SECONDS = 300.0
"""Longer than anything takes on a busy machine."""
TYPE = "ml.m5.large"


class RefusedError(Exception):
    """A request that was refused."""

    def __init__(self, code: str, message: str, status: int) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class HandedSageMaker:
    """What Batch needs of SageMaker; nothing happens to a training job but what a test says."""

    def __init__(self) -> None:
        self.jobs: dict[str, TrainingJob] = {}
        self.requests: list[dict[str, Any]] = []
        self.queued_as: list[str] = []
        self.stopped: list[str] = []
        self.refusal: Exception | None = None
        self.on_change: Callable[[], None] = lambda: None

    def create(self, request: dict[str, Any], *, queued_as: str) -> None:
        """Create a training job in status Starting, or refuse it as the test says."""
        if self.refusal is not None:
            refusal, self.refusal = self.refusal, None
            raise refusal
        name = request["TrainingJobName"]
        now = time.time()
        arn = f"arn:aws:sagemaker:us-east-1:000000000000:training-job/{name}"
        job = TrainingJob(name=name, arn=arn, request=request, created_at=now, updated_at=now)
        self.requests.append(request)
        self.queued_as.append(queued_as)
        self.jobs[name] = advance(job, SecondaryStatus.STARTING, now=now)

    def stop_job(self, name: str) -> None:
        """Note it."""
        self.stopped.append(name)
        self.jobs[name] = replace(self.jobs[name], stop_requested=True)

    def job(self, name: str) -> TrainingJob | None:
        """Return a training job."""
        return self.jobs.get(name)

    def advance(self, name: str, secondary: SecondaryStatus, *, reason: str | None = None) -> None:
        """Take a training job to another status."""
        self.jobs[name] = advance(replace(self.jobs[name], failure_reason=reason), secondary, now=time.time())
        self.on_change()


class Batch:
    """Drives one BatchService as a client would, without HTTP in between."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.sagemaker = HandedSageMaker()
        self.later_seconds = 0.0
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._arrived = threading.Condition()
        self.service = self._start()

    def _start(self) -> BatchService:
        service = BatchService(
            state_dir=self.folder,
            options=ServerOptions.fast(),
            training=self.sagemaker,
            publish_event=self._publish,
            now=lambda: time.time() + self.later_seconds,
        )
        self.sagemaker.on_change = service.account.changed.set
        service.start()
        return service

    def let_pass(self, seconds: float) -> None:
        """Let time go by for Batch."""
        self.later_seconds += seconds
        self.service.account.changed.set()

    def restart(self) -> None:
        """Stop the service and start another one on what it saved."""
        self.service.stop()
        self.service = self._start()

    def _publish(self, detail: dict[str, Any], detail_type: str, resources: list[str]) -> None:
        assert resources == [detail.get("jobArn") or detail["preemptedJobArn"]]
        with self._arrived:
            self.events.append((detail_type, detail))
            self._arrived.notify_all()

    def wait_for_event(self, kind: str, **values: Any) -> dict[str, Any]:
        """Wait for an event whose detail has these values."""

        def found() -> dict[str, Any] | None:
            for detail_type, detail in self.events:
                if detail_type == kind and values.items() <= detail.items():
                    return detail
            return None

        with self._arrived:
            assert self._arrived.wait_for(lambda: found() is not None, PATIENCE_SECONDS), self.events
            detail = found()
        assert detail is not None
        return detail

    def call(self, operation: str, /, **request: Any) -> dict[str, Any]:
        """Call an operation; raises `RefusedError`."""
        http = service_model("batch").operation_model(operation).http
        path, query, body = http["requestUri"], {}, request
        if "{resourceArn}" in path:
            path = path.replace("{resourceArn}", request["resourceArn"])
            query = {"tagKeys": request.get("tagKeys", [])}
            body = {"tags": request["tags"]} if "tags" in request else {}
        asked = HttpRequest(method=http["method"], path=path, query=query, body=json.dumps(body).encode())
        status, _, answered = self.service.api.answer(asked)
        answer: dict[str, Any] = json.loads(answered)
        if status != 200:
            raise RefusedError(answer["__type"], answer["message"], status)
        return answer

    def refusal(self, operation: str, /, **request: Any) -> str:
        """The message of a request that must be refused."""
        with pytest.raises(RefusedError) as refused:
            self.call(operation, **request)
        assert refused.value.code == "ClientException"
        return refused.value.message

    def make_queue(self, limit: int = 2, *, name: str = "queue", **more: Any) -> str:
        """Make an environment, and a queue on it, first in, first out; its name."""
        unit = TYPE if "schedulingPolicyArn" in more and "quota" in more["schedulingPolicyArn"] else "NUM_INSTANCES"
        self.call(
            "CreateServiceEnvironment",
            serviceEnvironmentName=f"{name}-environment",
            serviceEnvironmentType="SAGEMAKER_TRAINING",
            capacityLimits=[{"maxCapacity": limit, "capacityUnit": unit}],
        )
        self.call(
            "CreateJobQueue",
            jobQueueName=name,
            jobQueueType="SAGEMAKER_TRAINING",
            priority=1,
            serviceEnvironmentOrder=[{"order": 1, "serviceEnvironment": f"{name}-environment"}],
            **more,
        )
        return name

    def make_quota_queue(self, limit: int, **shares: tuple[int, str]) -> str:
        """Make a queue with quota shares, each with its limit and strategy; its name."""
        policy = self.call(
            "CreateSchedulingPolicy", name="quota", quotaSharePolicy={"idleResourceAssignmentStrategy": "FIFO"}
        )
        name = self.make_queue(limit, schedulingPolicyArn=policy["arn"])
        for share, (own, strategy) in shares.items():
            self.call(
                "CreateQuotaShare",
                quotaShareName=share,
                jobQueue=name,
                capacityLimits=[{"maxCapacity": own, "capacityUnit": TYPE}],
                resourceSharingConfiguration={"strategy": strategy},
                preemptionConfiguration={"inSharePreemption": "ENABLED"},
            )
        return name

    def submit(self, name: str, *, queue: str = "queue", instances: int = 1, **more: Any) -> str:
        """Submit a service job, a second later where Batch is asked too often; its id."""
        payload = {
            "TrainingJobName": name,
            "RoleArn": "arn:aws:iam::000000000000:role/training",
            "ResourceConfig": {"InstanceType": TYPE, "InstanceCount": instances, "VolumeSizeInGB": 10},
        }
        request = {
            "jobName": name,
            "jobQueue": queue,
            "serviceJobType": "SAGEMAKER_TRAINING",
            "serviceRequestPayload": json.dumps(payload),
            "clientToken": name,
        }
        while True:
            try:
                return str(self.call("SubmitServiceJob", **(request | more))["jobId"])
            except RefusedError as error:
                if error.status != 429:
                    raise
                time.sleep(0.1)

    def describe(self, job_id: str) -> dict[str, Any]:
        """Describe a service job."""
        return self.call("DescribeServiceJob", jobId=job_id)

    def wait_for(self, job_id: str, status: str) -> dict[str, Any]:
        """Wait until a service job has a status; its description."""
        wait_until(lambda: self.describe(job_id)["status"] == status)
        return self.describe(job_id)

    def training_job(self, job_id: str) -> str:
        """Wait for the training job of a service job; its name."""
        wait_until(lambda: "latestAttempt" in self.describe(job_id))
        return str(self.describe(job_id)["latestAttempt"]["serviceResourceId"]["value"].rpartition("/")[2])

    def run(self, job_id: str) -> str:
        """Let the training job of a service job train; its name."""
        self.wait_for(job_id, "SCHEDULED")
        name = self.training_job(job_id)
        for secondary in (SecondaryStatus.DOWNLOADING, SecondaryStatus.TRAINING):
            self.sagemaker.advance(name, secondary)
        self.wait_for(job_id, "RUNNING")
        return name

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so."""
        wait_until(condition)


def wait_until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.005)


@pytest.fixture
def batch(tmp_path: Path) -> Iterator[Batch]:
    """A Batch without resources."""
    made = Batch(tmp_path / "batch")
    yield made
    made.service.stop()
