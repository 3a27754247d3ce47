"""Turns a clone of the public artifact into traces (`python -m benchmarks.policy.convert CLONE DIRECTORY`)."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from spotkeep_planner.errors import PlannerError, TraceError
from spotkeep_planner.traces import CapacityTrace, read_trace, text_of, write_trace

ZONES = ("us-east-1a", "us-east-1d", "us-east-1f", "us-east-2a", "us-west-2a", "us-west-2c")
_HEADER = "date,availability"


def main() -> int:
    """Convert, and say how much of the time each zone has capacity."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy.convert", description=__doc__)
    parser.add_argument("clone", type=Path, help="a clone of andylizf/skynomad-artifact")
    parser.add_argument("directory", type=Path, help="where the traces go")
    options = parser.parse_args()
    try:
        prices = json.loads((options.clone / "data" / "v100_spot_prices.json").read_text())
        options.directory.mkdir(parents=True, exist_ok=True)
        for zone in ZONES:
            name = f"{zone}_v100_1"
            source = options.clone / "data/real/availability/2023-02-15/processed" / f"{name}.csv"
            trace = convert(source, prices=prices[name], on_demand_price=3.06)
            write_trace(trace, options.directory / f"{zone}.csv.gz")
            print(f"{zone}: capacity for {trace.availability:.0%} of the time")
    except (PlannerError, KeyError, ValueError, OSError) as error:
        print(f"{error}", file=sys.stderr)
        return 1
    return 0


def convert(source: Path, *, prices: Sequence[float], on_demand_price: float) -> CapacityTrace:
    """Read a CSV with the columns `date` (UTC) and `availability` (1 for capacity).

    Args:
        source: The file.
        prices: USD per hour, one a row.
        on_demand_price: USD per hour.

    Raises:
        TraceError: The file cannot be read, has rows that are missing, repeated or out of order, or not as many as
            there are prices.
    """
    header, *rows = text_of(source).splitlines() or [""]
    if header.strip().lower() != _HEADER:
        raise TraceError.of(str(source), f"begins with {header!r} where {_HEADER!r} is expected", line=1)
    if len(rows) != len(prices):
        raise TraceError.of(str(source), f"has {len(rows)} ticks, and there are {len(prices)} prices")
    with tempfile.TemporaryDirectory() as folder:
        draft = Path(folder) / source.name
        lines = [f"{row},{price},{on_demand_price}\n" for row, price in zip(rows, prices, strict=True)]
        draft.write_text("".join(["time,available,spot_price,on_demand_price\n", *lines]))
        return read_trace(draft)


if __name__ == "__main__":
    sys.exit(main())
