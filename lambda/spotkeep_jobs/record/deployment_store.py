"""The deployment's own items in the run table, such as AWS's prices and the deletion of the stack."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from spotkeep_jobs.record.deployment_records import PassPlaces, PriceBook, StackRequest
from spotkeep_jobs.record.orphan_report import OrphanReport
from spotkeep_jobs.record.record import format_time
from spotkeep_jobs.record.run_table_errors import RunChangedError, UnreadableRecordError
from spotkeep_jobs.record.table_client import (
    Item,
    TableClient,
    TransactionCancelled,
    Write,
    record_of_text,
    to_dynamodb,
    until_written,
)
from spotkeep_jobs.with_changes import with_changes

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
