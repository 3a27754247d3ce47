"""A deployment's fleets without AWS: EC2 and the run table in memory, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from spotkeep_fleet.instance_job import InstanceJob
from spotkeep_fleet.record import FleetRecord
from spotkeep_jobs.backends.ec2.facts import (
    Fleet,
    FleetEvent,
    Instance,
    InstanceTypeFacts,
    Snapshot,
    SpotPrice,
    TaggedStorage,
    Volume,
)
from spotkeep_jobs.backends.ec2.history import FleetHistory
from spotkeep_jobs.backends.ec2.jobs import FleetJobs
from spotkeep_jobs.backends.ec2.launch import FleetPlatform, fleet_launch, job_request_of
from spotkeep_jobs.backends.ec2.records import FleetRecordChangedError
from spotkeep_jobs.backends.ec2.sweep import Retention
from spotkeep_jobs.backends.sagemaker.request import marks_of
from spotkeep_jobs.document.fallbacks import first_job
from spotkeep_jobs.document.request import JobRequest
from spotkeep_jobs.errors import AwsBusyError, AwsRefusedError
from spotkeep_jobs.record.price_book import StoragePrices
from spotkeep_jobs.record.record import Run
from spotkeep_jobs.record.states import EndReason, RunState

NOON = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
OURS = {"spotkeep:deployment": "spotkeep", "spotkeep:run": "count", "spotkeep:attempt": "1"}
WEEK = Retention(volumes=timedelta(days=7), runs=timedelta(days=90))


@dataclass
class FakeEc2:
    """EC2, as far as a test tells it what there is. Creating is idempotent by token, as EC2's is."""

    known: dict[str, Fleet] = field(default_factory=dict)
    by_token: dict[str, str] = field(default_factory=dict)
    there: list[Instance] = field(default_factory=list)
    storage: list[TaggedStorage] = field(default_factory=list)
    versions: list[str] = field(default_factory=list)
    terminated: list[str] = field(default_factory=list)
    consoles: dict[str, str] = field(default_factory=dict)
    refuses: bool = False
    loses_answers: int = 0

    def make_template_version(self, template_id: str, /, *, run: str, token: str, tags: Mapping[str, str]) -> str:
        if token not in self.versions:
            self.versions.append(token)
        return str(self.versions.index(token) + 2)

    def delete_template_version(self, template_id: str, version: str, /) -> None:
        if int(version) - 2 < len(self.versions):
            self.versions.pop(int(version) - 2)

    def create_fleet(self, request: Mapping[str, Any], /) -> str:
        if self.refuses:
            raise AwsRefusedError(operation="CreateFleet", code="InvalidParameter", reason="no such subnet")
        token = request["ClientToken"]
        fleet_id = self.by_token.setdefault(token, f"fleet-{len(self.by_token) + 1}")
        tags = {tag["Key"]: tag["Value"] for tag in request["TagSpecifications"][0]["Tags"]}
        self.known.setdefault(fleet_id, Fleet(id=fleet_id, state="active", tags=tags, created_at=NOON))
        if self.loses_answers:
            self.loses_answers -= 1
            raise AwsBusyError(operation="CreateFleet", code="ReadTimeoutError", reason="no answer")
        return fleet_id

    def find_fleet(self, client_token: str, /) -> str | None:
        return self.by_token.get(client_token)

    def fleet(self, fleet_id: str, /) -> Fleet | None:
        return self.known.get(fleet_id)

    def fleets_by_id(self, fleet_ids: Sequence[str], /) -> tuple[Fleet, ...]:
        return tuple(self.known[fleet_id] for fleet_id in fleet_ids if fleet_id in self.known)

    def fleets(self, *, deployment: str) -> tuple[Fleet, ...]:
        return tuple(
            fleet for fleet in self.known.values() if fleet.active and fleet.tags["spotkeep:deployment"] == deployment
        )

    def instances(self, *, deployment: str, run: str) -> tuple[Instance, ...]:
        wanted = {"spotkeep:deployment": deployment, "spotkeep:run": run}
        return tuple(each for each in self.there if wanted.items() <= each.tags.items())

    def events(self, fleet_id: str, /, *, since: datetime) -> tuple[FleetEvent, ...]:
        return ()

    def delete_fleet(self, fleet_id: str, /) -> None:
        self.known[fleet_id] = replace(self.known[fleet_id], state="deleted_running")

    def terminate(self, instance_ids: Sequence[str], /) -> None:
        self.terminated += instance_ids
        self.there = [replace(each, state="terminated") if each.id in instance_ids else each for each in self.there]

    def console(self, instance_id: str, /) -> str:
        return self.consoles.get(instance_id, "")

    def spot_prices(
        self, *, instance_types: Sequence[str], zones: Sequence[str], start: datetime, end: datetime
    ) -> tuple[SpotPrice, ...]:
        return tuple(
            SpotPrice(instance_type=name, zone=zone, since=start - timedelta(hours=1), usd_per_hour=0.3)
            for name in instance_types
            for zone in zones
        )

    def instance_types(self, names: Sequence[str], /) -> tuple[InstanceTypeFacts, ...]:
        return ()

    def ami_architecture(self, template_id: str, /) -> str | None:
        return None

    def volume(self, volume_id: str, /) -> Volume | None:
        return None

    def snapshot(self, snapshot_id: str, /) -> Snapshot | None:
        return None

    def stored(self, *, deployment: str) -> tuple[TaggedStorage, ...]:
        return tuple(self.storage)

    def delete_stored(self, stored: TaggedStorage, /) -> None:
        self.storage.remove(stored)


@dataclass
class FakeRecords:
    """Records in memory, with their versions. What may go wrong once, may go wrong at any write."""

    fleet: dict[str, FleetRecord] = field(default_factory=dict)
    todo: dict[str, InstanceJob] = field(default_factory=dict)
    past: dict[tuple[str, int], FleetHistory] = field(default_factory=dict)

    def job(self, run: str, /) -> InstanceJob | None:
        return self.todo.get(run)

    def record(self, run: str, /) -> FleetRecord | None:
        return self.fleet.get(run)

    def write_record(self, record: FleetRecord, /, *, now: datetime) -> FleetRecord:
        known = self.fleet.get(record.run)
        if known is None or known.version != record.version:
            raise FleetRecordChangedError(record.run)
        self.fleet[record.run] = record.next_version()
        return self.fleet[record.run]

    def write_with_job(
        self, record: FleetRecord, /, *, job: InstanceJob, over: int | None, now: datetime
    ) -> FleetRecord:
        known = self.todo.get(record.run)
        if over != (None if known is None else known.attempt):
            raise FleetRecordChangedError(record.run)
        self.todo[record.run] = job
        self.fleet[record.run] = record.next_version()
        return self.fleet[record.run]

    def history(self, run: str, attempt: int, /) -> FleetHistory | None:
        return self.past.get((run, attempt))

    def write_history(self, history: FleetHistory, /, *, new: bool = False) -> FleetHistory:
        key = (history.run, history.attempt)
        known = self.past.get(key)
        if (known is not None) if new else (known is None or known.version != history.version):
            raise FleetRecordChangedError(history.run)
        self.past[key] = history.model_copy(update={"version": history.version + 1})
        return self.past[key]


@dataclass
class World:
    """A deployment's fleets, and a clock that a test moves."""

    ec2: Any = field(default_factory=FakeEc2)
    records: FakeRecords = field(default_factory=FakeRecords)
    storage_prices: StoragePrices = field(default_factory=StoragePrices)
    now: datetime = NOON

    def __post_init__(self) -> None:
        self.jobs = FleetJobs(
            ec2=self.ec2,
            records=self.records,
            deployment="spotkeep",
            prices={"g5.xlarge": 1.0},
            storage_prices=lambda: self.storage_prices,
            now=lambda: self.now,
        )

    def passes(self, minutes: float) -> None:
        self.now += timedelta(minutes=minutes)

    def instance(self, name: str, *, attempt: int = 1) -> None:
        tags = OURS | {"spotkeep:attempt": str(attempt)}
        self.ec2.there.append(
            Instance(id=f"i-{name}", type="g5.xlarge", zone="us-east-1a", spot=True, state="running",
                     launched_at=self.now, tags=tags)
        )  # fmt: skip

    def change_record(self, **changes: Any) -> None:
        record = self.records.fleet["count"]
        self.records.fleet["count"] = replace(record, **changes).next_version()

    def report(self, **changes: Any) -> None:
        self.change_record(training=replace(self.records.fleet["count"].training, **changes))


def asked(
    attempt: int = 1, *, template_id: str = "lt-1", subnet_id: str = "subnet-a", token: str = ""
) -> dict[str, Any]:
    request = JobRequest(name="count", command=("true",), backend="ec2", instance_types=("g5.xlarge",), max_run=3600)
    launch_id = token or f"{attempt:016x}"
    launch = fleet_launch(
        request=request, job=first_job(request, prices={}), deployment="spotkeep", run="count", attempt=attempt,
        platform=FleetPlatform(launch_template_id=template_id, subnets={subnet_id: "us-east-1a"}),
        launch_id=launch_id, checkpoint_uri="s3://bucket/runs/count/checkpoints/",
        output_prefix="s3://bucket/runs/count/output/",
    )  # fmt: skip
    return job_request_of(launch, marks=marks_of(run="count", attempt=attempt, launch_id=launch_id))


class OneRun:
    """A run table with one run, or none."""

    def __init__(self, run: Run | None) -> None:
        self.run = run

    def get(self, run: str) -> Run | None:
        return self.run


def run_item(state: RunState, *, attempt: int = 1, days_ago: float = 0, **volume: str) -> Run:
    ended = NOON - timedelta(days=days_ago)
    return Run(
        run="count", name="count", backend="ec2", state=state, capacity="spot", instance_type="g5.xlarge",
        job_name=f"count-{attempt}", attempt=attempt, created_at=ended, updated_at=ended, checkpoint_uri="s3://b/c/",
        ended_at=ended if state.ended else None, end_reason=EndReason.COMPLETED if state.ended else None,
        output_prefix="s3://b/o/", token="t", request={"volume": volume} if volume else {},
    )  # fmt: skip
