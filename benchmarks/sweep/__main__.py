"""Measures sweeps and writes it down: ``python -m benchmarks.sweep``, or ``make bench-sweep``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks import report
from benchmarks.policy import setting
from benchmarks.policy.__main__ import DEFAULT_TRACES
from benchmarks.report import STATE
from benchmarks.sweep import control_plane, search
from benchmarks.sweep.searches import MAKERS, missing
from benchmarks.sweep.table import CONFIGURATIONS, EPOCHS, LossTable


def main() -> int:
    """Measure, print tables, write JSON. Returns 0 whatever the figures are: a benchmark does not judge."""
    options = _options()
    console = Console()
    sys.path.append(str(options.contenders))
    # Each part of the benchmark is a key here, and prints its own tables.
    figures = {"control_plane": _control_plane(options, console), "search": _search(options, console)}
    report.write(options.output, figures, console, processes=options.processes)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sweep", description=__doc__)
    parser.add_argument("--traces", type=Path, default=DEFAULT_TRACES, help="a folder of traces with interruptions")
    parser.add_argument("--repetitions", type=int, default=60, help="seeds of each search (default 60)")
    parser.add_argument("--trials", type=int, default=1_000, help="trials of the control plane's sweep (default 1000)")
    parser.add_argument("--processes", type=int, default=2, help="at once (default 2)")
    parser.add_argument("--contenders", type=Path, default=STATE / "bench" / "contenders", help="installed there")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "sweep.json")
    return parser.parse_args()


def _control_plane(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    with console.status(f"a sweep of {options.trials:,} trials on the models of AWS"):
        figures = control_plane.measured(trials=options.trials)
    table = report.table(f"a sweep of {options.trials:,} trials", "measured", "target")
    for name, measured, target in (
        ("AWS calls a trial", figures["calls_a_trial"], ""),
        ("function invocations a trial", figures["invocations_a_trial"], ""),
        ("control plane, USD for 1,000 trials", figures["usd_a_thousand_trials"], ""),
        ("run table, bytes a trial", f"{figures['table_bytes_a_trial']:,}", ""),
        ("longest pass of the controller, model seconds", figures["longest_pass_s"], ""),
        ("CreateTrainingJob calls that waited for their rate", f"{figures['creates_that_waited']:,}", ""),
        ("training jobs, trials completed", f"{figures['jobs']:,}, {figures['completed']:,}", f"{options.trials:,}"),
        ("describe, seconds on this machine", figures["describe_s"], "1"),
    ):
        table.add_row(name, str(measured), target)
    console.print(table)
    console.print()
    return figures


def _search(options: argparse.Namespace, console: Console) -> dict[str, Any]:
    traces = setting.read_folder(options.traces) if options.traces.exists() else ()
    if not traces:
        console.print(f"There are no traces in {options.traces}: interruptions are left out.\n", markup=False)
        console.print(
            setting.HOW_TO_GET_THE_DATA.format(directory=options.traces), markup=False, highlight=False, soft_wrap=True
        )
    problem = missing()
    if problem is not None:
        console.print(problem, markup=False)
    others = [name for name in MAKERS if name != "spotkeep" and (problem is None or name != "Syne Tune")]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        bar = progress.add_task("training the table", total=CONFIGURATIONS)
        path = STATE / "bench" / f"sweep-table-{CONFIGURATIONS}x{EPOCHS}.json"
        table = LossTable.kept(path, progress=lambda done: progress.update(bar, completed=done))
        progress.update(bar, description="searching", completed=0)
        figures = search.measured(
            table,
            traces,
            contenders=others,
            repetitions=options.repetitions,
            processes=options.processes,
            progress=lambda done, total: progress.update(bar, completed=done, total=total),
        )
    _show(figures, console)
    return {**figures, "left_out": problem, "traces": str(options.traces) if traces else None}


def _show(figures: Mapping[str, Any], console: Console) -> None:
    console.print(
        f"Regret after so many whole trainings, without interruptions: median and quartiles of "
        f"{figures['repetitions']} seeds; and what is spent until a loss of {figures['objective']:.3f}.\n"
    )
    regrets = report.table("search", *(str(budget) for budget in search.BUDGETS), "spent", padding=(0, 2, 0, 0))
    for each in figures["uninterrupted"]:
        spreads = [_in_words(each["regret"][str(budget)], digits=3) for budget in search.BUDGETS]
        regrets.add_row(f"{each['algorithm']}, {each['search']}", *spreads, _in_words(each["spent"], digits=1))
    console.print(regrets)
    if not figures["interrupted"]:
        return
    console.print(
        "\nWith the traces' interruptions: whole trainings paid for until that loss; what ours spends of it, by the "
        "medians and in all.\n"
    )
    spending = report.table("a whole training, search", "spent", "never", "ours of it", "in all")
    for each in figures["interrupted"]:
        spending.add_row(
            f"{each['full_training_h']:g} h, {each['algorithm']}, {each['search']}",
            _in_words(each["spent"], digits=1),
            str(each["not_reached"]),
            f"{each['ours_of_it']:.2f}",
            f"{each['ours_of_it_in_all']:.2f}",
        )
    console.print(spending)
    console.print()
    for each in figures["interrupted"]:
        if each["algorithm"] == "asha" and each["full_training_h"] == search.JUDGED_H and each["search"] != "spotkeep":
            verdict = "met" if each["ours_of_it"] <= search.TARGET else "missed"
            console.print(
                f"asha, trainings of {search.JUDGED_H:g} h, against {each['search']}: {each['ours_of_it']:.2f}, in all "
                f"{each['ours_of_it_in_all']:.2f} (target of the first: at most {search.TARGET}, {verdict})",
                soft_wrap=True,
            )


def _in_words(spread: Mapping[str, float], *, digits: int) -> str:
    # One digit less for the quartiles, so that a row fits into 120 columns.
    fewer = max(1, digits - 1)
    return f"{spread['median']:.{digits}f} ({spread['low']:.{fewer}f}-{spread['high']:.{fewer}f})"


if __name__ == "__main__":
    sys.exit(main())
