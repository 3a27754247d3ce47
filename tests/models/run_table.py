"""Run tables on the local AWS, as the storage stack makes them, and runs in a run table as a launcher opens them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from spotkeep_jobs.record.record import Attempt, Place, Run
from spotkeep_jobs.record.run_store import NewRun, Opened
from spotkeep_jobs.record.run_table import RunTable


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


def with_place(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a run or an attempt, with those of its place gathered in one value."""
    names = Place.model_fields.keys() & fields.keys()
    place = Place(**{name: fields[name] for name in names})
    return {"place": place, **{name: value for name, value in fields.items() if name not in names}}
