"""A region's prices at a time. Pure.

What is not in the book is not known: None, which every bill and table says as such.
"""

from __future__ import annotations

from typing import Final

from pydantic import Field

from spotkeep_jobs.record import Record, UtcTime

HOURS_A_MONTH: Final = 730
"""AWS bills storage by the hour of the month at hand, which has 672 to 744; this is the mean."""
BYTES_A_GIGABYTE: Final = 2**30
"""The gigabyte of AWS's storage prices.
Source: https://aws.amazon.com/s3/faqs/ (How will I be charged and billed for my use of Amazon S3?)"""
_SECONDS_AN_HOUR: Final = 3600


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
    """On demand, of one training instance, by type: `ml.m5.xlarge`."""
    storage: StoragePrices = StoragePrices()


def storage_usd(byte_seconds: float, *, usd_per_gigabyte_month: float | None) -> float | None:
    """What storage costs that held bytes for some time.

    Args:
        byte_seconds: Bytes times the seconds each was there.
        usd_per_gigabyte_month: Its price; None when it is not known.
    """
    if usd_per_gigabyte_month is None:
        return None
    gigabyte_months = byte_seconds / BYTES_A_GIGABYTE / _SECONDS_AN_HOUR / HOURS_A_MONTH
    return gigabyte_months * usd_per_gigabyte_month
