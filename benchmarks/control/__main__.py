"""Measures the functions' calls of AWS with ``python -m benchmarks.control``."""

from __future__ import annotations

import argparse
import logging
import sys
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.control import measures
from benchmarks.control.measures import Measured
from benchmarks.report import STATE


def main() -> int:
    """Measure, print a table, write JSON. Returns 0 when every target is kept, 1 otherwise."""
    options = _options()
    console = Console()
    with console.status("counting") as status, measures.quiet():
        results: dict[str, Measured] = {"calls": measures.calls(), "node_events": measures.node_events()}
        status.update(f"reconciling {options.runs:,} runs and {options.pools:,} warm pools")
        results["reconciled"] = measures.reconciled(runs=options.runs, pools=options.pools)
        results["reconciled_late"] = measures.reconciled(runs=options.runs, pools=options.pools, unseen=True)
        results["reconciled_followed"] = measures.reconciled(runs=options.runs, followed=True)
        status.update(f"collecting orphans beside {options.runs:,} runs")
        results["orphans"] = measures.orphans(runs=options.runs, pools=options.pools)
        status.update(f"sending {options.notifications:,} notifications")
        results["sent"] = measures.sent(notifications=options.notifications, failing=options.failing)
    document = {
        "kept": all(measured.kept is not False for measured in results.values()),
        **{name: asdict(measured) for name, measured in results.items()},
    }
    console.print(_calls(results["calls"]))
    console.print(_node_events(results["node_events"]))
    console.print(_targets(results))
    report.write(options.output, document, console)
    return 0 if document["kept"] else 1


def _calls(measured: Measured) -> Table:
    table = report.table("event", "AWS calls")
    table.add_column("which")
    for event, made in measured.figures["by_event"].items():
        table.add_row(event, str(sum(made.values())), ", ".join(f"{count} {name}" for name, count in made.items()))
    whole = measured.figures["of_a_run"]
    table.add_row("the whole run", str(whole["calls"]), f"{whole['events']} events")
    return table


def _node_events(measured: Measured) -> Table:
    table = report.table("event of a node", "AWS calls")
    for event, count in measured.figures["calls"].items():
        table.add_row(event, str(count))
    return table


def _targets(results: dict[str, Measured]) -> Table:
    table = report.table("target", "measured", "", justify="left", padding=(1, 3, 0, 0))
    figures = {
        "calls": f"{results['calls'].figures['all_calls_to_those_of_a_bare_handler']} times",
        "node_events": f"{results['node_events'].figures['most']} calls",
        **{
            name: ", ".join(
                f"{each['reconciled']:,} in {each['seconds']:,} s" for each in results[name].figures["passes"]
            )
            for name in ("reconciled", "reconciled_late", "reconciled_followed")
        },
        "orphans": ", ".join(
            f"{sum(each['calls'].values())} calls in {each['seconds']:,} s"
            for each in (results["orphans"].figures["in_order"], results["orphans"].figures["much_orphaned"])
        ),
        "sent": "{lost} lost, {doubled} doubled, {sends_that_failed} sends failed, {passes} passes".format(
            **results["sent"].figures
        ),
    }
    for name, measured in results.items():
        table.add_row(measured.target, figures[name], "kept" if measured.kept else "MISSED")
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.control", description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000, help="runs in flight (default 1000)")
    parser.add_argument("--pools", type=int, default=100, help="warm pools that wait beside them (default 100)")
    parser.add_argument("--notifications", type=int, default=10_000, help="notifications to send (default 10000)")
    parser.add_argument("--failing", type=float, default=0.05, help="part of sends that fails (default 0.05)")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "control.json")
    return parser.parse_args()


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # of the whole process, so not where others call `main`
    sys.exit(main())
