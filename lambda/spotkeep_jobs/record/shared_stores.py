"""The stores that runs, sweeps and schedules share, for their claims, their notifications and the deployment's items.

- Claims are on tokens, ids, checkpoint prefixes and slots for runs in flight. A claim outlives the process that made
  it. It is written and deleted in the transaction that opens or ends its run.
- A notification is claimed for one delivery, and then sent, released or given up. Each step is conditional on the one
  before it, so that two deliverers never send the same one.
- The deployment's own items are such as AWS's prices and the deletion of the stack.

A sweep's record reserves the ids of its trials. A schedule's record reserves the ids of its launches. Any other run may
be opened under an id of such a form. Its transaction checks that there is no such sweep and no such schedule, and
writes a claim. A sweep that is opened checks in its own transaction that there is no such claim. A schedule is recorded
first, and made when there is none. So of two that meet, one is refused, whichever comes first.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from spotkeep_jobs.errors import CheckpointPrefixTakenError, RunChangedError, RunsInFlightError, UnreadableRecordError
from spotkeep_jobs.record.deployment_records import OrphanReport, PassPlaces, PriceBook, StackRequest
from spotkeep_jobs.record.fields import with_changes
from spotkeep_jobs.record.ids import FiringId, firing_around, sweep_around
from spotkeep_jobs.record.record import Notification, Run, format_time
from spotkeep_jobs.record.states import NotificationState
from spotkeep_jobs.record.table_client import (
    IN_FLIGHT_INDEX,
    Item,
    TableClient,
    TransactionCancelled,
    Unreadable,
    Write,
    fields_of,
    readable,
    record_of_text,
    to_dynamodb,
    until_written,
)

_DEPLOYMENT: Final = "deployment"
_PLACES: Final = "pass-places"
_COPIES: Final = 10
"""The number of items that record a deletion, all or none.

Each launch checks one of them. DynamoDB refuses one of two transactions that name the same item at once, even if both
only check it. Several copies keep launches from refusing each other."""


@dataclass(frozen=True, kw_only=True)
class DeploymentStore:
    """Prices, the report on orphans, and CloudFormation's request to delete the deployment.

    Attributes:
        table: The run table.
    """

    table: TableClient

    def price_book(self, region: str) -> PriceBook | None:
        """Return a region's prices as they were kept last, or None.

        Raises:
            UnreadableRecordError: Another version wrote them.
        """
        item = self.table.get_item(f"prices#{region}", "book")
        return None if item is None else record_of_text(PriceBook, item, "book")

    def keep_price_book(self, book: PriceBook) -> None:
        """Keep a region's prices in the place of those that were there."""
        item = {"pk": f"prices#{book.region}", "sk": "book", "book": book.model_dump_json(), "form": PriceBook.FORM}
        self.table.dynamodb.put_item(TableName=self.table.name, Item=to_dynamodb(item))

    def last_orphan_report(self) -> OrphanReport | None:
        """Return the report of the last pass over orphans, or None when there has been none.

        Of a report that another version wrote, the time is known. The report states that it cannot be read, and the
        next pass replaces it.
        """
        item = self.table.get_item("orphans", "report")
        if item is None:
            return None
        try:
            return record_of_text(OrphanReport, item, "report")
        except UnreadableRecordError as error:
            why = {"the last report": str(error)}
            return OrphanReport(begun_at=datetime.fromisoformat(str(item["at"])), removes=False, unreadable=why)

    def keep_orphan_report(self, report: OrphanReport, *, replaces: OrphanReport | None) -> bool:
        """Keep the report of a pass over orphans in the place of the one before it.

        Args:
            report: The report.
            replaces: The one before it, as it was read.

        Returns:
            False when another function has made a pass meanwhile.
        """
        item = {
            "pk": "orphans",
            "sk": "report",
            "report": report.model_dump_json(),
            "at": format_time(report.begun_at),
            "form": OrphanReport.FORM,
        }
        if replaces is None:
            return self.table.put_if(item, "attribute_not_exists(pk)")
        before = {":before": format_time(replaces.begun_at)}
        return self.table.put_if(item, "#at = :before", names={"#at": "at"}, values=before)

    def pass_places(self) -> PassPlaces:
        """Return where the passes over everything stand.

        Raises:
            UnreadableRecordError: Another version wrote it.
        """
        item = self.table.get_item(_DEPLOYMENT, _PLACES)
        return PassPlaces() if item is None else record_of_text(PassPlaces, item, "places")

    def keep_pass_places(self, places: PassPlaces) -> None:
        """Keep the place that a pass has reached. Of two passes at once, the later write is kept.

        No turn is lost, but some come twice.
        """
        item = {
            "pk": _DEPLOYMENT,
            "sk": _PLACES,
            "places": places.model_dump_json(),
            "form": PassPlaces.FORM,
        }
        self.table.dynamodb.put_item(TableName=self.table.name, Item=to_dynamodb(item))

    def deletion(self) -> StackRequest | None:
        """Return CloudFormation's request to delete the deployment, answered or not. Or None.

        Raises:
            UnreadableRecordError: Another version wrote it.
        """
        item = self.table.get_item(_DEPLOYMENT, _deletion_key(0))
        return None if item is None else record_of_text(StackRequest, item, "request")

    def keep_deletion(self, request: StackRequest) -> None:
        """Keep CloudFormation's request. From now on no work begins, until `forget_deletion`.

        A launch that is recorded at this moment is either recorded before, or refused. Both transactions name one item,
        and DynamoDB puts them into an order.

        Raises:
            RunChangedError: Launches were at the item at every try.
        """
        self._change_deletion([self.table.put(_deletion_item(request, copy)) for copy in range(_COPIES)])

    def mark_deletion_answered(self, request: StackRequest, *, now: datetime) -> None:
        """Record that a request was answered. Nothing where it was forgotten, or another one came, meanwhile."""
        answered = _deletion_item(with_changes(request, answered_at=now), 0)
        self.table.put_if(answered, "request_id = :id", values={":id": request.request_id})

    def forget_deletion(self) -> None:
        """Forget the request. The deployment stays, or is there again, and work may begin.

        Raises:
            RunChangedError: Launches were at the item at every try.
        """
        keys = [to_dynamodb({"pk": _DEPLOYMENT, "sk": _deletion_key(copy)}) for copy in range(_COPIES)]
        self._change_deletion([{"Delete": {"TableName": self.table.name, "Key": key}} for key in keys])

    def _change_deletion(self, writes: Sequence[Write]) -> None:
        def change() -> None:
            try:
                self.table.transact(writes)
            except TransactionCancelled as cancelled:
                raise RunChangedError(_DEPLOYMENT) from cancelled

        until_written(change)

    def unless_being_deleted(self) -> Write:
        """Return the part of a transaction that refuses it while a deletion of the deployment is recorded."""
        copy = random.randrange(_COPIES)  # noqa: S311 - nothing is secret
        return self.table.absent(_DEPLOYMENT, _deletion_key(copy))


def _deletion_key(copy: int) -> str:
    return f"deletion#{copy:02d}"


def _deletion_item(request: StackRequest, copy: int) -> Item:
    return {
        "pk": _DEPLOYMENT,
        "sk": _deletion_key(copy),
        "request_id": request.request_id,
        "request": request.model_dump_json(),
        "form": StackRequest.FORM,
    }


_NOTIFICATION_IN_FLIGHT: Final = "notification"
_NOTIFICATION_DEAD: Final = "dead-notification"


@dataclass(frozen=True, kw_only=True)
class NotificationStore:
    """The outbox.

    Attributes:
        table: The run table.
    """

    table: TableClient

    def claim(self, notification: Notification, *, now: datetime, stale_after: timedelta) -> Notification | None:
        """Claim a notification for one delivery.

        Args:
            notification: As it was read.
            now: The time of the claim.
            stale_after: A claim older than this belongs to a deliverer that died.

        Returns:
            The claimed notification, or None when it is sent or claimed by another function.
        """
        claimed = with_changes(
            notification, state=NotificationState.SENDING, claimed_at=now, deliveries=notification.deliveries + 1
        )
        stale = (
            notification.state is NotificationState.SENDING
            and notification.claimed_at is not None
            and notification.claimed_at + stale_after <= now
        )
        if notification.state is not NotificationState.PENDING and not stale:
            return None
        return claimed if self._replace(claimed, seen=notification) else None

    def mark_sent(self, notification: Notification, *, message_id: str, now: datetime) -> bool:
        """Record that a claimed notification went out.

        Returns:
            False when another function claimed it meanwhile (the claim had become stale).
        """
        sent = with_changes(notification, state=NotificationState.SENT, sent_at=now, message_id=message_id)
        return self._replace(sent, seen=notification)

    def release(self, notification: Notification, *, problem: str | None = None) -> bool:
        """Give a claimed notification back after a failed delivery, so that the next deliverer need not wait.

        Args:
            notification: As it was claimed.
            problem: The reason of the failure.

        Returns:
            False when another function claimed it meanwhile.
        """
        given_back = with_changes(notification, state=NotificationState.PENDING, problem=problem)
        return self._replace(given_back, seen=notification)

    def give_up(self, notification: Notification, *, problem: str) -> Notification | None:
        """Put a claimed notification aside. No function tries to send it any more.

        Args:
            notification: As it was claimed.
            problem: The reason why sending it failed.

        Returns:
            The dead notification, or None when another function claimed it meanwhile.
        """
        dead = with_changes(notification, state=NotificationState.DEAD, problem=problem)
        return dead if self._replace(dead, seen=notification) else None

    def mark_queued(self, notification: Notification, *, now: datetime) -> bool:
        """Record that a dead notification was put into the dead-letter queue.

        Returns:
            False when it is not dead any more: a user has asked for it meanwhile.
        """
        return self._replace(with_changes(notification, queued_at=now), seen=notification)

    def revive(self, notification: Notification) -> bool:
        """Put a dead notification into the outbox again, as if it had never been tried.

        Args:
            notification: As it was read.

        Returns:
            False when it is not dead, or not any more: it is sent once, however many people ask.
        """
        if notification.state is not NotificationState.DEAD:
            return False
        again = with_changes(
            notification, state=NotificationState.PENDING, deliveries=0, claimed_at=None, queued_at=None
        )
        return self._replace(again, seen=notification)

    def dead(self, *, limit: int = 500, unreadable: Unreadable | None = None) -> list[Notification]:
        """Return notifications that no function tries to send any more, oldest first (eventually consistent)."""
        return self._oldest(_NOTIFICATION_DEAD, limit=limit, unreadable=unreadable)

    def unsent(self, *, limit: int = 100, unreadable: Unreadable | None = None) -> list[Notification]:
        """Return notifications that are not sent yet, of all runs, oldest first (eventually consistent)."""
        return self._oldest(_NOTIFICATION_IN_FLIGHT, limit=limit, unreadable=unreadable)

    def of_run(self, run: str, *, unreadable: Unreadable | None = None) -> list[Notification]:
        """Return the notifications of a run, sent or not, in the order of their events."""
        items = self.table.query_run(f"run#{run}", "notification#")
        return sorted(readable(Notification, items, unreadable=unreadable), key=Notification.order)

    def _oldest(self, part: str, *, limit: int, unreadable: Unreadable | None) -> list[Notification]:
        items = self.table.query_index(IN_FLIGHT_INDEX, "in_flight", part, forward=True)
        return list(readable(Notification, items, unreadable=unreadable, at_most=limit))

    def writes(self, notifications: Iterable[Notification]) -> Iterator[Write]:
        """Yield the writes of new notifications. The transaction is refused where one is in the outbox already."""
        for each in notifications:
            yield self.table.put(self.item(each), condition="attribute_not_exists(pk)")

    def item(self, notification: Notification) -> Item:
        """Return the item of a notification."""
        item = fields_of(notification) | {
            "pk": f"run#{notification.subject_id}",
            "sk": _sort_key(notification),
            "updated_at": format_time(notification.claimed_at or notification.created_at),
            "expires_at": self.table.outlives_run(notification.created_at),
        }
        if notification.state is not NotificationState.SENT:
            item["in_flight"] = (
                _NOTIFICATION_DEAD if notification.state is NotificationState.DEAD else _NOTIFICATION_IN_FLIGHT
            )
        return item

    def _replace(self, notification: Notification, *, seen: Notification) -> bool:
        return self.table.put_if(
            self.item(notification),
            "#state = :state AND deliveries = :deliveries",
            names={"#state": "state"},
            values={":state": seen.state.value, ":deliveries": seen.deliveries},
        )


def _sort_key(notification: Notification) -> str:
    nth = f"-{notification.nth}" if notification.nth else ""
    return f"notification#{notification.kind}#{notification.attempt:04d}{nth}"


_CLAIM: Final = "claim"
_SLOTS: Final = "in-flight"


@dataclass(frozen=True, kw_only=True)
class ClaimStore:
    """Tokens, ids, checkpoint locks and slots.

    Attributes:
        table: The run table.
    """

    table: TableClient

    def checkpoint_lock_owner(self, checkpoint_uri: str) -> str | None:
        """Return the live run that owns a checkpoint prefix, or None."""
        item = self.table.get_item(f"checkpoint-lock#{checkpoint_uri}", "claim")
        return None if item is None else str(item["run"])

    def slots_taken(self) -> int:
        """Return how many slots for runs in flight are taken (strongly consistent)."""
        return sum(1 for _ in self.table.query_run(_SLOTS, "slot#"))

    def free_slots(self, count: int, *, limit: int) -> Sequence[int]:
        """Return free slots for runs. The transaction that claims them finds out about other claims.

        One run at a time claims a slot. So there are never more runs than slots, however many launches race. In a
        deployment with a lowered limit, some runs hold slots above the new limit. These runs count, too. As many fewer
        of the low slots are given out.

        Raises:
            RunsInFlightError: There are not so many free slots.
        """
        taken = {int(str(item["sk"]).removeprefix("slot#")) for item in self.table.query_run(_SLOTS, "slot#")}
        free = [slot for slot in range(limit) if slot not in taken][: max(0, limit - len(taken))]
        if len(free) < count:
            raise RunsInFlightError(in_flight=len(taken), limit=limit)
        return random.sample(free, count)

    def run_of_token(self, run: Run) -> str | None:
        """Return the run that a run's token launched, or None. Of several that were launched as one, the first."""
        item = self.table.get_item(_partition_of_token(run), "claim")
        return None if item is None else str(item["run"])

    def claim_token(self, run: Run, *, expires_at: int) -> Write:
        """Return the write that claims a run's token."""
        return self.table.put(
            {"pk": _partition_of_token(run), "sk": "claim", "run": run.run, "expires_at": expires_at},
            condition="attribute_not_exists(pk)",
        )

    def take_checkpoint_lock(self, run: Run) -> Write:
        """Return the write that takes the lock of a run's checkpoint prefix."""
        return self.table.put(
            {**_lock_key(run), "run": run.run},
            condition="attribute_not_exists(pk)",
        )

    def release_checkpoint_lock(self, run: Run) -> Write:
        """Return the write that gives the lock of a run's checkpoint prefix back."""
        return self._delete_claim(_lock_key(run), run.run)

    def claim_slot(self, run: Run) -> Iterator[Write]:
        """Yield the write that claims a run's slot, or nothing for a run without one."""
        if run.slot is not None:
            claim = {"pk": _SLOTS, "sk": _slot_key(run.slot), "run": run.run}
            yield self.table.put(claim, condition="attribute_not_exists(pk)")

    def release_slot(self, run: Run) -> Iterator[Write]:
        """Yield the write that gives a run's slot back, or nothing for a run without one."""
        if run.slot is not None:
            yield self._delete_claim({"pk": _SLOTS, "sk": _slot_key(run.slot)}, run.run)

    def _delete_claim(self, key: Item, owner: str) -> Write:
        return {
            "Delete": {
                "TableName": self.table.name,
                "Key": to_dynamodb(key),
                "ConditionExpression": "attribute_not_exists(pk) OR run = :run",
                "ExpressionAttributeValues": to_dynamodb({":run": owner}),
            }
        }

    def checkpoint_prefix_taken(self, run: Run) -> CheckpointPrefixTakenError:
        """Return the error about the lock of a run's checkpoint prefix, with the run that owns it."""
        owner = self.checkpoint_lock_owner(run.checkpoint_uri)
        return CheckpointPrefixTakenError(checkpoint_uri=run.checkpoint_uri, owned_by=owner or "another run")

    def run_with_id_of_a_trial(self, sweep: str) -> str | None:
        """Return the newest run that took an id of this sweep's trials (strongly consistent), or None.

        The sweep's own trials do not count. A forgotten run counts for some weeks more.
        """
        item = self.table.get_item(_of_trials(sweep), _CLAIM)
        return None if item is None else str(item["run"])

    def ids_of_firings(self, schedule: str, *, now: datetime) -> list[FiringId]:
        """Return the ids that this schedule would launch under from now on, and that others have (strongly consistent).

        Args:
            schedule: The schedule.
            now: The time, aware.
        """
        taken = self.table.query(
            KeyConditionExpression="pk = :pk AND sk >= :first",
            ExpressionAttributeValues=to_dynamodb({":pk": _of_firings(schedule), ":first": f"{now:%Y%m%d}"}),
            ConsistentRead=True,
        )
        found = [firing_around(f"{schedule}-{item['sk']}", is_sweep=True) for item in taken]
        return [each for each in found if each is not None and each.over_at > now]

    def take_ids_of(self, run: Run) -> Iterator[Write]:
        """Yield the writes that give a run its id, or all runs of its group theirs. They are four at most.

        Another client has made the job of an adopted run, under any name. So an adopted run takes the id without a
        check.
        """
        if run.trial is not None:
            return  # Its sweep has it for it.
        name, expires_at = run.run if run.group is None else run.group.id, self.table.outlives_run(run.created_at)
        if not run.adopted:
            yield self.table.absent(f"sweep#{name}")
        if run.group is None:
            yield from self._take_id_of_trial(name, expires_at=expires_at, checked=not run.adopted)
        else:
            yield self._claim_id_of_trial(name, run=run.run, expires_at=expires_at)
        firing = list(self._take_id_of_firing(name, run.schedule, expires_at=expires_at, checked=not run.adopted))
        if run.group is not None and not firing and (sweep := sweep_around(name)) is not None:
            yield self.table.absent(f"sweep#{sweep}")  # No run has the name of the group; it would look like a trial.
        yield from firing

    def keep_ids_of(self, run: Run, *, now: datetime) -> Iterator[Write]:
        """Yield the writes that keep the id of a continued run claimed. The claim then expires later."""
        expires_at = self.table.outlives_run(now)
        yield from self._take_id_of_trial(run.run, expires_at=expires_at, checked=False)
        yield from self._take_id_of_firing(run.run, run.schedule, expires_at=expires_at, checked=False)

    def take_sweep_id(self, sweep: str, *, schedule: str | None, created_at: datetime) -> Iterator[Write]:
        """Yield the writes that give a sweep its id, and those of its trials."""
        yield self.table.absent(f"run#{sweep}")
        yield self.table.absent(_of_trials(sweep), _CLAIM)
        expires_at = self.table.outlives_run(created_at)
        yield from self._take_id_of_trial(sweep, expires_at=expires_at)
        yield from self._take_id_of_firing(sweep, schedule, expires_at=expires_at, is_sweep=True)

    def _take_id_of_trial(self, name: str, *, expires_at: int, checked: bool = True) -> Iterator[Write]:
        if (sweep := sweep_around(name)) is not None:
            if checked:
                yield self.table.absent(f"sweep#{sweep}")
            yield self._claim_id_of_trial(sweep, run=name, expires_at=expires_at)

    def _take_id_of_firing(
        self, name: str, schedule: str | None, *, expires_at: int, checked: bool = True, is_sweep: bool = False
    ) -> Iterator[Write]:
        firing = firing_around(name, is_sweep=is_sweep)
        if firing is not None and firing.schedule != schedule:
            if checked:
                yield self.table.absent(f"schedule#{firing.schedule}")
            key = {"pk": _of_firings(firing.schedule), "sk": firing.firing}
            yield self.table.put({**key, "run": name, "expires_at": expires_at})

    def _claim_id_of_trial(self, sweep: str, *, run: str, expires_at: int) -> Write:
        return self.table.put({"pk": _of_trials(sweep), "sk": _CLAIM, "run": run, "expires_at": expires_at})


def _partition_of_token(run: Run) -> str:
    # The tokens of trials, of what schedules launch and of adopted jobs follow from what every user reads. A user's own
    # token has no #, so it never claims one of these.
    kinds = {"trial": run.trial is not None, "firing": run.schedule is not None, "adopted": run.adopted}
    return "#".join(["token", *(kind for kind, is_one in kinds.items() if is_one), run.token])


def _lock_key(run: Run) -> Item:
    # A run without a checkpoint prefix locks its own name, which no other run asks for.
    return {"pk": f"checkpoint-lock#{run.checkpoint_uri or run.run}", "sk": "claim"}


def _slot_key(slot: int) -> str:
    return f"slot#{slot:04d}"


def _of_trials(sweep: str) -> str:
    return f"trial-id#{sweep}"


def _of_firings(schedule: str) -> str:
    return f"firing-id#{schedule}"
