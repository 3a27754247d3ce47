"""What happens in the local EC2 without a request: one thread does what is due, then waits for the next moment."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from spotkeep_local.ec2.instances import INTERRUPTED
from spotkeep_local.ec2.records import AttachmentState, InstanceState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from spotkeep_local.ec2.cloud import Cloud
    from spotkeep_local.ec2.fleets import Fleets
    from spotkeep_local.ec2.instances import Instances
    from spotkeep_local.ec2.records import Attachment, Instance, Volume

_LOG = logging.getLogger(__name__)
_BUSY_CHECK_SECONDS = 0.1
"""While a volume is busy: unmounting it sends no signal."""
_LONGEST_WAIT_SECONDS = 60.0


class Background:
    """Boots and interrupts instances, attaches and detaches volumes, and lets fleets keep their capacity.

    Args:
        cloud: The local EC2.
        instances: Boots and ends instances.
        fleets: Keeps fleets.
    """

    def __init__(self, cloud: Cloud, instances: Instances, fleets: Fleets) -> None:
        self._cloud = cloud
        self._instances = instances
        self._fleets = fleets
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="ec2-background", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; return when it has ended."""
        with self._cloud.changed:
            self._stopping = True
            self._cloud.changed.notify_all()
        if self._thread.is_alive():
            self._thread.join()

    def step(self) -> float:
        """Do what is due, with the lock held.

        Returns:
            When something is due next, epoch seconds.
        """
        for instance in self._cloud.instances:
            self._advance_instance(instance)
        for volume in self._cloud.volumes:
            if volume.attachment is not None:
                self._advance_attachment(volume, volume.attachment)
        self._reclaim()
        for fleet in self._cloud.fleets:
            self._fleets.keep(fleet)
        self._instances.forget_the_old()
        return min(self._moments())

    def _run(self) -> None:
        with self._cloud.changed:
            while not self._stopping:
                try:
                    next_at = self.step()
                except Exception:  # noqa: BLE001 - without it nothing would ever happen again
                    _LOG.exception("the local EC2 could not do what was due; trying again")
                    next_at = self._cloud.now() + 1.0
                seconds = next_at - self._cloud.now()
                if seconds > 0:
                    self._cloud.changed.wait(seconds)

    def _advance_instance(self, instance: Instance) -> None:
        now = self._cloud.now()
        if instance.state is InstanceState.PENDING and now >= instance.due_at:
            self._instances.boot(instance)
        elif instance.state is not InstanceState.RUNNING:
            return
        elif (interruption := instance.interruption) is not None and now >= interruption.at:
            if interruption.takes_place:
                self._instances.end(instance.instance_id, reason=INTERRUPTED, power_off=True)
            else:
                self._cloud.instances.put(replace(instance, interruption=None))

    def _advance_attachment(self, volume: Volume, attachment: Attachment) -> None:
        if self._cloud.now() < attachment.due_at:
            return
        host = self._cloud.hosts.get(attachment.instance_id)
        if attachment.state is AttachmentState.ATTACHING:
            if host is not None:
                host.attach(volume.volume_id)
            attached = replace(attachment, state=AttachmentState.ATTACHED)
            self._cloud.volumes.put(replace(volume, attachment=attached))
        elif attachment.state in (AttachmentState.DETACHING, AttachmentState.BUSY):
            if host is None or host.detach(volume.volume_id, force=attachment.force):
                self._cloud.volumes.put(replace(volume, attachment=None))
            elif attachment.state is AttachmentState.DETACHING:
                busy = replace(attachment, state=AttachmentState.BUSY)
                self._cloud.volumes.put(replace(volume, attachment=busy))

    def _reclaim(self) -> None:
        """Interrupt spot instances that their pool has no room for any more; the youngest first."""
        pools: dict[tuple[str, str], list[Instance]] = {}
        for instance in self._cloud.instances:
            if instance.spot and instance.state.live:
                pools.setdefault((instance.instance_type, instance.zone), []).append(instance)
        for (instance_type, zone), running in pools.items():
            pool = self._cloud.market.pool(instance_type=instance_type, zone=zone, now=self._cloud.now())
            if pool.capacity is None:
                continue
            staying = [i for i in running if i.interruption is None or not i.interruption.takes_place]
            for instance in sorted(staying, key=lambda instance: instance.launched_at)[pool.capacity :]:
                if pool.notice:
                    notice_seconds = self._cloud.latencies.notice_seconds
                    self._instances.announce_interruption(instance.instance_id, notice_seconds=notice_seconds)
                else:
                    self._instances.interrupt_now(instance.instance_id)

    def _moments(self) -> Iterator[float]:
        now = self._cloud.now()
        yield now + _LONGEST_WAIT_SECONDS
        for instance in self._cloud.instances:
            if instance.state is InstanceState.PENDING:
                yield instance.due_at
            if instance.state is InstanceState.RUNNING and instance.interruption is not None:
                yield instance.interruption.at
        for volume in self._cloud.volumes:
            if volume.attachment is not None and volume.attachment.state is not AttachmentState.ATTACHED:
                yield max(volume.attachment.due_at, now + _BUSY_CHECK_SECONDS)
        for fleet in self._cloud.fleets:
            if fleet.try_at > now:
                yield fleet.try_at
        if (change_at := self._cloud.market.next_change_at(now)) is not None:
            yield change_at
