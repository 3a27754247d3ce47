"""Finds and removes volumes, snapshots and fleets that no live run needs, after a crash or the end of a run.

An instance or a launcher of this deployment made each of them, as its tags say. The fleet record says that it is not
needed. `spotkeep_fleet.orphans` decides about storage, `is_orphaned` about fleets. Storage that no record knows is left
to a person.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from spotkeep_fleet.orphans import Resource, orphans
from spotkeep_fleet.record import FleetRecord
from spotkeep_fleet.tags import ATTEMPT_TAG, RUN_TAG, operation_of
from spotkeep_jobs.backends.ec2.facts import Fleet, Orphan
from spotkeep_jobs.record.states import RunState

if TYPE_CHECKING:
    from spotkeep_jobs.backends.ec2.ec2_api import Ec2Api
    from spotkeep_jobs.backends.ec2.facts import TaggedStorage
    from spotkeep_jobs.backends.ec2.fleet_table import FleetTable
    from spotkeep_jobs.record.record import Run
    from spotkeep_jobs.record.run_table import RunTable

UNKNOWN_AFTER: Final = timedelta(hours=1)
"""The age, longer than any launch takes, after which a fleet without a run in the table is an orphan."""


@dataclass(frozen=True, kw_only=True)
class VolumeRetention:
    """The rules for volumes of ended runs.

    Attributes:
        volumes: The time for which a volume is kept. None for ever.
        runs: The time for which an ended run, with all its facts, stays in the table.
    """

    volumes: timedelta | None
    runs: timedelta


@dataclass(kw_only=True)
class RemovedOrphans:
    """The orphans that were removed at one time.

    Attributes:
        storage: Ids of volumes and snapshots.
        fleets: Ids of fleets.
        failures: The failed removals, with their reasons.
    """

    storage: list[str] = field(default_factory=list)
    fleets: list[str] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)


@dataclass(kw_only=True)
class FleetOrphans:
    """The orphans of one deployment in EC2.

    Attributes:
        ec2: The client for fleets and storage.
        records: The table of fleet records.
        table: The table of runs.
        deployment: Value of the tag `spotkeep:deployment`.
        retention: The rules for volumes of ended runs.
        now: The time, aware.
    """

    ec2: Ec2Api
    records: FleetTable
    table: RunTable
    deployment: str
    retention: VolumeRetention
    now: Callable[[], datetime]

    def remove_all(self) -> RemovedOrphans:
        """Remove the orphans among all things that carry the deployment's tag. One failure stops nothing."""
        removed = RemovedOrphans()

        def failed(what: str, error: Exception) -> None:
            removed.failures[what] = f"{type(error).__name__}: {error}"

        for orphan in self.find(failed=failed):
            try:
                self.remove(orphan)
            except Exception as error:  # noqa: BLE001 - reported with the rest, and tried again the next time
                failed(orphan.thing.id, error)
                continue
            (removed.fleets if isinstance(orphan.thing, Fleet) else removed.storage).append(orphan.thing.id)
        return removed

    def find(self, *, failed: Callable[[str, Exception], None]) -> Iterator[Orphan]:
        """List the orphans among all things that carry the deployment's tag. Changes nothing.

        The decision about each is made when the caller asks for it. A caller that removes it at once acts on a fresh
        reading.

        Args:
            failed: Called with each thing that EC2 could not describe, and the reason. The rest goes on if it returns.
        """
        by_run: dict[str, list[TaggedStorage]] = {}
        for found in self.ec2.stored(deployment=self.deployment):
            if (run := found.tags.get(RUN_TAG)) is not None:
                by_run.setdefault(run, []).append(found)
        for run, resources in by_run.items():
            try:
                yield from self._storage(run, resources)
            except Exception as error:  # noqa: BLE001 - reported by the caller
                failed(f"storage of {run}", error)
        for fleet in self.ec2.fleets(deployment=self.deployment):
            run = fleet.tags.get(RUN_TAG)
            if run is None:
                continue
            try:
                item = self.table.runs.get(run)
            except Exception as error:  # noqa: BLE001 - reported by the caller
                failed(fleet.id, error)
                continue
            if is_orphaned(fleet, item, now=self.now(), present=self._present_fleet(item)):
                yield Orphan(thing=fleet, run=run, since=_over_since(item) or fleet.created_at)

    def remove(self, orphan: Orphan) -> None:
        """Remove one orphan. A fleet goes with the instances that it launched."""
        if not isinstance(orphan.thing, Fleet):
            self.ec2.delete_stored(orphan.thing)
            return
        self.ec2.delete_fleet(orphan.thing.id, with_instances=True)

    def _present_fleet(self, item: Run | None) -> str | None:
        """Return the fleet at the present place of a live run's attempt. None where there is none."""
        if item is None or item.state.ended:
            return None
        history = self.records.history(item.run, item.attempt)
        return None if history is None else history.fleet_id

    def _storage(self, run: str, resources: list[TaggedStorage]) -> Iterator[Orphan]:
        # Read after the resources were listed: what is recorded in between is never taken for an orphan.
        record = self.records.record(run)
        if record is None:
            return
        item = self.table.runs.get(run)
        keep = keeps_volume(record, item, retention=self.retention, now=self.now())
        described = tuple(
            Resource(kind=found.kind, id=found.id, operation=operation_of(found.tags), attached=found.attached)
            for found in resources
        )
        by_id = {found.id: found for found in resources}
        for orphan in orphans(record, described, keep_volume=keep):
            yield Orphan(thing=by_id[orphan.id], run=run, since=_over_since(item))


def _over_since(item: Run | None) -> datetime | None:
    return item.ended_at if item is not None and item.state.ended else None


def keeps_volume(record: FleetRecord, item: Run | None, *, retention: VolumeRetention, now: datetime) -> bool:
    """Return True if the volume of a run stays. The volume of a live run always stays.

    Args:
        record: The fleet record.
        item: The run item. None when the table has expired it.
        retention: The deployment's rule.
        now: The time.
    """
    if not record.ended or (item is not None and not item.state.ended):
        return True
    if item is None:
        return retention.volumes is None or retention.volumes > retention.runs
    if item.state is RunState.COMPLETED and _asked_to_delete(item.request):
        return False
    return retention.volumes is None or now < (item.ended_at or item.updated_at) + retention.volumes


def is_orphaned(fleet: Fleet, item: Run | None, *, now: datetime, present: str | None = None) -> bool:
    """Return True if a fleet that may launch instances belongs to no live run, or is at a place that its run has left.

    Args:
        fleet: The fleet.
        item: Its run item. None when there is none (any more).
        now: The time.
        present: The one fleet that the run's present attempt has. None where that is not known.
    """
    old = fleet.created_at is not None and now - fleet.created_at >= UNKNOWN_AFTER
    if item is None:
        return old
    attempt = fleet.tags.get(ATTEMPT_TAG, "")
    earlier = attempt.isascii() and attempt.isdigit() and int(attempt) < item.attempt
    return item.state.ended or earlier or (old and present not in (None, fleet.id))


def _asked_to_delete(request: Mapping[str, object]) -> bool:
    volume = request.get("volume")
    return isinstance(volume, Mapping) and volume.get("when_done") == "delete"
