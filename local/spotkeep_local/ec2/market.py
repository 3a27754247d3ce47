"""The spot market: how many instances can be had in each pool, and at what price; scripted, not traded.

A pool is an instance type in a zone. What no script mentions can be had without limit at `DEFAULT_PRICE_USD`.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any

from spotkeep_local.errors import LocalAwsError

DEFAULT_PRICE_USD = 0.03
"""An hour, for every type: a round figure below the on-demand prices of the local price list."""


class MarketError(LocalAwsError, ValueError):
    """A change of the market is not valid; the text names every problem."""


@dataclass(frozen=True, kw_only=True)
class PoolChange:
    """A change of one zone's pools at one moment. What is None stays as it was.

    Attributes:
        zone: For example `us-east-1a`.
        instance_type: None for every type.
        at_seconds: After the script began.
        capacity: How many spot instances can be had and kept; -1 for any number.
        price_usd: An hour.
        notice: Whether the instances that it interrupts get a notice.

    Raises:
        MarketError: A value is out of range.
    """

    zone: str
    instance_type: str | None = None
    at_seconds: float = 0.0
    capacity: int | None = None
    price_usd: float | None = None
    notice: bool = True

    def __post_init__(self) -> None:
        problems = []
        if not isinstance(self.zone, str) or not self.zone:
            problems.append(f"zone must name a zone like us-east-1a, found {self.zone!r}")
        if not _is_number(self.at_seconds) or self.at_seconds < 0:
            problems.append(f"at_seconds must be a number from 0, found {self.at_seconds!r}")
        if self.capacity is not None and (type(self.capacity) is not int or self.capacity < -1):
            problems.append(f"capacity must be a whole number from 0, or -1 for any number, found {self.capacity!r}")
        if self.price_usd is not None and (not _is_number(self.price_usd) or self.price_usd <= 0):
            problems.append(f"price_usd must be a number above 0, found {self.price_usd!r}")
        if self.capacity is None and self.price_usd is None:
            problems.append("a change needs capacity or price_usd")
        if problems:
            raise MarketError("; ".join(problems))

    @classmethod
    def from_document(cls, document: object) -> PoolChange:
        """Reads a change from a JSON object.

        Raises:
            MarketError: Unknown fields, or values out of range.
        """
        known = [item.name for item in fields(cls)]
        if not isinstance(document, Mapping) or set(document) - set(known) or "zone" not in document:
            raise MarketError(
                f"a change must be an object with zone and some of {', '.join(known)}, found {document!r}"
            )
        return cls(**document)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True, kw_only=True)
class PoolState:
    """A pool at one moment.

    Attributes:
        capacity: How many spot instances can be had and kept; None for any number.
        notice: Whether the instances that are interrupted get a notice.
    """

    capacity: int | None
    price_usd: float
    notice: bool = True


_Timeline = tuple[list[float], list[PoolChange]]


@dataclass(frozen=True)
class Market:
    """All that changes, in order of time.

    Args:
        began_at: When the script began, epoch seconds.
        changes: Any order; of two at one moment the later in the list counts.
    """

    began_at: float
    changes: tuple[PoolChange, ...] = field(repr=False)

    @cached_property
    def _capacity(self) -> dict[tuple[str, str | None], _Timeline]:
        return _timelines([change for change in self.changes if change.capacity is not None])

    @cached_property
    def _price(self) -> dict[tuple[str, str | None], _Timeline]:
        return _timelines([change for change in self.changes if change.price_usd is not None])

    @cached_property
    def _moments(self) -> list[float]:
        return sorted({change.at_seconds for change in self.changes})

    @cached_property
    def zones(self) -> frozenset[str]:
        """Those that the script mentions."""
        return frozenset(change.zone for change in self.changes)

    def pool(self, *, instance_type: str, zone: str, now: float) -> PoolState:
        """Returns a pool as it is now."""
        elapsed = now - self.began_at
        capacity = _in_force(self._capacity, zone, instance_type, elapsed)
        price = _in_force(self._price, zone, instance_type, elapsed)
        unlimited = capacity is None or capacity.capacity == -1
        return PoolState(
            capacity=None if unlimited or capacity is None else capacity.capacity,
            price_usd=DEFAULT_PRICE_USD if price is None or price.price_usd is None else price.price_usd,
            notice=True if capacity is None else capacity.notice,
        )

    def prices(self, *, instance_type: str, zone: str, start: float, end: float) -> list[tuple[float, float]]:
        """Returns when each price in a time began (epoch seconds), and the price (USD an hour); latest first."""
        state = self.pool(instance_type=instance_type, zone=zone, now=start)
        found = [(start, state.price_usd)]
        for timeline in (self._price.get((zone, None)), self._price.get((zone, instance_type))):
            if timeline is not None:
                times, changes = timeline
                low = bisect.bisect_right(times, start - self.began_at)
                high = bisect.bisect_right(times, end - self.began_at)
                found += [(self.began_at + change.at_seconds, change.price_usd or 0.0) for change in changes[low:high]]
        return sorted(found, reverse=True)

    def next_change_at(self, now: float) -> float | None:
        """Returns when something changes next, epoch seconds."""
        place = bisect.bisect_right(self._moments, now - self.began_at)
        return self.began_at + self._moments[place] if place < len(self._moments) else None

    def with_change(self, change: PoolChange, *, now: float) -> Market:
        """Returns the market with one more change, which comes now."""
        at_seconds = max(0.0, now - self.began_at)
        return Market(self.began_at, (*self.changes, PoolChange(**(asdict(change) | {"at_seconds": at_seconds}))))

    def to_document(self) -> dict[str, Any]:
        """Returns the market as a JSON object."""
        return {"began_at": self.began_at, "changes": [asdict(change) for change in self.changes]}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Market:
        """Reads what `to_document` wrote."""
        return cls(document["began_at"], tuple(PoolChange.from_document(change) for change in document["changes"]))


def _timelines(changes: list[PoolChange]) -> dict[tuple[str, str | None], _Timeline]:
    found: dict[tuple[str, str | None], _Timeline] = {}
    for change in sorted(changes, key=lambda change: change.at_seconds):
        times, timeline = found.setdefault((change.zone, change.instance_type), ([], []))
        times.append(change.at_seconds)
        timeline.append(change)
    return found


def _in_force(
    timelines: Mapping[tuple[str, str | None], _Timeline], zone: str, instance_type: str, elapsed: float
) -> PoolChange | None:
    latest: PoolChange | None = None
    for key in ((zone, None), (zone, instance_type)):
        if (timeline := timelines.get(key)) is None:
            continue
        times, changes = timeline
        place = bisect.bisect_right(times, elapsed)
        # A change of the type itself wins over a change of the zone at the same moment.
        if place and (latest is None or changes[place - 1].at_seconds >= latest.at_seconds):
            latest = changes[place - 1]
    return latest
