"""Turns a clone of the public artifact into traces: `python -m benchmarks.policy.convert CLONE DIRECTORY`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from spotkeep_planner.errors import PlannerError
from spotkeep_planner.traces.public_forms import read_availability_csv, read_price_lists
from spotkeep_planner.traces.trace_file import write_trace

ZONES = ("us-east-1a", "us-east-1d", "us-east-1f", "us-east-2a", "us-west-2a", "us-west-2c")


def main() -> int:
    """Convert, and say with which sign each file was read."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy.convert", description=__doc__)
    parser.add_argument("clone", type=Path, help="a clone of andylizf/skynomad-artifact")
    parser.add_argument("directory", type=Path, help="where the traces go")
    options = parser.parse_args()
    try:
        prices = read_price_lists(options.clone / "data" / "v100_spot_prices.json")
        options.directory.mkdir(parents=True, exist_ok=True)
        for zone in ZONES:
            name = f"{zone}_v100_1"
            source = options.clone / "data/real/availability/2023-02-15/processed" / f"{name}.csv"
            trace = read_availability_csv(source, zone=zone, spot_price=prices[name], on_demand_price=3.06)
            write_trace(trace, options.directory / f"{zone}.csv.gz")
            print(f"{zone}: {trace.remark}, {trace.availability:.0%} of the time")
    except (PlannerError, KeyError, OSError) as error:
        print(f"{error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
