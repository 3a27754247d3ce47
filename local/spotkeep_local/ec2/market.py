"""The spot market, with the number of instances in each pool and their price. A script sets it, no trade does.

A pool is an instance type in a zone. A pool that no script mentions has no limit, and its price is `DEFAULT_PRICE_USD`.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from spotkeep_local.errors import LocalAwsError

if TYPE_CHECKING:
    from pathlib import Path

DEFAULT_PRICE_USD = 0.03
"""The price of an hour for every type, in US dollars. A round figure below the local price list's on-demand prices."""


_COLUMNS = ("time", "available", "spot_price")
_MOST_PROBLEMS = 5
_MOST_BYTES = 64 * 1024 * 1024


class MarketError(LocalAwsError, ValueError):
    """A change of the market is not valid. The text names every problem."""


@dataclass(frozen=True, kw_only=True)
class SpotPoolChange:
    """A change of one zone's pools at one moment. A field that is None stays as it was.

    Attributes:
        zone: The availability zone, for example `us-east-1a`.
        instance_type: The instance type, or None for every type.
        at_seconds: Seconds after the script began.
        capacity: The number of spot instances that can be had and kept. -1 for any number.
        price_usd: The price of an hour, in US dollars.
        notice: True where the instances that it interrupts get a notice.

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
    def from_document(cls, document: object) -> SpotPoolChange:
        """Read a change from a JSON object.

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
class SpotPoolState:
    """A pool at one moment.

    Attributes:
        capacity: The number of spot instances that can be had and kept. None for any number.
        notice: True where the instances that are interrupted get a notice.
    """

    capacity: int | None
    price_usd: float
    notice: bool = True


@dataclass(frozen=True)
class Market:
    """All that changes, in order of time.

    Args:
        began_at: The time when the script began, epoch seconds.
        changes: Any order. Of two at one moment the later in the list counts.
    """

    began_at: float
    changes: tuple[SpotPoolChange, ...] = field(repr=False)

    @cached_property
    def _in_order(self) -> list[SpotPoolChange]:
        # Of two changes at one moment that of the type itself counts.
        return sorted(self.changes, key=lambda change: (change.at_seconds, change.instance_type is not None))

    @cached_property
    def zones(self) -> frozenset[str]:
        """Those that the script mentions."""
        return frozenset(change.zone for change in self.changes)

    def pool(self, *, instance_type: str, zone: str, now: float) -> SpotPoolState:
        """Return a pool as it is now."""
        state = SpotPoolState(capacity=None, price_usd=DEFAULT_PRICE_USD)
        for change in self._of(instance_type=instance_type, zone=zone):
            if change.at_seconds > now - self.began_at:
                break
            if change.capacity is not None:
                capacity = None if change.capacity == -1 else change.capacity
                state = replace(state, capacity=capacity, notice=change.notice)
            if change.price_usd is not None:
                state = replace(state, price_usd=change.price_usd)
        return state

    def prices(self, *, instance_type: str, zone: str, start: float, end: float) -> list[tuple[float, float]]:
        """Return the start of each price in a time (epoch seconds), and the price (USD an hour). Latest first."""
        state = self.pool(instance_type=instance_type, zone=zone, now=start)
        changed = [
            (self.began_at + change.at_seconds, change.price_usd)
            for change in self._of(instance_type=instance_type, zone=zone)
            if change.price_usd is not None and start < self.began_at + change.at_seconds <= end
        ]
        return sorted([(start, state.price_usd), *changed], reverse=True)

    def next_change_at(self, now: float) -> float | None:
        """Return the time of the next change, in epoch seconds."""
        later = (change.at_seconds for change in self.changes if change.at_seconds > now - self.began_at)
        return min((self.began_at + at_seconds for at_seconds in later), default=None)

    def with_change(self, change: SpotPoolChange, *, now: float) -> Market:
        """Return the market with one more change, which comes now."""
        at_seconds = max(0.0, now - self.began_at)
        return Market(self.began_at, (*self.changes, SpotPoolChange(**(asdict(change) | {"at_seconds": at_seconds}))))

    def to_document(self) -> dict[str, Any]:
        """Return the market as a JSON object."""
        return {"began_at": self.began_at, "changes": [asdict(change) for change in self.changes]}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Market:
        """Read the document that `to_document` wrote."""
        return cls(document["began_at"], tuple(SpotPoolChange.from_document(change) for change in document["changes"]))

    def _of(self, *, instance_type: str, zone: str) -> Iterator[SpotPoolChange]:
        return (each for each in self._in_order if each.zone == zone and each.instance_type in (None, instance_type))


def read_recorded_market(
    path: Path, *, zone: str, tick_seconds: float, first_tick: int = 0, ticks: int | None = None, notice: bool = True
) -> list[SpotPoolChange]:
    """Return the changes of a zone in a recording, each with capacity 0 or any number, and the price.

    Args:
        path: A CSV file, plain or ending in `.gz`.
        zone: The local zone it is played in.
        tick_seconds: The seconds that a tick takes here.
        first_tick: The tick to begin with.
        ticks: The number of ticks to play. None to the end.
        notice: True where instances that it interrupts get a notice.

    Returns:
        One change for each tick in which something changed.

    Raises:
        MarketError: The file cannot be read, has other columns, or has lines that cannot be understood. Names the first
            few.
    """
    try:
        rows = list(_rows(path))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise MarketError(f"the trace {path} cannot be read: {error}") from error
    chosen = rows[first_tick : None if ticks is None else first_tick + ticks]
    if not chosen:
        raise MarketError(f"the trace {path} has {len(rows)} ticks, and none from tick {first_tick} on")
    changes: list[SpotPoolChange] = []
    before: tuple[int, float] | None = None
    for number, row in enumerate(chosen):
        if row != before:
            capacity = None if before is not None and before[0] == row[0] else (-1 if row[0] else 0)
            changes.append(
                SpotPoolChange(
                    zone=zone, at_seconds=number * tick_seconds, capacity=capacity, price_usd=row[1], notice=notice
                )
            )
        before = row
    return changes


def _rows(path: Path) -> Iterator[tuple[int, float]]:
    problems: list[str] = []
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise MarketError(f"the trace {path} cannot be read: more than {_MOST_BYTES:,} bytes")
    reader = csv.DictReader(io.StringIO(content.decode()))
    if missing := [name for name in _COLUMNS if name not in (reader.fieldnames or ())]:
        raise MarketError(f"the trace {path} has no column {', '.join(missing)}; it needs {', '.join(_COLUMNS)}")
    for line, row in enumerate(reader, start=2):
        if (tick := _tick(row)) is not None:
            yield tick
        elif len(problems) < _MOST_PROBLEMS:
            problems.append(f"line {line}: available={row['available']!r}, spot_price={row['spot_price']!r}")
    if problems:
        raise MarketError(f"the trace {path} has lines that cannot be understood: {'; '.join(problems)}")


def _tick(row: dict[str, str]) -> tuple[int, float] | None:
    try:
        price_usd = float(row["spot_price"])
    except (TypeError, ValueError):
        return None
    return (int(row["available"]), price_usd) if row["available"] in ("0", "1") and price_usd > 0 else None
