"""Measures the loss of a node, and saves by eight ranks (``python -m benchmarks.nodes``).

All is measured in turn, in one run, and judged by ratios. A node is lost without notice. Both sides run the same
training, with two ranks on each of two nodes of this machine, and go on with one. The times of torchrun's rendezvous
are in `benchmarks.nodes.torchrun`.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.control import measures
from benchmarks.nodes import saves, torchrun
from benchmarks.nodes.ours import PHASES, LostNodes
from benchmarks.paired import paired_ratio
from benchmarks.report import STATE
from spotkeep_local import lifecycle
from spotkeep_local.hosts.isolation import Isolation
from spotkeep_local.lifecycle import LocalAws
from spotkeep_local.options import ServerOptions
from tests.models.fleet_site import Site

MOST_OF_RESTART: Final = 1.3
"""The most that the loss of another node may take, to torchrun's own restart."""
MOST_OF_NEW_WORLD: Final = 1.0
"""The most that the loss of the leader may take, to a world of torchrun that is started anew from its checkpoint."""
_OTHER: Final = "another node lost"
_FIRST: Final = "the first node lost"
_LOSSES: Final = ("other_node_lost", "first_node_lost")


def main() -> int:
    """Measure, print tables, write JSON. Returns 0 when no target is missed, 1 otherwise."""
    options = _options()
    console = Console()
    folder = options.directory / "nodes"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with measures.quiet():
        node_events = measures.node_events()
    found: dict[str, dict[str, list[float]]] = {name: {"spotkeep": [], "torchrun": []} for name in (_OTHER, _FIRST)}
    phases: dict[str, list[dict[str, float]]] = {name: [] for name in found}
    # Ranks and runners of both sides see that the connections of a node are closed. A host with a network of its own
    # leaves without a word, and ranks of torchrun then wait for half an hour. c10d's rendezvous sees no connection. It
    # waits for signs of life that do not come, and then for its last call (`benchmarks.nodes.torchrun`). Both are as
    # short as torchrun allows with its own number of signs, and are a part of its restart.
    # Agents that look as seldom as on AWS, and as many seconds until EC2 says that an instance is gone.
    server = replace(ServerOptions.fast(), isolation=Isolation.RELOCATED, agent_time_scale=1.0)
    try:
        with console.status("saves by one rank and by eight") as status:
            of_saves = [saves.measure(mib=mib, rounds=max(options.rounds, 3)) for mib in options.state_mib]
            local = lifecycle.start(folder / "aws", port=lifecycle.free_port(), options=server)
            for number in range(options.rounds):
                for name, seconds in found.items():
                    status.update(f"round {number + 1} of {options.rounds}: {name}")
                    seconds["torchrun"].append(_of_torchrun(folder / f"torchrun-{number}-{name}", name))
                    ours, of_phases = _of_spotkeep(local, name)
                    seconds["spotkeep"].append(ours)
                    phases[name].append(of_phases)
    finally:
        lifecycle.stop(folder / "aws")
        shutil.rmtree(folder, ignore_errors=True)
    document: dict[str, Any] = {
        "load_at_the_end": os.getloadavg()[0],
        "rendezvous_of_torchrun": {
            "last_call_s": torchrun.LAST_CALL_SECONDS,
            "keep_alive_s": torchrun.KEEP_ALIVE_SECONDS,
            "keep_alive_attempts": torchrun.KEEP_ALIVE_ATTEMPTS,
        },
        "other_node_lost": _compared(found[_OTHER], phases[_OTHER], target=MOST_OF_RESTART),
        "first_node_lost": _compared(found[_FIRST], phases[_FIRST], target=MOST_OF_NEW_WORLD),
        "saves": of_saves,
        "node_events": asdict(node_events),
    }
    console.print(_table(document))
    console.print(_phases_table(document))
    report.write(options.output, document, console, processors=os.cpu_count())
    judged = [document["other_node_lost"], document["first_node_lost"], *of_saves]
    missed = not node_events.kept or any(row["verdict"] == "not met" for row in judged)
    return 1 if missed else 0


def _of_torchrun(folder: Path, name: str) -> float:
    world = torchrun.TorchrunWorld(folder)
    try:
        return world.lose_other() if name == _OTHER else world.lose_store()
    finally:
        world.close()


def _of_spotkeep(local: LocalAws, name: str) -> tuple[float, dict[str, float]]:
    nodes = LostNodes(Site(local))
    try:
        seconds = nodes.lose_other() if name == _OTHER else nodes.lose_leader()
        return seconds, nodes.phases
    finally:
        nodes.close()


def _compared(
    seconds: Mapping[str, Sequence[float]], phases: Sequence[Mapping[str, float]], *, target: float
) -> dict[str, Any]:
    ratio = paired_ratio(seconds["spotkeep"], seconds["torchrun"])
    return {
        **{f"{side}_s": [round(each, 3) for each in of_side] for side, of_side in seconds.items()},
        "phases_s": {name: round(median(each[name] for each in phases), 3) for name in PHASES},
        "ratio": round(ratio.median, 3),
        "target": target,
        "verdict": ratio.verdict(target),
    }


def _phases_table(document: Mapping[str, Any]) -> Table:
    table = report.table("seconds, of the medians", _OTHER, _FIRST)
    for name, what in PHASES.items():
        table.add_row(what, *(f"{document[row]['phases_s'][name]:.2f}" for row in _LOSSES))
    return table


def _table(document: Mapping[str, Any]) -> Table:
    table = report.table("", "Spotkeep", "beside", "ratio", "at most", "")
    for name, what in (("other_node_lost", "another node lost, s"), ("first_node_lost", "the first node lost, s")):
        row = document[name]
        ours, other = (f"{median(row[f'{side}_s']):.1f}" for side in ("spotkeep", "torchrun"))
        table.add_row(what, ours, f"{other} torchrun", f"{row['ratio']:.2f}", f"{row['target']}", row["verdict"])
    for row in document["saves"]:
        eight, one = (f"{median(row['ns_a_byte'][str(ranks)]):.2f}" for ranks in (saves.RANKS, 1))
        what = f"a save of {row['mib']:,} MiB by {saves.RANKS} ranks, ns a byte"
        table.add_row(what, eight, f"{one} one rank", f"{row['ratio']:.2f}", f"{row['target']}", row["verdict"])
    of_event = document["node_events"]["figures"]["most"]
    kept = "met" if document["node_events"]["kept"] else "not met"
    table.add_row(
        "calls of AWS, an event of a node", str(of_event), "", "", str(measures.MOST_CALLS_A_NODE_EVENT), kept
    )
    return table


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one round, and a small state")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--state-mib", type=int, nargs="+", default=[512, 4096],
        help="the states that are saved, of all ranks together (default 512 4096)",
    )  # fmt: skip
    parser.add_argument("--directory", type=Path, default=STATE / "bench")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "nodes.json")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.state_mib = 1, [64]
    return options


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)  # of the whole process, so not where others call `main`
    sys.exit(main())
