"""What storage costs over a time, and that what is not known stays unknown."""

from __future__ import annotations

import pytest

from spotkeep_jobs.cost.storage_cost import HOURS_A_MONTH, storage_usd


def test_a_gigabyte_for_a_month_costs_the_listed_price() -> None:
    assert storage_usd(2**30 * HOURS_A_MONTH * 3600, usd_per_gigabyte_month=0.023) == pytest.approx(0.023)


def test_an_unknown_price_is_no_price() -> None:
    assert storage_usd(1e15, usd_per_gigabyte_month=None) is None
