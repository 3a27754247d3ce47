"""The records of the deployment itself, such as AWS's prices and CloudFormation's request to delete it. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from spotkeep_jobs.record.bounds import Address, AtMost, Id, Label, Line
from spotkeep_jobs.record.record import Record, UtcTime


class StoragePrices(Record):
    """US dollars per gigabyte and month, unless a field says otherwise. None where a price is not known."""

    s3_standard: float | None = None
    """The first tier, which is the dearest."""
    ebs_gp3: float | None = None
    """US dollars per GB-month of a gp3 volume, without provisioned IOPS and throughput."""
    ebs_gp3_iops: float | None = None
    """Per provisioned IOPS of a gp3 volume and month, beyond those that are included."""
    ebs_gp3_throughput: float | None = None
    """US dollars per provisioned GiB/s of a gp3 volume and month, beyond the included throughput."""
    ebs_snapshot: float | None = None
    """A snapshot in the standard tier."""


class PriceBook(Record):
    """The prices of one region, from AWS's price list.

    A price that is not in the book is None. Every bill and table then states that the price is not known.
    """

    region: Id
    fetched_at: UtcTime
    instance_usd_per_hour: Annotated[dict[Id, float], AtMost(4_000)] = Field(default_factory=dict)
    """US dollars per hour of one instance on demand, by type, such as `ml.m5.xlarge` at training or `m5.xlarge` on EC2
    with Linux.
    """
    storage: StoragePrices = StoragePrices()


class PassPlaces(Record):
    """The places at which passes over everything stopped for want of time."""

    begun: Annotated[dict[Id, Line], AtMost(10)] = Field(default_factory=dict)
    """The last item that the last pass began, by kind. The next pass begins after it.

    A kind is absent when all its items had their turn.
    """


class StackRequest(Record):
    """One request, as far as it is used. The names are CloudFormation's, in our spelling.

    Source: "Custom resource request types", CloudFormation user guide.
    """

    kind: Literal["Create", "Update", "Delete"]
    request_id: Label
    stack_id: Address
    logical_resource_id: Label
    physical_resource_id: Address
    """The id of the resource, the same for its whole life.

    With another id CloudFormation would delete the resource of the id before.
    """
    response_url: Annotated[str, AtMost(8_192, ascii=True)]
    """The address for the answer, once."""
    asked_at: UtcTime
    answered_at: UtcTime | None = None
    """The time of the answer that nothing runs any more. None while something may."""
