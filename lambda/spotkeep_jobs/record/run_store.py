"""Runs, their attempts, timelines and warm pools in the run table.

Every change of a run is one transaction on its item's `version`. So a function that decides on an old view is refused
(`RunChangedError`), reads again and decides again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from spotkeep_jobs.errors import (
    AttemptStillLiveError,
    DeploymentIsBeingDeletedError,
    IdReservedError,
    RunChangedError,
    RunExistsError,
    RunNotRecordedError,
    RunsInFlightError,
)
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.ids import run_of_trial
from spotkeep_jobs.record.record import (
    Attempt,
    LogReading,
    Notification,
    Plan,
    Pool,
    PoolChange,
    Run,
    RunChange,
    RunGroup,
    ScriptMetrics,
    TimelineEntry,
    TrialPlace,
    format_time,
)
from spotkeep_jobs.record.shared_stores import ClaimStore, DeploymentStore, NotificationStore
from spotkeep_jobs.record.states import EndReason, PoolState, RunState, TimelineKind
from spotkeep_jobs.record.table_client import (
    BY_CREATED_INDEX,
    IN_FLIGHT_INDEX,
    Item,
    TableClient,
    TransactionCancelled,
    Unreadable,
    Write,
    epoch_seconds,
    fields_of,
    readable,
    record_of,
    to_dynamodb,
    until_written,
)

LISTING: Final = "run"
LISTING_OF_TRIALS: Final = "trial"
"""The part of the index with the runs of trials. A sweep is listed as one, without them."""
RUN_IN_FLIGHT: Final = "1"
RUN_WAITS_FOR_QUOTA: Final = "quota"
"""The part of the index with the runs that wait for quota. The end of each job asks for them."""
POOL_IN_FLIGHT: Final = "pool"
_OF_TIMELINE_ALONE: Final = "text"
"""The attribute that entries of the timeline have, and no other item of a run. A filter cannot name a sort key."""


@dataclass(frozen=True, kw_only=True)
class NewRun:
    """A run that is to be opened.

    Attributes:
        run: The new run item, state LAUNCHING.
        attempt: Its first attempt, state LAUNCHING.
        plan: Its forecast and policy, if it has any.
        timeline: Timeline entries beside the one that it was opened.
        opened: The text of that entry, or None for a run that a user asked for.
    """

    run: Run
    attempt: Attempt
    plan: Plan | None = None
    timeline: Sequence[TimelineEntry] = ()
    opened: str | None = None


@dataclass(frozen=True, kw_only=True)
class Opened:
    """A run that `open_runs` opened, or that the same token opened before.

    Attributes:
        run: The run's item, new or from the first launch with the token.
        attempt: Its current attempt.
        replayed: True when the token was used before (nothing was written).
    """

    run: Run
    attempt: Attempt
    replayed: bool


@dataclass(frozen=True, kw_only=True)
class ReadRun:
    """The items of a run without its timeline, as one call has read them.

    Attributes:
        run: The run item. None for a run that is not known.
        metrics: The metrics that its script reports, or None.
        notifications: Its notifications, oldest first, without those that cannot be read. The outbox reports these.
        items: All of its items by their sort keys.
    """

    run: Run | None
    metrics: ScriptMetrics | None
    notifications: list[Notification]
    items: Mapping[str, Item]

    def attempts(self) -> list[Attempt]:
        """Return every attempt of the run, first to last.

        Raises:
            UnreadableRecordError: Another version wrote one of them.
        """
        return [record_of(Attempt, item) for key, item in self.items.items() if key.startswith("attempt#")]


@dataclass(frozen=True, kw_only=True)
class PoolStore:
    """Warm pools, and since when instances have been handed on from pool to pool.

    Attributes:
        table: The run table.
    """

    table: TableClient

    def get(self, run: str, attempt: int) -> Pool | None:
        """Return the warm pool that an attempt's job left (strongly consistent), or None."""
        return self.table.read(Pool, f"run#{run}", f"pool#{attempt:04d}")

    def of_run(self, run: str) -> Sequence[Pool]:
        """Return the warm pools that a run's jobs left, first to last."""
        return [record_of(Pool, item) for item in self.table.query_run(f"run#{run}", "pool#")]

    def kept(self, *, unreadable: Unreadable | None = None) -> Iterator[Pool]:
        """Yield warm pools that were there when last reconciled, the first to expire first (eventually consistent)."""
        items = self.table.query_index(IN_FLIGHT_INDEX, "in_flight", POOL_IN_FLIGHT, forward=True)
        return readable(Pool, items, unreadable=unreadable)

    def chain_of(self, job_name: str) -> datetime | None:
        """Since when the instances that a training job took over have been handed on, or None."""
        item = self.table.get_item(f"reuse#{job_name}", "claim")
        return None if item is None else datetime.fromisoformat(str(item["chain_since"]))

    def writes(self, pool: Pool) -> Iterator[Write]:
        """Yield the writes of a pool, and of the claim of the job that took it over."""
        item = fields_of(pool) | {
            "pk": f"run#{pool.run}",
            "sk": f"pool#{pool.attempt:04d}",
            "updated_at": format_time(pool.kept_until),
            "expires_at": self.table.outlives_run(pool.kept_since),
        }
        if pool.state is PoolState.AVAILABLE:
            item["in_flight"] = POOL_IN_FLIGHT
        yield self.table.put(item)
        if pool.state is PoolState.REUSED and pool.reused_by is not None:
            yield self.table.put(
                {
                    "pk": f"reuse#{pool.reused_by}",
                    "sk": "claim",
                    "chain_since": format_time(pool.chain_since),
                    "expires_at": self.table.outlives_run(pool.kept_since),
                }
            )


@dataclass(frozen=True, kw_only=True)
class RunStore:
    """Runs, their attempts and timelines.

    Attributes:
        table: The run table.
        notifications: The outbox.
        claims: The claims of runs.
        pools: The warm pools that runs leave.
        deployment: The deployment's own items.
    """

    table: TableClient
    notifications: NotificationStore
    claims: ClaimStore
    pools: PoolStore
    deployment: DeploymentStore

    # Launching

    def open(self, new: Sequence[NewRun], *, in_flight_limit: int | None = None) -> tuple[Opened, ...]:
        """Record the runs of one launch, all or none, in one transaction.

        The transaction has six items a run and five more at most.

        Args:
            new: The runs, the first with the launch's token.
            in_flight_limit: The highest number of runs in flight, these included, or None for no limit.

        Returns:
            The runs, in the same order. With `replayed` set, those that the same token opened before, which may be more
            or fewer.

        Raises:
            RunExistsError: A run id is taken (by a request with another token).
            IdReservedError: A sweep or a schedule has reserved the id of one.
            CheckpointPrefixTakenError: Another live run owns a checkpoint prefix.
            RunsInFlightError: More runs than the limit would be in flight.
            DeploymentIsBeingDeletedError: No run begins any more.
            RunChangedError: Another launch took the same slot meanwhile, or another transaction was under way.
        """
        if in_flight_limit is not None:
            try:
                slots = self.claims.free_slots(len(new), limit=in_flight_limit)
            except RunsInFlightError:
                if self.claims.run_of_token(new[0].run) is None:
                    raise
                return self._replay_all(new[0].run)
            new = [replace(each, run=with_changes(each.run, slot=slot)) for each, slot in zip(new, slots, strict=True)]
        writes: list[Write] = []
        begins = []
        for each in new:
            begins.append(len(writes))
            writes += self._opening_writes(each)
        ids_begin = len(writes)
        writes += self.claims.take_ids_of(new[0].run)
        # A run of another client has its job already.
        asks = [] if all(each.run.adopted for each in new) else [self.deployment.unless_being_deleted()]
        try:
            self.table.transact([*writes, *asks])
        except TransactionCancelled as cancelled:
            if cancelled.refused(0):
                return self._replay_all(new[0].run)
            if cancelled.refused(len(writes)):
                raise DeploymentIsBeingDeletedError from cancelled
            for begin, each in zip(begins, new, strict=True):
                if cancelled.refused(begin + 1):
                    raise RunExistsError(each.run.run) from cancelled
                if cancelled.refused(begin + 2):
                    raise self.claims.checkpoint_prefix_taken(each.run) from cancelled
            if any(cancelled.refused(position) for position in range(ids_begin, len(writes))):
                raise IdReservedError(new[0].run.run) from cancelled
            raise RunChangedError(new[0].run.run) from cancelled
        return tuple(Opened(run=each.run, attempt=each.attempt, replayed=False) for each in new)

    def begin_attempt(
        self, *, run: Run, attempt: Attempt, timeline: Sequence[TimelineEntry] = (), in_flight_limit: int | None = None
    ) -> Run:
        """Record the next attempt of an ended run on the same checkpoint prefix.

        Args:
            run: The run item as it was read, which must have ended.
            attempt: The new attempt, numbered `run.attempt + 1`, state LAUNCHING.
            timeline: Timeline entries beside the one that it begins.
            in_flight_limit: The highest number of runs in flight, this one included, or None for no limit.

        Returns:
            The new run item.

        Raises:
            AttemptStillLiveError: The last attempt is not over (I1).
            CheckpointPrefixTakenError: Another live run owns the checkpoint prefix meanwhile.
            RunsInFlightError: One run more than the limit would be in flight.
            DeploymentIsBeingDeletedError: No attempt begins any more.
            RunChangedError: Another function changed the run since it was read.
        """
        if not run.state.ended:
            raise AttemptStillLiveError(run=run.run, attempt=run.attempt, state=run.state)
        slot = None if in_flight_limit is None else self.claims.free_slots(1, limit=in_flight_limit)[0]
        run_item = with_changes(
            run,
            state=RunState.LAUNCHING,
            slot=slot,
            ending=None,
            asked_to_end=None,
            log_reading=None,
            attempt=attempt.attempt,
            job_name=attempt.job_name,
            job_id=attempt.job_id,
            place=attempt.place,
            updated_at=attempt.created_at,
            version=run.version + 1,
        )
        begun = TimelineEntry(
            run=run.run,
            attempt=attempt.attempt,
            at=attempt.created_at,
            kind=TimelineKind.ATTEMPT_BEGUN,
            text=f"Attempt {attempt.attempt} begins, on the same checkpoints",
        )
        try:
            self.table.transact(
                [
                    self._put_run(run_item, decided_on=run.version),
                    self.claims.take_checkpoint_lock(run),
                    self.deployment.unless_being_deleted(),
                    self.table.put(self.attempt_item(attempt), condition="attribute_not_exists(pk)"),
                    self.table.put(self.timeline_item(begun)),
                    *(self.table.put(self.timeline_item(entry)) for entry in timeline),
                    *self.claims.claim_slot(run_item),
                    *self.claims.keep_ids_of(run_item, now=attempt.created_at),
                ]
            )
        except TransactionCancelled as cancelled:
            if not cancelled.refused(0) and cancelled.refused(2):
                raise DeploymentIsBeingDeletedError from cancelled
            if not cancelled.refused(0) and cancelled.refused(1):
                raise self.claims.checkpoint_prefix_taken(run) from cancelled
            raise RunChangedError(run.run) from cancelled
        return run_item

    def record_job_created(
        self, *, run: str, attempt: int, job_id: str, now: datetime, read: tuple[Run, Attempt] | None = None
    ) -> Run:
        """Record that the backend confirmed an attempt's job. Recording it again changes nothing.

        Args:
            run: The run.
            attempt: The attempt's number.
            job_id: The job's id at its backend.
            now: The time.
            read: The run item and this attempt, as they were read or written last, or None to read them.

        Returns:
            The run item. A set `asked_to_end` means that the user asked to stop while the job was being created. The
            caller then stops the job. The caller also stops it when the run has ended or gone on, which leaves the item
            unchanged.

        Raises:
            RunNotRecordedError: No such run or attempt.
            RunChangedError: The run kept changing under every try.
        """
        as_read = [read] if read is not None else []

        def record() -> Run:
            run_item, recorded = (
                as_read.pop() if as_read else (self._require(run), self._required_attempt(run, attempt))
            )
            if recorded.job_id is not None or run_item.attempt != attempt or run_item.state.ended:
                return run_item
            change = RunChange(
                run=with_changes(run_item, job_id=job_id, quota_wait=None, updated_at=now),
                attempt=with_changes(recorded, job_id=job_id, launched_at=now),
                timeline=(recorded.job_created_entry(job_id=job_id, at=now),),
            )
            return self.commit(change)

        return until_written(record)

    # Changing

    def request_stop(self, *, run: str, now: datetime) -> tuple[Run, Attempt]:
        """Record that the user wants the run to end. Asking again, or asking an ended run, change nothing.

        Returns:
            The run item and its current attempt. The caller stops the job when there is one and it has not ended.

        Raises:
            RunNotRecordedError: No such run.
            RunChangedError: The run kept changing under every try.
        """

        def request() -> tuple[Run, Attempt]:
            run_item = self._require(run)
            recorded = self._required_attempt(run, run_item.attempt)
            if run_item.state.ended or run_item.asked_to_end is not None:
                return run_item, recorded
            text = "A user asked to stop the run"
            change = RunChange(
                run=run_item.to_end(EndReason.STOPPED_BY_USER, text=text, at=now),
                attempt=with_changes(recorded, state=RunState.STOPPING),
                timeline=(
                    TimelineEntry(
                        run=run,
                        attempt=run_item.attempt,
                        at=now,
                        kind=TimelineKind.STOP_REQUESTED,
                        text=text,
                    ),
                ),
            )
            return self.commit(change), change.attempt

        return until_written(request)

    def begin_log_reading(self, run: Run, *, now: datetime) -> None:
        """Record that a function is about to read a run's log.

        The run goes to the end of those in flight. If the reading kills the function, its next pass finds all other
        runs first. The version stays, so a function that decided on this one may still write.

        Args:
            run: The run item as it was read.
            now: The time.

        Raises:
            RunChangedError: Another function changed the run since it was read.
        """
        unfinished = 1 if run.log_reading is None else run.log_reading.unfinished + 1
        reading = LogReading(begun_at=now, unfinished=unfinished)
        self._mark(with_changes(run, log_reading=reading, updated_at=now))

    def end_log_reading(self, run: Run) -> None:
        """Record that a reading of a run's log has ended and changed nothing. `commit` records it beside a change.

        Args:
            run: The run item as it was read, before the reading began.
        """
        with contextlib.suppress(RunChangedError):  # The function that changed the run has read its log, too.
            self._mark(with_changes(run, log_reading=None))

    def _mark(self, run: Run) -> None:
        if not self.table.put_if(self.item(run), "version = :seen", values={":seen": run.version}):
            raise RunChangedError(run.run)

    def commit(self, change: RunChange, *, begins_job: bool = False, beside: Sequence[Write] = ()) -> Run:
        """Write a change in one transaction. An ended run gives its checkpoint prefix back in the same one.

        Args:
            change: Its `run.version` is the version the decision was made on.
            begins_job: Whether the caller creates the job of its attempt next.
            beside: Writes of the same run's items that belong to the change. A condition of theirs counts, too.

        Returns:
            The run item as written.

        Raises:
            RunChangedError: Another function changed the run meanwhile. Nothing was written.
            DeploymentIsBeingDeletedError: No job begins any more, this one's nor one of a next attempt.
        """
        run_item = with_changes(
            change.run, version=change.run.version + 1, slot=None if change.ends_run else change.run.slot
        )
        writes = [*self._change_writes(run_item, change), *self._next_attempt(change), *beside]
        if change.ends_run:
            writes += [self.claims.release_checkpoint_lock(run_item), *self.claims.release_slot(change.run)]
        return self._written(run_item, writes, begins_job=begins_job or change.next_attempt is not None)

    def commit_pool(self, change: PoolChange) -> Run:
        """Write a change of a warm pool, and of its run's bill, in one transaction.

        Args:
            change: Its `run.version` is the version the decision was made on.

        Returns:
            The run item as written.

        Raises:
            RunChangedError: Another function changed the run or its pool meanwhile. Nothing was written.
        """
        run_item = with_changes(change.run, version=change.run.version + 1)
        return self._written(run_item, self._change_writes(run_item, change))

    def _change_writes(self, run_item: Run, change: RunChange | PoolChange) -> list[Write]:
        writes = [
            self._put_run(run_item, decided_on=change.run.version),
            self.table.put(self.attempt_item(change.attempt)),
            *(self.table.put(self.timeline_item(entry)) for entry in change.timeline),
            *self.notifications.writes(change.notifications),
        ]
        if isinstance(change, RunChange) and change.metrics is not None:
            keys = {
                "pk": f"run#{run_item.run}",
                "sk": "metrics",
                "expires_at": self.table.outlives_run(run_item.created_at),
            }
            writes.append(self.table.put(fields_of(change.metrics) | keys))
        return writes if change.pool is None else [*writes, *self.pools.writes(change.pool)]

    def _written(self, run_item: Run, writes: Sequence[Write], *, begins_job: bool = False) -> Run:
        asks = [self.deployment.unless_being_deleted()] if begins_job else []
        try:
            self.table.transact([*writes, *asks])
        except TransactionCancelled as cancelled:
            if asks and cancelled.refused(len(writes)) and not cancelled.refused(0):
                raise DeploymentIsBeingDeletedError from cancelled
            raise RunChangedError(run_item.run) from cancelled
        return run_item

    def write(self, run: str, writes: Sequence[Write]) -> None:
        """Write items of a run whose own item stays as it is, all or nothing.

        Raises:
            RunChangedError: Another function changed one of them meanwhile. Nothing was written.
            RecordRefusedError: DynamoDB never takes one of them.
        """
        try:
            self.table.transact(writes)
        except TransactionCancelled as cancelled:
            raise RunChangedError(run) from cancelled

    # Reading

    def get(self, run: str) -> Run | None:
        """Return the item of a run (strongly consistent), or None."""
        return self.table.read(Run, f"run#{run}", "item")

    def trial_run(self, sweep: str, number: int) -> Run | None:
        """Return the run of a trial (strongly consistent), or None. A run that only has such an id does not count."""
        run = self.get(run_of_trial(sweep, number))
        return run if run is not None and run.trial == TrialPlace(sweep=sweep, number=number) else None

    def with_metrics_and_notifications(self, run: str) -> tuple[Run | None, ScriptMetrics | None, list[Notification]]:
        """Return the item of a run (strongly consistent), its metrics and its notifications, in one call.

        A notification that cannot be read is left out. The run goes on, and the outbox reports the notification.
        """
        read = _as_read(
            self.table.query(
                KeyConditionExpression="pk = :pk AND sk >= :first",
                ExpressionAttributeValues=to_dynamodb({":pk": f"run#{run}", ":first": "item"}),
                ConsistentRead=True,
            )
        )
        return read.run, read.metrics, read.notifications

    def without_timeline(self, run: str) -> ReadRun:
        """Return a run's items (strongly consistent) in one call. DynamoDB leaves out those of its timeline."""
        return _as_read(
            self.table.query(
                KeyConditionExpression="pk = :pk",
                FilterExpression="attribute_not_exists(#text)",
                ExpressionAttributeNames={"#text": _OF_TIMELINE_ALONE},
                ExpressionAttributeValues=to_dynamodb({":pk": f"run#{run}"}),
                ConsistentRead=True,
            )
        )

    def attempt(self, run: str, attempt: int) -> Attempt | None:
        """Return one attempt of a run (strongly consistent), or None."""
        return self.table.read(Attempt, f"run#{run}", f"attempt#{attempt:04d}")

    def plan(self, run: str) -> Plan | None:
        """Return the forecast and policy of a run, or None."""
        return self.table.read(Plan, f"run#{run}", "plan")

    def metrics(self, run: str) -> ScriptMetrics | None:
        """Return the metrics that a run's script reports, or None."""
        return self.table.read(ScriptMetrics, f"run#{run}", "metrics")

    def attempts(self, run: str) -> list[Attempt]:
        """Return every attempt of a run, first to last."""
        return [record_of(Attempt, item) for item in self.table.query_run(f"run#{run}", "attempt#")]

    def timeline(self, run: str, *, unreadable: Unreadable | None = None) -> list[TimelineEntry]:
        """Return the timeline of a run, in order of time."""
        entries = readable(TimelineEntry, self.table.query_run(f"run#{run}", "event#"), unreadable=unreadable)
        place = {kind: at for at, kind in enumerate(TimelineKind)}
        return sorted(entries, key=lambda entry: (entry.at, entry.attempt, place[entry.kind]))

    def list(
        self,
        *,
        owner: str | None = None,
        states: Collection[RunState] | None = None,
        limit: int = 50,
        trials: bool = False,
        unreadable: Unreadable | None = None,
    ) -> list[Run]:
        """Return runs, newest first (eventually consistent).

        Args:
            owner: Only this owner's.
            states: Only runs in one of these states.
            limit: At most so many.
            trials: Whether to list those of sweeps' trials, instead of all others.
            unreadable: Takes those that cannot be read, whosever. None to raise at the first.
        """
        found: list[Run] = []
        part = LISTING_OF_TRIALS if trials else LISTING
        items = self.table.query_index(BY_CREATED_INDEX, "listing", part, forward=False)
        for run in readable(Run, items, unreadable=unreadable):
            if owner is not None and run.owner != owner:
                continue
            if states is not None and run.state not in states:
                continue
            found.append(run)
            if len(found) >= limit:
                break
        return found

    def in_flight(self) -> Iterator[str]:
        """Yield ids of the runs that have not ended, longest untouched first (eventually consistent).

        Those that wait for quota are the last.
        """
        for part in (RUN_IN_FLIGHT, RUN_WAITS_FOR_QUOTA):
            for item in self.table.query_index(IN_FLIGHT_INDEX, "in_flight", part, forward=True):
                yield str(item["run"])

    def log_readings_begun(self) -> frozenset[str]:
        """Return the runs in flight with a log reading that has begun and not ended (eventually consistent)."""
        items = self.table.query_index(IN_FLIGHT_INDEX, "in_flight", RUN_IN_FLIGHT, forward=True)
        return frozenset(str(item["run"]) for item in items if "log_reading" in item)

    def items_in_flight(self, *, unreadable: Unreadable | None = None) -> Iterator[Run]:
        """Yield the runs that have not ended (eventually consistent)."""
        items = self.table.query_index(IN_FLIGHT_INDEX, "in_flight", RUN_IN_FLIGHT, forward=True)
        yield from readable(Run, items, unreadable=unreadable)
        yield from self.waiting_for_quota(unreadable=unreadable)

    def waiting_for_quota(self, *, unreadable: Unreadable | None = None) -> Iterator[Run]:
        """Yield the runs that wait for room in the account's quota (eventually consistent)."""
        items = self.table.query_index(IN_FLIGHT_INDEX, "in_flight", RUN_WAITS_FOR_QUOTA, forward=True)
        return readable(Run, items, unreadable=unreadable)

    # Items

    def item(self, run: Run) -> Item:
        """Return the item of a run."""
        listing = LISTING if run.trial is None else LISTING_OF_TRIALS
        item = fields_of(run) | {"pk": f"run#{run.run}", "sk": "item", "listing": listing}
        if run.state.ended:
            item["expires_at"] = epoch_seconds((run.ended_at or run.updated_at) + self.table.retention)
        else:
            item["in_flight"] = RUN_IN_FLIGHT if run.quota_wait is None else RUN_WAITS_FOR_QUOTA
        return item

    def attempt_item(self, attempt: Attempt) -> Item:
        """Return the item of an attempt."""
        return fields_of(attempt) | {
            "pk": f"run#{attempt.run}",
            "sk": f"attempt#{attempt.attempt:04d}",
            "expires_at": self.table.outlives_run(attempt.created_at),
        }

    def plan_writes(self, run: Run, plan: Plan | None) -> Iterator[Write]:
        """Yield the write of a run's plan, or nothing for a run without one."""
        if plan is not None:
            keys = {"pk": f"run#{run.run}", "sk": "plan", "expires_at": self.table.outlives_run(run.created_at)}
            yield self.table.put(fields_of(plan) | keys)

    def _opening_writes(self, new: NewRun) -> Iterator[Write]:
        """Yield the writes that open a run.

        Token, run item and checkpoint lock come first, in this order, each on its condition.
        """
        run = new.run
        opened = TimelineEntry(
            run=run.run,
            attempt=1,
            at=run.created_at,
            kind=TimelineKind.RUN_OPENED,
            text=new.opened or ("The run was requested" if run.owner is None else f"{run.owner} asked for the run"),
        )
        yield self.claims.claim_token(run, expires_at=self.table.outlives_run(run.created_at))
        yield self.table.put(self.item(run), condition="attribute_not_exists(pk)")
        yield self.claims.take_checkpoint_lock(run)
        yield self.table.put(self.attempt_item(new.attempt))
        yield self.table.put(self.timeline_item(opened))
        for entry in new.timeline:
            yield self.table.put(self.timeline_item(entry))
        yield from self.plan_writes(run, new.plan)
        yield from self.claims.claim_slot(run)

    def _next_attempt(self, change: RunChange) -> Iterator[Write]:
        if change.next_attempt is not None:
            yield self.table.put(self.attempt_item(change.next_attempt), condition="attribute_not_exists(pk)")

    def timeline_item(self, entry: TimelineEntry) -> Item:
        """Return the item of a timeline entry."""
        return fields_of(entry) | {
            "pk": f"run#{entry.run}",
            "sk": f"event#{format_time(entry.at)}#{entry.attempt:04d}#{entry.kind}",
            "expires_at": self.table.outlives_run(entry.at),
        }

    # Writes

    def _put_run(self, run_item: Run, *, decided_on: int) -> Write:
        return self.table.put(self.item(run_item), condition="version = :seen", values={":seen": decided_on})

    def _replay_all(self, asked: Run) -> tuple[Opened, ...]:
        """Return the run that a token opened before, and all runs of its group."""
        run = self.claims.run_of_token(asked)
        if run is None:
            raise RunChangedError(asked.token)
        first = self._recorded(run)
        group = first.run.group
        if group is None:
            return (first,)
        others = [with_changes(group, index=index) for index in range(2, group.size + 1)]
        return (first, *(self._recorded(f"{group.id}-{place.index}", group=place) for place in others))

    def _recorded(self, run: str, *, group: RunGroup | None = None) -> Opened:
        run_item = self._require(run)
        if group is not None and run_item.group != group:
            raise RunNotRecordedError(run)  # It is forgotten, and another run is called so since.
        return Opened(run=run_item, attempt=self._required_attempt(run, run_item.attempt), replayed=True)

    def _require(self, run: str) -> Run:
        run_item = self.get(run)
        if run_item is None:
            raise RunNotRecordedError(run)
        return run_item

    def _required_attempt(self, run: str, attempt: int) -> Attempt:
        recorded = self.attempt(run, attempt)
        if recorded is None:
            raise RunNotRecordedError(run, attempt=attempt)
        return recorded


def _as_read(items: Iterable[Item]) -> ReadRun:
    run_item: Run | None = None
    metrics: ScriptMetrics | None = None
    notifications: list[Notification] = []
    by_key: dict[str, Item] = {}
    for item in items:
        key = str(item["sk"])
        by_key[key] = item
        if key == "item":
            run_item = record_of(Run, item)
        elif key == "metrics":
            metrics = record_of(ScriptMetrics, item)
        elif key.startswith("notification#"):
            notifications += readable(Notification, [item], unreadable={})
    return ReadRun(
        run=run_item, metrics=metrics, notifications=sorted(notifications, key=Notification.order), items=by_key
    )
