"""Run tables on the local AWS, as the storage stack makes them, and runs in a run table as a launcher opens them."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from spotkeep_jobs.record.record import Attempt, Ending, Place, Run
from spotkeep_jobs.record.run_store import NewRun, Opened
from spotkeep_jobs.record.run_table import RunTable
from spotkeep_jobs.record.states import EndReason


def make_run_table(dynamodb: Any, name: str) -> None:
    """Make an empty run table with a boto3 client of DynamoDB."""

    def keys(partition: str, sort: str) -> list[dict[str, str]]:
        return [{"AttributeName": partition, "KeyType": "HASH"}, {"AttributeName": sort, "KeyType": "RANGE"}]

    table = ("pk", "sk")
    indexes = {"by-created": ("listing", "created_at"), "in-flight": ("in_flight", "updated_at")}
    attributes = (*table, *(attribute for index in indexes.values() for attribute in index))
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": attribute, "AttributeType": "S"} for attribute in attributes],
        KeySchema=keys(*table),
        GlobalSecondaryIndexes=[
            {"IndexName": index, "KeySchema": keys(*pair), "Projection": {"ProjectionType": "ALL"}}
            for index, pair in indexes.items()
        ],
    )


def open_run(table: RunTable, *, run: Run, attempt: Attempt, **more: Any) -> Opened:
    """Record a run with its first attempt, as a launcher does."""
    return table.runs.open([NewRun(run=run, attempt=attempt, **more)])[0]


NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def grouped(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a run or an attempt, with those of its place and of its ending gathered in one value each.

    The ending is at `ended_at` for `end_reason`. Without the one or the other it is a completion, or at noon.
    """
    place = {name: fields[name] for name in Place.model_fields.keys() & fields.keys()}
    names = {"ended_at": "at", "end_reason": "reason"} | {name: name for name in Ending.model_fields}
    end = {names[name]: fields[name] for name in names.keys() & fields.keys() if fields[name] is not None}
    ending = Ending(**{"at": NOON, "reason": EndReason.COMPLETED, **end}) if end else None
    others = {name: value for name, value in fields.items() if name not in place.keys() | names.keys()}
    return {"place": Place(**place), "ending": ending, **others}
