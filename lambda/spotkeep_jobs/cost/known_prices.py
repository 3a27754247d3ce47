"""The prices that a function works with, as a mapping by instance type in memory.

The owner of the mapping brings it up to date. Decisions are pure and take a mapping. This one changes between two
invocations and never while a decision is made. `refresh` is called at the beginning of an invocation, and reads at most
one item of the run table an hour. Nothing else does any I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from botocore.exceptions import BotoCoreError, ClientError

from spotkeep_jobs.cost.price_list import PricesNotReadError
from spotkeep_jobs.errors import UnreadableRecordError
from spotkeep_jobs.record.deployment_records import StoragePrices

if TYPE_CHECKING:
    from spotkeep_jobs.cost.price_list import PriceList
    from spotkeep_jobs.record.deployment_records import PriceBook
    from spotkeep_jobs.record.run_table import RunTable

READ_AGAIN_AFTER: Final = timedelta(hours=1)
"""The greatest age of the prices in one function's memory."""
READ_AGAIN_WITHOUT_BOOK_AFTER: Final = timedelta(minutes=5)
"""The same, while there is no book. A deployment reads it as it is made, and each pass tries again."""
TRIED_AGAIN_AFTER: Final = timedelta(hours=1)
"""After AWS could not answer. Where it never does (no permission, no network), only the settings' prices are known."""
FETCH_AGAIN_AFTER: Final = timedelta(days=1)
"""The greatest age of the book before AWS is asked again. It changes its prices a few times a year."""


class KnownPrices(Mapping[str, float]):
    """On-demand US dollars per hour of an instance, by type. The settings' prices come first, then AWS's."""

    def __init__(self, settings: Mapping[str, float], *, region: str) -> None:
        """Begin with the prices of the settings.

        Args:
            settings: The deployment's own prices, which have precedence over AWS's.
            region: The deployment's region.
        """
        self._settings = dict(settings)
        self.region = region
        self._prices: dict[str, float] = dict(settings)
        self._read_at: datetime | None = None
        self._asked_at: datetime | None = None
        self.book: PriceBook | None = None

    def __getitem__(self, instance_type: str) -> float:
        return self._prices[instance_type]

    def __iter__(self) -> Iterator[str]:
        return iter(self._prices)

    def __len__(self) -> int:
        return len(self._prices)

    @property
    def storage(self) -> StoragePrices:
        """The prices of storage, as far as AWS's list has them."""
        return StoragePrices() if self.book is None else self.book.storage

    def refresh(self, table: RunTable, *, now: datetime) -> None:
        """Take over the book that the run table holds, unless that was done a short while ago.

        An unreadable table leaves the known prices. A missing price stops no work.

        Args:
            table: The table with the book.
            now: The time.
        """
        fresh_for = READ_AGAIN_WITHOUT_BOOK_AFTER if self.book is None else READ_AGAIN_AFTER
        if self._read_at is not None and now - self._read_at < fresh_for:
            return
        self._read_at = now
        try:
            book = table.deployment.price_book(self.region)
        except (BotoCoreError, ClientError, UnreadableRecordError):
            return
        if book is not None:
            self._take(book)

    def fetch(self, price_list: PriceList, table: RunTable, *, now: datetime) -> bool:
        """Ask AWS and keep its book in the run table, unless the one there is of the last day, or AWS was just asked.

        Args:
            price_list: AWS's.
            table: Where the book is kept.
            now: The time.

        Returns:
            Whether AWS was asked.

        Raises:
            PricesNotReadError: AWS could not answer, or knows no price of this region. The old book stays.
        """
        if self._asked_at is not None and now - self._asked_at < TRIED_AGAIN_AFTER:
            return False
        try:
            known = table.deployment.price_book(self.region)
        except UnreadableRecordError:
            known = None  # It is read anew, and replaced.
        if known is not None and now - known.fetched_at < FETCH_AGAIN_AFTER:
            self._take(known)
            return False
        self._asked_at = now
        book = price_list.read(self.region, now=now)
        if not book.instance_usd_per_hour:
            raise PricesNotReadError(region=self.region, reason="the price list has no instance of it")
        table.deployment.keep_price_book(book)
        self._take(book)
        return True

    def _take(self, book: PriceBook) -> None:
        self.book = book
        self._prices = {**book.instance_usd_per_hour, **self._settings}
