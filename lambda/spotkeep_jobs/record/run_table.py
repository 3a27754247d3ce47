"""The record in DynamoDB, behind conditional writes.

Every change of a run is one transaction on its item's `version`. So a function that decides on an old view is refused
(`RunChangedError`), reads again and decides again. Claims make promises that outlive a process. A token claim answers a
repeated launch with the first one's run. A checkpoint lock lets one live run at a time write to a prefix (I1).

Items (`pk` / `sk`):
    run#<run>                 item                                  the run, in both indexes
    run#<run>                 attempt#0001                          one training job
    run#<run>                 metrics                               the metrics that its script reports
    run#<run>                 plan                                  its forecast, and the policy that steers it
    run#<run>                 pool#0001                             the warm pool of an ended training job
    run#<run>                 event#<time>#<attempt>#<kind>         the timeline
    run#<run>                 notification#<kind>#<attempt>[-<nth>] the outbox, of a sweep too
    sweep#<sweep>             item                                  the sweep, in both indexes
    sweep#<sweep>             trial#000001                          one trial, with its parameters and its outcome
    trial-id#<sweep>          claim                                 -> run with such an id that is no trial of the sweep
    firing-id#<schedule>      20261122-0200                         -> run with such an id, not of the schedule
    schedule#<schedule>       item                                  a document launched repeatedly, in by-created
    reuse#<job>               claim                                 -> since when a pool was handed on to it
    token#<token>             claim                                 -> run that a user launched with it
    token#trial#<token>       claim                                 -> run of a trial, so for firing and adopted
    in-flight                 slot#0001                             -> run, while it lives, one of a limited number
    checkpoint-lock#<prefix>  claim                                 -> run, while it lives
    deployment                deletion#00                           CloudFormation's request to delete it
    deployment                pass-places                           the beginning of the next pass, after a cut one
    prices#<region>           book                                  AWS's prices there, as of a day
    orphans                   report                                the last pass over things of no live run
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from spotkeep_jobs.errors import UnreadableRecordError
from spotkeep_jobs.record.record import Pool, Run
from spotkeep_jobs.record.run_store import (
    LISTING,
    LISTING_OF_TRIALS,
    POOL_IN_FLIGHT,
    RUN_IN_FLIGHT,
    RUN_WAITS_FOR_QUOTA,
    PoolStore,
    RunStore,
)
from spotkeep_jobs.record.schedule_store import SCHEDULES, ScheduleStore
from spotkeep_jobs.record.shared_stores import ClaimStore, DeploymentStore, NotificationStore
from spotkeep_jobs.record.sweep import Sweep
from spotkeep_jobs.record.sweep_store import SWEEP_IN_FLIGHT, SWEEPS, SweepStore
from spotkeep_jobs.record.table_client import (
    BY_CREATED_INDEX,
    IN_FLIGHT_INDEX,
    RUN_RETENTION_DAYS,
    Item,
    TableClient,
    record_of,
)

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_NAMING_FIELDS: Final = ("checkpoint_uri", "output_prefix", "request", "document")
"""The fields in which items name the things that they use."""
_ALIVE: Final[Mapping[str, type[Run] | type[Sweep] | type[Pool]]] = {
    RUN_IN_FLIGHT: Run,
    RUN_WAITS_FOR_QUOTA: Run,
    SWEEP_IN_FLIGHT: Sweep,
    POOL_IN_FLIGHT: Pool,
}
"""The records that may bill, or begin a job that bills, by the part of the index. Notifications are in other parts."""


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """The deployment's one DynamoDB table, with a store for each kind of record.

    Attributes:
        client: Reads and writes its items.
        runs: Runs, attempts, timelines, metrics and plans.
        pools: Warm pools.
        notifications: The outbox.
        sweeps: Sweeps and their trials.
        schedules: Schedules.
        claims: Tokens, ids, checkpoint locks and slots.
        deployment: The deployment's own items, such as prices.
    """

    client: TableClient
    runs: RunStore
    pools: PoolStore
    notifications: NotificationStore
    sweeps: SweepStore
    schedules: ScheduleStore
    claims: ClaimStore
    deployment: DeploymentStore

    @classmethod
    def of(cls, *, client: DynamoDBClient, table_name: str, retention_days: int = RUN_RETENTION_DAYS) -> Self:
        """Return the stores of a table.

        Args:
            client: A DynamoDB client, with retries as the caller chooses.
            table_name: The run table of the deployment.
            retention_days: Days that an ended run stays (TTL attribute `expires_at`).
        """
        table = TableClient(client=client, table_name=table_name, retention_days=retention_days)
        notifications, claims = NotificationStore(table=table), ClaimStore(table=table)
        pools, deployment = PoolStore(table=table), DeploymentStore(table=table)
        return cls(
            client=table,
            runs=RunStore(table=table, notifications=notifications, claims=claims, pools=pools, deployment=deployment),
            pools=pools,
            notifications=notifications,
            sweeps=SweepStore(table=table, notifications=notifications, claims=claims, deployment=deployment),
            schedules=ScheduleStore(table=table, notifications=notifications, deployment=deployment),
            claims=claims,
            deployment=deployment,
        )

    def named_in_records(self) -> Iterator[tuple[str, str]]:
        """Yield the id of each run, trial's run, sweep and schedule, and all that it names, in one text.

        The scan goes by pages of a megabyte, as DynamoDB stores the items. So even an unreadable record yields the
        things that it names (eventually consistent).
        """
        for part in (LISTING, LISTING_OF_TRIALS, SWEEPS, SCHEDULES):
            for item in self.client.query_index(BY_CREATED_INDEX, "listing", part, forward=False):
                yield str(item["pk"]).partition("#")[2], "\n".join(str(item.get(name, "")) for name in _NAMING_FIELDS)

    def is_recorded(self, run: str) -> bool:
        """Say whether there is a run, a sweep or a schedule of an id (strongly consistent)."""
        return any(self.client.get_item(f"{kind}#{run}", "item") is not None for kind in ("run", "sweep", "schedule"))

    def alive(self, *, consistent: bool) -> Iterator[Run | Sweep | Pool | UnreadableRecordError]:
        """Yield the runs, sweeps and warm pools that have not ended, and an error for each that cannot be read.

        Args:
            consistent: True to see all that is written. No index is consistent, so the whole table is read, a megabyte
                a call.
        """
        for item in self._items_in_flight(consistent=consistent):
            record = _ALIVE.get(str(item["in_flight"]))
            try:
                if record is not None:
                    yield record_of(record, item)
            except UnreadableRecordError as error:
                yield error

    def _items_in_flight(self, *, consistent: bool) -> Iterator[Item]:
        if consistent:
            yield from self.client.scan(FilterExpression="attribute_exists(in_flight)")
            return
        for part in _ALIVE:
            yield from self.client.query_index(IN_FLIGHT_INDEX, "in_flight", part, forward=True)
