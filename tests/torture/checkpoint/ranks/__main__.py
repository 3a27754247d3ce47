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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import AbstractContextManager, ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.report import PROJECT, STATE
from tests.torture.checkpoint.ranks.trials import GROUPS, RankRecording, plan, run_trial
from tests.torture.checkpoint.ranks.world import RankForge
from tests.torture.checkpoint.trials import TrialFindings

_TRIALS, _BY_TORCHRUN = 1000, 30
_QUICK_BY_TORCHRUN = 1
_LINE_EVERY = 25


@dataclass(frozen=True, kw_only=True)
class Torture:
    """The kind of trials.

    Attributes:
        name: The name of the package beside this one.
        groups: The rows of the table.
        new_forge: Makes what forks the ranks of one trial at a time.
        record: Makes an undisturbed recording in a folder.
        plan: Draws the trials.
        run_trial: Does one.
        quick_trials: The trials of the short form. torchrun starts one of them.
    """

    name: str
    groups: Sequence[str]
    new_forge: Callable[[], AbstractContextManager[Any]]
    record: Callable[[Any, Path], Any]
    plan: Callable[..., list[Any]]
    run_trial: Callable[[Any, Any, Any, Path], TrialFindings]
    quick_trials: int

    @property
    def output(self) -> Path:
        """The file of the verdict."""
        return STATE / "torture" / f"checkpoint-{self.name}.json"


RANKS = Torture(
    name="ranks",
    groups=GROUPS,
    new_forge=RankForge,
    record=RankRecording,
    plan=plan,
    run_trial=run_trial,
    quick_trials=40,
)


def main(torture: Torture = RANKS) -> int:
    """Run the trials, print a table, write JSON. Returns 0 when nothing broke, 1 otherwise, 130 when stopped."""
    options = _options(torture)
    console = Console()
    started = time.monotonic()
    journal = TrialJournal(options.journal)
    # A shell lets what runs in its background ignore Ctrl-C.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix=f"torture-{torture.name}-", dir=options.folder) as scratch:
            trials = _torture(torture, options, journal, Path(scratch), console)
    except KeyboardInterrupt:
        console.print(f"\nStopped after {len(journal.done):,} of {options.trials:,} trials.")
        console.print(f"Next: {_command(torture, options)}", soft_wrap=True, markup=False)
        return 130
    seconds = round(time.monotonic() - started + journal.seconds_before, 1)
    found = [journal.done[number] for number in sorted(journal.done)]
    total = sum(found, TrialFindings())
    groups = {
        group: sum((journal.done[number] for number in journal.done if trials[number].group == group), TrialFindings())
        for group in torture.groups
    }
    console.print(_table(groups, total))
    broken = [(number, problem) for number in sorted(journal.done) for problem in journal.done[number].problems]
    for number, problem in broken[:20]:
        console.print(f"BROKEN  trial {number}, {problem}", style="red", markup=False, highlight=False)
    verdict = "nothing broke" if not total.problems else f"{len(total.problems)} problems"
    console.print(
        f"\n{verdict}: {total.trials:,} trials, {total.kills:,} kills, {total.lost:,} lost, {total.corrupt:,} mixed, "
        f"{seconds:,} s, seed {options.seed}"
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
    again = f"{_command(torture, options)} --only {broken[0][0]}" if broken else f"{_program(torture)} --help"
    console.print(f"Next: {again}", soft_wrap=True, markup=False)
    if options.only is None and not broken:
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

    def take_up(self, run: dict[str, Any], *, of_any_sources: bool = False) -> list[list[str]] | None:
        """Read what an earlier process has done of the same run. Gives the calls of its plan, None for no such run."""
        if not self.path.exists():
            return None
        lines = [json.loads(line) for line in self.path.read_text().splitlines(keepends=True) if line.endswith("\n")]
        sources = lines[0]["sources"] if lines and of_any_sources else self.sources
        if not lines or {**lines[0], "calls": None} != {**run, "sources": sources, "calls": None}:
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


def _torture(
    torture: Torture, options: argparse.Namespace, journal: TrialJournal, scratch: Path, console: Console
) -> list[Any]:
    with ExitStack() as ended:
        forges: queue.SimpleQueue[Any] = queue.SimpleQueue()
        first = ended.enter_context(torture.new_forge())
        place = scratch / "undisturbed"
        place.mkdir()
        recording = torture.record(first, place)
        run = {"seed": options.seed, "trials": options.trials, "torchrun": options.torchrun}
        only = options.only is not None
        # A trial is found by its number in the plan that it was drawn in, also after its cause is mended.
        calls = None if options.anew else journal.take_up(run, of_any_sources=only)
        if only:
            journal.done.clear()
        if calls is None:
            calls = recording.names()
            if not only:
                journal.begin(run, calls)
        elif journal.done:
            console.print(f"{len(journal.done):,} trials were done before", highlight=False)
        trials = torture.plan(seed=options.seed, trials=options.trials, by_torchrun=options.torchrun, calls=calls)
        if only:
            journal.done[options.only] = torture.run_trial(trials[options.only], first, recording, scratch)
            return trials
        console.print(f"{options.trials:,} trials are drawn from seed {options.seed}", highlight=False)
        forges.put(first)
        for _ in range(options.workers - 1):
            forges.put(ended.enter_context(torture.new_forge()))

        def work(number: int) -> tuple[int, TrialFindings]:
            forge = forges.get()
            try:
                return number, torture.run_trial(trials[number], forge, recording, scratch)
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
            task = progress.add_task(f"trials of {options.name}", total=options.trials, completed=len(journal.done))
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


def _options(torture: Torture) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=_program(torture), description=sys.modules["__main__"].__doc__)
    parser.add_argument("--trials", type=int, help=f"trials (default {_TRIALS:,})")
    parser.add_argument("--torchrun", type=int, help=f"how many of them torchrun starts (default {_BY_TORCHRUN})")
    parser.add_argument(
        "--quick",
        action="store_true",
        help=f"{torture.quick_trials} trials, {_QUICK_BY_TORCHRUN} of them with torchrun",
    )
    parser.add_argument("--seed", type=int, default=1, help="what chance starts from (default 1)")
    parser.add_argument("--only", type=int, help="the number of one trial, to do that alone")
    parser.add_argument("--anew", action="store_true", help="do not go on with the trials of an earlier run")
    parser.add_argument("--workers", type=int, default=max(1, min(os.cpu_count() or 1, 8) // 2), help="trials at once")
    parser.add_argument("--folder", type=Path, help="the place of the checkpoints (default: that of temporary files)")
    parser.add_argument("--output", type=Path, default=torture.output)
    options = parser.parse_args()
    options.name = torture.name
    options.journal = options.output.with_suffix(".journal.jsonl")
    if options.trials is None:
        options.trials = torture.quick_trials if options.quick else _TRIALS
    if options.torchrun is None:
        options.torchrun = min(_QUICK_BY_TORCHRUN if options.quick else _BY_TORCHRUN, options.trials)
    return options


def _command(torture: Torture, options: argparse.Namespace) -> str:
    chosen = f"--trials {options.trials} --torchrun {options.torchrun} --seed {options.seed}"
    # The journal is beside the verdict.
    output = "" if options.output == torture.output else f" --output {options.output}"
    return f"{_program(torture)} {chosen}{output}"


def _program(torture: Torture) -> str:
    return f"python -m tests.torture.checkpoint.{torture.name}"


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
    tests = PROJECT / "tests"
    for folder in (PROJECT / "training", tests / "torture" / "checkpoint", tests / "spotkeep_agent" / "training"):
        for path in sorted(folder.rglob("*.py")):
            if not path.name.startswith("test_"):
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
