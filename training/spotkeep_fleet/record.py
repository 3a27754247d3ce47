"""The fleet record, which the instances of a run share with each other and with the functions.

It is one item of the run table, `fleet#<run>` / `fleet`, beside the run's own items and with a version of its own. Each
writer names the version that it read. So DynamoDB refuses one of two writers, and that one reads again. The launcher
opens it, the agent on the instance that holds the lease moves it on, the controller ends it. Instances write it, so it
holds nothing that is executed. That is in `instance_job`.

docs/volume-protocol.md describes the write before each step, and the state after a crash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from .errors import DocumentError
from .reading import Reader, read_json_text

FLEET_SORT_KEY = "fleet"
FLEET_PARTITION_PREFIX = "fleet#"
"""The beginning of the partition key of every fleet record. Each record has a partition of its own.

IAM binds an instance to the partition of its own run (`dynamodb:LeadingKeys`), and to no sort key. So an instance
writes neither the functions' items of a run nor another run's record."""
LEASE_SECONDS = 90.0
"""The time in seconds that a lease lasts without renewal. It guards the record. The attachment guards the data."""
NODES_LEASE_SECONDS = 30.0
"""The time in seconds for which a lease of a run with nodes stays unchanged before another node may take it.

Each node measures it with its own monotonic clock from the time at which it saw the last change. No node compares
`expires_at` with its wall clock, which may be wrong."""
NODES_PORT = 7779
"""The port of the leader's agent at which the agents of the other nodes connect.

The ranks of a world meet at port 7777 of the first node, and their runners at 7778."""

BLANK, SNAPSHOT, VOLUME = "blank", "snapshot", "volume"
WAITING, TRAINING, FINISHED, FAILED, INPUT_ERROR = "waiting", "training", "finished", "failed", "input-error"
LONGEST_FAILURE = 1024
"""The longest reason of a failure, in characters, the same as for SageMaker's FailureReason."""
LONGEST_PROBLEM = 4096
"""The longest text of the last problem, in characters."""
MOST_SETBACKS = 5
"""The most instances in a row that may leave with a problem before they trained. Each of them costs a boot."""
MOST_BOOTED = 128
"""The most nodes that a record names as booted, the newest of all. A run may have half of them at a time."""
MOST_NOTICED = 20
"""The most instances that left on a notice in the record. The functions read it every five minutes."""
LARGEST_VOLUME_GIB = 2**16
"""The largest volume, 64 TiB. Source: "Amazon EBS volume constraints", EBS user guide."""
_FORMAT = 1
_KINDS = (BLANK, SNAPSHOT, VOLUME)
_STATES = (WAITING, TRAINING, FINISHED, FAILED, INPUT_ERROR)


@dataclass(frozen=True)
class Lease:
    """The claim of one instance to work on the run.

    Attributes:
        holder: Its id.
        fence: The fencing token. Each lease of a run has a higher one than the last.
        expires_at: Seconds since the epoch.
        address: The private IPv4 address of the holder, where the other nodes of a run connect. None for one instance.
    """

    holder: str
    fence: int
    expires_at: float
    address: str | None = None


@dataclass(frozen=True)
class Node:
    """An instance of a run with nodes that is connected with the leader, or is the leader.

    Attributes:
        instance: Its id.
        address: Its private IPv4 address.
    """

    instance: str
    address: str


@dataclass(frozen=True)
class CurrentVolume:
    """The one volume that holds the run's data.

    Attributes:
        id: Its id.
        zone: Its Availability Zone. It can be attached nowhere else.
        size_gb: Its size in GiB.
        damage: The fault of its file system. None when no fault is known.
    """

    id: str
    zone: str
    size_gb: int
    damage: str | None = None


@dataclass(frozen=True)
class VolumeMove:
    """A volume in the making. Until it is verified and current, no existing volume is given up (I5).

    Attributes:
        operation: Its number. It is the idempotency token and the tag of all that the move makes. A new target has a
            new number.
        zone: The Availability Zone of the new volume.
        source: Its origin, which is `blank`, a given `snapshot`, or the current `volume`.
        source_id: The id of the given snapshot or the current volume, or None for blank.
        snapshot: The snapshot of the current volume, once it is known.
        successor: The new volume, once it is known.
        failures: The number of times that it had to begin again.
    """

    operation: int
    zone: str
    source: str
    source_id: str | None = None
    snapshot: str | None = None
    successor: str | None = None
    failures: int = 0


@dataclass(frozen=True)
class Retired:
    """A resource of the run that is not needed any more, and that is to be deleted.

    Attributes:
        kind: `volume` or `snapshot`.
        id: Its id.
    """

    kind: str
    id: str


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot that exists and is billed.

    Attributes:
        id: Its id.
        gib: Its full size in GiB, by EC2, or the size of its volume until EC2 says it.
        since: The time of its record, in seconds since the epoch.
    """

    id: str
    gib: float
    since: float


@dataclass(frozen=True)
class Departure:
    """An instance that left on a notice of EC2's.

    Attributes:
        instance: Its id.
        at: The time at which its training had ended, in seconds since the epoch. EC2 takes it later.
    """

    instance: str
    at: float


@dataclass(frozen=True)
class TrainingReport:
    """The report of the training.

    Attributes:
        state: `waiting` for its first start, `training`, `finished` (exit code 0), `failed` (the script, for good) or
            `input-error`. With the last, its input (data, source, image, permissions) works on no instance.
        exit_code: The exit code of the last process that ended of its own accord.
        failure: The reason of its failure, in at most LONGEST_FAILURE characters.
        script_failures: The number of failures of the script, bounded by the job's max_script_retries.
        interruptions: The number of times that an instance left after a notice of EC2's.
        noticed: The last of these instances, the newest last. EC2 does not name the notice as the reason when such an
            instance powers itself off.
        step: Completed steps.
        total_steps: The steps of the whole training, if known.
        durable_step: The newest checkpoint that was durable on the volume.
        uploaded_step: The newest checkpoint that is in S3.
        paused_step: The completed steps of a script that has paused, and left with exit code 0.
        heartbeat_at: The time of the agent's last write, in seconds since the epoch.
        output_uri: The address of the model, once it is there.
    """

    state: str = WAITING
    exit_code: int | None = None
    failure: str | None = None
    script_failures: int = 0
    interruptions: int = 0
    noticed: tuple[Departure, ...] = ()
    step: int | None = None
    total_steps: int | None = None
    durable_step: int | None = None
    uploaded_step: int | None = None
    paused_step: int | None = None
    heartbeat_at: float | None = None
    output_uri: str | None = None

    @property
    def over(self) -> bool:
        """True once no instance has anything more to train."""
        return self.state in (FINISHED, FAILED, INPUT_ERROR)


@dataclass(frozen=True)
class FleetRecord:
    """The fleet record of one run, with its lease, volumes and reports.

    Attributes:
        run: The run's id.
        version: The number of writes.
        fence: The highest fencing token given out.
        lease: The lease of the instance that works on the run, or None when no instance does.
        volume: The current volume, or None before there is one, and when it is lost.
        move: The volume in the making.
        operations: The number of the last operation begun.
        retired: The volumes and snapshots to be deleted.
        kept: Volumes that Spotkeep may not delete, because they are damaged or a user brought them, so that a person
            decides.
        snapshots: The snapshots that moves have made and that are still there.
        snapshot_gib_hours: GiB times hours of the deleted snapshots of this attempt.
        training: The report of the training.
        stop_requested: True after a user asked the run to stop. The training saves and leaves.
        ended: True once the run is over. No instance begins anything then.
        problem: The last problem with lease, volume or saving, for `spotkeep describe`. None once it is solved.
        setbacks: The number of instances in a row that left with a problem. Zero once one trains. A run that is taken
            up again begins at zero.
        nodes: All nodes that are connected with the leader, and the leader. Empty for one instance with a volume.
        world: The ids of the instances that train together now, in the order of their ranks. The leader is the first.
        booted: The ids of the nodes whose agents have started, the newest last. Each node writes its own, before it
            brings its data and is connected.
    """

    run: str
    version: int = 0
    fence: int = 0
    lease: Lease | None = None
    volume: CurrentVolume | None = None
    move: VolumeMove | None = None
    operations: int = 0
    retired: tuple[Retired, ...] = ()
    kept: tuple[str, ...] = ()
    snapshots: tuple[StoredSnapshot, ...] = ()
    snapshot_gib_hours: float = 0.0
    training: TrainingReport = TrainingReport()
    stop_requested: bool = False
    ended: bool = False
    problem: str | None = None
    setbacks: int = 0
    nodes: tuple[Node, ...] = ()
    world: tuple[str, ...] = ()
    booted: tuple[str, ...] = ()

    def next_version(self) -> FleetRecord:
        """Return the record that is written over this one."""
        return replace(self, version=self.version + 1)


def fleet_key(run: str) -> tuple[str, str]:
    """Return the partition key and the sort key (`pk`, `sk`) of a run's record in the run table."""
    return FLEET_PARTITION_PREFIX + run, FLEET_SORT_KEY


def new_record(*, run: str, volume: CurrentVolume | None = None) -> FleetRecord:
    """Return the record of a new run.

    Args:
        run: Its id.
        volume: A volume that exists and is to be used. It must carry the run's tag.
    """
    return FleetRecord(run=run, volume=volume)


def reopened(record: FleetRecord) -> FleetRecord:
    """Return the record of a run for its next attempt, on the same volume and with nothing reported yet.

    Args:
        record: The record after the attempt before. It is ended, so no instance writes it.
    """
    report = TrainingReport(
        interruptions=record.training.interruptions,
        durable_step=record.training.durable_step,
        uploaded_step=record.training.uploaded_step,
    )
    return replace(
        record,
        snapshot_gib_hours=0.0,
        training=report,
        setbacks=0,
        stop_requested=False,
        ended=False,
        problem=None,
        nodes=(),
        world=(),
        booted=(),
    )


def encode(record: FleetRecord) -> str:
    """Write a record as JSON text, with words of a length that is read again."""
    if record.problem is not None:
        record = replace(record, problem=record.problem[:LONGEST_PROBLEM])
    return json.dumps({"format": _FORMAT, **asdict(record)}, separators=(",", ":"), allow_nan=False)


def decode(text: str) -> FleetRecord:
    """Read a text of `encode`.

    Raises:
        DocumentError: The text is no such one. The error names every fault of it.
    """
    return read_json_text(text, "fleet record", _record_from)


def fleet_record_of(item: Mapping[str, Any], *, run: str) -> FleetRecord:
    """Read a run's record from its item in the run table, as DynamoDB gives it.

    Raises:
        DocumentError: If it is none. Names everything that is wrong with it.
    """
    text = _attribute(item, "record", "S")
    if text is None:
        raise DocumentError("the fleet record", ["the item's attribute `record` is no text"])
    record = decode(text)
    problems = []
    if record.run != run:
        problems.append("it is that of another run")
    if _attribute(item, "version", "N") != str(record.version):
        # Writers name the attribute: with two versions every write would be refused.
        problems.append("the item's attribute `version` is not the record's version")
    if problems:
        raise DocumentError("the fleet record", problems)
    return record


def _attribute(item: Mapping[str, Any], name: str, kind: str) -> str | None:
    attribute = item.get(name)
    found = attribute.get(kind) if isinstance(attribute, Mapping) else None
    return found if isinstance(found, str) else None


def _record_from(reader: Reader) -> FleetRecord:
    if (found := reader.whole("format")) != _FORMAT:
        reader.problems.append(f"{reader.where}.format is {found}; this version of Spotkeep reads {_FORMAT}")
    problem = reader.optional_text("problem")
    return FleetRecord(
        run=reader.text("run"),
        version=reader.whole("version"),
        fence=reader.whole("fence"),
        lease=reader.nested("lease", _lease_from),
        volume=reader.nested("volume", _volume_from),
        move=reader.nested("move", _move_from),
        operations=reader.whole("operations"),
        retired=reader.each("retired", _retired_from),
        kept=reader.texts("kept"),
        snapshots=reader.each("snapshots", _stored_snapshot_from),
        snapshot_gib_hours=reader.number("snapshot_gib_hours", 0.0),
        training=reader.nested("training", _training_from) or TrainingReport(),
        stop_requested=reader.flag("stop_requested"),
        ended=reader.flag("ended"),
        # A longer one is a stranger's. It is shortened here, too: a record does not change by being written again.
        problem=None if problem is None else problem[:LONGEST_PROBLEM],
        setbacks=reader.whole("setbacks", 0),
        nodes=reader.each("nodes", _node_from),
        world=reader.texts("world"),
        booted=reader.texts("booted"),
    )


def _lease_from(reader: Reader) -> Lease:
    return Lease(
        holder=reader.text("holder"),
        fence=reader.whole("fence"),
        expires_at=reader.time("expires_at"),
        address=reader.optional_text("address"),
    )


def _node_from(reader: Reader) -> Node:
    return Node(instance=reader.text("instance"), address=reader.text("address"))


def _volume_from(reader: Reader) -> CurrentVolume:
    return CurrentVolume(
        id=reader.text("id"),
        zone=reader.text("zone"),
        size_gb=reader.whole("size_gb", at_most=LARGEST_VOLUME_GIB),
        damage=reader.optional_text("damage"),
    )


def _move_from(reader: Reader) -> VolumeMove:
    return VolumeMove(
        operation=reader.whole("operation"),
        zone=reader.text("zone"),
        source=reader.choice("source", _KINDS, BLANK),
        source_id=reader.optional_text("source_id"),
        snapshot=reader.optional_text("snapshot"),
        successor=reader.optional_text("successor"),
        failures=reader.whole("failures", 0),
    )


def _retired_from(reader: Reader) -> Retired:
    return Retired(kind=reader.choice("kind", (VOLUME, SNAPSHOT), VOLUME), id=reader.text("id"))


def _stored_snapshot_from(reader: Reader) -> StoredSnapshot:
    gib = reader.number("gib", at_most=LARGEST_VOLUME_GIB)
    return StoredSnapshot(id=reader.text("id"), gib=gib, since=reader.time("since"))


def _departure_from(reader: Reader) -> Departure:
    return Departure(instance=reader.text("instance"), at=reader.time("at"))


def _training_from(reader: Reader) -> TrainingReport:
    return TrainingReport(
        state=reader.choice("state", _STATES, WAITING),
        exit_code=reader.optional_whole("exit_code"),
        failure=reader.optional_text("failure"),
        script_failures=reader.whole("script_failures", 0),
        interruptions=reader.whole("interruptions", 0),
        noticed=reader.each("noticed", _departure_from),
        step=reader.optional_whole("step"),
        total_steps=reader.optional_whole("total_steps"),
        durable_step=reader.optional_whole("durable_step"),
        uploaded_step=reader.optional_whole("uploaded_step"),
        paused_step=reader.optional_whole("paused_step"),
        heartbeat_at=reader.optional_time("heartbeat_at"),
        output_uri=reader.optional_text("output_uri"),
    )


_SECONDS_PER_HOUR = 3600.0


def with_snapshots_counted(
    record: FleetRecord, *, volume_gb: int, known_gib: Mapping[str, float], now: float
) -> FleetRecord:
    """Count the snapshots that a record names. A new one begins to count, and one that it names no more has counted.

    Args:
        record: The record before its next write.
        volume_gb: The size of the run's volumes, in GiB, where there is no current one to ask.
        known_gib: The full size of snapshots in GiB, by id, as far as EC2 has said.
        now: The time, in seconds since the epoch.
    """
    named = _named(record)
    there = {stored.id: stored for stored in record.snapshots}
    if not named and not there:
        return record
    of_volume = float(record.volume.size_gb if record.volume is not None else volume_gb)
    gone = [stored for stored in record.snapshots if stored.id not in named]
    stored = [there.get(id_) or StoredSnapshot(id_, of_volume, now) for id_ in named]
    return replace(
        record,
        snapshots=tuple(replace(each, gib=known_gib.get(each.id, each.gib)) for each in stored),
        snapshot_gib_hours=record.snapshot_gib_hours + sum(_gib_hours(each, until=now) for each in gone),
    )


def snapshot_gib_hours(record: FleetRecord, *, since: float, until: float) -> float:
    """Return GiB times hours of a run's snapshots in its attempt, for the bill.

    A move makes a snapshot, and deletes it minutes later when the new volume made from it is current. EBS bills the
    data of a snapshot while it exists. The first snapshot of a volume holds all blocks that were written to it. EC2
    calls that its full size. Each of these snapshots is the first of its volume. The exception is a volume of the
    user's own that is moved more than once. A later snapshot of that volume holds at most its full size.

    Sources:
        https://docs.aws.amazon.com/ebs/latest/userguide/how_snapshots_work.html
        https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_Snapshot.html (FullSnapshotSizeInBytes)

    Args:
        record: The run's record.
        since: The start of the attempt, in seconds since the epoch. Storage before that is on the bill of another
            attempt.
        until: The end of the attempt.
    """
    there = sum(_gib_hours(replace(stored, since=max(stored.since, since)), until=until) for stored in record.snapshots)
    return record.snapshot_gib_hours + there


def _gib_hours(stored: StoredSnapshot, *, until: float) -> float:
    return stored.gib * max(0.0, until - stored.since) / _SECONDS_PER_HOUR


def _named(record: FleetRecord) -> tuple[str, ...]:
    """Return the snapshots that moves made, which are that of the move under way and those to be deleted."""
    retired = [each.id for each in record.retired if each.kind == SNAPSHOT]
    current = [] if record.move is None or record.move.snapshot is None else [record.move.snapshot]
    return tuple(dict.fromkeys([*current, *retired]))
