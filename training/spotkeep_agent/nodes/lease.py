"""The lease of a run with nodes, and the run's record."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Callable

from spotkeep_agent.aws.fleet_records import FleetRecords, RecordChangedError
from spotkeep_agent.aws.volumes import RunVolumes
from spotkeep_agent.errors import AwsCallRefusedError, AwsUnavailableError, LeaseLostError
from spotkeep_fleet.errors import DocumentError
from spotkeep_fleet.record import MOST_BOOTED, NODES_LEASE_SECONDS, FleetRecord, Lease

from .connections import NodeNames
from .decisions import SeenLease, may_take, seen_again, taken, tried

_ENDING_STATES = ("shutting-down", "terminated", "stopping", "stopped")
"""The states of an instance that leads no more. One that shuts down may still write, which its fence makes harmless."""
_MOST_CONFLICTS = 20
"""The most writes of others in a row that come before one of this node."""

_logger = logging.getLogger("spotkeep.agent")


class NodesLease:
    """The lease, as this node sees, takes and renews it. `write` may be called from other threads.

    A node that holds it renews it in a thread of its own. So the lease lasts while the node brings a checkpoint, until
    no more of that arrives.

    Attributes:
        record: The record as last seen. None before it is read.

    Args:
        names: The names of this node.
        records: The run's record.
        ec2: Describes the instance that holds the lease.
        lease_seconds: The time for which the lease of a living node stays unchanged at most.
    """

    def __init__(
        self,
        names: NodeNames,
        *,
        records: FleetRecords,
        ec2: RunVolumes,
        lease_seconds: float = NODES_LEASE_SECONDS,
    ) -> None:
        self.record: FleetRecord | None = None
        self._names = names
        self._records = records
        self._ec2 = ec2
        self._lease_seconds = lease_seconds
        self._fence: int | None = None
        self._seen: SeenLease | None = None
        self._lock = threading.RLock()
        self._let_go = threading.Event()

    @property
    def fence(self) -> int:
        """The fencing token of this node's lease. 0 without one."""
        return self._fence or 0

    @property
    def is_held(self) -> bool:
        """True when the record, as last seen, gives the lease to this agent."""
        lease = None if self.record is None else self.record.lease
        return lease is not None and (lease.holder, lease.fence) == (self._names.instance, self._fence)

    def read(self) -> FleetRecord:
        """Read the record, and note if the lease has changed.

        Raises:
            ConnectionError: The record cannot be reached now.
            LeaseLostError: There is no record, or it is unreadable.
        """
        with self._lock, _translated():
            record = self._records.read()
            if record is None:
                raise LeaseLostError("the run has no record any more")
            self.record = record
            self._seen = seen_again(self._seen, record.lease, now=time.monotonic())
            return record

    def note_boot(self) -> FleetRecord:
        """Write that the agent of this node has started, whichever node has the lease.

        Without it the functions take a node for silent that brings its data for longer than a boot takes.

        Raises:
            ConnectionError: The record cannot be reached now.
            LeaseLostError: There is no record, or it is unreadable.
        """
        with self._lock, _translated():
            for _ in range(_MOST_CONFLICTS):
                record = self.read()
                if self._names.instance in record.booted:
                    return record
                following = replace(record, booted=(*record.booted, self._names.instance)[-MOST_BOOTED:])
                try:
                    self._records.write(following)
                except RecordChangedError:
                    continue
                self.record = following.next_version()
                return self.record
        raise ConnectionError(_meanwhile())

    def note_try(self, *, refused: bool) -> None:
        """Note a try to connect to the holder.

        Args:
            refused: True where the holder had closed its connection to this node, and its machine has refused this one.
        """
        with self._lock:
            if self._seen is not None:
                self._seen = tried(self._seen, refused=refused, now=time.monotonic())

    @property
    def is_refused(self) -> bool:
        """True while the machine of the holder refuses connections, which it had closed before."""
        return self._seen is not None and self._seen.refused_since is not None

    def may_take(self, *, holder_is_silent: bool) -> bool:
        """Say whether this node may take the lease, as it was read.

        Args:
            holder_is_silent: True where the holder cannot be reached. Then EC2 is asked for it.

        Raises:
            ConnectionError: EC2 cannot be reached now.
        """
        with self._lock, _translated():
            seen = self._seen
            if seen is None:
                return False

            def may(*, gone: bool) -> bool:
                return may_take(
                    seen,
                    instance=self._names.instance,
                    gone=gone,
                    now=time.monotonic(),
                    lease_seconds=self._lease_seconds,
                )

            return may(gone=False) or (
                holder_is_silent and seen.lease is not None and may(gone=self._is_gone(seen.lease.holder))
            )

    def take(self, *, has_stalled: Callable[[], bool] = lambda: False) -> bool:
        """Take the lease over the record as it was read. Return False where another writer came first.

        Args:
            has_stalled: Called in another thread before each renewal. Gives True once this node leads no more.

        Raises:
            ConnectionError: The record cannot be reached now.
        """
        with self._lock, _translated():
            record = self.record
            if record is None:
                return False
            following = taken(
                record, instance=self._names.instance, address=self._names.address, expires_at=self._expires_at()
            )
            try:
                self._records.write(following)
            except RecordChangedError:
                return False
            self.record, self._fence = following.next_version(), following.fence
        self._let_go = threading.Event()
        threading.Thread(target=self._renew, args=(self._let_go, has_stalled), name="node-lease", daemon=True).start()
        return True

    def write(self, change: Callable[[FleetRecord], FleetRecord], *, raises_fence: bool = False) -> FleetRecord:
        """Change the record under the lease, and renew the lease.

        Args:
            change: The function that returns the changed record, called again after another writer's change.
            raises_fence: True where a world begins, whose checkpoints are later than those of all before.

        Raises:
            LeaseLostError: The lease is not this node's any more, or the record is unreadable.
            ConnectionError: The record cannot be reached now.
        """

        def renewed(record: FleetRecord) -> FleetRecord:
            fence = self.fence + 1 if raises_fence else self.fence
            lease = Lease(self._names.instance, fence, self._expires_at(), address=self._names.address)
            return replace(change(record), fence=fence, lease=lease)

        return self._write(renewed)

    def give_back(self, change: Callable[[FleetRecord], FleetRecord]) -> None:
        """Write a last change, and let the next node have the lease at once.

        Raises:
            LeaseLostError: The lease is not this node's any more, or the record is unreadable.
            ConnectionError: The record cannot be reached now.
        """
        self._let_go.set()
        self._write(lambda record: replace(change(record), lease=None))

    def _write(self, change: Callable[[FleetRecord], FleetRecord]) -> FleetRecord:
        with self._lock, _translated():
            for _ in range(_MOST_CONFLICTS):
                if self.record is None or not self.is_held:
                    raise LeaseLostError("another instance has the lease")
                following = change(self.record)
                try:
                    self._records.write(following)
                except RecordChangedError:
                    self.read()
                    continue
                self.record = following.next_version()
                self._fence = None if following.lease is None else following.lease.fence
                return self.record
        raise ConnectionError(_meanwhile())

    def forget(self) -> None:
        """Renew the lease no more. Another node takes it."""
        self._let_go.set()
        with self._lock:
            self._fence = None

    def _renew(self, let_go: threading.Event, has_stalled: Callable[[], bool]) -> None:
        while not let_go.wait(self._lease_seconds / 3) and not has_stalled() and self._is_renewed(let_go):
            pass

    def _is_renewed(self, let_go: threading.Event) -> bool:
        """Renew the lease. Return False when this node has given it back, or another one has taken it."""
        try:
            with self._lock:
                if not let_go.is_set():
                    self.write(_alive)
        except LeaseLostError:
            return False
        except ConnectionError as error:
            _logger.warning("the lease cannot be renewed: %s", error)
        return True

    def _expires_at(self) -> float:
        return time.time() + self._lease_seconds

    def _is_gone(self, instance: str) -> bool:
        states = dict(self._ec2.instances((instance,)))
        return states.get(instance) is None or states[instance] in _ENDING_STATES


def _meanwhile() -> str:
    return f"others have written the record {_MOST_CONFLICTS} times meanwhile"


def _alive(record: FleetRecord) -> FleetRecord:
    return replace(record, training=replace(record.training, heartbeat_at=time.time()))


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except DocumentError as error:
        raise LeaseLostError(str(error)) from error
    except (AwsCallRefusedError, AwsUnavailableError) as error:
        raise ConnectionError(str(error)) from error
