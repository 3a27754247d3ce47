"""Measures sweeps and writes the figures to a file (``python -m benchmarks.sweep`` or ``make bench-sweep``)."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks import report
from benchmarks.policy import setting
from benchmarks.policy.__main__ import DEFAULT_TRACES
from benchmarks.report import STATE
from benchmarks.sweep import control_plane, search
from benchmarks.sweep.searches import CONFIGURATIONS, EPOCHS, MAKERS, LossTable, missing
from spotkeep_local.access.call_rates import CALLS_A_SECOND


def main() -> int:
    """Measure, print tables, write JSON. Return 0 with any figures, since a benchmark does not judge."""
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
    parser.add_argument("--repetitions", type=int, default=300, help="seeds of each search (default 300)")
    parser.add_argument("--trials", type=int, default=1_000, help="trials of the control plane's sweep (default 1000)")
    parser.add_argument("--processes", type=int, default=2, help="at once (default 2)")
    parser.add_argument("--contenders", type=Path, default=STATE / "bench" / "contenders", help="installed there")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "sweep.json")
    return parser.parse_args()


def _control_plane(options: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    cases = []
    for case in control_plane.CASES:
        with console.status(f"a sweep of {options.trials:,} trials on the models of AWS, {case.name}"):
            cases.append(control_plane.measured(case, trials=options.trials))
    table = report.table(f"a sweep of {options.trials:,} trials", *(each["case"] for each in cases), "target")
    for name, in_words, target in _ROWS:
        table.add_row(name, *(in_words(each) for each in cases), target.format(trials=f"{options.trials:,}"))
    console.print(table)
    console.print()
    rates = report.table("the most calls in a second", *(each["case"] for each in cases), "AWS takes")
    for operation in sorted({operation for each in cases for operation in each["most_calls_in_a_second"]}):
        most = [each["most_calls_in_a_second"].get(operation, 0) for each in cases]
        rates.add_row(operation, *(str(each) for each in most), str(CALLS_A_SECOND.get(operation, "")))
    console.print(rates)
    console.print()
    return cases


_ROWS: Final[Sequence[tuple[str, Callable[[Mapping[str, Any]], str], str]]] = (
    ("trials under way, training at a time", lambda of: f"{of['parallel']}, {of['at_a_time']}", ""),
    ("trials completed, training jobs", lambda of: f"{of['completed']:,}, {of['training_jobs']:,}", "{trials}"),
    ("calls that AWS throttled", lambda of: f"{sum(of['throttled'].values()):,}", "0"),
    ("invocations of functions that failed", lambda of: f"{len(of['failed_invocations']):,}", "0"),
    ("AWS calls a trial", lambda of: str(of["calls_a_trial"]), ""),
    ("function invocations a trial", lambda of: str(of["invocations_a_trial"]), ""),
    ("control plane, USD for 1,000 trials", lambda of: str(of["usd_a_thousand_trials"]), ""),
    ("run table, bytes a trial", lambda of: f"{of['table_bytes_a_trial']:,}", ""),
    ("longest pass of the controller, model seconds", lambda of: str(of["longest_pass_s"]), "240"),
    ("hours from launch to end, passes", lambda of: f"{of['model_hours']}, {of['passes']:,}", ""),
    ("describe, seconds on this machine", lambda of: str(of["describe_s"]), "1"),
)


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
    with report.progress(console) as progress:
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
        "\nWith the traces' interruptions: whole trainings paid for until that loss; which parts went into starts of "
        "jobs and were lost to interruptions; what ours spends of it, by the medians (and where nine in ten such "
        "ratios would lie) and in all.\n"
    )
    spending = report.table(
        "a whole training, search", "spent", "never", "starts", "lost", "ours of it", "in all", padding=(0, 2, 0, 0)
    )
    for each in figures["interrupted"]:
        spending.add_row(
            f"{each['full_training_h']:g} h, {each['algorithm']}, {each['search']}",
            _in_words(each["spent"], digits=1),
            str(each["not_reached"]),
            _percent(each["starts_share"]),
            _percent(each["lost_share"]),
            _with_interval(each),
            f"{each['ours_of_it_in_all']:.2f}",
        )
    console.print(spending)
    console.print()
    for each in figures["interrupted"]:
        if each["algorithm"] == "asha" and each["full_training_h"] == search.JUDGED_H and each["search"] != "spotkeep":
            verdict = "met" if each["ours_of_it"] <= search.TARGET else "missed"
            console.print(
                f"asha, trainings of {search.JUDGED_H:g} h, against {each['search']}: {_with_interval(each)}, in all "
                f"{each['ours_of_it_in_all']:.2f} (target of the first: at most {search.TARGET}, {verdict})",
                soft_wrap=True,
            )


def _in_words(spread: Mapping[str, float], *, digits: int) -> str:
    # One digit less for the quartiles, so that a row fits into 120 columns.
    fewer = max(1, digits - 1)
    return f"{spread['median']:.{digits}f} ({spread['low']:.{fewer}f}-{spread['high']:.{fewer}f})"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _with_interval(figures: Mapping[str, Any]) -> str:
    if figures["search"] == "spotkeep":
        return "1.00"
    interval = figures["ours_of_it_90"]
    return f"{figures['ours_of_it']:.2f} ({interval['low']:.2f}-{interval['high']:.2f})"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # of the whole process, so not where others call `main`
    sys.exit(main())
