"""A deployment that is not there, behind the commands' seam: its table and queue on models, the rest as a test says."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing
from botocore.exceptions import EndpointConnectionError
from typer.testing import CliRunner, Result

from spotkeep_cli.account.check import AccountCheck
from spotkeep_cli.aws.calls import Connection
from spotkeep_cli.aws.connection_options import ConnectionOptions
from spotkeep_cli.aws.deployment import DeploymentClient
from spotkeep_cli.drill.on_aws import DrillTarget
from spotkeep_cli.drill.recovery import DrillState
from spotkeep_cli.errors import NoConnectionError
from spotkeep_cli.main import app
from spotkeep_cli.seams import Seams
from spotkeep_jobs.record.record import Attempt, Cost, Notification, Plan, Pool, Run, ScriptMetrics, TimelineEntry
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import EndReason, RunState, TimelineKind
from spotkeep_jobs.record.sweep import Sweep, Trial
from spotkeep_jobs.record.table_client import fields_of, to_dynamodb
from spotkeep_planner.spot_market import SpotMarket
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.logs import Logs
from tests.models.notifications import SqsQueue
from tests.models.run_table import grouped
from tests.models.s3 import Objects
from tests.models.spot_market import SpotCapacity
from tests.spotkeep_cli import json_schemas

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
BUCKET = "spotkeep-checkpoints-123456789012"
CONNECTION = Connection(
    version=1,
    deployment="spotkeep",
    region="eu-central-1",
    launcher_function="spotkeep-launcher",
    controller_function="spotkeep-controller",
    run_table="runs",
    checkpoint_bucket=BUCKET,
    notification_topic_arn="arn:aws:sns:eu-central-1:123456789012:spotkeep-notifications",
    dead_notification_queue_url="https://sqs.eu-central-1.amazonaws.com/123456789012/dead-notifications",
)

# A test's runner builds every command anew for each command line, which takes longer than most tests.
typer.testing._get_command = functools.cache(typer.main.get_command)  # type: ignore[attr-defined]


class JobLogs(Logs):
    """CloudWatch Logs while jobs print.

    Attributes:
        later: What each job prints from one DescribeLogStreams to the next, one line a second.
    """

    def __init__(self) -> None:
        super().__init__()
        self.later: dict[str, list[list[str]]] = {}

    def _pages(self, ask: Any, query: dict[str, Any]) -> Iterator[Any]:
        job = query["logStreamNamePrefix"].rstrip("/")
        if self.later.get(job):
            printed = self.streams.setdefault(f"{job}/algo-1-1", [])
            for line in self.later[job].pop(0):
                printed.append(((NOW.timestamp() + len(printed) + 1) * 1_000, line))
        return super()._pages(ask, query)


class RunItems(InMemoryDynamoDb):
    """A run table with what a test puts there, whatever came before it.

    Attributes:
        lost_connections: How many of the next reads of an item find no connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self.lost_connections = 0
        self._later: dict[str, list[Run]] = {}
        self._table = RunTable.of(client=self, table_name="runs")  # type: ignore[arg-type]

    def add(
        self,
        *versions: Run,
        timeline: Sequence[TimelineEntry] = (),
        attempts: Sequence[Attempt] = (),
        plan: Plan | None = None,
        notifications: Sequence[Notification] = (),
        metrics: ScriptMetrics | None = None,
        pools: Sequence[Pool] = (),
    ) -> None:
        """Record a run. Each read finds the next of its versions, and the last one for ever."""
        table, run = self._table, versions[0]
        self._later[run.run] = list(versions[1:])
        items = [
            table.runs.item(run),
            *map(table.runs.timeline_item, timeline),
            *map(table.runs.attempt_item, attempts),
            *map(table.notifications.item, notifications),
        ]
        for item in items:
            self._put(to_dynamodb(item))
        for write in (
            *table.runs.plan_writes(run, plan),
            *(each for pool in pools for each in table.pools.writes(pool)),
        ):
            self._put(write["Put"]["Item"])
        if metrics is not None:
            self._put(to_dynamodb(fields_of(metrics) | {"pk": f"run#{run.run}", "sk": "metrics"}))

    def add_sweep(self, sweep: Sweep, *trials: Trial) -> None:
        """Record a sweep and its trials."""
        items = [
            self._table.sweeps.item(sweep),
            *(self._table.sweeps.trial_item(trial, sweep) for trial in trials),
        ]
        for item in items:
            self._put(to_dynamodb(item))

    def get_item(self, **parameters: Any) -> Any:
        if self.lost_connections:
            self.lost_connections -= 1
            raise EndpointConnectionError(endpoint_url="https://dynamodb.eu-central-1.amazonaws.com")
        answer = super().get_item(**parameters)
        partition, sort = (parameters["Key"][name]["S"] for name in ("pk", "sk"))
        later = self._later.get(partition.removeprefix("run#"))
        if later and sort == "item":
            self._put(to_dynamodb(self._table.runs.item(later.pop(0))))
        return answer


class FakeDrill:
    """A drill whose states are known beforehand; the last one is seen for ever."""

    def __init__(self, states: Sequence[DrillState]) -> None:
        self.states = list(states)
        self.started: list[str] = []
        self.spared: list[str] = []

    def target(self) -> DrillTarget:
        return DrillTarget(instance="i-1", zone="eu-central-1a", others=frozenset())

    def start(self, instance: str, *, token: str) -> str:
        assert token
        self.started.append(instance)
        return "EXP1"

    def spare(self, instance: str) -> None:
        self.spared.append(instance)

    def describe(self, *, at: float) -> DrillState:
        found = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        return replace(found, at=at)


@dataclass
class FakeDeployment(DeploymentClient):
    """The real client on models of DynamoDB, SQS, S3 and CloudWatch Logs; a test sets what the launcher answers."""

    dynamodb: RunItems = field(default_factory=RunItems)
    dead_letter_queue: SqsQueue = field(default_factory=SqsQueue)
    answers: dict[str, dict[str, Any]] = field(default_factory=dict)
    invocations: list[dict[str, Any]] = field(default_factory=list)
    s3: Objects = field(default_factory=Objects)
    logs: JobLogs = field(default_factory=JobLogs)
    drills: dict[str, FakeDrill] = field(default_factory=dict)
    account: AccountCheck = field(default_factory=lambda: AccountCheck(findings=(), unreadable={}))

    def __post_init__(self) -> None:
        clients = {"dynamodb": self.dynamodb, "sqs": self.dead_letter_queue, "s3": self.s3, "logs": self.logs}
        super().__init__(connection=CONNECTION, client=clients.__getitem__, options=ConnectionOptions())

    @property
    def uploads(self) -> dict[str, bytes]:
        """What was put into the bucket, by key."""
        return self.s3.contents

    def invoke_launcher(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        # What travels is JSON: a value JSON cannot hold fails here as it would there.
        document = json.loads(json.dumps(payload))
        self.invocations.append(document)
        return self.answers[document.get("action", "launch")]

    @property
    def systems_manager_url(self) -> str:
        return f"https://ssm.{self.region}.amazonaws.com"


@pytest.fixture
def deployment(monkeypatch: pytest.MonkeyPatch) -> FakeDeployment:
    made = FakeDeployment()

    def check_account(deployment: DeploymentClient, *, clock: Callable[[], datetime]) -> AccountCheck:
        assert deployment is made
        assert clock() == NOW
        return made.account

    def drill(deployment: DeploymentClient, *, run: str) -> FakeDrill:
        assert deployment is made
        return made.drills[run]

    monkeypatch.setattr("spotkeep_cli.account.check.check_account", check_account)
    monkeypatch.setattr("spotkeep_cli.drill.on_aws.Drill", drill)
    return made


@pytest.fixture
def ec2() -> SpotCapacity:
    """Two zones: one cheap and likely, one dear."""
    ec2 = SpotCapacity()
    ec2.prices = [("eu-central-1a", "0.07", NOW), ("eu-central-1b", "0.11", NOW)]
    ec2.scores = {"eu-central-1a": 9}
    return ec2


@pytest.fixture
def market(ec2: Any) -> SpotMarket:
    return SpotMarket(ec2)


Spotkeep = Callable[..., Result]


@pytest.fixture
def spot_market() -> Callable[[ConnectionOptions], SpotMarket]:
    """There is none; a module whose tests plan has a fixture of this name that finds one."""

    def no_spot_market(_options: ConnectionOptions) -> SpotMarket:
        raise NoConnectionError("no AWS region is set")

    return no_spot_market


@pytest.fixture
def spotkeep(deployment: FakeDeployment, spot_market: Callable[[ConnectionOptions], SpotMarket]) -> Spotkeep:
    """Runs a command line against the fake deployment, 80 columns wide and without a terminal."""

    def run(*arguments: str, columns: int = 80, stdin: str | None = None, reachable: bool = True) -> Result:
        def connect(options: ConnectionOptions) -> FakeDeployment:
            if not reachable:
                raise NoConnectionError(
                    f"no deployment {options.deployment!r} in eu-central-1", hint="deploy it (`cdk deploy --all`)"
                )
            return deployment

        seams = Seams(
            connect=connect,
            spot_market=spot_market,
            now=lambda: NOW,
            sleep=lambda _: None,
            new_token=lambda: "0123456789abcdef",
        )
        environment = {"COLUMNS": str(columns), "NO_COLOR": None, "FORCE_COLOR": None, "TERM": "dumb"}
        environment |= dict.fromkeys(("SPOTKEEP_LOCAL", "SPOTKEEP_DEPLOYMENT"))
        result = CliRunner().invoke(app, list(arguments), obj=seams, env=environment, input=stdin, prog_name="spotkeep")
        json_schemas.check(arguments, result.stdout)
        return result

    return run


@pytest.fixture
def job_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small job with a local source, in the current directory."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("from spotkeep import Checkpointer\n")
    path = tmp_path / "job.yaml"
    path.write_text(
        "name: digits\n"
        "command: python train.py --epochs 30\n"
        "source: .\n"
        "instance_type: ml.m5.xlarge\n"
        "max_run: 4h\n"
        "hyperparameters:\n"
        "  lr: 1e-3\n"
    )
    return path


def make_run(run: str = "digits-1a2b3c4d", **changes: Any) -> Run:
    """A run that trains, changed as the test needs it."""
    values: dict[str, Any] = {
        "run": run,
        "name": "digits",
        "owner": "ada",
        "state": RunState.TRAINING,
        "capacity": "spot",
        "instance_type": "ml.m5.xlarge",
        "job_name": f"{run}-1",
        "created_at": NOW - timedelta(minutes=20),
        "started_at": NOW - timedelta(minutes=18),
        "updated_at": NOW - timedelta(minutes=1),
        "checkpoint_uri": f"s3://{BUCKET}/runs/{run}/checkpoints/",
        "output_prefix": f"s3://{BUCKET}/runs/{run}/output/",
        "token": "0123456789abcdef",
        "request": {"name": "digits", "command": ["python", "train.py"]},
    }
    return Run(**grouped({**values, **changes}))


def make_cost(**changes: Any) -> Cost:
    """Twelve minutes on spot, one of them done twice."""
    values: dict[str, Any] = {
        "billed_seconds": 240,
        "training_seconds": 720,
        "waited_seconds": 90,
        "redone_steps": 12,
        "redone_seconds": 60,
        "restart_overhead_seconds": 20,
        "clean_on_demand_seconds": 640,
        "saved_seconds": 400,
        "saved_percent": 62.5,
        "aws_saved_percent": 66.7,
        "usd_per_hour": 0.23,
        "billed_usd": 0.0153,
        "clean_on_demand_usd": 0.0409,
        "saved_usd": 0.0256,
    }
    return Cost(**{**values, **changes})


def make_completed(run: str = "digits-1a2b3c4d", **changes: Any) -> Run:
    """A run that was interrupted once and completed."""
    values: dict[str, Any] = {
        "state": RunState.COMPLETED,
        "end_reason": EndReason.COMPLETED,
        "interruptions": 1,
        "ended_at": NOW - timedelta(minutes=4),
        "output_uri": f"s3://{BUCKET}/runs/{run}/output/{run}-1/output/model.tar.gz",
        "cost": make_cost(),
        "version": 7,
    }
    return make_run(run, **{**values, **changes})


def make_attempt(run: str = "digits-1a2b3c4d", **changes: Any) -> Attempt:
    """A run's only attempt."""
    values: dict[str, Any] = {
        "run": run,
        "attempt": 1,
        "state": RunState.COMPLETED,
        "job_name": f"{run}-1",
        "capacity": "spot",
        "instance_type": "ml.m5.xlarge",
        "created_at": NOW - timedelta(minutes=20),
        "started_at": NOW - timedelta(minutes=18),
        "interruptions": 1,
    }
    return Attempt(**grouped({**values, **changes}))


def make_timeline(run: str = "digits-1a2b3c4d") -> list[TimelineEntry]:
    """A run that was interrupted once and came back."""
    story = [
        (20, TimelineKind.RUN_OPENED, "ada asked for the run", None),
        (19.95, TimelineKind.JOB_CREATED, f"SageMaker accepted training job {run}-1", None),
        (18, TimelineKind.TRAINING, "Training began", None),
        (12, TimelineKind.INTERRUPTED, "Lost its capacity and waits for new", None),
        (9, TimelineKind.RESUMED, "Got capacity again", None),
        (9, TimelineKind.STEP_RESUMED, "Resumed after step 410", 410),
        (4, TimelineKind.ENDED, "Completed", None),
    ]
    return [
        TimelineEntry(run=run, attempt=1, at=NOW - timedelta(minutes=ago), kind=kind, text=text, step=step)
        for ago, kind, text, step in story
    ]


@dataclass(frozen=True)
class Make:
    """Builders, handed to tests as a fixture: test modules cannot import each other."""

    run: Callable[..., Run] = make_run
    completed: Callable[..., Run] = make_completed
    cost: Callable[..., Cost] = make_cost
    attempt: Callable[..., Attempt] = make_attempt
    timeline: Callable[..., list[TimelineEntry]] = make_timeline
    now: datetime = NOW
    bucket: str = BUCKET


@pytest.fixture
def make() -> Make:
    return Make()
