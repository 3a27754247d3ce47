"""The volume protocol, which decides the next action from the record, EC2's state and this machine's state. Pure.

`decide` gives one action. The executor carries it out. `absorb` takes its result. Nothing else moves the protocol on.
So a crash between any two of these is a crash in a state that the record shows. The next instance decides from that
state.

Three rules carry the promises:

1. The agent records a volume or snapshot before it makes it (its operation), and again with its id afterwards.
2. An instance trains on a volume only after it attached it *and then* renewed its lease. And no instance takes a
   volume, or a snapshot of it, while it is attached to an instance that is not gone. EBS attaches a volume to one
   instance at a time, so the attachment is the lock that EC2 itself enforces. The lease decides which instance may try
   (I1).
3. A volume is given up only by the write that makes its verified successor current (I5).

docs/volume-protocol.md has the states, and the results of a crash in each.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from spotkeep_agent.ebs import GONE_STATES, EbsAttachment, EbsSnapshot, EbsVolume
from spotkeep_agent.volume.actions import Done, MachineVolumes, Refused, Result
from spotkeep_fleet.instance_job import InstanceJob
from spotkeep_fleet.record import (
    BLANK,
    FINISHED,
    INPUT_ERROR,
    LEASE_SECONDS,
    LONGEST_FAILURE,
    MOST_SETBACKS,
    SNAPSHOT,
    VOLUME,
    CurrentVolume,
    FleetRecord,
    Lease,
    Retired,
    VolumeMove,
    with_snapshots_counted,
)

from .actions import (
    Action,
    Attach,
    Check,
    CreateSnapshot,
    CreateVolume,
    DeleteSnapshot,
    DeleteVolume,
    DescribeInstances,
    DescribeSnapshots,
    DescribeVolumes,
    Detach,
    Format,
    GiveUp,
    Idle,
    Inspect,
    Leave,
    Mount,
    ReadJob,
    ReadRecord,
    ReadSecondTier,
    Ready,
    SurveyMachine,
    Unmount,
    Wait,
    WriteRecord,
)

MISSING_SECONDS = 60.0
"""Seconds for which a recorded resource may be missing before it counts as gone, as Describe calls lag behind."""
FORCE_SECONDS = 30.0
"""Seconds for which a volume may stay attached to a gone instance, before it is detached by force."""
REFUSED_SECONDS = 600.0
"""Seconds for which the agent waits out the same refusal."""
LONGEST_WAIT_SECONDS = 1800.0
"""The most seconds that an instance waits for another one that is alive. It costs money meanwhile."""
MOST_FAILURES = 3
"""The most new volumes begun under one lease."""
_LONGEST_PAUSE_SECONDS = 15.0
_LOST_STATES = ("error", "deleting", "deleted")


@dataclass(frozen=True)
class Leaving:
    """That this instance goes, and why.

    Attributes:
        why: For people.
        failed: True when a person should check a fault.
    """

    why: str
    failed: bool = False


@dataclass(frozen=True)
class Situation:
    """All inputs of the decision on the next action.

    Attributes:
        instance: This instance's id.
        zone: Its availability zone.
        job: The job of the run's instances, or None to read it once, since no attempt outlives its instances.
        fence: The fencing token of the lease that this agent took, or None without a lease.
        record: The run's record as last read or written, or None to read it again.
        here: The run's volumes on this machine, or None to survey it.
        volumes: The run's volumes as EC2 shows them, or None to describe them again.
        snapshots: The run's snapshots as EC2 shows them, or None to describe them again.
        instances: States of the described instances, with `None` for one that EC2 no longer knows.
        confirmed: Volumes attached here, where this agent still had the lease after the attachment.
        made: A created resource that is not recorded yet, by operation and id.
        spent: An operation with an idempotency token that stands for other parameters.
        filesystems: Types of the file systems found, by volume, with an empty text for none.
        checked: Volumes with a checked file system.
        damaged: A volume with a damaged file system, and the damage.
        second_tier: True when S3 holds a checkpoint, or None when it is not known.
        waiting: The reason for the current wait.
        waited_s: Seconds waited for that reason.
        trouble: The fault of the last action, with which the agent waits for a moment.
        bearable: True when the trouble may last for ever, False when the agent gives up after a time.
        leaving: Set once this instance goes.
        mount_stuck: True when the file system could not be unmounted.
        forgotten: True when the run has no job or no record.
        ready: True when training may go on.
        done_with: Ids of retired volumes and snapshots that need no more deletion.
        undeletable: Ids of retired volumes and snapshots that cannot be deleted now.
    """

    instance: str
    zone: str
    job: InstanceJob | None = None
    fence: int | None = None
    record: FleetRecord | None = None
    here: MachineVolumes | None = None
    volumes: tuple[EbsVolume, ...] | None = None
    snapshots: tuple[EbsSnapshot, ...] | None = None
    instances: tuple[tuple[str, str | None], ...] = ()
    confirmed: frozenset[str] = frozenset()
    made: tuple[int, str] | None = None
    spent: int | None = None
    filesystems: tuple[tuple[str, str], ...] = ()
    checked: frozenset[str] = frozenset()
    damaged: tuple[str, str] | None = None
    second_tier: bool | None = None
    waiting: str = ""
    waited_s: float = 0.0
    trouble: str = ""
    bearable: bool = True
    leaving: Leaving | None = None
    mount_stuck: bool = False
    forgotten: bool = False
    ready: bool = False
    done_with: frozenset[str] = frozenset()
    undeletable: frozenset[str] = frozenset()

    @property
    def holds_lease(self) -> bool:
        """True when the record, as last seen, gives the lease to this same agent."""
        lease = None if self.record is None else self.record.lease
        return lease is not None and lease.holder == self.instance and lease.fence == self.fence

    def volume(self, id_: str | None) -> EbsVolume | None:
        """Return a volume as EC2 shows it."""
        return next((found for found in self.volumes or () if found.id == id_), None)

    def snapshot(self, id_: str | None) -> EbsSnapshot | None:
        """Return a snapshot as EC2 shows it."""
        return next((found for found in self.snapshots or () if found.id == id_), None)

    def is_gone(self, instance: str) -> bool | None:
        """Return True when an instance is gone, or None when EC2 was not asked."""
        for id_, state in self.instances:
            if id_ == instance:
                return state is None or state in GONE_STATES
        return None

    def waited_for(self, reason: str) -> float:
        """Return the seconds of uninterrupted waiting for this reason."""
        return self.waited_s if self.waiting == reason else 0.0

    def filesystem(self, volume: str) -> str | None:
        """Return the type of a volume's file system, empty for none, or None when unknown."""
        return next((found for id_, found in self.filesystems if id_ == volume), None)


def leave(situation: Situation, *, why: str, failed: bool = False) -> Situation:
    """Begin to leave, that is unmount, detach and give the lease back."""
    return situation if situation.leaving else replace(situation, leaving=Leaving(why, failed))


def decide(s: Situation, *, now: float) -> Action:
    """Return the next action.

    Args:
        s: The situation.
        now: Seconds since the epoch.
    """
    if s.trouble:
        return _bear(s)
    if s.leaving is not None:
        return _leave(s, s.leaving)
    if s.job is None:
        return ReadJob()
    record = s.record
    if record is None:
        return ReadRecord()
    if s.here is None:
        return SurveyMachine()
    # From here on the order is the protocol: an agent that lost its lease stops before it looks at any volume, and a
    # run that is over is left before its lease is taken.
    if s.fence is not None and not s.holds_lease:
        return GiveUp("another instance has taken the lease", failed=False)
    ended = over(record)
    if ended is not None:
        return GiveUp(ended, failed=False)
    if not s.holds_lease:
        return _take_lease(s, record, s.here, now)
    lease = record.lease
    # Renewed at half its time: a write that EC2 or DynamoDB delays still comes before another instance may take over.
    if lease is not None and lease.expires_at - now < LEASE_SECONDS / 2:
        return _write(s, record, "renew the lease", now)
    if s.ready:
        return _retire(s, record, now)
    if s.volumes is None:
        return _describe_volumes(record)
    if record.volume is not None:
        return _with_volume(s, record, record.volume, now)
    if record.move is not None:
        return _move(s, record, record.move, now)
    given = s.job.volume.snapshot_id
    return _write(s, _begun(record, zone=s.zone, source=SNAPSHOT if given else BLANK, source_id=given), "begin", now)


def over(record: FleetRecord) -> str | None:
    """Return why no instance has anything to train. None where one has."""
    if record.ended:
        return "the run has ended"
    if record.training.over:
        return "the training has finished" if record.training.state == FINISHED else "the training has failed"
    return "the run is asked to stop" if record.stop_requested else None


def _bear(s: Situation) -> Action:
    if not s.bearable and s.waited_for(s.trouble) >= REFUSED_SECONDS:
        return Leave(s.trouble, failed=True) if s.leaving else GiveUp(s.trouble)
    return _wait(s, s.trouble)


# The lease


def _take_lease(s: Situation, record: FleetRecord, here: MachineVolumes, now: float) -> Action:
    lease = record.lease
    if lease is not None and lease.holder != s.instance and now <= lease.expires_at:
        gone = s.is_gone(lease.holder)
        if gone is None:
            return DescribeInstances((lease.holder,))
        if not gone:
            # The other instance may need the volumes that hang here: this machine lets go before it waits.
            return _clear_out(s, record, here) or _wait_for_other(s, "the lease of another instance")
    # An expired lease is taken without a look at its holder. The fence refuses the holder's writes from now on, and
    # the attachment keeps its volume from others until it is gone.
    fence = record.fence + 1
    move = None if record.move is None else replace(record.move, failures=0)
    taken = replace(record, fence=fence, lease=Lease(s.instance, fence, now + LEASE_SECONDS), move=move, problem=None)
    return WriteRecord(taken, "take the lease")


def _write(s: Situation, record: FleetRecord, why: str, now: float) -> Action:
    """Write under the lease, and renew it by the way."""
    assert s.fence is not None  # noqa: S101 - no instance writes without a lease
    known_gib = {found.id: found.full_bytes / 2**30 for found in s.snapshots or () if found.full_bytes is not None}
    counted = with_snapshots_counted(record, volume_gb=_wanted_gb(s), known_gib=known_gib, now=now)
    return WriteRecord(replace(counted, lease=Lease(s.instance, s.fence, now + LEASE_SECONDS)), why)


def _wanted_gb(s: Situation) -> int:
    assert s.job is not None  # noqa: S101 - nothing is made before it was read
    return s.job.volume.size_gb


def _clear_out(s: Situation, record: FleetRecord, here: MachineVolumes) -> Action | None:
    """Release the run's volumes on this machine."""
    if here.mounted is not None:
        return None if s.mount_stuck else Unmount(here.mounted)
    for volume in here.devices:
        if volume in _known_volumes(record):
            return Detach(volume, s.instance)
    return None


def _leave(s: Situation, leaving: Leaving) -> Action:
    if s.record is None:
        # Whether the lease is still ours is not known: what is here goes all the same, then it is read.
        if s.here is not None and s.here.mounted is not None and not s.mount_stuck:
            return Unmount(s.here.mounted)
        return Leave(leaving.why, leaving.failed) if s.forgotten else ReadRecord()
    if s.here is None:
        return SurveyMachine()
    action = _clear_out(s, s.record, s.here)
    if action is not None:
        return action
    # With a stuck mount the volume is still in use: the lease runs out, and the instance's end frees the volume.
    if s.holds_lease and not s.mount_stuck:
        record = set_back(s.record, leaving.why) if leaving.failed else s.record
        return WriteRecord(replace(record, lease=None), "give the lease back")
    return Leave(leaving.why, leaving.failed)


def set_back(record: FleetRecord, why: str, *, most: int = MOST_SETBACKS) -> FleetRecord:
    """Record that an instance could not train. A fleet replaces its instances for ever, so the record counts.

    Args:
        record: The record.
        why: The reason, for people.
        most: The most such instances in a row.
    """
    setbacks, training = record.setbacks + 1, record.training
    if setbacks >= most and not training.over:
        failure = f"{setbacks} instances, one after the other, could not train; the last one: {why}"
        training = replace(training, state=INPUT_ERROR, failure=failure[:LONGEST_FAILURE])
    return replace(record, setbacks=setbacks, training=training, problem=why)


# The current volume


def _with_volume(s: Situation, record: FleetRecord, volume: CurrentVolume, now: float) -> Action:
    fact, move = s.volume(volume.id), record.move
    if fact is None or fact.state in _LOST_STATES:
        if move is not None and move.snapshot is not None:
            return _move(s, record, move, now)  # the snapshot holds all that the volume held
        if s.waited_for("a volume that is missing") < MISSING_SECONDS:
            return _wait(s, "a volume that is missing")
        return _replace_volume(s, record, volume, "is lost", now)
    if volume.damage is not None:
        # The instance that found the damage leaves as failed. The next one keeps the volume and replaces it.
        if s.damaged is not None:
            return GiveUp(f"volume {volume.id} is damaged: {volume.damage}")
        return _replace_volume(s, record, volume, f"is damaged ({volume.damage})", now)
    if fact.multi_attach:
        return GiveUp(f"volume {fact.id} has Multi-Attach on, which destroys its file system; turn it off")
    if fact.zone == s.zone:
        if move is not None:
            return _write(s, _abandoned(record, move), "the volume is in this zone: no move", now)
        return _bring(s, record, fact, now)
    if move is not None:
        return _move(s, record, move, now)
    return _quiet(s, fact) or _write(
        s, _begun(record, zone=s.zone, source=VOLUME, source_id=volume.id), f"begin to move to {s.zone}", now
    )


def _replace_volume(s: Situation, record: FleetRecord, volume: CurrentVolume, how: str, now: float) -> Action:
    # A new volume begins from nothing. That loses training unless S3 has a checkpoint, or there was none to lose.
    if record.training.durable_step is not None:
        if s.second_tier is None:
            return ReadSecondTier()
        if not s.second_tier:
            return GiveUp(f"volume {volume.id} {how}, and there is no checkpoint in S3 to go on from")
    without = record if record.move is None else _abandoned(record, record.move)
    # Should it turn up again, a person decides about it: the pass over orphans does not delete it.
    return _write(s, replace(without, volume=None, kept=(*record.kept, volume.id)), f"volume {volume.id} {how}", now)


def _quiet(s: Situation, fact: EbsVolume) -> Action | None:
    """Make sure that no instance writes to a volume. Return None when no instance does."""
    elsewhere = tuple(found.instance for found in fact.attachments)
    gone = [s.is_gone(instance) for instance in elsewhere]
    if None in gone:
        return DescribeInstances(elsewhere)
    return None if all(gone) else _wait_for_other(s, "a volume that another instance has")


# A volume in the making


def _move(s: Situation, record: FleetRecord, move: VolumeMove, now: float) -> Action:
    if move.zone != s.zone:
        return _write(s, _begun_again(record, move, zone=s.zone), f"the new volume shall be in {s.zone}", now)
    if move.failures >= MOST_FAILURES:
        return GiveUp(f"no usable volume could be made in {move.failures} attempts: {record.problem or 'see the log'}")
    if move.successor is not None:
        return _with_successor(s, record, move, now)
    # EC2 refuses an idempotency token with other parameters, for example after the job's size changed: a new number.
    if s.spent == move.operation:
        problem = "the volume was asked for before, with other parameters"
        return _write(s, _begun_again(record, move, zone=s.zone, keep_snapshot=True, failed=problem), problem, now)
    snapshot: EbsSnapshot | None = None
    if move.source == VOLUME and move.snapshot is None:
        return _make_snapshot(s, record, move, now)
    source_snapshot = move.snapshot if move.source == VOLUME else move.source_id
    if source_snapshot is not None:
        if s.snapshots is None:
            return DescribeSnapshots(id=source_snapshot)
        snapshot = s.snapshot(source_snapshot)
        action = _until_complete(s, record, move, snapshot, source_snapshot, now)
        if action is not None:
            return action
    if s.made is not None and s.made[0] == move.operation:
        made = replace(record, move=replace(move, successor=s.made[1]))
        return _write(s, made, f"volume {s.made[1]} is in the making", now)
    # EBS makes no volume smaller than its snapshot, and a run never gets a smaller one than it had.
    sizes = [_wanted_gb(s), snapshot.size_gb if snapshot else 0]
    if record.volume is not None:
        sizes.append(record.volume.size_gb)
    return CreateVolume(s.zone, move.operation, max(sizes), source_snapshot)


def _make_snapshot(s: Situation, record: FleetRecord, move: VolumeMove, now: float) -> Action:
    if s.made is not None and s.made[0] == move.operation:
        made = replace(record, move=replace(move, snapshot=s.made[1]))
        return _write(s, made, f"snapshot {s.made[1]} is in the making", now)
    source = s.volume(move.source_id)
    assert source is not None  # noqa: S101 - a missing one was dealt with before
    action = _quiet(s, source)
    if action is not None:
        return action
    if s.snapshots is None:
        return DescribeSnapshots(operation=move.operation)
    for found in s.snapshots:
        # CreateSnapshot knows no idempotency token: what a crash made and did not record is found by its tag.
        if found.operation == move.operation and found.volume == source.id and found.state != "error":
            adopted = replace(record, move=replace(move, snapshot=found.id))
            return _write(s, adopted, f"snapshot {found.id} is in the making", now)
    return CreateSnapshot(source.id, move.operation)


def _until_complete(
    s: Situation, record: FleetRecord, move: VolumeMove, snapshot: EbsSnapshot | None, id_: str, now: float
) -> Action | None:
    if snapshot is None and s.waited_for("a snapshot that is missing") < MISSING_SECONDS:
        return _wait(s, "a snapshot that is missing")
    if snapshot is None or snapshot.state == "error":
        problem = f"snapshot {id_} {'is missing' if snapshot is None else 'failed'}"
        if move.source == SNAPSHOT:
            return GiveUp(f"{problem}; name another one in the job's volume")
        again = _begun_again(record, move, zone=s.zone, failed=problem)
        return _write(s, again, problem, now)
    return None if snapshot.state == "completed" else _wait(s, "the snapshot")


def _with_successor(s: Situation, record: FleetRecord, move: VolumeMove, now: float) -> Action:
    fact = s.volume(move.successor)
    if fact is None and s.waited_for("a volume that is missing") < MISSING_SECONDS:
        return _wait(s, "a volume that is missing")
    if fact is None or fact.state in _LOST_STATES:
        problem = f"volume {move.successor} {'is missing' if fact is None else 'could not be made'}"
        return _write(s, _begun_again(record, move, zone=s.zone, keep_snapshot=True, failed=problem), problem, now)
    if fact.state == "creating":
        return _wait(s, "the new volume")
    source_snapshot = move.snapshot if move.source == VOLUME else move.source_id
    # A crash between creation and record can leave a volume of an earlier zone or snapshot under this number.
    if fact.zone != s.zone or fact.snapshot != source_snapshot:
        problem = f"volume {fact.id} is in {fact.zone} of {fact.snapshot}, not in {s.zone} of {source_snapshot}"
        return _write(s, _begun_again(record, move, zone=s.zone, keep_snapshot=True, failed=problem), problem, now)
    return _bring(s, record, fact, now)


# Bringing a volume to this instance


def _bring(s: Situation, record: FleetRecord, fact: EbsVolume, now: float) -> Action:
    action = _attach(s, record, fact, now) or _mount(s, record, fact, now)
    if action is not None:
        return action
    if record.move is not None:
        return _write(s, _promoted(record, record.move, fact, s), f"volume {fact.id} is verified and current", now)
    return Ready(fact.id)


def _attach(s: Situation, record: FleetRecord, fact: EbsVolume, now: float) -> Action | None:
    elsewhere = tuple(found.instance for found in fact.attachments if found.instance != s.instance)
    gone = [s.is_gone(instance) for instance in elsewhere]
    if None in gone:
        return DescribeInstances(elsewhere)
    if not all(gone):
        return _wait_for_other(s, "a volume that another instance has")
    if elsewhere:
        if s.waited_for("a volume that a lost instance has") < FORCE_SECONDS:
            return _wait(s, "a volume that a lost instance has")
        return Detach(fact.id, elsewhere[0], force=True)
    attachment = fact.attachment_to(s.instance)
    if attachment is None:
        if s.here is not None and s.here.mounted == fact.id:
            return Unmount(fact.id)
        return Attach(fact.id) if fact.state == "available" else _wait(s, "a volume that is not available yet")
    if attachment.state == "detaching":
        return _wait(s, "a volume that is being detached")
    # Rule 2: only a lease renewed after the attachment proves that no other instance took over in between.
    if fact.id not in s.confirmed:
        return _write(s, record, f"volume {fact.id} is attached, and the lease still ours", now)
    return None


def _mount(s: Situation, record: FleetRecord, fact: EbsVolume, now: float) -> Action | None:
    mounted = None if s.here is None else s.here.mounted
    if mounted == fact.id:
        return None
    if mounted is not None:
        return Unmount(mounted)
    filesystem = s.filesystem(fact.id)
    if filesystem is None:
        return Inspect(fact.id)
    move = record.move
    if not filesystem:
        # Only a volume that this run made blank is formatted: anything else without a file system may hold data.
        if move is not None and move.source == BLANK:
            return Format(fact.id)
        return _unusable(s, record, fact, "it has no file system, and this is not a new volume", now)
    if s.damaged is not None and s.damaged[0] == fact.id:
        return _unusable(s, record, fact, s.damaged[1], now)
    return Mount(fact.id) if fact.id in s.checked else Check(fact.id)


def _unusable(s: Situation, record: FleetRecord, fact: EbsVolume, problem: str, now: float) -> Action:
    move, volume = record.move, record.volume
    if move is None and volume is not None:
        if s.damaged is None:
            return GiveUp(f"volume {fact.id}: {problem}")
        return _write(s, replace(record, volume=replace(volume, damage=problem)), "the volume is damaged", now)
    assert move is not None  # noqa: S101 - what is brought is current or a successor
    if move.source == VOLUME and volume is not None and move.failures + 1 >= MOST_FAILURES:
        # Copies of it are damaged, one after the other: so is it.
        damaged = replace(_abandoned(record, move), volume=replace(volume, damage=problem))
        return _write(s, damaged, "the volume is damaged", now)
    return _write(s, _begun_again(record, move, zone=s.zone, failed=f"{fact.id}: {problem}"), problem, now)


# Afterwards


def _retire(s: Situation, record: FleetRecord, now: float) -> Action:
    """Delete the retired volumes and snapshots of the record, while the training runs."""
    if not record.retired:
        return Idle()
    if s.volumes is None:
        return _describe_volumes(record)
    for retired in record.retired:
        if retired.id in s.done_with or retired.id in s.undeletable:
            continue
        if retired.kind == SNAPSHOT:
            return DeleteSnapshot(retired.id)
        action = _let_go(s, s.volume(retired.id), retired.id)
        if action is not None:
            return action
    remaining = tuple(retired for retired in record.retired if retired.id not in s.done_with)
    if len(remaining) < len(record.retired):
        return _write(s, replace(record, retired=remaining), "what the run no longer needs is deleted", now)
    return Idle()


def _let_go(s: Situation, fact: EbsVolume | None, id_: str) -> Action | None:
    """Detach and delete a retired volume. Return None while another instance does that."""
    if fact is None or not fact.attachments:
        return DeleteVolume(id_)
    attachment = fact.attachments[0]
    if attachment.instance != s.instance:
        gone = s.is_gone(attachment.instance)
        if gone is None:
            return DescribeInstances((attachment.instance,))
        return Detach(id_, attachment.instance, force=True) if gone else None
    if s.waited_for("a retired volume to be detached") >= MISSING_SECONDS:
        return None
    if attachment.state == "detaching":
        return _wait(s, "a retired volume to be detached")
    return Detach(id_, s.instance)


# Changes of the record


def _begun(record: FleetRecord, *, zone: str, source: str, source_id: str | None) -> FleetRecord:
    operation = record.operations + 1
    return replace(record, operations=operation, move=VolumeMove(operation, zone, source, source_id))


def _begun_again(
    record: FleetRecord, move: VolumeMove, *, zone: str, keep_snapshot: bool | None = None, failed: str | None = None
) -> FleetRecord:
    """Begin the same move anew, under a new number, and retire the resources of the old one.

    The snapshot stays when only the zone is another, or when it is not at fault.
    """
    keep = failed is None if keep_snapshot is None else keep_snapshot
    operation = record.operations + 1
    again = replace(
        move,
        operation=operation,
        zone=zone,
        successor=None,
        snapshot=move.snapshot if keep else None,
        failures=move.failures + (failed is not None),
    )
    retired = _made_by(move, snapshot=not keep)
    return replace(
        record,
        operations=operation,
        move=again,
        retired=(*record.retired, *retired),
        problem=failed or record.problem,
    )


def _abandoned(record: FleetRecord, move: VolumeMove) -> FleetRecord:
    return replace(record, move=None, retired=(*record.retired, *_made_by(move, snapshot=True)))


def _made_by(move: VolumeMove, *, snapshot: bool) -> tuple[Retired, ...]:
    made = () if move.successor is None else (Retired(VOLUME, move.successor),)
    return (*made, Retired(SNAPSHOT, move.snapshot)) if snapshot and move.snapshot is not None else made


def _promoted(record: FleetRecord, move: VolumeMove, successor: EbsVolume, s: Situation) -> FleetRecord:
    old, kept, retired = record.volume, record.kept, record.retired
    if old is not None:
        fact = s.volume(old.id)
        if fact is not None and fact.operation is None:
            kept = (*kept, old.id)  # a user brought it: it is not ours to delete
        else:
            retired = (*retired, Retired(VOLUME, old.id))
    if move.snapshot is not None:
        retired = (*retired, Retired(SNAPSHOT, move.snapshot))
    current = CurrentVolume(id=successor.id, zone=successor.zone, size_gb=successor.size_gb)
    return replace(record, volume=current, move=None, retired=retired, kept=kept)


def _known_volumes(record: FleetRecord) -> tuple[str, ...]:
    ids = [retired.id for retired in record.retired if retired.kind == VOLUME]
    if record.volume is not None:
        ids.append(record.volume.id)
    if record.move is not None and record.move.successor is not None:
        ids.append(record.move.successor)
    return tuple(dict.fromkeys([*ids, *record.kept]))


def _describe_volumes(record: FleetRecord) -> Action:
    return DescribeVolumes(_known_volumes(record))


# Waiting


def _wait(s: Situation, reason: str) -> Action:
    return Wait(min(max(s.waited_for(reason), 1.0), _LONGEST_PAUSE_SECONDS), reason)


def _wait_for_other(s: Situation, reason: str) -> Action:
    if s.waited_for(reason) >= LONGEST_WAIT_SECONDS:
        return GiveUp(f"waited {LONGEST_WAIT_SECONDS:.0f} s for {reason}")
    return _wait(s, reason)


# What came of an action


def absorb(s: Situation, action: Action, result: Result) -> Situation:
    """Take the result of an action.

    Args:
        s: The situation it was decided in.
        action: The action.
        result: The result of the action.

    Returns:
        The situation after it.
    """
    if isinstance(action, Wait):
        return _after_wait(s, action)
    if isinstance(action, GiveUp):
        return leave(replace(s, trouble=""), why=action.why, failed=action.failed)
    if isinstance(result, Done):
        return _after(replace(s, trouble="") if s.trouble else s, action, result.value)
    if isinstance(result, Refused):
        return _after_refusal(s, action, result)
    # Whether it took effect is not known: all that it may have changed is described again.
    forgotten = replace(s, volumes=None, snapshots=None, trouble="an answer of AWS", bearable=True)
    return replace(forgotten, record=None) if isinstance(action, WriteRecord) else forgotten


def _after_wait(s: Situation, wait: Wait) -> Situation:
    return replace(
        s,
        waiting=wait.reason,
        waited_s=min(s.waited_for(wait.reason) + wait.seconds, LONGEST_WAIT_SECONDS),
        trouble="",
        volumes=None,
        snapshots=None,
        instances=(),
        record=s.record if s.holds_lease else None,
    )


def _after(s: Situation, action: Action, value: Any) -> Situation:
    if isinstance(action, (ReadJob, ReadRecord)) and value is None:
        what = "job" if isinstance(action, ReadJob) else "record"
        why = f"the run has no fleet {what}: it was not launched, or is forgotten"
        return leave(replace(s, forgotten=True), why=why, failed=True)
    if isinstance(action, ReadJob):
        return replace(s, job=value)
    if isinstance(action, ReadRecord):
        return replace(s, record=value)
    if isinstance(action, WriteRecord):
        return _after_write(s, action)
    if isinstance(action, SurveyMachine):
        return replace(s, here=value)
    if isinstance(action, DescribeVolumes):
        return replace(s, volumes=value)
    if isinstance(action, DescribeSnapshots):
        return replace(s, snapshots=value)
    if isinstance(action, DescribeInstances):
        found = dict(value)
        return replace(s, instances=(*s.instances, *((id_, found.get(id_)) for id_ in action.ids)))
    if isinstance(action, ReadSecondTier):
        return replace(s, second_tier=bool(value))
    if isinstance(action, (CreateSnapshot, CreateVolume)):
        return replace(s, made=(action.operation, str(value)), volumes=None, snapshots=None)
    return _after_local(s, action, value)


def _after_local(s: Situation, action: Action, value: Any) -> Situation:
    here = s.here or MachineVolumes()
    if isinstance(action, Attach):
        attached = tuple(
            replace(found, state="in-use", attachments=(EbsAttachment(s.instance, "attached"),))
            if found.id == action.volume
            else found
            for found in s.volumes or ()
        )
        here = replace(here, devices=(*here.devices, action.volume))
        return replace(s, here=here, volumes=attached, confirmed=s.confirmed - {action.volume})
    if isinstance(action, Detach):
        if action.instance == s.instance:
            here = replace(here, devices=tuple(found for found in here.devices if found != action.volume))
        return replace(s, here=here, volumes=None, confirmed=s.confirmed - {action.volume})
    if isinstance(action, Inspect):
        others = tuple(found for found in s.filesystems if found[0] != action.volume)
        return replace(s, filesystems=(*others, (action.volume, str(value))))
    if isinstance(action, Format):
        # Inspected again, so that what is mounted is what blkid sees.
        return replace(s, filesystems=tuple(found for found in s.filesystems if found[0] != action.volume))
    if isinstance(action, Check):
        return replace(s, checked=s.checked | {action.volume})
    if isinstance(action, Mount):
        return replace(s, here=replace(here, mounted=action.volume))
    if isinstance(action, Unmount):
        return replace(s, here=replace(here, mounted=None), checked=s.checked - {action.volume})
    if isinstance(action, Ready):
        return replace(s, ready=True, volumes=None, snapshots=None)
    if isinstance(action, DeleteVolume):
        return replace(s, done_with=s.done_with | {action.volume})
    if isinstance(action, DeleteSnapshot):
        return replace(s, done_with=s.done_with | {action.snapshot})
    return s


def _after_write(s: Situation, action: WriteRecord) -> Situation:
    record = action.record.next_version()
    lease = record.lease
    ours = lease is not None and lease.holder == s.instance
    attached = frozenset(found.id for found in s.volumes or () if found.attachment_to(s.instance) is not None)
    moved = s.record is None or s.record.move != record.move
    recorded = record.move is not None and s.made is not None and s.made[0] != record.move.operation
    return replace(
        s,
        record=record,
        fence=lease.fence if lease is not None and ours else None,
        confirmed=attached if ours else frozenset(),
        snapshots=None if moved else s.snapshots,
        made=None if recorded or record.move is None else _unrecorded(s.made, record.move),
        done_with=frozenset(id_ for id_ in s.done_with if any(retired.id == id_ for retired in record.retired)),
    )


def _unrecorded(made: tuple[int, str] | None, move: VolumeMove) -> tuple[int, str] | None:
    return None if made is None or made[1] in (move.snapshot, move.successor) else made


def _after_refusal(s: Situation, action: Action, refused: Refused) -> Situation:
    if isinstance(action, WriteRecord) and refused.code == "Conflict":
        return replace(s, record=None)
    if isinstance(action, (ReadJob, ReadRecord)) and refused.code == "Record":
        # Only what no agent wrote is unreadable, and it will be for the next instance: nothing here may guess.
        return leave(replace(s, record=None, forgotten=True, trouble=""), why=refused.message, failed=True)
    if isinstance(action, Check):
        return replace(s, damaged=(action.volume, refused.message))
    if isinstance(action, (Inspect, Format, Mount)):
        # Going on without the volume would train on the root disk, and lose it all with the instance.
        return leave(s, why=f"volume {action.volume}: {refused.message}", failed=True)
    if isinstance(action, Unmount):
        stuck = Leaving(f"volume {action.volume}: {refused.message}", failed=True)
        return replace(s, mount_stuck=True, leaving=stuck)
    if isinstance(action, DeleteVolume):
        return replace(s, undeletable=s.undeletable | {action.volume})
    if isinstance(action, DeleteSnapshot):
        return replace(s, undeletable=s.undeletable | {action.snapshot})
    if isinstance(action, CreateVolume) and refused.code == "IdempotentParameterMismatch":
        return replace(s, spent=action.operation)
    if isinstance(action, WriteRecord):
        s = replace(s, record=None)
    trouble = f"{type(action).__name__} is refused: {refused.code} {refused.message}".rstrip()
    return replace(s, volumes=None, snapshots=None, instances=(), trouble=trouble, bearable=False)
