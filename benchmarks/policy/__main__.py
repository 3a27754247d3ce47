"""Measures the planner and writes the figures to a file (``python -m benchmarks.policy`` or ``make bench-policy``)."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.policy import measures, setting
from benchmarks.report import PROJECT, STATE
from spotkeep_planner.errors import TraceError

DEFAULT_TRACES = PROJECT.parent / "shared" / "data" / "traces" / "aws-v100-2023"


def main() -> int:
    """Measure, print tables, write JSON. Return 0 with any figures, since a benchmark does not judge."""
    options = _options()
    console = Console()
    if not options.traces.exists():
        console.print(f"There are no traces in {options.traces}.\n", markup=False, highlight=False)
        console.print(
            setting.HOW_TO_GET_THE_DATA.format(directory=options.traces), markup=False, highlight=False, soft_wrap=True
        )
        return 1
    try:
        traces = setting.read_folder(options.traces)
        train = setting.read_folder(options.train) if options.train else ()
        tasks = setting.tasks(
            traces, train=train, windows=options.windows, seed=options.seed, on_demand_price=options.on_demand_price
        )
    except TraceError as error:
        console.print(str(error), markup=False, highlight=False, soft_wrap=True)
        return 1
    results = _measure(tasks, timed_windows=options.timed_windows, processes=options.processes, console=console)
    document = {
        "traces": {"folder": str(options.traces), "train": str(options.train) if options.train else None}
        | {"zones": {trace.zone: round(trace.availability, 4) for trace in traces}},
        "job": {"work_h": setting.WORK_H, "restart_h": setting.RESTART_H, "seed": options.seed},
        **results,
    }
    _show(console, document)
    report.write(options.output, document, console, processes=options.processes)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.policy", description=__doc__)
    parser.add_argument("--traces", type=Path, default=DEFAULT_TRACES, help="a folder of traces to judge on")
    parser.add_argument("--train", type=Path, help="learn from this folder alone, and judge on the other")
    parser.add_argument("--windows", type=int, default=60, help="windows a zone (default 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the windows' starts (default 0)")
    parser.add_argument(
        "--on-demand-price", type=float, default=setting.ON_DEMAND_PRICE, help="USD per hour, where a trace has none"
    )
    parser.add_argument("--timed-windows", type=int, default=1000, help="windows whose time is taken (default 1000)")
    parser.add_argument("--processes", type=int, default=min(2, os.cpu_count() or 1), help="at once (default 2)")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "policy.json")
    return parser.parse_args()


def _measure(
    tasks: Sequence[setting.PolicyTask], *, timed_windows: int, processes: int, console: Console
) -> dict[str, Any]:
    compared: list[measures.Comparison] = []
    singles = [task for task in tasks if len(task.judged) == 1]
    with report.progress(console) as progress, ProcessPoolExecutor(processes) as pool:
        bar = progress.add_task("replaying", total=2 * len(tasks))
        comparisons = [pool.submit(measures.compare, task) for task in tasks]
        forecasts = [pool.submit(measures.forecast_coverage, task) for task in singles]
        intervals = [pool.submit(measures.interval_regret, task) for task in singles]
        progress.update(bar, total=len(comparisons) + len(forecasts) + len(intervals) + 1)
        everything: list[Future[Any]] = [*comparisons, *forecasts, *intervals]
        for done in as_completed(everything):
            done.result()
            progress.advance(bar)
        progress.update(bar, description="timing")
        speed = pool.submit(measures.speed, singles[0], windows=timed_windows).result()
        progress.advance(bar)
    for comparison in comparisons:
        compared += comparison.result()
    return {
        "results": _results(compared),
        "by_zone": [_entry(comparison.policy, comparison.deadline_h, [comparison]) for comparison in compared],
        "forecast": measures.pooled_coverage(coverage.result() for coverage in forecasts),
        "checkpoint_interval": measures.pooled_regret(regret.result() for regret in intervals),
        "speed": speed,
    }


def _results(compared: Iterable[measures.Comparison]) -> list[dict[str, Any]]:
    """Return one entry a policy, deadline and number of zones that a job could use."""
    groups: dict[tuple[int, float, str], list[measures.Comparison]] = {}
    for comparison in compared:
        key = len(comparison.zones), comparison.deadline_h, comparison.policy
        groups.setdefault(key, []).append(comparison)
    return [_entry(policy, deadline_h, groups[zones, deadline_h, policy]) for zones, deadline_h, policy in groups]


def _entry(policy: str, deadline_h: float, compared: Sequence[measures.Comparison]) -> dict[str, Any]:
    ratios = np.concatenate([comparison.ratios for comparison in compared])
    return {
        "policy": policy,
        "deadline_h": deadline_h,
        "zones": len(compared[0].zones),
        "n": len(ratios),
        "cost_vs_optimum_mean": round(float(ratios.mean()), 4),
        "cost_vs_optimum_p90": round(float(np.percentile(ratios, 90)), 4),
        "misses": sum(comparison.misses for comparison in compared),
        "judged_on": sorted({zone for comparison in compared for zone in comparison.zones}),
    }


_WORDS = {"cost_usd": "cost", "finish_s": "end"}


def _show(console: Console, document: dict[str, Any]) -> None:
    zones = sorted({entry["zones"] for entry in document["results"]})
    for count in zones:
        console.print(_table([entry for entry in document["results"] if entry["zones"] == count], zones=count))
    forecast, interval, speed = document["forecast"], document["checkpoint_interval"], document["speed"]
    table = report.table("what", "measured", "target", justify="left")
    for what, share in forecast["share_within_80"].items():
        table.add_row(f"80% interval of the {_WORDS[what]} holds", f"{share:.1%} of {forecast['n']}", "75% to 85%")
    table.add_row(
        "goodput against the best fixed interval",
        f"{interval['mean']:.3f} (lowest {interval['lowest']:.3f})",
        "at least 0.98",
    )
    table.add_row(
        f"{speed['windows']:,} windows, fitted and solved",
        f"{speed['seconds']:g} s",
        f"at most {speed['target_seconds']} s",
    )
    console.print(table)


def _table(entries: Sequence[dict[str, Any]], *, zones: int) -> Table:
    places = "one zone" if zones == 1 else f"{zones} zones to move between"
    deadlines = sorted({entry["deadline_h"] for entry in entries})
    title = f"\nCost over the optimum, mean (90th percentile): {places}, n = {entries[0]['n']}"
    table = report.table(
        "policy", *(f"{deadline_h:g} h" for deadline_h in deadlines), "late", title=title, title_justify="left"
    )
    for policy in dict.fromkeys(entry["policy"] for entry in entries):
        mine = {entry["deadline_h"]: entry for entry in entries if entry["policy"] == policy}
        cells = [
            f"{mine[hours]['cost_vs_optimum_mean']:.3f} ({mine[hours]['cost_vs_optimum_p90']:.2f})"
            for hours in deadlines
        ]
        table.add_row(policy, *cells, str(sum(entry["misses"] for entry in mine.values())))
    targets = setting.TARGETS if zones == 1 else dict.fromkeys(setting.DEADLINES_H, setting.MULTI_ZONE_TARGET)
    table.add_row("target", *(f"{targets[hours]:.2f}       " for hours in deadlines), "0", style="dim")
    return table


if __name__ == "__main__":
    sys.exit(main())
