"""Measures everything with a target and writes it to a file (``python -m benchmarks``)."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import launcher, rehearsal, report, synth
from benchmarks.report import PROJECT, STATE
from spotkeep_local import cdk, lifecycle


def main() -> int:
    """Measure, print a table, write JSON. Return 0 with any figures, since a benchmark does not judge."""
    options = _options()
    console = Console()
    results: dict[str, Any] = {}
    stages: dict[str, Callable[[], dict[str, Any]]] = {
        "rehearsal": lambda: rehearsal.measure(project_dir=PROJECT, rounds=options.rehearsals),
        "synth": lambda: synth.measure(project_dir=PROJECT, rounds=options.rounds),
        "launcher_initialisation": lambda: launcher.measure_initialisation(project_dir=PROJECT, rounds=options.rounds),
        "deployed": lambda: _measure_deployed(rounds=10 * options.rounds),
    }
    for name, measure in stages.items():
        with console.status(f"measuring {name.replace('_', ' ')}"):
            results[name] = measure()
    console.print(_table(results))
    report.write(options.output, results, console)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds of each pair (default 5)")
    parser.add_argument("--rehearsals", type=int, default=3, help="whole rehearsals (default 3)")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "whole-way.json")
    return parser.parse_args()


def _measure_deployed(*, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        state_dir = Path(scratch) / "local"
        local = lifecycle.start(state_dir, port=lifecycle.free_port())
        try:
            cdk.bootstrap(local, project_dir=PROJECT)
            cdk.deploy(local, project_dir=PROJECT)
            session = local.session()
            parameter = session.client("ssm").get_parameter(Name="/spotkeep/connection")["Parameter"]["Value"]
            return {
                "warm_invocation": launcher.measure_warm_invocation(
                    client=session.client("lambda"), function=json.loads(parameter)["launcher_function"], rounds=rounds
                ),
                "packages": {"bytes": _bytes_of_assets(state_dir / "cdk.out")},
            }
        finally:
            lifecycle.stop(state_dir)


def _bytes_of_assets(assembly_dir: Path) -> dict[str, int]:
    """Return the uncompressed bytes of each asset of a cloud assembly, by its display name."""
    sizes: dict[str, int] = {}
    for manifest in sorted(assembly_dir.glob("*.assets.json")):
        for asset in json.loads(manifest.read_text())["files"].values():
            path = assembly_dir / asset["source"]["path"]
            if not path.name.endswith(".template.json"):
                files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
                sizes[asset.get("displayName", path.name)] = sum(file.stat().st_size for file in files)
    return sizes


def _table(results: dict[str, Any]) -> Table:
    table = report.table("what", "measured", "target", justify="left")
    rehearsed, synthesized, started = (results[key] for key in ("rehearsal", "synth", "launcher_initialisation"))
    walls = ", ".join(f"{wall:.0f}" for wall in rehearsed["wall_s"])
    table.add_row("rehearsal after set-up", f"{walls} s", f"at most {rehearsed['target_s']:g} s")
    for kind, what in (("judgement", "synth with the rules, minus without"), ("stacks", "that, minus an empty app")):
        extra = synthesized[kind]
        table.add_row(
            what,
            f"{extra['extra_s']:.2f} s ({extra['with']['median_s']:.2f} - {extra['without']['median_s']:.2f})",
            f"at most {extra['target_s']:g} s",
        )
    table.add_row(
        "launcher start / bare boto3 client",
        f"{started['ratio']:.2f}",
        f"at most {started['target_ratio']:g}",
    )
    table.add_row("warm launcher invocation", f"{results['deployed']['warm_invocation']['median_s'] * 1000:.0f} ms", "")
    for name, size in results["deployed"]["packages"]["bytes"].items():
        table.add_row(f"size of {name}", f"{size / 1000:,.0f} kB", "")
    return table


if __name__ == "__main__":
    sys.exit(main())
