"""Tries what each library of checkpoints keeps: ``python -m benchmarks.guarantees``."""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.guarantees import trials
from benchmarks.guarantees.host import Host
from benchmarks.guarantees.libraries import LIBRARIES, VERBS
from benchmarks.report import STATE

RANKS = 4


def main() -> int:
    """Try each library, print a table, write JSON."""
    options = _options()
    console = Console()
    started = time.monotonic()
    figures = {name: _tried(name, options, console) for name in options.libraries}
    console.print(_table(figures))
    seconds = round(time.monotonic() - started, 1)
    report.write(options.output, {"seconds": seconds, "seed": options.seed, "libraries": figures}, console)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.guarantees", description=__doc__)
    parser.add_argument("--libraries", nargs="+", choices=[*LIBRARIES], default=[*LIBRARIES], metavar="NAME")
    parser.add_argument("--kills", type=int, default=40, help="processes to kill (default 40)")
    parser.add_argument("--replaced", type=int, default=10, help="processes to replace (default 10)")
    parser.add_argument("--flips", type=int, default=60, help="bits to flip (default 60)")
    parser.add_argument("--seed", type=int, default=1, help="what chance starts from (default 1)")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "guarantees.json")
    return parser.parse_args()


def _tried(name: str, options: argparse.Namespace, console: Console) -> dict[str, Any]:
    chance = random.Random(options.seed)  # noqa: S311 - reproducible, not secret
    with tempfile.TemporaryDirectory(prefix="guarantees-") as place:
        scratch = Path(place)
        try:
            host = Host(name, scratch)
        except RuntimeError as error:
            return {"name": name, "left out": str(error)}
        with closing(host):
            found: dict[str, Any] = dict(host.facts)
            rows: dict[str, Callable[..., object]] = {
                "kills": partial(trials.kill, kills=options.kills, chance=chance),
                "replaced": partial(trials.replace, times=options.replaced, chance=chance),
                "flips": partial(trials.flip, flips=options.flips, chance=chance),
                "ranks 2 to 3": partial(trials.change_ranks, saved_by=2, restored_by=3),
                "ranks 3 to 2": partial(trials.change_ranks, saved_by=3, restored_by=2),
                "bytes": partial(trials.share_writing, ranks=RANKS),
            }
            for trial, run in rows.items():
                folder = scratch / trial.replace(" ", "-")
                folder.mkdir()
                found[trial] = run(host, folder)
                console.print(f"{found['name']}, {trial}: {found[trial]}", markup=False, highlight=False)
    return found


def _table(figures: dict[str, Any]) -> Table:
    tried = [found for found in figures.values() if "left out" not in found]
    table = report.table("", *(found["name"] for found in tried), justify="left")
    table.add_row("another number of ranks", *(_ranks(found) for found in tried))
    table.add_row("a flipped bit", *(_counts(found["flips"]) for found in tried))
    table.add_row("killed while it saves", *(_counts(found["kills"]) for found in tried))
    table.add_row("replaced, and goes on", *(_counts(found["replaced"]) for found in tried))
    table.add_row(f"bytes written by {RANKS} ranks", *(_bytes(found["bytes"]) for found in tried))
    table.add_row("verbs", *(", ".join(verb for verb in VERBS if found["verbs"].get(verb)) for found in tried))
    return table


def _ranks(found: dict[str, Any]) -> str:
    return "; ".join(
        f"{name.removeprefix('ranks ')}: {str(found[name])[:60]}" for name in ("ranks 2 to 3", "ranks 3 to 2")
    )


def _counts(found: dict[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(found.items()))


def _bytes(found: list[int] | str) -> str:
    return found[:60] if isinstance(found, str) else ", ".join(f"{count / sum(found):.0%}" for count in found)


if __name__ == "__main__":
    sys.exit(main())
