"""The cost of storage over a time. Pure.

It needs the standard library alone, because the command line starts with it.
"""

from __future__ import annotations

from typing import Final

HOURS_A_MONTH: Final = 730
"""AWS bills storage by the hour of the month at hand, which has 672 to 744. This is the mean."""
BYTES_A_GIGABYTE: Final = 2**30
"""The gigabyte of AWS's storage prices.
Source: https://aws.amazon.com/s3/faqs/ (How will I be charged and billed for my use of Amazon S3?)"""
_SECONDS_AN_HOUR: Final = 3600


def storage_usd(byte_seconds: float, *, usd_per_gigabyte_month: float | None) -> float | None:
    """Return the cost of storage that held bytes for some time, in US dollars.

    Args:
        byte_seconds: Bytes times the seconds each was there.
        usd_per_gigabyte_month: Its price, or None when it is not known.
    """
    if usd_per_gigabyte_month is None:
        return None
    gigabyte_months = byte_seconds / BYTES_A_GIGABYTE / _SECONDS_AN_HOUR / HOURS_A_MONTH
    return gigabyte_months * usd_per_gigabyte_month
