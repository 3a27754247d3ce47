"""What is known of the spot capacity of a zone: tick by tick, whether it could be had, and at what price."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from spotkeep_planner.errors import TraceError

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True, eq=False)
class CapacityTrace:
    """The spot capacity of one zone over time, at equal steps.

    Attributes:
        zone: The availability zone, or whatever name the file has.
        start: When the first tick begins (UTC).
        tick_s: The length of a tick in seconds.
        available: One a tick: True where a spot instance could be had and kept. Read-only.
        spot_price: One a tick: USD per hour. Read-only.
        on_demand_price: USD per hour; None where the source does not say.
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
        """When the last tick is over."""
        return self.start + timedelta(seconds=self.tick_s * len(self))

    @property
    def availability(self) -> float:
        """The share of ticks with capacity."""
        return float(self.available.mean())


def same_clock(traces: Sequence[CapacityTrace]) -> tuple[CapacityTrace, ...]:
    """Return traces cut to the time they share, so that one index means the same tick in all.

    Args:
        traces: Traces with the same tick whose ticks begin within half a tick of each other.

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
