"""Small capacity traces, and the capacity model of zones that come and go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import numpy as np
import pytest

from spotkeep_planner.traces.capacity_trace import CapacityTrace

TraceOf = Callable[..., CapacityTrace]


def make_trace(
    available: Sequence[int | bool], *, price: float | Sequence[float] = 1.0, tick_s: float = 600.0, zone: str = "a"
) -> CapacityTrace:
    """A trace from ones and zeros."""
    there = np.array(available, dtype=np.bool_)
    prices = np.full(len(there), price) if isinstance(price, float) else np.array(price, dtype=np.float64)
    return CapacityTrace(
        zone=zone, start=datetime(2026, 1, 1, tzinfo=UTC), tick_s=tick_s, available=there, spot_price=prices
    )


@pytest.fixture(scope="session")
def trace_of() -> TraceOf:
    return make_trace


def made_up_capacity(
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
    return make_trace(available, price=price, tick_s=tick_s, zone=zone)


@pytest.fixture(scope="session")
def capacity_with_known_law() -> TraceOf:
    return made_up_capacity
