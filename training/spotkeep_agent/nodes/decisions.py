"""The decisions about the lease of nodes, their worlds, and the end of a world. Pure.

Times are seconds of the deciding node's own monotonic clock. No time of another node is read, because its clock may be
wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from spotkeep_fleet.record import NODES_LEASE_SECONDS, FleetRecord, Lease

SETTLE_SECONDS = 30.0
"""The time without an arrival after which a run begins with fewer nodes than it may have, or takes more in."""
REJOIN_SECONDS = 15.0
"""The longest time in seconds for which the leader waits for nodes of the world before."""
REFUSED_SECONDS = 1.0
"""The time in seconds after which a leader has ended that closed its connections, and whose machine refuses others."""
BUSY_SECONDS = 960.0
"""The longest time in seconds for which the leader waits for a connected node that sends its files."""
STALL_SECONDS = 120.0
"""A node that brings no more of a checkpoint for longer is gone, beside the time that its disk may take."""
SLOWEST_DISK_BYTES = 64 * 2**20
"""The bytes a second that a disk reads or writes at least. A disk may write all at the end, or check a file first."""
DONE, INTERRUPTED, FAILED = "done", "interrupted", "failed"
"""The ends of a node's training."""


@dataclass(frozen=True)
class SeenLease:
    """A lease, and the time since which this node has seen it unchanged.

    Attributes:
        lease: The lease. None where no node holds it.
        since: The time of this node's clock, in seconds.
        refused_since: The time since which the machine of the holder, which had closed its connection to this node, has
            refused each other one. None where it has not.
    """

    lease: Lease | None
    since: float
    refused_since: float | None = None


def seen_again(before: SeenLease | None, lease: Lease | None, *, now: float) -> SeenLease:
    """Return the lease as seen now, with the time of its last change.

    A leader that renews its lease changes `expires_at`. Its value does not count, only that it is another one. A leader
    that renews it lives, whatever its machine refuses.
    """
    return before if before is not None and before.lease == lease else SeenLease(lease, now)


def tried(seen: SeenLease, *, refused: bool, now: float) -> SeenLease:
    """Return the lease after a try to connect to its holder.

    Args:
        seen: The lease as this node sees it.
        refused: True where the holder had closed its connection to this node, and its machine has refused this one.
        now: The time.
    """
    if not refused:
        return replace(seen, refused_since=None)
    return seen if seen.refused_since is not None else replace(seen, refused_since=now)


def may_take(
    seen: SeenLease,
    *,
    instance: str,
    gone: bool,
    now: float,
    lease_seconds: float = NODES_LEASE_SECONDS,
    refused_seconds: float = REFUSED_SECONDS,
) -> bool:
    """Say whether a node may take the lease.

    A leader listens from before it takes the lease until it has given it back. So a machine that refuses connections,
    to a node that had one, has no leader any more. A leader that is slow, or cut off, refuses none.

    Args:
        seen: The lease as this node sees it.
        instance: The id of this node.
        gone: True where EC2 says that the holder is gone.
        now: The time.
        lease_seconds: The time for which a lease of a living node stays unchanged at most.
        refused_seconds: The time for which a machine refuses each connection, after which its leader has ended.
    """
    if seen.lease is None or seen.lease.holder == instance or gone:
        return True
    if seen.refused_since is not None and now - seen.refused_since >= refused_seconds:
        return True
    return now - seen.since >= lease_seconds


def taken(record: FleetRecord, *, instance: str, address: str, expires_at: float) -> FleetRecord:
    """Return the record with the lease at a node, under the next fence. The nodes of the leader before are left out.

    Args:
        record: The record as it was read.
        instance: The id of the node.
        address: Its private address.
        expires_at: The end of the lease by this node's wall clock, in seconds since the epoch. People read it.
    """
    fence = record.fence + 1
    lease = Lease(instance, fence, expires_at, address=address)
    return replace(record, fence=fence, lease=lease, nodes=(), problem=None)


@dataclass(frozen=True)
class Gathering:
    """The nodes that a leader has for the next world.

    Attributes:
        leader: The id of the leader.
        at_least: The fewest nodes of a world.
        at_most: The most nodes of a world.
        ready: The ids of the nodes that are ready for a world, in the order of their arrival.
        busy: The ids of connected nodes of the world before that are not ready, because they still send their files.
        former: The ids of the world before, in the order of its ranks, without nodes that are gone. Empty at the first.
        arrived_at: The time of the last arrival of a node.
        since: The time since which the leader gathers.
    """

    leader: str
    at_least: int
    at_most: int
    ready: tuple[str, ...]
    busy: tuple[str, ...]
    former: tuple[str, ...]
    arrived_at: float
    since: float


def next_world(
    gathering: Gathering,
    *,
    now: float,
    settle_seconds: float = SETTLE_SECONDS,
    rejoin_seconds: float = REJOIN_SECONDS,
) -> tuple[str, ...] | None:
    """Return the ids of the nodes that train together from now on, the leader first. None to wait.

    All nodes that a world may have begin at once. A run that has never trained gives the others some time to arrive.
    After a world, the nodes of it that are still there are waited for.

    Args:
        gathering: The nodes.
        now: The time.
        settle_seconds: The time without an arrival, before a first world with fewer nodes than there may be.
        rejoin_seconds: The longest wait for nodes of the world before.
    """
    ready = set(gathering.ready)
    if gathering.leader not in ready or len(ready) < gathering.at_least:
        return None
    if len(ready) < gathering.at_most:
        absent = {*gathering.former} - ready - {*gathering.busy}
        waited = now - gathering.since
        if not gathering.former and now - gathering.arrived_at < settle_seconds:
            return None
        if (absent and waited < rejoin_seconds) or (gathering.busy and waited < BUSY_SECONDS):
            return None
    order = dict.fromkeys((gathering.leader, *gathering.former, *gathering.ready))
    return tuple(each for each in order if each in ready)[: gathering.at_most]


@dataclass(frozen=True)
class Bringing:
    """The part of a checkpoint that a node has brought.

    Attributes:
        moved_bytes: The bytes that it has fetched, or checks on its disk.
        since: The time at which the leader has heard of the last of them.
    """

    moved_bytes: int
    since: float


def heard_again(before: Bringing, moved_bytes: int, *, now: float) -> Bringing:
    """Return the part that a node has brought, as it says now. A sign of life that names no more bytes changes nothing.

    Args:
        before: The part as heard before.
        moved_bytes: The number of bytes that it names.
        now: The time.
    """
    return before if moved_bytes <= before.moved_bytes else Bringing(moved_bytes, now)


def has_stalled(bringing: Bringing, *, now: float, stall_seconds: float = STALL_SECONDS) -> bool:
    """Return True if a node is not waited for any longer.

    Its checkpoint has an end, and so has the time that it may take.

    Args:
        bringing: The part that it has brought.
        now: The time.
        stall_seconds: The longest time without progress, beside that of the disk.
    """
    return now - bringing.since > stall_seconds + bringing.moved_bytes / SLOWEST_DISK_BYTES


def grows(
    *,
    world: Collection[str],
    ready: Collection[str],
    at_most: int,
    has_stepped: bool,
    arrived_at: float,
    now: float,
    settle_seconds: float = SETTLE_SECONDS,
) -> bool:
    """Say whether the world ends now, so that the next one has more nodes.

    Each regrouping costs a start of the training. So the nodes of some time join together, and no world ends before its
    first step.

    Args:
        world: The ids of the nodes that train.
        ready: The ids of the nodes that wait.
        at_most: The most nodes of a world.
        has_stepped: True once the world has completed a step.
        arrived_at: The time of the last arrival.
        now: The time.
        settle_seconds: The time without an arrival, unless the world would be complete.
    """
    more = {*ready} - {*world}
    if not more or not has_stepped or len(world) >= at_most:
        return False
    return len(world) + len(more) >= at_most or now - arrived_at >= settle_seconds


@dataclass(frozen=True)
class NodeEnd:
    """The end of the training of one node.

    Attributes:
        kind: One of `done`, `interrupted` and `failed`.
        exit_code: The exit code of its runner.
        failure: The reason of a failure.
    """

    kind: str
    exit_code: int
    failure: str = ""


def end_of_world(own: NodeEnd, others: Mapping[str, NodeEnd], *, lost: Iterable[str]) -> NodeEnd:
    """Return the end of a world, with the ends of all nodes known.

    A failed rank is the failure of the run, on whichever node it was. A rank that fails while a node is lost may have
    failed because of that.

    Args:
        own: The end on the leader.
        others: The ends on the other nodes, by their addresses.
        lost: The nodes that were lost meanwhile.
    """
    failed = next(((address, end) for address, end in others.items() if end.kind == FAILED), None)
    if any(True for _ in lost):
        return own if own.kind == DONE else replace(own, kind=INTERRUPTED, failure="")
    if own.kind != FAILED and failed is not None:
        address, end = failed
        return replace(end, failure=f"on {address}: {end.failure}")
    return own
