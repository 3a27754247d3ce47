"""Reads a recorded spot market: one CSV file a zone, its columns `time`, `available` and `spot_price`.

`available` is 1 in a tick in which a spot instance could be had and kept. A tick of hours is a tick of seconds here:
the caller says how long one takes.
"""

from __future__ import annotations

import csv
import gzip
import io
from typing import TYPE_CHECKING

from spotkeep_local.bounded_reading import read_answer
from spotkeep_local.ec2.market import MarketError, SpotPoolChange

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_COLUMNS = ("time", "available", "spot_price")
_MOST_PROBLEMS = 5
_MOST_BYTES = 64 * 1024 * 1024


def read_recorded_market(
    path: Path, *, zone: str, tick_seconds: float, first_tick: int = 0, ticks: int | None = None, notice: bool = True
) -> list[SpotPoolChange]:
    """Return the changes of a zone in a recording: capacity 0 or any number, and the price.

    Args:
        path: A CSV file, plain or ending in `.gz`.
        zone: The local zone it is played in.
        tick_seconds: How long a tick takes here.
        first_tick: Where to begin.
        ticks: How many to play; None to the end.
        notice: Whether instances that it interrupts get a notice.

    Returns:
        One change for each tick in which something changed.

    Raises:
        MarketError: The file cannot be read, has other columns, or has lines that cannot be understood; names the first
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
        text = read_answer(file, most_bytes=_MOST_BYTES).decode()
    reader = csv.DictReader(io.StringIO(text))
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
