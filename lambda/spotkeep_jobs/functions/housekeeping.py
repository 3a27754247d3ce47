"""What a pass does beside its runs, at its own pace: the prices once a day, orphans once an hour.

Neither keeps a pass from its runs: both come after them, and what fails is reported with the pass's other failures.
Prices that AWS does not give are no failure: a deployment may work without them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from spotkeep_jobs.cost.price_list import PricesNotReadError

if TYPE_CHECKING:
    from spotkeep_jobs.cost.known_prices import KnownPrices
    from spotkeep_jobs.cost.price_list import PriceList
    from spotkeep_jobs.orphans.collector import OrphanCollector
    from spotkeep_jobs.record.orphan_report import OrphanReport
    from spotkeep_jobs.record.run_table import RunTable


@dataclass(kw_only=True)
class Housekept:
    """What was done.

    Attributes:
        prices_read: Whether AWS was asked for its prices.
        prices_unread: Why it could not answer; bills then say that a price is not known.
        orphans: What the pass over orphans found; None when it was not due.
        failures: What failed, and why.
    """

    prices_read: bool = False
    prices_unread: str | None = None
    orphans: OrphanReport | None = None
    failures: dict[str, str] = field(default_factory=dict)


class Housekeeping:
    """Prices and orphans."""

    def __init__(
        self,
        *,
        table: RunTable,
        prices: KnownPrices,
        price_list: PriceList,
        orphans: OrphanCollector,
        clock: Callable[[], datetime],
    ) -> None:
        self._table = table
        self._prices = prices
        self._price_list = price_list
        self._orphans = orphans
        self._clock = clock

    def keep_house(self, *, has_time: Callable[[], bool]) -> Housekept:
        """Do what is due.

        Args:
            has_time: Asked before each part.
        """
        done = self.read_prices() if has_time() else Housekept()
        if has_time():
            try:
                done.orphans = self._orphans.collect_if_due(has_time=has_time)
            except Exception as error:  # noqa: BLE001 - reported by the caller
                done.failures["orphans"] = f"{type(error).__name__}: {error}"
        return done

    def read_prices(self) -> Housekept:
        """Read AWS's prices, unless those that are known are of the last day."""
        done = Housekept()
        try:
            done.prices_read = self._prices.fetch(self._price_list, self._table, now=self._clock())
        except PricesNotReadError as error:
            done.prices_unread = str(error)
        except Exception as error:  # noqa: BLE001 - reported by the caller
            done.failures["prices"] = f"{type(error).__name__}: {error}"
        return done
