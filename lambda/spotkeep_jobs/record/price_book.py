"""A region's prices at a time. Pure.

What is not in the book is not known: None, which every bill and table says as such.
"""

from __future__ import annotations

from pydantic import Field

from spotkeep_jobs.record.record import Record, UtcTime


class StoragePrices(Record):
    """US dollars per gigabyte and month; None where a price is not known."""

    s3_standard: float | None = None
    """The first tier, which is the dearest."""
    ebs_gp3: float | None = None
    """A gp3 volume, without what it may have beside its size."""
    ebs_snapshot: float | None = None
    """A snapshot in the standard tier."""


class PriceBook(Record):
    """What AWS's price list said of one region."""

    region: str
    fetched_at: UtcTime
    instance_usd_per_hour: dict[str, float] = Field(default_factory=dict)
    """On demand, of one instance, by type: `ml.m5.xlarge` at training, `m5.xlarge` on EC2 with Linux."""
    storage: StoragePrices = StoragePrices()
