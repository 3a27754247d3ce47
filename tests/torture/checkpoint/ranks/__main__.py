"""Tortures checkpoints of several ranks and gives a verdict: ``python -m tests.torture.checkpoint.ranks``.

A run that is stopped goes on where it was, started with the same options. Its journal has the trials that are done.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import queue
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.report import PROJECT, STATE
from tests.torture.checkpoint.ranks.trials import GROUPS, RankRecording, RankTrial, plan, run_trial
from tests.torture.checkpoint.ranks.world import RankForge
from tests.torture.checkpoint.trials import TrialFindings

_TRIALS, _BY_TORCHRUN = 1000, 30
_QUICK_TRIALS, _QUICK_BY_TORCHRUN = 40, 1
_LINE_EVERY = 25
_OUTPUT = STATE / "torture" / "checkpoint-ranks.json"


def main() -> int:
    """Run the trials, print a table, write JSON. Returns 0 when nothing broke, 1 otherwise, 130 when stopped."""
    options = _options()
    console = Console()
    started = time.monotonic()
    journal = TrialJournal(options.journal)
    # A shell lets what runs in its background ignore Ctrl-C.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="torture-ranks-", dir=options.folder) as scratch:
            trials = _torture(options, journal, Path(scratch), console)
    except KeyboardInterrupt:
        console.print(f"\nStopped after {len(journal.done):,} of {options.trials:,} trials.")
        console.print(f"Next: {_command(options)}", soft_wrap=True, markup=False)
        return 130
    seconds = round(time.monotonic() - started + journal.seconds_before, 1)
    found = [journal.done[number] for number in sorted(journal.done)]
    total = sum(found, TrialFindings())
    groups = {
        group: sum((journal.done[number] for number in journal.done if trials[number].group == group), TrialFindings())
        for group in GROUPS
    }
    console.print(_table(groups, total))
    for problem in total.problems[:20]:
        console.print(f"BROKEN  {problem}", style="red", markup=False, highlight=False)
    verdict = "nothing broke" if not total.problems else f"{len(total.problems)} problems"
    console.print(
        f"\n{verdict}: {total.trials:,} trials, {total.kills:,} kills, {total.lost:,} lost, {total.corrupt:,} mixed, "
        f"{seconds:,} s"
    )
    document = {
        "seed": options.seed,
        "seconds": seconds,
        "unbroken": not total.problems,
        "trials": total.trials,
        "kills": total.kills,
        "lost": total.lost,
        "mixed": total.corrupt,
        "wrong_ends": total.wrong_ends,
        "problems": list(total.problems),
        "kinds": {group: asdict(of_group) for group, of_group in groups.items() if of_group.trials},
        "sources": journal.sources,
    }
    report.write(options.output, document, console, processors=os.cpu_count())
    broken = [number for number in sorted(journal.done) if journal.done[number].problems]
    again = f"{_command(options)} --only {broken[0]}" if broken else "make torture-checkpoint RANKS=--help"
    console.print(f"Next: {again}", soft_wrap=True, markup=False)
    if options.only is None:
        journal.path.unlink()
    return 0 if document["unbroken"] else 1


class TrialJournal:
    """The trials that are done, one JSON document a line, after a line that says of which run.

    Args:
        path: The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.done: dict[int, TrialFindings] = {}
        self.seconds_before = 0.0
        self.sources = _digest_of_sources()
        self._begun = time.monotonic()

    def take_up(self, run: dict[str, Any]) -> list[list[str]] | None:
        """Read what an earlier process has done of the same run. Gives the calls of its plan, None for no such run."""
        if not self.path.exists():
            return None
        lines = [json.loads(line) for line in self.path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        if not lines or {**lines[0], "calls": None} != {**run, "sources": self.sources, "calls": None}:
            return None
        for line in lines[1:]:
            found = line["found"]
            self.done[line["trial"]] = TrialFindings(**{**found, "problems": tuple(found["problems"])})
            self.seconds_before = line["seconds"]
        calls: list[list[str]] = lines[0]["calls"]
        # A line that was cut short goes, so the next one stands by itself.
        self.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return calls

    def begin(self, run: dict[str, Any], calls: list[list[str]]) -> None:
        """Begin a new run."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps({**run, "sources": self.sources, "calls": calls}) + "\n")

    def add(self, number: int, found: TrialFindings) -> None:
        """Note a trial that is done."""
        self.done[number] = found
        seconds = round(time.monotonic() - self._begun + self.seconds_before, 1)
        with self.path.open("a") as file:
            file.write(json.dumps({"trial": number, "seconds": seconds, "found": asdict(found)}) + "\n")


def _torture(options: argparse.Namespace, journal: TrialJournal, scratch: Path, console: Console) -> list[RankTrial]:
    with ExitStack() as ended:
        forges: queue.SimpleQueue[RankForge] = queue.SimpleQueue()
        first = ended.enter_context(RankForge())
        place = scratch / "undisturbed"
        place.mkdir()
        recording = RankRecording(first, place)
        run = {"seed": options.seed, "trials": options.trials, "torchrun": options.torchrun}
        calls = None if options.anew or options.only is not None else journal.take_up(run)
        if calls is None:
            calls = recording.names()
            if options.only is None:
                journal.begin(run, calls)
        elif journal.done:
            console.print(f"{len(journal.done):,} trials were done before", highlight=False)
        trials = plan(seed=options.seed, trials=options.trials, by_torchrun=options.torchrun, calls=calls)
        if options.only is not None:
            journal.done[options.only] = run_trial(trials[options.only], first, recording, scratch)
            return trials
        forges.put(first)
        for _ in range(options.workers - 1):
            forges.put(ended.enter_context(RankForge()))

        def work(number: int) -> tuple[int, TrialFindings]:
            forge = forges.get()
            try:
                return number, run_trial(trials[number], forge, recording, scratch)
            finally:
                forges.put(forge)

        _do_all(
            work, [number for number in range(len(trials)) if number not in journal.done], options, journal, console
        )
    return trials


def _do_all(
    work: Any, left: Sequence[int], options: argparse.Namespace, journal: TrialJournal, console: Console
) -> None:
    pool = ThreadPoolExecutor(options.workers)
    try:
        with report.progress(console, disable=not console.is_terminal) as progress:
            task = progress.add_task("trials of ranks", total=options.trials, completed=len(journal.done))
            for done in as_completed([pool.submit(work, number) for number in left]):
                journal.add(*done.result())
                progress.advance(task)
                if not console.is_terminal and len(journal.done) % _LINE_EVERY == 0:
                    problems = sum(len(found.problems) for found in journal.done.values())
                    console.print(
                        f"{len(journal.done):,} of {options.trials:,} trials, {problems} problems", highlight=False
                    )
    finally:
        # After an interrupt, what has not begun must not.
        pool.shutdown(cancel_futures=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.torture.checkpoint.ranks", description=__doc__)
    parser.add_argument("--trials", type=int, help=f"trials (default {_TRIALS:,})")
    parser.add_argument("--torchrun", type=int, help=f"how many of them torchrun starts (default {_BY_TORCHRUN})")
    parser.add_argument(
        "--quick", action="store_true", help=f"{_QUICK_TRIALS} trials, {_QUICK_BY_TORCHRUN} of them with torchrun"
    )
    parser.add_argument("--seed", type=int, default=1, help="what chance starts from (default 1)")
    parser.add_argument("--only", type=int, help="the number of one trial, to do that alone")
    parser.add_argument("--anew", action="store_true", help="do not go on with the trials of a run that was stopped")
    parser.add_argument("--workers", type=int, default=max(1, min(os.cpu_count() or 1, 8) // 2), help="trials at once")
    parser.add_argument("--folder", type=Path, help="the place of the checkpoints (default: that of temporary files)")
    parser.add_argument("--output", type=Path, default=_OUTPUT)
    options = parser.parse_args()
    options.journal = options.output.with_suffix(".journal.jsonl")
    if options.trials is None:
        options.trials = _QUICK_TRIALS if options.quick else _TRIALS
    if options.torchrun is None:
        options.torchrun = min(_QUICK_BY_TORCHRUN if options.quick else _BY_TORCHRUN, options.trials)
    return options


def _command(options: argparse.Namespace) -> str:
    chosen = f"--trials {options.trials} --torchrun {options.torchrun} --seed {options.seed}"
    # The journal is beside the verdict.
    output = "" if options.output == _OUTPUT else f" --output {options.output}"
    return f"python -m tests.torture.checkpoint.ranks {chosen}{output}"


def _table(groups: dict[str, TrialFindings], total: TrialFindings) -> Table:
    titles = ("trials", "kills", "steps\nlost", "mixed", "wrong\nends")
    table = report.table("trial", *titles, padding=(0, 2, 0, 0), pad_edge=False)
    for name, found in (*groups.items(), ("all", total)):
        if found.trials:
            figures = (found.trials, found.kills, found.lost, found.corrupt, found.wrong_ends)
            table.add_row(name, *(f"{figure:,}" for figure in figures))
    return table


def _digest_of_sources() -> str:
    """Name the sources of library and torture, because trials of others do not count."""
    digest = hashlib.sha256()
    for folder in (PROJECT / "training" / "spotkeep", PROJECT / "tests" / "torture" / "checkpoint"):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
