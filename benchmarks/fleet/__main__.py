"""Measures recoveries on EC2 instances and compares them with targets (``python -m benchmarks.fleet``)."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.fleet.recoveries import Floor, Goodbye, InstanceRecovery, MeasuredFleet
from benchmarks.report import STATE
from spotkeep_local import lifecycle
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.options import ServerOptions
from tests.models.fleet_site import Site

MOST_TIMES_THE_FLOOR = 2.0
MOST_CALLS = 13
_REPORTED_AFTERWARDS = Counter({"logs:PutLogEvents": 1})
"""Calls for output that an instance printed before the first step. It may send them before that step or after it."""


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The measurements with a state of one size.

    Attributes:
        state_mib: The size of the state in MiB.
        floor_s: The least seconds of each round, in which the process starts, gets its checkpoint and takes a step.
        recoveries: The recovery of each round without notice and without migration.
        noticed: Recoveries after a notice, without migration.
        migrated: Recoveries with migration.
        goodbyes: The results of the notices.
    """

    state_mib: int
    floor_s: Sequence[float]
    recoveries: Sequence[InstanceRecovery]
    noticed: Sequence[InstanceRecovery]
    migrated: Sequence[InstanceRecovery]
    goodbyes: Sequence[Goodbye]

    @property
    def times_the_floor(self) -> float:
        """The median recovery by the median floor."""
        return median(recovery.seconds for recovery in self.recoveries) / median(self.floor_s)

    @property
    def of_minima(self) -> float:
        """The same of the rounds that were least disturbed."""
        return min(recovery.seconds for recovery in self.recoveries) / min(self.floor_s)

    @property
    def calls(self) -> Mapping[str, int]:
        """The AWS calls of the recovery that made the most, by name."""
        most = max(self.recoveries, key=lambda recovery: sum(recovery.calls.values()))
        return dict(sorted((Counter(most.calls) | _REPORTED_AFTERWARDS).items()))

    @property
    def kept(self) -> bool:
        """True when the figures keep the targets."""
        return self.times_the_floor <= MOST_TIMES_THE_FLOOR and sum(self.calls.values()) <= MOST_CALLS

    def phases_s(self, recoveries: Sequence[InstanceRecovery]) -> Mapping[str, float]:
        """Return the median of each phase."""
        names = dict.fromkeys(name for recovery in recoveries for name in recovery.phases_s)
        return {name: round(median(one.phases_s.get(name, 0.0) for one in recoveries), 3) for name in names}

    def document(self) -> Mapping[str, object]:
        """Return the figures as JSON values."""
        return {
            "state_mib": self.state_mib,
            "floor_s": list(self.floor_s),
            "recovery_s": [round(recovery.seconds, 3) for recovery in self.recoveries],
            "phases_s": self.phases_s(self.recoveries),
            "times_the_floor": round(self.times_the_floor, 3),
            "of_minima": round(self.of_minima, 3),
            "calls": self.calls,
            "after_a_notice": {"phases_s": self.phases_s(self.noticed), "calls": [dict(o.calls) for o in self.noticed]},
            "with_migration": {
                "phases_s": self.phases_s(self.migrated),
                "calls": [dict(one.calls) for one in self.migrated],
            },
            "goodbyes": [vars(goodbye) for goodbye in self.goodbyes],
            "targets": {"times_the_floor": MOST_TIMES_THE_FLOOR, "calls": MOST_CALLS},
            "kept": self.kept,
        }


def main() -> int:
    """Measure, print tables, write JSON. Returns 0 when every target is kept, 1 otherwise."""
    options = _options()
    console = Console()
    folder = options.directory / "fleet"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # Agents that poll as seldom as on AWS: how soon a notice is heard is measured.
    server = replace(ServerOptions.fast(), isolation=options.isolation, agent_time_scale=1.0)
    try:
        local = lifecycle.start(folder / "aws", port=lifecycle.free_port(), options=server)
        instances = Site(local).control.platform()
        with console.status("launching") as status:
            figures = [
                _measured(local, folder, state_mib=size, rounds=options.rounds, say=status.update)
                for size in options.state_mib
            ]
    finally:
        lifecycle.stop(folder / "aws")
        shutil.rmtree(folder, ignore_errors=True)
    document = {
        "load_at_the_end": os.getloadavg()[0],
        "instances": instances.isolation,
        "kept": all(found.kept for found in figures),
        "sizes": [found.document() for found in figures],
    }
    console.print(_recoveries(figures))
    console.print(_goodbyes(figures))
    console.print(_targets(figures))
    report.write(options.output, document, console, processors=os.cpu_count())
    return 0 if document["kept"] else 1


def _measured(
    local: lifecycle.LocalAws, folder: Path, *, state_mib: int, rounds: int, say: Callable[[str], None]
) -> Figures:
    site = Site(local)
    floor = Floor(folder / f"floor-{state_mib}", state_mib=state_mib)
    floors: list[float] = []
    recoveries: list[InstanceRecovery] = []
    noticed: list[InstanceRecovery] = []
    migrated: list[InstanceRecovery] = []
    goodbyes: list[Goodbye] = []
    try:
        say(f"{state_mib} MiB: the first instance")
        fleet = MeasuredFleet(site, state_mib=state_mib)
        for number in range(rounds):
            say(f"{state_mib} MiB: recovery {number + 1} of {rounds}")
            floors.append(floor.seconds())
            recoveries.append(fleet.lose())
        for elsewhere, found in ((False, noticed), (True, migrated)) * max(rounds // 3, 1):
            say(f"{state_mib} MiB: a notice{', and a move to another zone' if elsewhere else ''}")
            goodbye, recovery = fleet.notice(elsewhere=elsewhere)
            goodbyes.append(goodbye)
            found.append(recovery)
    finally:
        site.close()
        floor.clear()
    return Figures(
        state_mib=state_mib,
        floor_s=floors,
        recoveries=recoveries,
        noticed=noticed,
        migrated=migrated,
        goodbyes=goodbyes,
    )


def _recoveries(figures: list[Figures]) -> Table:
    table = report.table(
        "seconds, medians", *(f"{found.state_mib} MiB" for found in figures), "", "moved to another zone"
    )
    kept = [found.phases_s(found.recoveries) for found in figures]
    moved = figures[-1].phases_s(figures[-1].migrated)
    for phase in dict.fromkeys([*kept[0], *moved]):
        table.add_row(phase, *(f"{found.get(phase, 0.0):.2f}" for found in kept), "", f"{moved.get(phase, 0.0):.2f}")
    whole = [f"{sum(found.values()):.2f}" for found in kept]
    table.add_row("from boot to the first step", *whole, "", f"{sum(moved.values()):.2f}")
    table.add_row("the floor", *(f"{sorted(found.floor_s)[len(found.floor_s) // 2]:.2f}" for found in figures), "", "")
    return table


def _goodbyes(figures: list[Figures]) -> Table:
    table = report.table("after a notice, seconds", "heard", "durable", "in S3", "left", "steps lost")
    for found in figures:
        for goodbye in found.goodbyes:
            uploaded = "" if goodbye.uploaded_s is None else f"{goodbye.uploaded_s:.1f}"
            table.add_row(
                f"{found.state_mib} MiB",
                f"{goodbye.heard_s:.1f}",
                f"{goodbye.durable_s:.1f}",
                uploaded,
                f"{goodbye.left_s:.1f}",
                str(goodbye.steps_lost),
            )
    return table


def _targets(figures: list[Figures]) -> Table:
    table = report.table("target", *(f"{found.state_mib} MiB" for found in figures), "")
    by_floor = [found.times_the_floor for found in figures]
    least_disturbed = [f"{found.of_minima:.2f}" for found in figures]
    calls = [sum(found.calls.values()) for found in figures]
    for target, measured, most in (
        (f"at most {MOST_TIMES_THE_FLOOR:.0f} times the floor", by_floor, MOST_TIMES_THE_FLOOR),
        (f"at most {MOST_CALLS} AWS calls", calls, MOST_CALLS),
    ):
        verdict = "kept" if all(value <= most for value in measured) else "MISSED"
        table.add_row(target, *(f"{value:.2f}".removesuffix(".00") for value in measured), verdict)
    table.add_row("  in the rounds least disturbed", *least_disturbed, "", style="dim")
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="recoveries of each size (default 9)")
    parser.add_argument(
        "--state-mib", type=int, nargs="+", default=[64, 256], help="sizes of the state (default 64 256)"
    )
    parser.add_argument(
        "--isolation",
        type=Isolation,
        choices=list(Isolation),
        default=Isolation.AUTO,
        help="what instances are: namespace (hosts with block devices), relocated (directories), auto",
    )
    parser.add_argument("--directory", type=Path, default=STATE / "bench" / "work")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "fleet.json")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
