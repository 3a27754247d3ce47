"""What the run table keeps of the deployment: AWS's prices, the last pass over orphans, the deletion of the stack."""

from __future__ import annotations

from spotkeep_jobs.record.deployment_records import PriceBook, StackRequest
from spotkeep_jobs.record.orphan_report import OrphanReport
from spotkeep_jobs.record.record import format_time
from spotkeep_jobs.record.table_client import TableClient, to_dynamodb


class DeploymentTable(TableClient):
    """Prices, the report on orphans, and CloudFormation's request to delete the deployment."""

    def price_book(self, region: str) -> PriceBook | None:
        """Return a region's prices as they were kept last, or None."""
        item = self._get_item(f"prices#{region}", "book")
        return None if item is None else PriceBook.model_validate_json(str(item["book"]))

    def keep_price_book(self, book: PriceBook) -> None:
        """Keep a region's prices in the place of those that were there."""
        item = {"pk": f"prices#{book.region}", "sk": "book", "book": book.model_dump_json()}
        self._client.put_item(TableName=self._table, Item=to_dynamodb(item))

    def last_orphan_report(self) -> OrphanReport | None:
        """Return the report of the last pass over orphans, or None when there has been none."""
        item = self._get_item("orphans", "report")
        return None if item is None else OrphanReport.model_validate_json(str(item["report"]))

    def keep_orphan_report(self, report: OrphanReport, *, replaces: OrphanReport | None) -> bool:
        """Keep the report of a pass over orphans in the place of the one before it.

        Args:
            report: The report.
            replaces: The one before it, as it was read.

        Returns:
            False when another function has made a pass meanwhile.
        """
        item = {"pk": "orphans", "sk": "report", "report": report.model_dump_json(), "at": format_time(report.begun_at)}
        if replaces is None:
            return self._put_if(item, "attribute_not_exists(pk)")
        before = {":before": format_time(replaces.begun_at)}
        return self._put_if(item, "#at = :before", names={"#at": "at"}, values=before)

    def deletion(self) -> StackRequest | None:
        """Return CloudFormation's request to delete the deployment, while it waits for an answer; or None."""
        item = self._get_item("deployment", "deletion")
        return None if item is None else StackRequest.model_validate_json(str(item["request"]))

    def keep_deletion(self, request: StackRequest) -> None:
        """Keep CloudFormation's request; the pass that finds that nothing runs any more answers it."""
        item = {"pk": "deployment", "sk": "deletion", "request": request.model_dump_json()}
        self._client.put_item(TableName=self._table, Item=to_dynamodb(item))

    def forget_deletion(self) -> None:
        """Forget the request: it was answered, or CloudFormation does not wait for it any more."""
        key = to_dynamodb({"pk": "deployment", "sk": "deletion"})
        self._client.delete_item(TableName=self._table, Key=key)
