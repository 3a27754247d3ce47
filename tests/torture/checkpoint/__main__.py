"""Tortures checkpoints and gives a verdict: ``python -m tests.torture.checkpoint``."""

from __future__ import annotations

import argparse
import random
import sys
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.report import STATE
from tests.torture.checkpoint import trials
from tests.torture.checkpoint.trials import Recording, TrialFindings
from tests.torture.stages import TrialStage, run_stages


def main() -> int:
    """Run the trials, print a table, write JSON. Returns 0 when nothing broke, 1 otherwise."""
    options = _options()
    console = Console()
    started = time.monotonic()
    with trials.scratch_directory() as scratch:
        results = _torture(options, Recording(scratch), console)
    total = sum(results.values(), TrialFindings())
    document = {
        "seed": options.seed,
        "seconds": round(time.monotonic() - started, 1),
        "unbroken": not total.problems,
        **{name: value for name, value in asdict(total).items() if name != "figures"},
        "kinds": {name: asdict(found) for name, found in results.items()},
    }
    console.print(_table(results, total))
    for problem in total.problems[:20]:
        console.print(f"BROKEN  {problem}", style="red", markup=False, highlight=False)
    verdict = "nothing broke" if document["unbroken"] else f"{len(total.problems)} problems"
    console.print(f"\n{verdict}: {total.trials:,} trials, {total.kills:,} kills, {document['seconds']:,} s")
    report.write(options.output, document, console)
    return 0 if document["unbroken"] else 1


def _torture(options: argparse.Namespace, recording: Recording, console: Console) -> dict[str, TrialFindings]:
    chance = random.Random(options.seed)  # noqa: S311 - reproducible, not secret
    every_fault = recording.faults()
    faults = chance.sample(every_fault, min(options.faults or len(every_fault), len(every_fault)))
    killing = sum(fault.kind.startswith("kill") for fault in faults)
    random_kills = max(options.kills - killing, options.kills // 4)
    stages = {
        "random kills": TrialStage(
            trials=random_kills, work=partial(trials.kill_at_random_moments, kills=random_kills, chance=chance)
        ),
        f"faults at {len(recording.changes)} calls": TrialStage(
            trials=len(faults), work=partial(trials.break_calls, recording=recording, faults=faults)
        ),
        **{
            name: TrialStage(trials=count, work=partial(work, recording=recording, trials=count, chance=chance))
            for name, count, work in (
                ("lost writes", options.lost_writes, trials.lose_writes),
                ("failed fsync", options.failed_syncs, trials.fail_syncs),
                ("flipped bits", options.flips, trials.flip_bits),
            )
        },
        "notices": TrialStage(
            trials=options.notices, work=partial(trials.give_notices, trials=options.notices, chance=chance)
        ),
    }
    return run_stages(
        stages, console, in_a_line=lambda found: f"{found.trials:,} trials, {len(found.problems)} problems"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.checkpoint", description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="processes to kill (default 1000)")
    parser.add_argument(
        "--faults", type=int, help="faults at calls, drawn at random (default: every one at every call)"
    )
    parser.add_argument("--lost-writes", type=int, default=2000, help="power cuts (default 2000)")
    parser.add_argument("--failed-syncs", type=int, default=40, help="failing fsyncs (default 40, at most all)")
    parser.add_argument("--flips", type=int, default=2000, help="flipped bits (default 2000)")
    parser.add_argument("--notices", type=int, default=100, help="notices (default 100)")
    parser.add_argument("--quick", action="store_true", help="about 2 kills and a little of everything else")
    parser.add_argument("--seed", type=int, default=1, help="what chance starts from (default 1)")
    parser.add_argument("--output", type=Path, default=STATE / "torture" / "checkpoint.json")
    options = parser.parse_args()
    if options.quick:
        options.kills, options.faults, options.failed_syncs = 2, 2, 1
        options.lost_writes, options.flips, options.notices = 3, 2, 2
    return options


def _table(results: dict[str, TrialFindings], total: TrialFindings) -> Table:
    titles = ("trials", "kills", "corrupt", "steps\nlost", "wrong\nends", "unnoticed", "lost on\nnotice")
    table = report.table("trial", *titles, padding=(0, 2, 0, 0), pad_edge=False)
    for name, found in (*results.items(), ("all", total)):
        figures = (found.trials, found.kills, found.corrupt, found.lost, found.wrong_ends, found.unsaid, found.late)
        table.add_row(name, *(f"{figure:,}" for figure in figures))
    return table


if __name__ == "__main__":
    sys.exit(main())
