"""What the tests of the jobs library share: a run table without a server, and the facts to put into it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from spotkeep_jobs.backends.backend import JobView
from spotkeep_jobs.backends.sagemaker.training_job import traits_of
from spotkeep_jobs.document.deployment_facts import DeploymentPolicy, PoolRules
from spotkeep_jobs.notifications.outbox import Outbox
from spotkeep_jobs.pools.pool_reconciler import PoolReconciler
from spotkeep_jobs.progress.job_log import Extent, JobLog, LogAccount
from spotkeep_jobs.progress.training_logs import JobLogs
from spotkeep_jobs.record.record import Attempt, Pool, Run
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.runs.run_reconciler import RunReconciler
from tests.models.batch import Batch
from tests.models.clock import NOON, Clock
from tests.models.deployment import controller_on, jobs_of, queues_on
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.faults import Faults, client_error
from tests.models.notifications import SqsQueue, Topic
from tests.models.run_table import grouped, make_run_table, open_run
from tests.models.sagemaker import SageMaker, launch_marks
from tests.models.scheduler import Schedules

TABLE = "runs"


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def dynamodb() -> InMemoryDynamoDb:
    return InMemoryDynamoDb()


@pytest.fixture
def run_table(dynamodb: InMemoryDynamoDb) -> RunTable:
    return RunTable.of(client=dynamodb, table_name=TABLE, retention_days=30)  # type: ignore[arg-type]


@pytest.fixture
def local_dynamodb(local_aws: Any) -> Iterator[tuple[Any, str]]:
    """A DynamoDB client of the local AWS and the name of an empty run table there."""
    client = local_aws.session().client("dynamodb")
    name = f"runs-{uuid.uuid4().hex[:8]}"
    make_run_table(client, name)
    yield client, name
    client.delete_table(TableName=name)


def a_run(run: str = "digits-1a2b3c4d", **fields: Any) -> Run:
    facts: dict[str, Any] = {
        "run": run,
        "name": "digits",
        "owner": "ada",
        "capacity": "spot",
        "instance_type": "ml.m5.xlarge",
        "job_name": f"{run}-1",
        "created_at": NOON,
        "updated_at": NOON,
        "checkpoint_uri": f"s3://bucket/runs/{run}/checkpoints/",
        "output_prefix": f"s3://bucket/runs/{run}/output/",
        "token": f"token-{run}",
        "request": {"name": "digits", "command": ["python", "train.py"]},
    }
    return Run(**grouped(facts | fields))


def an_attempt(run: str = "digits-1a2b3c4d", attempt: int = 1, **fields: Any) -> Attempt:
    facts: dict[str, Any] = {
        "run": run,
        "attempt": attempt,
        "job_name": f"{run}-{attempt}",
        "capacity": "spot",
        "instance_type": "ml.m5.xlarge",
        "created_at": NOON,
        "job_request": {"Environment": launch_marks(f"{run}-{attempt}")},
    }
    return Attempt(**grouped(facts | fields))


def arn_of(job_name: str) -> str:
    return f"arn:aws:sagemaker:us-east-1:123456789012:training-job/{job_name}"


def a_job(*story: tuple[str, float], name: str = "digits-1a2b3c4d-1", **of_it: Any) -> JobView:
    """A job as it is described; its history and the rest of it are as `SageMaker.has_job` takes them."""
    sagemaker = SageMaker()
    sagemaker.has_job(name, *story, **of_it)
    job = jobs_of(sagemaker).observe(name)
    assert job is not None
    return job


def a_pool_request() -> dict[str, Any]:
    """What of a CreateTrainingJob request SageMaker compares with warm pools, and the keep-alive period."""
    return {
        "RoleArn": "arn:aws:iam::123456789012:role/team-a",
        "ResourceConfig": {
            "InstanceType": "ml.m5.xlarge",
            "InstanceCount": 2,
            "VolumeSizeInGB": 30,
            "VolumeKmsKeyId": "arn:aws:kms:us-east-1:123456789012:key/one",
            "KeepAlivePeriodInSeconds": 1800,
        },
        "VpcConfig": {"Subnets": ["subnet-1", "subnet-2"], "SecurityGroupIds": ["sg-1"]},
        "EnableInterContainerTrafficEncryption": False,
        "EnableNetworkIsolation": False,
        "EnableManagedSpotTraining": False,
    }


def a_pool(request: dict[str, Any] | None = None, **fields: Any) -> Pool:
    traits = traits_of(request or a_pool_request())
    assert traits is not None
    facts: dict[str, Any] = {
        "run": "first",
        "attempt": 1,
        "name": "first",
        "job_name": "first-1",
        "traits": traits,
        "kept_since": NOON,
        "keep_alive_seconds": 1800,
        "kept_until": NOON + timedelta(minutes=30),
        "chain_since": NOON - timedelta(hours=1),
    }
    return Pool(**facts | fields)


def an_event_line(event: str, minutes: float, **fields: Any) -> str:
    """A line of a job's log, at so many minutes after noon."""
    at = (NOON + timedelta(minutes=minutes)).timestamp()
    return f"spotkeep-event: {json.dumps({'event': event, 'time': at, **fields})}"


def a_log(*lines: str, extent: Extent = Extent.WHOLE, **account: Any) -> JobLog:
    """A log that is added up, whatever printed its lines."""
    added_up = LogAccount(launch=None, **account)
    for line in lines:
        added_up.take(line)
    return added_up.log(extent)


class World:
    """A deployment on models of AWS, as its controller sees it: one run table, one SageMaker, one topic."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.dynamodb = InMemoryDynamoDb()
        self.table = RunTable.of(client=self.dynamodb, table_name=TABLE, retention_days=30)  # type: ignore[arg-type]
        self.faults = Faults()
        self.sagemaker = SageMaker(self.faults, time=self.clock)
        self.jobs = jobs_of(self.sagemaker)
        self.batch = Batch(self.sagemaker, self.faults)
        self.queues = queues_on(self.jobs, self.batch, now=self.clock)
        self.logs = self.sagemaker.logs
        self.job_logs = JobLogs(self.logs)  # type: ignore[arg-type]
        self.topic = Topic()
        self.dead_letters = SqsQueue()
        self.schedules = Schedules(now=self.clock)
        self.deployment = DeploymentPolicy(name="spotkeep", prices={"ml.m5.xlarge": 0.23})
        self.watch_pools(PoolRules())

    def watch_pools(self, rules: PoolRules) -> None:
        """Make the deployment anew, with these rules for pools."""
        self.deployment = replace(self.deployment, pool_rules=rules)
        self.controller = controller_on(
            self.table,
            self.sagemaker,
            clients={"sns": self.topic, "sqs": self.dead_letters, "scheduler": self.schedules},
            now=self.clock,
            policy=self.deployment,
            queues=self.queues,
            logs=self.job_logs,
            training_jobs=self.jobs,
        )
        self.pools, self.runs, self.outbox = (
            PoolReconciler(self.controller),
            RunReconciler(self.controller),
            Outbox(self.controller),
        )

    def launch(self, run: Run, attempt: Attempt) -> Run:
        """Open a run and record its job."""
        open_run(self.table, run=run, attempt=attempt)
        return self.table.runs.record_job_created(
            run=run.run, attempt=attempt.attempt, job_id=arn_of(attempt.job_name), now=run.created_at
        )


@dataclass(frozen=True)
class Make:
    """The builders, for tests to call."""

    run: Callable[..., Run] = a_run
    attempt: Callable[..., Attempt] = an_attempt
    job: Callable[..., JobView] = a_job
    pool: Callable[..., Pool] = a_pool
    pool_request: Callable[[], dict[str, Any]] = a_pool_request
    line: Callable[..., str] = an_event_line
    log: Callable[..., JobLog] = a_log
    arn: Callable[[str], str] = arn_of
    error: Callable[..., ClientError] = client_error
    world: Callable[[], World] = World
    noon: datetime = NOON


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()
