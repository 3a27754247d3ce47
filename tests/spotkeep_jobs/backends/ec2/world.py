"""A deployment's fleets without AWS: the models of EC2 and of the run table, and a clock that a test moves."""

from __future__ import annotations

import copy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from spotkeep_fleet.record import TRAINING, FleetRecord, Lease, Node
from spotkeep_fleet.tags import ATTEMPT_TAG
from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
from spotkeep_jobs.backends.ec2.fleet_orphans import FleetOrphans, VolumeRetention
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
from spotkeep_jobs.backends.ec2.history import FleetHistory
from spotkeep_jobs.backends.ec2.jobs import FleetJobs
from spotkeep_jobs.backends.ec2.launch import FleetPlatform, fleet_launch, job_request_of, launch_of
from spotkeep_jobs.backends.sagemaker.training_job import marks_of
from spotkeep_jobs.document.capacity import first_job
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.record.deployment_records import StoragePrices
from spotkeep_jobs.record.record import Ending, Place, Run
from spotkeep_jobs.record.states import EndReason, RunState
from tests.models.clock import NOON, Clock
from tests.models.dynamodb import InMemoryDynamoDb
from tests.models.ec2 import TEMPLATE, Ec2, ModelSnapshot, ModelVolume
from tests.models.faults import Faults

OURS = {"spotkeep:deployment": "spotkeep", "spotkeep:run": "count", "spotkeep:attempt": "1"}
SUBNETS = {"subnet-b": "us-east-1b"}
"""The subnets of nodes beside the first one."""
ZONES = {"subnet-a": "us-east-1a", **SUBNETS}
WEEK = VolumeRetention(volumes=timedelta(days=7), runs=timedelta(days=90))


class World:
    """A deployment's fleets, and a clock that a test moves; EC2 and DynamoDB are the models unless others are given."""

    def __init__(self, *, ec2: Any = None, dynamodb: InMemoryDynamoDb | None = None) -> None:
        self.clock = Clock()
        self.faults = Faults()
        self.ec2: Any = ec2 or Ec2(self.faults, time=self.clock)
        self.dynamodb = dynamodb or InMemoryDynamoDb(self.faults)
        self.api = Ec2Api(lambda: self.ec2)
        client: Any = self.dynamodb
        self.records = FleetTable(client, table_name="runs", retention_days=90)
        self._as_instances_write = FleetTable(client, table_name="runs", retention_days=90)
        self.storage_prices = StoragePrices()
        self.zones = dict(ZONES)
        """The zones that the deployment knows, by subnet id."""
        self.asked: dict[int, dict[str, Any]] = {}
        """The recorded requests, by attempt."""
        self.jobs = FleetJobs(
            ec2=self.api,
            records=self.records,
            deployment="spotkeep",
            prices={"g5.xlarge": 1.0},
            launches=lambda _run, attempt: launch_of(self.asked[attempt]) if attempt in self.asked else None,
            storage_prices=lambda: self.storage_prices,
            zones=self.zones,
            now=self.clock,
        )

    @property
    def now(self) -> datetime:
        return self.clock()

    @property
    def record(self) -> FleetRecord:
        return self.records.record("count")  # type: ignore[return-value]

    @property
    def history(self) -> FleetHistory:
        return self.records.history("count", 1)  # type: ignore[return-value]

    @property
    def fleet_state(self) -> str:
        """The state of the first fleet."""
        return self.ec2.fleet_state("fleet-1")  # type: ignore[no-any-return]

    def passes(self, minutes: float) -> None:
        self.clock.pass_by(minutes=minutes)

    def create(self, attempt: int = 1, **fields: Any) -> str:
        """A launcher creates an attempt, whose request is recorded before."""
        self.asked[attempt] = asked(attempt, **fields)
        return self.jobs.create(self.asked[attempt])

    def node(self, name: str, *, fleet: str = "") -> None:
        """The newest fleet, or this one, finds capacity for a node."""
        self.ec2.launches(fleet or [*self.ec2.fleets][-1], f"i-{name}")

    def world(self, *names: str, waiting: tuple[str, ...] = (), **report: Any) -> None:
        """Nodes train together, the first of them as the leader; others are connected with it."""
        self.change_record(
            lease=Lease(f"i-{names[0]}", self.record.fence + 1, self.now.timestamp() + 30),
            fence=self.record.fence + 1,
            nodes=tuple(Node(f"i-{name}", "10.0.0.1") for name in (*names, *waiting)),
            world=tuple(f"i-{name}" for name in names),
            training=replace(self.record.training, state=TRAINING, heartbeat_at=self.now.timestamp(), **report),
        )

    @property
    def active(self) -> list[str]:
        """The ids of the fleets that were not asked to be deleted."""
        return [each.id for each in self.ec2.fleets.values() if not each.deleted]

    @property
    def live(self) -> list[str]:
        """The ids of the instances that run."""
        return [each.id for each in self.ec2.instances.values() if each.live]

    def instance(self, name: str, *, attempt: int = 1) -> None:
        """The fleet of an attempt finds capacity."""
        [fleet] = [each.id for each in self.ec2.fleets.values() if each.tags[ATTEMPT_TAG] == str(attempt)]
        self.ec2.launches(fleet, f"i-{name}")

    def change_record(self, **changes: Any) -> None:
        """An instance writes the fleet record."""
        self._as_instances_write.write_record(replace(self.record, **changes), now=self.now)

    def report(self, **changes: Any) -> None:
        """An instance reports on its training."""
        self.change_record(training=replace(self.record.training, **changes))

    def stores(self, *made: ModelVolume | ModelSnapshot) -> None:
        """There are these volumes and snapshots."""
        for each in made:
            (self.ec2.volumes if isinstance(each, ModelVolume) else self.ec2.snapshots)[each.id] = each

    @property
    def stored(self) -> list[str]:
        """The ids of the volumes and snapshots there are."""
        return [*self.ec2.volumes, *self.ec2.snapshots]

    @property
    def kept(self) -> Any:
        """All that a function can change, as it is now."""
        return copy.deepcopy((self.ec2.fleets, self.ec2.instances, self.ec2.versions, self.dynamodb.items))

    def orphans(self, run: Run | None) -> FleetOrphans:
        """What finds and removes orphans, beside a run table that has one run, or none."""
        table: Any = OneRun(run)
        return FleetOrphans(
            ec2=self.api, records=self.records, table=table, deployment="spotkeep", retention=WEEK, now=lambda: NOON
        )


def volume(name: str, *, operation: int | None = 1, run: str = "count", attached: bool = False) -> ModelVolume:
    """A volume of a run, which an operation of the agent made, or a person."""
    in_use = {"state": "in-use", "instance": "i-a", "attachment": "attached"} if attached else {}
    tags = OURS | {"spotkeep:run": run} | ({} if operation is None else {"spotkeep:operation": str(operation)})
    return ModelVolume(id=name, zone="us-east-1b", size_gb=16, tags=tags, **in_use)


def snapshot(name: str, *, operation: int = 1, run: str = "count") -> ModelSnapshot:
    """A snapshot of a run."""
    tags = OURS | {"spotkeep:run": run, "spotkeep:operation": str(operation)}
    return ModelSnapshot(id=name, volume="vol-1", size_gb=16, tags=tags)


def asked(
    attempt: int = 1, *, template_id: str = TEMPLATE, subnet_id: str = "subnet-a", token: str = "", **fields: Any
) -> dict[str, Any]:
    given = {"instance_types": ("g5.xlarge",), "max_run": 3600, **fields}
    request = JobRequest(name="count", command=("true",), backend="ec2", **given)
    launch_id = token or f"{attempt:016x}"
    launch = fleet_launch(
        request=request, job=first_job(request, prices={}), deployment="spotkeep", run="count", attempt=attempt,
        platform=FleetPlatform(
            launch_template_id=template_id, subnets={subnet_id: "us-east-1a", **(SUBNETS if "nodes" in fields else {})},
            nodes_security_group_id="sg-nodes",
        ),
        launch_id=launch_id, checkpoint_uri="s3://bucket/runs/count/checkpoints/",
        output_prefix="s3://bucket/runs/count/output/",
    )  # fmt: skip
    return job_request_of(launch, marks=marks_of(run="count", attempt=attempt, launch_id=launch_id))


class OneRun:
    """A run table with one run, or none."""

    def __init__(self, run: Run | None) -> None:
        self.run = run
        self.runs = self

    def get(self, run: str) -> Run | None:
        return self.run


def run_item(state: RunState, *, attempt: int = 1, days_ago: float = 0, **volume: str) -> Run:
    ended = NOON - timedelta(days=days_ago)
    return Run(
        run="count",
        name="count",
        place=Place(backend="ec2", capacity="spot", instance_type="g5.xlarge"),
        state=state,
        job_name=f"count-{attempt}",
        attempt=attempt,
        created_at=ended,
        updated_at=ended,
        checkpoint_uri="s3://b/c/",
        ending=Ending(at=ended, reason=EndReason.COMPLETED) if state.ended else None,
        output_prefix="s3://b/o/",
        token="t",
        request={"volume": volume} if volume else {},
    )
