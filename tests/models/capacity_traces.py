"""The capacity of zones that a test makes up: given tick by tick, or drawn from a law that is then known."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import numpy as np

from spotkeep_planner.traces import CapacityTrace


def trace_of(
    available: Sequence[int | bool], *, price: float | Sequence[float] = 1.0, tick_s: float = 600.0, zone: str = "a"
) -> CapacityTrace:
    """A trace from ones and zeros."""
    there = np.array(available, dtype=np.bool_)
    prices = np.full(len(there), price) if isinstance(price, float) else np.array(price, dtype=np.float64)
    return CapacityTrace(
        zone=zone, start=datetime(2026, 1, 1, tzinfo=UTC), tick_s=tick_s, available=there, spot_price=prices
    )


def capacity_with_known_law(
    *, ticks: int, tick_s: float, run_h: float, drought_h: float, seed: int, zone: str = "a", price: float = 1.0
) -> CapacityTrace:
    """Runs and droughts of exponential lengths: capacity whose law is known."""
    random = np.random.default_rng(seed)
    available = np.empty(ticks, dtype=np.bool_)
    state = random.random() < run_h / (run_h + drought_h)
    for tick in range(ticks):
        available[tick] = state
        if random.random() < -np.expm1(-tick_s / 3600 / (run_h if state else drought_h)):
            state = not state
    return trace_of(available.tolist(), price=price, tick_s=tick_s, zone=zone)
