"""Runs the volume protocol on this instance.

It decides, acts and takes in the result, until the volume is mounted or the instance goes.
"""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import Callable

from spotkeep_agent.errors import LeaseLostError
from spotkeep_agent.volume.actions import Done, Refused, Unavailable
from spotkeep_fleet.instance_job import InstanceJob
from spotkeep_fleet.record import LEASE_SECONDS, FleetRecord, Lease

from . import actions as do
from .executor import Executor
from .protocol import Leaving, Situation, absorb, decide, leave


class VolumeController:
    """This instance's part in the protocol. `write` may be called from other threads.

    Args:
        instance: This instance's id.
        zone: Its availability zone.
        executor: Carries out actions.
        tell: Called with each action before it is carried out, and with each result that is no success.
        pause: Waits so many seconds, or less when something needs attention.

    Attributes:
        situation: The facts for the next decision.
    """

    def __init__(
        self,
        *,
        instance: str,
        zone: str,
        executor: Executor,
        tell: Callable[[do.Action, str], None],
        pause: Callable[[float], None],
    ) -> None:
        self.situation = Situation(instance=instance, zone=zone)
        self._executor = executor
        self._tell = tell
        self._pause = pause
        self._lock = threading.RLock()

    @property
    def job(self) -> InstanceJob:
        """The job of the run's instances."""
        assert self.situation.job is not None  # noqa: S101 - asked for after it was read
        return self.situation.job

    @property
    def record(self) -> FleetRecord:
        """The record as last seen."""
        assert self.situation.record is not None  # noqa: S101 - asked for after it was read
        return self.situation.record

    @property
    def found_job(self) -> InstanceJob | None:
        """The job of the run's instances. None before it is read."""
        return self.situation.job

    @property
    def found_record(self) -> FleetRecord | None:
        """The record as last seen. None when it is to be read again."""
        return self.situation.record

    @property
    def holds_lease(self) -> bool:
        """True when the record, as last seen, gives the lease to this agent."""
        return self.situation.holds_lease

    @property
    def fence(self) -> int:
        """The fencing token of the lease. 0 without one."""
        return self.situation.fence or 0

    def step(self) -> do.Action:
        """Take one action. Return it."""
        with self._lock:
            action = decide(self.situation, now=time.time())
            if isinstance(action, do.Wait):
                self._tell(action, "")
            else:
                job = self.situation.job
                result = self._executor.perform(action, None if job is None else job.volume)
                self._tell(action, "" if isinstance(result, Done) else result.message or "refused")
                self.situation = absorb(self.situation, action, result)
        if isinstance(action, do.Wait):
            self._pause(action.seconds)
            with self._lock:
                self.situation = absorb(self.situation, action, Done())
        return action

    def find_job(self, *, should_leave: Callable[[], str | None]) -> Leaving | None:
        """Read the job of the run's instances. Return None once it is known, else the reason to leave.

        Args:
            should_leave: Asked before each action: why to break off, None to go on.
        """
        return self._until(lambda _: self.situation.job is not None, should_leave)

    def bring(self, *, should_leave: Callable[[], str | None]) -> Leaving | None:
        """Bring the volume here. Return None when it is mounted and ready, else the reason to leave.

        Args:
            should_leave: Asked before each action: why to break off, None to go on.
        """
        return self._until(lambda action: isinstance(action, do.Ready), should_leave)

    def _until(self, is_done: Callable[[do.Action], bool], should_leave: Callable[[], str | None]) -> Leaving | None:
        while True:
            why = should_leave()
            if why is not None:
                self.situation = leave(self.situation, why=why)
            if self.situation.leaving is not None:
                return self.situation.leaving
            action = self.step()
            if is_done(action):
                return None
            if isinstance(action, do.Leave):
                return Leaving(action.why, action.failed)

    def tend(self) -> bool:
        """Delete one orphan beside the training. Return True when there are more."""
        action = decide(self.situation, now=time.time())
        beside = (
            do.DeleteVolume,
            do.DeleteSnapshot,
            do.Detach,
            do.DescribeVolumes,
            do.DescribeInstances,
            do.WriteRecord,
        )
        if isinstance(action, (*beside, do.ReadRecord, do.Wait)):
            self.step()
            return True
        return False

    def write(self, change: Callable[[FleetRecord], FleetRecord]) -> FleetRecord:
        """Change the record under the lease, and renew the lease.

        Args:
            change: The function that returns the changed record, called again after another writer's change.

        Raises:
            LeaseLostError: The lease is not ours any more, or the record is unreadable.
            ConnectionError: The record cannot be reached now.
        """
        with self._lock:
            while True:
                record = self.situation.record
                if record is None:
                    record = self._read()
                if not self.situation.holds_lease or self.situation.fence is None:
                    raise LeaseLostError("another instance has the lease")
                fence = self.situation.fence
                lease = Lease(self.situation.instance, fence, time.time() + LEASE_SECONDS)
                action = do.WriteRecord(replace(change(record), lease=lease), "report")
                result = self._executor.perform(action, None)
                self.situation = absorb(self.situation, action, result)
                if isinstance(result, Unavailable):
                    self.situation = replace(self.situation, trouble="")
                    raise ConnectionError(result.message)
                if isinstance(result, Refused) and result.code != "Conflict":
                    raise ConnectionError(result.message)
                if isinstance(result, Done):
                    return self.record

    def leave(self, *, why: str, failed: bool = False, seconds_left: Callable[[], float]) -> Leaving:
        """Unmount, detach and give the lease back, as far as the time allows.

        Args:
            why: For people.
            failed: True when a person should check a fault.
            seconds_left: Seconds until this machine may be gone, asked again and again.
        """
        with self._lock:
            self.situation = leave(self.situation, why=why, failed=failed)
        while seconds_left() > 0:
            action = self.step()
            if isinstance(action, do.Leave):
                return Leaving(action.why, action.failed)
        return Leaving(f"{why}; the time was over before the volume was let go", failed=True)

    def _read(self) -> FleetRecord:
        action = do.ReadRecord()
        result = self._executor.perform(action, None)
        if isinstance(result, Refused) and result.code == "Record":
            self.situation = absorb(self.situation, action, result)
            raise LeaseLostError(result.message)
        if not isinstance(result, Done):
            raise ConnectionError(result.message)
        self.situation = absorb(self.situation, action, result)
        if self.situation.record is None:
            raise LeaseLostError("the run has no record any more")
        return self.record
