"""Measures checkpoints, compares them with targets, and writes them to a file (``python -m benchmarks.checkpoint``)."""

from __future__ import annotations

import argparse
import importlib.util
import math
import os
import shutil
import subprocess
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from benchmarks import report
from benchmarks.checkpoint import contenders, memory
from benchmarks.checkpoint.contenders import ASYNC_SAVES, BASELINE, CONTENDERS, OURS, Contender
from benchmarks.paired import PairedRatio, Seconds, paired_ratio
from benchmarks.report import STATE

TARGETS = {
    "extra_time_vs_allowance": 1.0,
    "extra_time_vs_best_async": 0.25,
    "call_vs_warm_copy": 0.25,
    "durable_vs_direct_write": 1.15,
    "restore_warm_vs_read": 1.2,
    "restore_cold_vs_direct_read": 1.1,
    "memory_vs_state": 1.1,
}
_OF_TORCH_SAVE, _OF_A_BARE_WRITE = 0.05, 1.15
"""The extra time of a save may be the larger of these shares of the two."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """One figure with a target.

    Attributes:
        key: One of `TARGETS`.
        paired: The ratios of the rounds, which are judged.
        minimum: The ratio of the minima: from the rounds least disturbed.
    """

    key: str
    paired: PairedRatio
    minimum: float

    @property
    def target(self) -> float:
        """At most this."""
        return TARGETS[self.key]

    def to_document(self) -> dict[str, Any]:
        """Return the figure as JSON. An end of an interval that is not known is null."""
        ends = [round(end, 3) if math.isfinite(end) else None for end in (self.paired.low, self.paired.high)]
        return {
            "value": round(self.paired.median, 3),
            "interval": ends,
            "of_minima": round(self.minimum, 3),
            "target": self.target,
            "verdict": self.paired.verdict(self.target),
        }


_GIB = 2**30
_STATES_OF_MEMORY = 4.5
"""The state, its gradients, Spotkeep's copy, the memory of the machine's figures, and a file in the page cache.

Asynchronous contenders have copies besides.
"""
_STATES_OF_DISK = 6
_ROUNDS = 30
_SHORT_FORM = "one round of a small state shows that it runs; its figures say nothing"


def main() -> int:
    """Measure, print tables, write JSON. Return 0 with any figures, since a benchmark does not judge."""
    options = _options()
    if importlib.util.find_spec("torch") is None:
        sys.stderr.write("This benchmark compares with torch, which is not installed here: run `make setup-torch`.\n")
        return 2
    sys.path.append(str(STATE / "bench" / "contenders"))
    warnings.simplefilter("ignore")  # The libraries we compare with warn about each other's and their own interfaces.
    shutil.rmtree(options.directory, ignore_errors=True)
    options.directory.mkdir(parents=True)
    console = Console()
    left_out = contenders.missing()
    for name, reason in left_out.items():
        console.print(f"left out: {name} ({reason})", markup=False, highlight=False)
    results: dict[str, Any] = {
        "left_out": left_out,
        "busy": options.busy,
        "sizes": {},
    }
    chosen = (OURS, BASELINE, *options.against)
    names = [name for name in CONTENDERS if name in chosen and name not in left_out]
    neighbour = _BusyCore() if options.busy else None
    try:
        for position, gib in enumerate(options.sizes_gib):
            problem = no_room(int(gib * _GIB), names, options.directory)
            if problem is not None:
                console.print(f"{gib:g} GiB left out: {problem}", highlight=False)
                continue
            results["sizes"][f"{gib:g}"] = document = _measure(
                names,
                int(gib * _GIB),
                options,
                console,
                memory_of=names if position == 0 and not options.quick else [OURS],
            )
            for name, reason in document["left_out"].items():
                console.print(f"left out: {name} ({reason})", markup=False, highlight=False)
            console.print(_contenders_table(gib, document))
            console.print(_limits_line(document), highlight=False)
            console.print(_targets_table(document))
            if options.quick:
                console.print(_SHORT_FORM, highlight=False)
            if document["stolen_share"] is not None:
                console.print(_stolen_line(document), highlight=False)
    finally:
        shutil.rmtree(options.directory, ignore_errors=True)
        if neighbour is not None:
            neighbour.stop()
    report.write(options.output, results, console, torch=version("torch"), processors=os.cpu_count())
    return 0


class _BusyCore:
    """A process that computes all the time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", "while True: pass"])

    def stop(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint", description=__doc__)
    parser.add_argument("--sizes-gib", type=float, nargs="+", default=[0.25, 1, 2], help="states (default 0.25 1 2)")
    parser.add_argument(
        "--rounds",
        type=int,
        default=_ROUNDS,
        help="counted rounds of each (default %(default)s)",
    )
    parser.add_argument(
        "--busy",
        action="store_true",
        help="beside a process that keeps one core busy for all of the time",
    )
    others = [name for name in CONTENDERS if name not in (OURS, BASELINE)]
    parser.add_argument(
        "--against",
        nargs="*",
        metavar="NAME",
        choices=others,
        default=others,
        help=f"only these beside {OURS} and {BASELINE}, or none (default all): " + ", ".join(others),
    )
    parser.add_argument("--quick", action="store_true", help="one small state, one round: shows that it runs")
    parser.add_argument(
        "--directory",
        type=Path,
        default=STATE / "bench" / "checkpoints",
        help="an empty place on the disk to measure; removed afterwards",
    )
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "checkpoint.json")
    options = parser.parse_args()
    if options.quick:
        options.sizes_gib, options.rounds = [1 / 64], 1
    return options


def _measure(
    names: list[str], state_bytes: int, options: argparse.Namespace, console: Console, *, memory_of: list[str]
) -> dict[str, Any]:
    from benchmarks.checkpoint.machine import Machine, StolenTime
    from benchmarks.checkpoint.measurement import Course
    from benchmarks.checkpoint.workload import Workload

    rounds = options.rounds
    columns = (TextColumn("{task.description:<46}"), BarColumn(), TimeElapsedColumn())
    total = len(memory_of) + len(names) + rounds * (len(names) + 2)
    # Drawn only when a figure is in: a thread that draws would take part in what is measured.
    with Progress(*columns, console=console, transient=True, auto_refresh=False) as progress:
        task = progress.add_task("", total=total)

        def advance() -> None:
            progress.advance(task)
            progress.refresh()

        def say(what: str) -> None:
            progress.update(task, description=f"{state_bytes / _GIB:g} GiB: {what}", refresh=True)

        memory_states: dict[str, float] = {}
        left_out: dict[str, str] = {}
        for name in memory_of:
            say(f"memory of {name}")
            try:
                found = memory.measure(name, state_bytes=state_bytes, directory=options.directory / "memory")
                memory_states[name] = found["states"]
            except subprocess.SubprocessError as error:
                if name == OURS:
                    raise
                left_out[name] = f"measuring its memory: {error}"
            advance()
        workload = Workload(state_bytes=state_bytes)
        machine = Machine(options.directory, size_bytes=workload.state_bytes)
        directories = {name: options.directory / f"{number:02d}" for number, name in enumerate(names)}
        entrants: dict[str, Contender] = {}
        try:
            for name in [name for name in names if name not in left_out]:
                entrants[name] = CONTENDERS[name](workload, directories[name])
            course = Course(workload, entrants, machine, advance=advance)
            say("warming up")
            course.warm_up()
            stolen = StolenTime()
            for number in range(rounds):
                say(f"saves, round {number + 1} of {rounds}")
                course.measure_saves(number)
            for number in range(rounds):
                say(f"restores, round {number + 1} of {rounds}")
                course.measure_restores(directories[OURS])
            stolen_share = stolen.share()
        finally:
            for entrant in entrants.values():
                entrant.close()
            machine.clear()
    saves = {name: measured.to_document() for name, measured in course.saves.items()}
    for name in saves.keys() & memory_states.keys():
        saves[name]["memory_states"] = memory_states[name]
    ratios = _ratios(course, memory_states[OURS])
    return {
        "state_bytes": workload.state_bytes,
        "tensors": len(workload.flat_state),
        "rounds": rounds,
        "saves": saves,
        "left_out": {**left_out, **course.left_out},
        "best_async": _best_async(course),
        "restores": course.restores.to_document(),
        "cached_share_when_cold": round(course.cached_share_when_cold, 3),
        "machine": course.limits.to_document(),
        "stolen_share": None if stolen_share is None else round(stolen_share, 3),
        "ratios": {ratio.key: ratio.to_document() for ratio in ratios},
    }


def _best_async(course: Any) -> str | None:
    found = [name for name in ASYNC_SAVES if name in course.saves]
    return min(found, key=lambda name: course.saves[name]["extra"].median, default=None)


def _ratios(course: Any, memory_states: float) -> list[Ratio]:
    ours, limits, best_async = course.saves[OURS], course.limits, _best_async(course)

    def against(key: str, figure: Seconds, other: Seconds) -> Ratio:
        return Ratio(key=key, paired=paired_ratio(figure.rounds, other.rounds), minimum=figure.minimum / other.minimum)

    allowed = Seconds(
        rounds=tuple(
            max(_OF_TORCH_SAVE * torch_save, _OF_A_BARE_WRITE * bare)
            for torch_save, bare in zip(
                course.saves[BASELINE]["extra"].rounds, limits["extra_of_a_bare_write"].rounds, strict=True
            )
        )
    )
    in_memory = PairedRatio(median=memory_states, low=memory_states, high=memory_states)
    ratios = [
        against("extra_time_vs_allowance", ours["extra"], allowed),
        against("call_vs_warm_copy", ours["call"], limits["warm_copy"]),
        against("durable_vs_direct_write", ours["durable"], limits["direct_write"]),
        against("restore_warm_vs_read", course.restores["warm"], limits["read_warm"]),
        against("restore_cold_vs_direct_read", course.restores["cold"], limits["direct_read"]),
        Ratio(key="memory_vs_state", paired=in_memory, minimum=memory_states),
    ]
    if best_async is not None:
        ratios.insert(1, against("extra_time_vs_best_async", ours["extra"], course.saves[best_async]["extra"]))
    return ratios


def no_room(state_bytes: int, names: Sequence[str], directory: Path) -> str | None:
    """Say why a comparison cannot run here. None where it can.

    Args:
        state_bytes: Size of the state in bytes.
        names: The contenders.
        directory: A place on the disk to measure.
    """
    free = shutil.disk_usage(directory).free
    if free < _STATES_OF_DISK * state_bytes:
        return f"it needs {_STATES_OF_DISK * state_bytes / _GIB:.1f} GiB of disk and {free / _GIB:.1f} are free"
    available = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":") for line in meminfo.read_text(encoding="ascii").splitlines())
        available = int(lines["MemAvailable"].split()[0]) * 1024
    needed = int((_STATES_OF_MEMORY + contenders.copies_beside(names)) * state_bytes)
    if available < needed:
        return (
            f"the comparison needs {needed / _GIB:.1f} GiB of memory and {available / _GIB:.1f} are available; it "
            "needs less with fewer asynchronous contenders (--against)"
        )
    return None


def _contenders_table(gib: float, document: dict[str, Any]) -> Table:
    title = f"{gib:g} GiB, rounds: {document['rounds']}"
    table = report.table(title, "extra time", "at best", "call", "durable", "memory")
    for name, figures in document["saves"].items():
        states = figures.get("memory_states")
        table.add_row(
            name,
            f"{figures['extra']['median_s']:.3f} s",
            f"{figures['extra']['min_s']:.3f} s",
            f"{figures['call']['median_s']:.3f} s",
            f"{figures['durable']['median_s']:.3f} s",
            "" if states is None else f"{states:.2f}x",
        )
    return table


def _limits_line(document: dict[str, Any]) -> str:
    limits = {name.replace("_", " "): figures["median_s"] for name, figures in document["machine"].items()}
    restores = {f"restore {name}": figures["median_s"] for name, figures in document["restores"].items()}
    return "  ".join(f"{name} {seconds:.3f} s" for name, seconds in {**limits, **restores}.items())


def _stolen_line(document: dict[str, Any]) -> str:
    return f"the host gave {document['stolen_share']:.0%} of these processors' time to others meanwhile"


def _targets_table(document: dict[str, Any]) -> Table:
    table = report.table("figure", "ratio", "95%", "at best", "at most", "", padding=(0, 2, 0, 0), pad_edge=False)
    for key in (key for key in TARGETS if key in document["ratios"]):
        ratio = document["ratios"][key]
        interval = " to ".join("?" if end is None else f"{end:.2f}" for end in ratio["interval"])
        figures = (f"{ratio['value']:.2f}", interval, f"{ratio['of_minima']:.2f}", f"{ratio['target']:g}")
        table.add_row(key.replace("_", " "), *figures, ratio["verdict"])
    return table


if __name__ == "__main__":
    sys.exit(main())
