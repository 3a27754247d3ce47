"""Instances of fleets with their agents and scripts, as far as launcher and controller see them.

An instance takes the run's lease and volume, trains, and saves to the volume. It reads the fleet record when a test
lets it. A run that was asked to stop saves and leaves. Steps that were not
saved are lost when EC2 takes an instance without a notice.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from spotkeep_fleet.record import FINISHED, TRAINING, CurrentVolume, FleetRecord, Lease
from spotkeep_fleet.tags import ATTEMPT_TAG, RUN_TAG
from spotkeep_jobs.backends.ec2.fleet_table import FleetTable

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from tests.models.ec2 import Ec2, ModelInstance

SAVED_STEPS: Final = 5
"""A script saves after so many steps."""
_LEASE_SECONDS: Final = 600


@dataclass
class Trained:
    """What a run's script has done.

    Attributes:
        saved: The newest step on the run's volume.
        done: The step that its present instance has reached.
        redone: The steps that were trained twice.
        resumed_at: The steps at which its instances began.
    """

    saved: int = 0
    done: int = 0
    redone: int = 0
    resumed_at: list[int] = field(default_factory=list)


class Instances:
    """The instances of a deployment's fleets.

    Attributes:
        runs: What the script of each run has done.
    """

    def __init__(self, ec2: Ec2, dynamodb: Any, *, now: Callable[[], datetime], volume_gb: int = 100) -> None:
        self._ec2 = ec2
        self._now = now
        self._volume_gb = volume_gb
        self._records = FleetTable(dynamodb, table_name="runs", retention_days=90)
        self.runs: dict[str, Trained] = {}

    @property
    def live(self) -> list[ModelInstance]:
        """Those that are not gone."""
        return [each for each in self._ec2.instances.values() if each.live]

    @property
    def fleets_without_one(self) -> list[str]:
        """The active fleets that look for an instance."""
        busy = {each.fleet for each in self.live}
        return [each.id for each in self._ec2.fleets.values() if not each.deleted and each.id not in busy]

    def get_capacity(self, fleet: str, *, zone: str = "us-east-1a") -> ModelInstance:
        """Let a fleet launch an instance, which takes lease and volume and trains."""
        instance = self._ec2.launches(fleet, f"i-{len(self._ec2.instances) + 1}", zone=zone)
        run, now = instance.tags[RUN_TAG], self._now().timestamp()
        trained = self.runs.setdefault(run, Trained())
        assert all(each is instance or each.tags[RUN_TAG] != run for each in self.live), f"two instances train {run}"
        trained.redone += trained.done - trained.saved
        trained.done = trained.saved
        trained.resumed_at.append(trained.saved)

        def begin(record: FleetRecord) -> FleetRecord:
            volume = record.volume or CurrentVolume(f"vol-{run}", zone, self._volume_gb)
            lease = Lease(instance.id, record.fence + 1, now + _LEASE_SECONDS)
            report = replace(record.training, state=TRAINING, heartbeat_at=now)
            return replace(record, volume=volume, lease=lease, fence=record.fence + 1, training=report)

        self._write(run, begin)
        return instance

    def train(self, instance: ModelInstance, steps: int) -> None:
        """Let a script take steps. It saves every few."""
        trained = self.runs[instance.tags[RUN_TAG]]
        trained.done += steps
        trained.saved = max(trained.saved, trained.done - trained.done % SAVED_STEPS)
        self._report(instance, step=trained.done, durable_step=trained.saved)

    def heed_record(self, *, but_for: Collection[str] = ()) -> None:
        """Let each instance read its run's record, and renew its lease. One that was asked to stop saves and leaves.

        Args:
            but_for: The ids of the instances that do not leave.
        """
        for instance in self.live:
            record = self._records.record(instance.tags[RUN_TAG])
            if record is not None and (record.stop_requested or record.ended) and instance.id not in but_for:
                self.leave(instance)
            else:
                self._report(instance)

    def leave(self, instance: ModelInstance, *, reason: str = "Client.InstanceInitiatedShutdown") -> None:
        """Let an instance save, give back the lease, and shut down."""
        trained = self.runs[instance.tags[RUN_TAG]]
        trained.saved = trained.done
        self._report(instance, durable_step=trained.saved)
        self._write(instance.tags[RUN_TAG], lambda record: replace(record, lease=None))
        self._ec2.ends(instance.id, reason=reason)

    def be_taken(self, instance: ModelInstance, *, notice: bool) -> None:
        """Let EC2 take an instance, after a notice on which it saves, or without one."""
        if notice:
            trained = self.runs[instance.tags[RUN_TAG]]
            trained.saved = trained.done
        self._ec2.ends(instance.id, reason="Server.SpotInstanceTermination")

    def finish(self, instance: ModelInstance) -> None:
        """Let a script come to its end. Its instance shuts down."""
        self._report(instance, state=FINISHED, exit_code=0)
        self.leave(instance)

    def attempt_of(self, instance: ModelInstance) -> int:
        """Return the attempt that an instance works on."""
        return int(instance.tags[ATTEMPT_TAG])

    def _report(self, instance: ModelInstance, **training: Any) -> None:
        now = self._now().timestamp()

        def report(record: FleetRecord) -> FleetRecord:
            lease = record.lease and replace(record.lease, expires_at=now + _LEASE_SECONDS)
            return replace(record, lease=lease, training=replace(record.training, heartbeat_at=now, **training))

        self._write(instance.tags[RUN_TAG], report)

    def _write(self, run: str, changed: Callable[[FleetRecord], FleetRecord]) -> None:
        record = self._records.record(run)
        assert record is not None, f"{run} has no fleet record"
        self._records.write_record(changed(record), now=self._now())
