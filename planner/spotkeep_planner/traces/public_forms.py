"""Reads the public forms of spot capacity data, half of which mean the opposite by 1.

| form | 1 or more means | read by |
|---|---|---|
| CSV `date,availability` (SkyNomad artifact, `processed/`) | capacity | `read_availability_csv` |
| JSON `{"metadata": {"gap_seconds"}, "data"}`, skypilot-org/spot-traces | that many instances could be had |
`read_tick_json` |
| the same JSON, simulators of Can't Be Late and SkyNomad | no capacity | `read_tick_json` |

The two JSON forms look alike, so the sign must be given, and is checked against all the file says of itself. What was
understood is in the trace's `remark`, for the person who reads figures made of it.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from spotkeep_planner.errors import TraceError, TraceProblem
from spotkeep_planner.traces.capacity_trace import CapacityTrace
from spotkeep_planner.traces.trace_file import GAP_IN_TICKS, text_of

_UNKNOWN_START = datetime(1970, 1, 1, tzinfo=UTC)


class Sign(Enum):
    """What 1 means."""

    AVAILABLE = "1 means capacity"
    PREEMPTED = "1 means no capacity"


def read_availability_csv(
    path: Path, *, zone: str, spot_price: Sequence[float] | float, on_demand_price: float | None = None
) -> CapacityTrace:
    """Reads a CSV with the columns `date` and `availability` (1: capacity).

    Args:
        path: The file; times are UTC.
        zone: The zone's name.
        spot_price: USD per hour, one a row or one for all.
        on_demand_price: USD per hour, if known.

    Raises:
        TraceError: The file cannot be read, has rows that are missing, repeated or out of order, or not as many as
            there are prices.
    """
    rows = list(csv.reader(io.StringIO(text_of(path))))
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    if header != ["date", "availability"]:
        reason = f"begins with {','.join(header)!r} where 'date,availability' is expected"
        raise TraceError(str(path), [TraceProblem(line=1, reason=reason)])
    problems: list[TraceProblem] = []
    times: list[datetime] = []
    there: list[bool] = []
    for line, row in enumerate(rows[1:], start=2):
        try:
            date, availability = row
            time = datetime.fromisoformat(date.strip())
        except ValueError:
            problems.append(TraceProblem(line=line, reason=f"{','.join(row)!r} is not a date and an availability"))
            continue
        if availability.strip() not in ("0", "1"):
            problems.append(TraceProblem(line=line, reason=f"availability is {availability!r} where 1 or 0 belongs"))
            continue
        times.append(time if time.tzinfo else time.replace(tzinfo=UTC))
        there.append(availability.strip() == "1")
    steps = [(after - before).total_seconds() for before, after in itertools.pairwise(times)]
    tick_s = statistics.median(steps) if steps else 0.0
    problems += [
        TraceProblem(line=line, reason=f"comes {step:g} s after the row above where {tick_s:g} s are usual")
        for line, step in enumerate(steps, start=3)
        if not problems and (step <= 0 or step >= GAP_IN_TICKS * tick_s)
    ]
    if not steps:
        problems.append(TraceProblem(line=None, reason="has fewer than two rows"))
    if problems:
        raise TraceError(str(path), problems)
    return _trace(
        path,
        zone=zone,
        start=times[0],
        tick_s=tick_s,
        available=np.array(there),
        spot_price=spot_price,
        on_demand_price=on_demand_price,
        remark=Sign.AVAILABLE.value,
    )


def read_tick_json(
    path: Path,
    *,
    sign: Sign,
    zone: str,
    instances: int = 1,
    spot_price: Sequence[float] | float | None = None,
    on_demand_price: float | None = None,
    start: datetime | None = None,
) -> CapacityTrace:
    """Reads a JSON file with `metadata.gap_seconds` and one value a tick in `data`.

    Args:
        path: The file.
        sign: What 1 means in it.
        zone: The zone's name.
        instances: How many instances a job needs, where the values count instances.
        spot_price: USD per hour, one a tick or one for all; the file's own `prices` or `price_info` if it has some.
        on_demand_price: USD per hour; the file's own if it has one.
        start: When the first tick begins; the file's `start_time` if it has one, else 1970.

    Raises:
        TraceError: The file cannot be read as this form, or contradicts the sign.
    """
    document = _json(path)
    metadata, data = document.get("metadata"), document.get("data")
    if not isinstance(metadata, dict) or not isinstance(data, list) or not data:
        reason = "is not of the form {'metadata': {'gap_seconds': ...}, 'data': [...]}"
        raise TraceError(str(path), [TraceProblem(line=None, reason=reason)])
    tick_s = metadata.get("gap_seconds")
    problems = []
    if not isinstance(tick_s, (int, float)) or isinstance(tick_s, bool) or not tick_s > 0:
        problems.append(TraceProblem(line=None, reason=f"metadata.gap_seconds is {tick_s!r}, not a number of seconds"))
        tick_s = math.nan
    wrong = [number for number, value in enumerate(data) if not isinstance(value, int) or value < 0]
    if wrong:
        reason = f"data[{wrong[0]}] is {data[wrong[0]]!r}; a tick is 0, 1 or a number of instances"
        problems.append(TraceProblem(line=None, reason=reason))
    elif contradiction := _contradiction(document, sign=sign, most=max(data)):
        problems.append(TraceProblem(line=None, reason=contradiction))
    if problems:
        raise TraceError(str(path), problems)
    values = np.array(data)
    available = values >= instances if sign is Sign.AVAILABLE else values == 0
    prices = metadata.get("price_info") or {}
    began = start or (datetime.fromisoformat(metadata["start_time"]) if "start_time" in metadata else _UNKNOWN_START)
    return _trace(
        path,
        zone=zone,
        start=began,
        tick_s=float(tick_s),
        available=available,
        spot_price=spot_price if spot_price is not None else document.get("prices") or prices.get("price"),
        on_demand_price=on_demand_price if on_demand_price is not None else prices.get("on_demand_price"),
        remark=(
            f"{sign.value}; {available.mean():.0%} of the ticks have capacity, "
            f"{1 - available.mean():.0%} by the other sign"
        ),
    )


def read_price_lists(path: Path) -> dict[str, list[float]]:
    """Reads a JSON object of price lists, one a zone, in USD per hour.

    Raises:
        TraceError: It is not one.
    """
    document = _json(path)
    for name, prices in document.items():
        if not isinstance(prices, list) or not all(isinstance(price, (int, float)) for price in prices):
            raise TraceError(str(path), [TraceProblem(line=None, reason=f"{name!r} is not a list of prices")])
    return {name: [float(price) for price in prices] for name, prices in document.items()}


def _contradiction(document: Mapping[str, Any], *, sign: Sign, most: int) -> str | None:
    if sign is Sign.PREEMPTED and most > 1:
        return (
            f"has values up to {most}: it counts instances that could be had, and was to be read as "
            f"{sign.value!r}. Read it with Sign.AVAILABLE"
        )
    described = str(document["metadata"].get("convention", "")).lower()
    words = {Sign.AVAILABLE: "preempt", Sign.PREEMPTED: "availab"}
    if described and words[sign] in described:
        return f"says of itself {described!r}, and was to be read as {sign.value!r}"
    return None


def _trace(
    path: Path,
    *,
    zone: str,
    start: datetime,
    tick_s: float,
    available: np.ndarray,
    spot_price: Sequence[float] | float | None,
    on_demand_price: float | None,
    remark: str,
) -> CapacityTrace:
    if spot_price is None:
        reason = "has no spot price; give one"
        raise TraceError(str(path), [TraceProblem(line=None, reason=reason)])
    prices = (
        np.broadcast_to(np.asarray(spot_price, dtype=np.float64), available.shape)
        if np.ndim(spot_price) == 0
        else np.asarray(spot_price, dtype=np.float64)
    )
    if prices.shape != available.shape:
        reason = f"has {len(available)} ticks, and there are {len(prices)} prices"
        raise TraceError(str(path), [TraceProblem(line=None, reason=reason)])
    bad = np.flatnonzero(~(np.isfinite(prices) & (prices > 0)))
    if len(bad):
        reason = f"the price of tick {bad[0]} is {prices[bad[0]]:g}; a price is more than 0"
        raise TraceError(str(path), [TraceProblem(line=None, reason=reason)])
    if on_demand_price is not None and not (math.isfinite(on_demand_price) and on_demand_price > 0):
        reason = f"the on-demand price is {on_demand_price:g}; a price is more than 0"
        raise TraceError(str(path), [TraceProblem(line=None, reason=reason)])
    return CapacityTrace(
        zone=zone,
        start=start if start.tzinfo else start.replace(tzinfo=UTC),
        tick_s=tick_s,
        available=available,
        spot_price=prices,
        on_demand_price=on_demand_price,
        remark=remark,
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(text_of(path))
    except json.JSONDecodeError as error:
        raise TraceError(str(path), [TraceProblem(line=error.lineno, reason=f"is not JSON: {error.msg}")]) from error
    if not isinstance(document, dict):
        raise TraceError(str(path), [TraceProblem(line=1, reason="is not a JSON object")])
    return document
