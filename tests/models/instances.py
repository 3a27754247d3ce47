"""Instances of fleets with their agents and scripts, as far as launcher and controller see them.

An instance takes the run's lease and volume, trains, and saves to the volume. It reads the fleet record when a test
lets it. A run that was asked to stop saves and leaves. Steps that were not
saved are lost when EC2 takes an instance without a notice.

The nodes of a run train together when there are enough. With each that comes or goes they form another world. Below the
fewest they wait.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from spotkeep_fleet.record import FINISHED, TRAINING, CurrentVolume, Departure, FleetRecord, Lease, Node
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
        """The active fleets that look for an instance, each as often as it lacks one."""
        found = []
        for fleet in self._ec2.fleets.values():
            target = fleet.request["TargetCapacitySpecification"]["TotalTargetCapacity"]
            found += [fleet.id] * (target - sum(each.fleet == fleet.id for each in self.live)) * (not fleet.deleted)
        return found

    def get_capacity(self, fleet: str, *, zone: str = "us-east-1a") -> ModelInstance:
        """Let a fleet launch an instance, which takes lease and volume and trains, or forms a world with others."""
        instance = self._ec2.launches(fleet, f"i-{len(self._ec2.instances) + 1}", zone=zone)
        run, now = instance.tags[RUN_TAG], self._now().timestamp()
        trained = self.runs.setdefault(run, Trained())
        if self.nodes_wanted(run):
            self._form_a_world(run)
            return instance
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

    def nodes_wanted(self, run: str) -> int:
        """Return the fewest nodes of a run that train together. 0 for a run of one instance."""
        job = self._records.job(run)
        return 0 if job is None or job.nodes is None else job.nodes.at_least

    def nodes_of(self, run: str) -> list[ModelInstance]:
        """Return the nodes that are there of a run."""
        return [each for each in self.live if each.tags[RUN_TAG] == run]

    def train(self, instance: ModelInstance, steps: int) -> None:
        """Let a script take steps. It saves every few. Too few nodes take none."""
        run = instance.tags[RUN_TAG]
        if len(self.nodes_of(run)) < self.nodes_wanted(run):
            return
        trained = self.runs[run]
        trained.done += steps
        trained.saved = max(trained.saved, trained.done - trained.done % SAVED_STEPS)
        self._report(instance, step=trained.done, durable_step=trained.saved)

    def heed_record(self, *, but_for: Collection[str] = ()) -> None:
        """Let each instance read its run's record, and renew its lease. One that was asked to stop saves and leaves.

        So does one that has come to a training that is over.

        Args:
            but_for: The ids of the instances that do not leave.
        """
        for instance in self.live:
            if not instance.live:
                continue  # It left with the node before it.
            record = self._records.record(instance.tags[RUN_TAG])
            leaves = record is not None and (record.stop_requested or record.ended or record.training.over)
            if leaves and instance.id not in but_for:
                self.leave(instance)
            else:
                self._report(instance)

    def leave(self, instance: ModelInstance, *, reason: str = "Client.InstanceInitiatedShutdown") -> None:
        """Let an instance save, give back the lease, and shut down."""
        run = instance.tags[RUN_TAG]
        trained = self.runs[run]
        trained.saved = trained.done
        self._report(instance, durable_step=trained.saved)
        self._write(run, lambda record: replace(record, lease=None))
        self._ec2.ends(instance.id, reason=reason)
        if self.nodes_wanted(run):
            self._form_a_world(run)

    def be_taken(self, instance: ModelInstance, *, notice: bool) -> None:
        """Let EC2 take an instance, after a notice on which it saves, or without one."""
        run = instance.tags[RUN_TAG]
        trained = self.runs[run]
        if notice:
            trained.saved = trained.done
        self._ec2.ends(instance.id, reason="Server.SpotInstanceTermination")
        if self.nodes_wanted(run):
            self._form_a_world(run, left=instance if notice else None)

    def finish(self, instance: ModelInstance) -> None:
        """Let a script come to its end. Its instance shuts down."""
        self._report(instance, state=FINISHED, exit_code=0)
        for each in self.nodes_of(instance.tags[RUN_TAG]):
            self.leave(each)

    def attempt_of(self, instance: ModelInstance) -> int:
        """Return the attempt that an instance works on."""
        return int(instance.tags[ATTEMPT_TAG])

    def _form_a_world(self, run: str, *, left: ModelInstance | None = None) -> None:
        """Let the nodes that are there go on from the last checkpoint, or wait for more.

        Args:
            run: The run.
            left: The node that left on its notice, if one did.
        """
        there, now, trained = self.nodes_of(run), self._now().timestamp(), self.runs[run]
        together = there if len(there) >= self.nodes_wanted(run) else []
        trained.redone += trained.done - trained.saved
        trained.done = trained.saved
        trained.resumed_at += [trained.saved] * bool(together)

        def form(record: FleetRecord) -> FleetRecord:
            if record.training.over or record.ended:
                return record
            report = replace(record.training, state=TRAINING, heartbeat_at=now)
            if left is not None:
                report = replace(report, noticed=(*record.training.noticed, Departure(left.id, now))[-20:])
            return replace(
                record,
                lease=Lease(there[0].id, record.fence + 1, now + _LEASE_SECONDS, "10.0.0.1") if there else None,
                fence=record.fence + bool(there),
                nodes=tuple(Node(each.id, "10.0.0.1") for each in there),
                world=tuple(each.id for each in together),
                training=report,
            )

        self._write(run, form)

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
