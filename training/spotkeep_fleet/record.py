"""The fleet record: what the instances of a run know of each other, and what they tell the functions.

It is one item of the run table, `fleet#<run>` / `fleet`, beside the run's own items and with a version of its own.
Each writer names the version that it read, so of two writers one is refused and reads again. The launcher opens it,
the agent on the instance that holds the lease moves it on, the controller ends it. Instances write it, so nothing that
is executed lies in it: that is in `instance_job`.

docs/volume-protocol.md says what is written before each step, and what a crash leaves.
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
"""IAM binds an instance to the partition of its own run (`dynamodb:LeadingKeys`), and to no sort key: so the record has
a partition of its own, and an instance writes neither what the functions keep of a run nor another run's record."""
LEASE_SECONDS = 90.0
"""How long a lease lasts without being renewed. It guards the record. The data are guarded by the attachment."""

BLANK, SNAPSHOT, VOLUME = "blank", "snapshot", "volume"
WAITING, TRAINING, FINISHED, FAILED, INPUT_ERROR = "waiting", "training", "finished", "failed", "input-error"
LONGEST_FAILURE = 1024
"""The longest reason of a failure, in characters. As SageMaker's FailureReason."""
LONGEST_PROBLEM = 4096
"""The longest text of what went wrong last, in characters."""
MOST_SETBACKS = 5
"""How many instances in a row may leave with something wrong before they trained. Each of them costs a boot."""
MOST_NOTICED = 20
"""How many instances that left on a notice the record keeps. The functions read it every five minutes."""
LARGEST_VOLUME_GIB = 2**16
"""64 TiB: "Amazon EBS volume constraints", EBS user guide."""
_FORMAT = 1
_KINDS = (BLANK, SNAPSHOT, VOLUME)
_STATES = (WAITING, TRAINING, FINISHED, FAILED, INPUT_ERROR)


@dataclass(frozen=True)
class Lease:
    """Which instance works on the run.

    Attributes:
        holder: Its id.
        fence: The fencing token: each lease of a run has a higher one than the last.
        expires_at: Seconds since the epoch.
    """

    holder: str
    fence: int
    expires_at: float


@dataclass(frozen=True)
class CurrentVolume:
    """The one volume that holds the run's data.

    Attributes:
        id: Its id.
        zone: Where it is. It can be attached nowhere else.
        size_gb: GiB.
        damage: What is wrong with its file system. None when nothing is known to be.
    """

    id: str
    zone: str
    size_gb: int
    damage: str | None = None


@dataclass(frozen=True)
class VolumeMove:
    """A volume in the making. Until it is verified and current, nothing that exists is given up (I5).

    Attributes:
        operation: Its number: the idempotency token and the tag of what it makes. A new target has a new number.
        zone: Where the new volume shall be.
        source: What from: `blank`, a given `snapshot`, or the current `volume`.
        source_id: The given snapshot's, or the current volume's, id. None for blank.
        snapshot: The snapshot of the current volume, once it is known.
        successor: The new volume, once it is known.
        failures: How often it had to begin again.
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
    """Something of the run that is not needed any more, and that is to be deleted.

    Attributes:
        kind: `volume` or `snapshot`.
        id: Its id.
    """

    kind: str
    id: str


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot that is there, and billed.

    Attributes:
        id: Its id.
        gib: What it holds: what EC2 says of its full size. Until then the size of its volume, which is at least that.
        since: When it was recorded, seconds since the epoch.
    """

    id: str
    gib: float
    since: float


@dataclass(frozen=True)
class Departure:
    """An instance that left on a notice of EC2's.

    Attributes:
        instance: Its id.
        at: When its training had ended, seconds since the epoch. EC2 takes it later.
    """

    instance: str
    at: float


@dataclass(frozen=True)
class TrainingReport:
    """What the training reports.

    Attributes:
        state: `waiting` for its first start, `training`, `finished` (exit code 0), `failed` (the script, for good) or
            `input-error`: its input (data, source, image, permissions) works on no instance.
        exit_code: The exit code of the last process that ended of its own accord.
        failure: Why it failed, in at most LONGEST_FAILURE characters.
        script_failures: How often the script failed. Bounded by the job's max_script_retries.
        interruptions: How often an instance left after a notice of EC2's.
        noticed: The last of these instances, the newest last. Of one that powered itself off after a notice, EC2 says
            that it went by itself.
        step: Completed steps.
        total_steps: The steps of the whole training, if known.
        durable_step: The newest checkpoint that was durable on the volume.
        uploaded_step: The newest checkpoint that is in S3.
        paused_step: The completed steps of a script that has paused, and left with exit code 0.
        heartbeat_at: When the agent last wrote, seconds since the epoch.
        output_uri: Where the model is, once it is there.
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
        """Whether no instance has anything left to train."""
        return self.state in (FINISHED, FAILED, INPUT_ERROR)


@dataclass(frozen=True)
class FleetRecord:
    """Everything above, for one run.

    Attributes:
        run: The run's id.
        version: Counts the writes.
        fence: The highest fencing token given out.
        lease: Who works on the run. None when no instance does.
        volume: The current volume. None before there is one, and when it is lost.
        move: The volume in the making.
        operations: The number of the last operation begun.
        retired: To be deleted.
        kept: Volumes that are not ours to delete: damaged ones, and such as a user brought. A person decides.
        snapshots: Those that moves have made and that are still there.
        snapshot_gib_hours: What the deleted snapshots of this attempt held, for as long as they were there.
        training: What the training reports.
        stop_requested: Whether a user asked the run to stop: the training saves and leaves.
        ended: Whether the run is over: no instance begins anything.
        problem: What went wrong last with lease, volume or saving, for `spotkeep describe`. None once it is well again.
        setbacks: How many instances in a row left with something wrong. None once one trains. A run that is taken up
            again begins at none.
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

    def next_version(self) -> FleetRecord:
        """Give the record as it is written over this one."""
        return replace(self, version=self.version + 1)


def fleet_key(run: str) -> tuple[str, str]:
    """Give the partition key and the sort key (`pk`, `sk`) of a run's record in the run table."""
    return FLEET_PARTITION_PREFIX + run, FLEET_SORT_KEY


def new_record(*, run: str, volume: CurrentVolume | None = None) -> FleetRecord:
    """Give the record of a new run.

    Args:
        run: Its id.
        volume: A volume that exists and is to be used. It must carry the run's tag.
    """
    return FleetRecord(run=run, volume=volume)


def reopened(record: FleetRecord) -> FleetRecord:
    """Give the record of a run whose next attempt begins: on the same volume, with nothing reported yet.

    Args:
        record: As the attempt before left it: ended, so no instance writes it.
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
    )


def encode(record: FleetRecord) -> str:
    """Write a record as JSON text, with words of a length that is read again."""
    if record.problem is not None:
        record = replace(record, problem=record.problem[:LONGEST_PROBLEM])
    return json.dumps({"format": _FORMAT, **asdict(record)}, separators=(",", ":"), allow_nan=False)


def decode(text: str) -> FleetRecord:
    """Read what `encode` wrote.

    Raises:
        DocumentError: If it is no such text. Names everything that is wrong with it.
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
    )


def _lease_from(reader: Reader) -> Lease:
    return Lease(holder=reader.text("holder"), fence=reader.whole("fence"), expires_at=reader.time("expires_at"))


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
