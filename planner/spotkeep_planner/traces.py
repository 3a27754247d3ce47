"""Capacity traces, with the spot capacity of a zone tick by tick, its price, and the file form of this project.

A file is a CSV a zone, `time,available,spot_price`, plain or gzipped. A faulty trace would give a faulty forecast
unseen, so the reader repairs nothing. It names each problem with its line. Times may jitter by less than a row. A row
that is missing, repeated or out of order is a problem.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import math
import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from spotkeep_planner.errors import TraceError, TraceProblem

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class CapacityTrace:
    """The spot capacity of one zone over time, at equal steps.

    Attributes:
        zone: The availability zone, or whatever name the file has.
        start: The beginning of the first tick (UTC).
        tick_s: The length of a tick in seconds.
        available: One value a tick, True where a spot instance could be had and kept. Read-only.
        spot_price: One value a tick, USD per hour. Read-only.
        on_demand_price: USD per hour. None where the source does not say.
    """

    zone: str
    start: datetime
    tick_s: float
    available: BoolArray = field(repr=False)
    spot_price: FloatArray = field(repr=False)
    on_demand_price: float | None = None

    def __post_init__(self) -> None:
        available = np.ascontiguousarray(self.available, dtype=np.bool_)
        spot_price = np.ascontiguousarray(self.spot_price, dtype=np.float64)
        if available.ndim != 1 or available.shape != spot_price.shape or not len(available):
            raise TraceError.of(
                self.zone, f"needs one value a tick: capacity has {available.shape}, price {spot_price.shape}"
            )
        available.setflags(write=False)
        spot_price.setflags(write=False)
        object.__setattr__(self, "available", available)
        object.__setattr__(self, "spot_price", spot_price)

    def __len__(self) -> int:
        return len(self.available)

    @property
    def end(self) -> datetime:
        """The end of the last tick."""
        return self.start + timedelta(seconds=self.tick_s * len(self))

    @property
    def availability(self) -> float:
        """The share of ticks with capacity."""
        return float(self.available.mean())


def same_clock(traces: Sequence[CapacityTrace]) -> tuple[CapacityTrace, ...]:
    """Return traces cut to the time they share, so that one index means the same tick in all.

    Args:
        traces: Traces with the same tick. Their ticks begin within half a tick of each other.

    Raises:
        TraceError: They have different ticks, or no time in common.
    """
    if not traces:
        raise TraceError.of("traces", "no trace was given")
    ticks = {trace.tick_s for trace in traces}
    if len(ticks) > 1:
        reason = f"zones that are used together need the same tick, found {sorted(ticks)} s"
        raise TraceError.of(", ".join(trace.zone for trace in traces), reason)
    tick_s = ticks.pop()
    start = max(trace.start for trace in traces)
    offsets = [round((start - trace.start).total_seconds() / tick_s) for trace in traces]
    length = min(len(trace) - offset for trace, offset in zip(traces, offsets, strict=True))
    if length <= 0:
        reason = "the zones have no time in common; give traces of the same days"
        raise TraceError.of(", ".join(trace.zone for trace in traces), reason)
    return tuple(
        CapacityTrace(
            zone=trace.zone,
            start=start,
            tick_s=tick_s,
            available=trace.available[offset : offset + length],
            spot_price=trace.spot_price[offset : offset + length],
            on_demand_price=trace.on_demand_price,
        )
        for trace, offset in zip(traces, offsets, strict=True)
    )


COLUMNS = ("time", "available", "spot_price")
OPTIONAL_COLUMN = "on_demand_price"
SUFFIXES = (".csv.gz", ".csv")
OPPOSITE_COLUMNS = ("preempted", "preemption", "interrupted", "unavailable")
GAP_IN_TICKS = 1.75
"""A step this long has lost a row. Probes jitter, as the longest step of the V100 traces of 2023 is 1.44 ticks."""
MOST_BYTES = 64 * 1024 * 1024
"""A row a minute for two years is half of that."""
_FEWEST_ROWS = 2
_MOST_PROBLEMS = 1_000


def read_trace(path: Path) -> CapacityTrace:
    """Read one zone's trace.

    Args:
        path: A CSV file with a header and one row a tick: `time` in ISO 8601 (UTC unless it says otherwise),
            `available` 1 or 0 (1: capacity could be had and kept), `spot_price` in USD per hour, and, if wanted, the
            `on_demand_price` in USD per hour. The zone is the file's name.

    Raises:
        TraceError: The file cannot be read, or is not a gapless, ordered trace. It names every line and the reason.
    """
    rows = list(csv.reader(io.StringIO(text_of(path))))
    source = str(path)
    if not rows:
        raise TraceError.of(source, "the file is empty")
    header = [cell.strip().lower() for cell in rows[0]]
    if problem := _header_problem(header):
        raise TraceError.of(source, problem, line=1)
    return _parse(rows[1:], columns={name: header.index(name) for name in header}, source=source, zone=_zone(path))


def read_traces(directory: Path) -> tuple[CapacityTrace, ...]:
    """Read every trace in a folder, in the order of the zones' names.

    Raises:
        TraceError: There is no such folder, it holds no trace, or a trace in it is faulty.
    """
    try:
        paths = sorted(path for path in directory.iterdir() if path.name.endswith(SUFFIXES))
    except OSError as error:
        reason = f"cannot be read as a folder of traces: {error.strerror}"
        raise TraceError.of(str(directory), reason) from error
    if not paths:
        reason = "holds no trace: give a folder with one <zone>.csv or <zone>.csv.gz a zone"
        raise TraceError.of(str(directory), reason)
    return tuple(read_trace(path) for path in paths)


def write_trace(trace: CapacityTrace, path: Path) -> None:
    """Write a trace in the form that `read_trace` reads. It is gzipped if the name ends in `.gz`."""
    lines = [",".join(COLUMNS if trace.on_demand_price is None else (*COLUMNS, OPTIONAL_COLUMN))]
    start_s = trace.start.timestamp()
    last = "" if trace.on_demand_price is None else f",{trace.on_demand_price:g}"
    for tick, (available, price) in enumerate(zip(trace.available.tolist(), trace.spot_price.tolist(), strict=True)):
        time = datetime.fromtimestamp(start_s + tick * trace.tick_s, UTC).isoformat().replace("+00:00", "Z")
        lines.append(f"{time},{available:d},{price:g}{last}")
    content = ("\n".join(lines) + "\n").encode()
    path.write_bytes(gzip.compress(content, mtime=0) if path.name.endswith(".gz") else content)


def text_of(path: Path) -> str:
    """Return the text of a recording, plain or gzipped.

    Raises:
        TraceError: It cannot be read, is no text, or is larger than a recording is.
    """
    try:
        with gzip.open(path) if path.name.endswith(".gz") else path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) <= MOST_BYTES:
            return content.decode("utf-8-sig")
        reason = f"has more than {MOST_BYTES:,} bytes, or no end: that is no recording of a spot market"
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        reason = f"is not a whole gzip file: {error}"
    except UnicodeDecodeError:
        reason = "is not UTF-8 text"
    except OSError as error:
        reason = f"cannot be read: {error.strerror}"
    raise TraceError.of(str(path), reason)


def _zone(path: Path) -> str:
    for suffix in SUFFIXES:
        if path.name.endswith(suffix):
            return path.name.removesuffix(suffix)
    return path.stem


def _header_problem(header: Sequence[str]) -> str | None:
    opposite = [name for name in header if name in OPPOSITE_COLUMNS]
    if opposite:
        return (
            f"the column {opposite[0]!r} has the opposite sign (1: no capacity); "
            "this form says `available` with 1 for capacity. Swap 0 and 1, and rename the column"
        )
    missing = [name for name in COLUMNS if name not in header]
    if missing:
        return f"the column {missing[0]!r} is missing; found {','.join(header)!r}, a trace has {','.join(COLUMNS)!r}"
    repeated = sorted({name for name in header if header.count(name) > 1})
    return f"the column {repeated[0]!r} is there twice" if repeated else None


def _parse(rows: Sequence[Sequence[str]], *, columns: dict[str, int], source: str, zone: str) -> CapacityTrace:
    problems: list[TraceProblem] = []
    seconds: list[float] = []
    available: list[bool] = []
    prices: list[float] = []
    on_demand: set[float] = set()
    lines: list[int] = []
    for line, row in enumerate(rows, start=2):
        if len(row) != len(columns):
            problems.append(TraceProblem(line=line, reason=f"has {len(row)} values where {len(columns)} belong"))
            continue
        found = [
            problem
            for problem in (
                _time(row[columns["time"]], into=seconds),
                _flag(row[columns["available"]], into=available),
                _price(row[columns["spot_price"]], name="spot_price", into=prices),
                _price(row[columns[OPTIONAL_COLUMN]], name=OPTIONAL_COLUMN, into=on_demand)
                if OPTIONAL_COLUMN in columns
                else None,
            )
            if problem is not None
        ]
        problems += [TraceProblem(line=line, reason=reason) for reason in found]
        lines.append(line)
    if not problems and len(seconds) < _FEWEST_ROWS:
        problems.append(
            TraceProblem(line=None, reason=f"has {len(seconds)} rows; a trace needs at least {_FEWEST_ROWS}")
        )
    if len(on_demand) > 1:
        reason = f"{OPTIONAL_COLUMN} changes ({min(on_demand):g} to {max(on_demand):g}); one price holds for a trace"
        problems.append(TraceProblem(line=None, reason=reason))
    if len(seconds) == len(lines) and len(seconds) >= _FEWEST_ROWS:
        problems += _order_problems(seconds, lines)
    if problems:
        ordered = sorted(problems, key=lambda problem: problem.line or 0)
        raise TraceError(source, ordered[:_MOST_PROBLEMS])
    return CapacityTrace(
        zone=zone,
        start=datetime.fromtimestamp(seconds[0], UTC),
        tick_s=_tick_s(seconds),
        available=np.array(available, dtype=np.bool_),
        spot_price=np.array(prices, dtype=np.float64),
        on_demand_price=on_demand.pop() if on_demand else None,
    )


def _tick_s(seconds: Sequence[float]) -> float:
    return float(statistics.median(after - before for before, after in itertools.pairwise(seconds)))


def _order_problems(seconds: Sequence[float], lines: Sequence[int]) -> list[TraceProblem]:
    steps = [after - before for before, after in itertools.pairwise(seconds)]
    forward = [step for step in steps if step > 0]
    tick_s = statistics.median(forward) if forward else 0.0
    problems = []
    for step, line in zip(steps, lines[1:], strict=True):
        if step == 0:
            reason = "the same time as the row before: remove one of the two"
        elif step < 0:
            reason = f"is {-step:g} s before the row above: sort the rows by time"
        elif step >= GAP_IN_TICKS * tick_s:
            missing = max(1, round(step / tick_s) - 1)
            reason = f"comes {step:g} s after the row above where {tick_s:g} s are usual: {missing} rows are missing"
        else:
            continue
        problems.append(TraceProblem(line=line, reason=reason))
    return problems


def _time(text: str, *, into: list[float]) -> str | None:
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        return f"time {text!r} is not ISO 8601, for example 2023-02-15T22:08:16Z"
    into.append((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp())
    return None


def _flag(text: str, *, into: list[bool]) -> str | None:
    stripped = text.strip()
    if stripped not in ("0", "1"):
        sign = "; a sign has no meaning here" if stripped.startswith("-") else ""
        return f"available is {text!r} where 1 (capacity) or 0 (none) belongs{sign}"
    into.append(stripped == "1")
    return None


def _price(text: str, *, name: str, into: list[float] | set[float]) -> str | None:
    try:
        price = float(text)
    except ValueError:
        return f"{name} is {text!r}, which is not a number"
    if not math.isfinite(price) or price <= 0:
        return f"{name} is {text.strip()}, a price is more than 0"
    if isinstance(into, set):
        into.add(price)
    else:
        into.append(price)
    return None
