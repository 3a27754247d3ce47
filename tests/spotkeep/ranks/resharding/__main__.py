"""Restores checkpoints of n ranks by m ranks, n and m up to 8: ``python -m tests.spotkeep.ranks.resharding``."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.report import STATE
from tests.spotkeep.ranks.resharding.pool import SIZE, RankPool, WorldError
from tests.spotkeep.ranks.resharding.verdict import Pair, Verdict, verdict_on

KINDS = (
    "fsdp", "tensor parallel", "hybrid", "pipeline", "older fsdp", "ddp to fsdp", "fsdp to ddp", "wide"
)  # fmt: skip
"""The names of `models.KINDS`, which takes torch to import."""

SEED = 11


def main() -> int:
    """Run the pairs, print tables, write JSON. Returns 0 when all are equal, 1 otherwise."""
    options = _options()
    console = Console()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="reshard-", dir=options.folder) as folder, RankPool() as pool:
        verdicts = _verdicts(options, Path(folder), pool, console)
    problems = [verdict for verdict in verdicts if verdict.problems]
    seconds = round(time.monotonic() - started, 1)
    for verdict in problems[:10]:
        _say_problems(verdict, console)
    console.print(_matrix(verdicts))
    console.print(_kinds_table(verdicts))
    said = "all equal to DCP, to the bit" if not problems else f"{len(problems)} of {len(verdicts)} differ"
    console.print(f"\n{said}: {len(verdicts)} restores, {seconds:,} s")
    figures = {"seconds": seconds, "equal": not problems, "pairs": [asdict(verdict) for verdict in verdicts]}
    report.write(options.output, figures, console, processors=os.cpu_count())
    if problems:
        pair = problems[0].pair
        console.print(
            f'Next: make test-reshard RESHARD=\'--kinds "{pair.kind}" --saved-by {pair.saved_by} '
            f"--restored-by {pair.restored_by}'",
            soft_wrap=True,
        )
    else:
        console.print("Next: make test-reshard RESHARD=--help")
    return 1 if problems else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.spotkeep.ranks.resharding", description=__doc__)
    ranks = {"type": int, "nargs": "+", "choices": range(1, SIZE + 1), "default": [*range(1, SIZE + 1)]}
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--saved-by", **ranks, metavar="N", help="numbers of ranks that save (default: 1 to 8)")
    parser.add_argument("--restored-by", **ranks, metavar="M", help="numbers of ranks that restore (default: 1 to 8)")
    parser.add_argument("--folder", type=Path, help="the place of the checkpoints (default: that of temporary files)")
    parser.add_argument("--output", type=Path, default=STATE / "reshard" / "reshard.json")
    return parser.parse_args()


def _verdicts(options: argparse.Namespace, folder: Path, pool: RankPool, console: Console) -> list[Verdict]:
    found: list[Verdict] = []
    with report.progress(console, disable=not console.is_terminal) as progress:
        for kind in options.kinds:
            task = progress.add_task(kind, total=len(options.saved_by) * len(options.restored_by))
            for saved_by in options.saved_by:
                of_save: list[Verdict] = []
                for verdict in verdicts_of_save(
                    pool, folder, kind=kind, saved_by=saved_by, restored_by=options.restored_by
                ):
                    of_save.append(verdict)
                    progress.advance(task)
                if not console.is_terminal:
                    equal = sum(not verdict.problems for verdict in of_save)
                    console.print(f"{kind}, saved by {saved_by}: {equal} of {len(of_save)} equal", highlight=False)
                found += of_save
    return found


def verdicts_of_save(
    pool: RankPool, folder: Path, *, kind: str, saved_by: int, restored_by: list[int]
) -> Iterator[Verdict]:
    """Save once, and restore by each of some numbers of ranks.

    Args:
        pool: The ranks.
        folder: A folder for the checkpoints, which are removed afterwards.
        kind: The kind of training.
        saved_by: The number of ranks that save.
        restored_by: The numbers of ranks that restore.
    """
    with tempfile.TemporaryDirectory(prefix="pair-", dir=folder) as place:
        job = {"kind": kind, "seed": SEED, "ours": f"{place}/ours", "theirs": f"{place}/theirs"}
        try:
            saved = pool.run({**job, "do": "save"}, ranks=saved_by, folder=folder)
        except WorldError as error:
            for ranks in restored_by:
                yield _failed(Pair(kind=kind, saved_by=saved_by, restored_by=ranks), f"not saved: {error}")
            return
        for ranks in restored_by:
            pair = Pair(kind=kind, saved_by=saved_by, restored_by=ranks)
            try:
                restored = pool.run({**job, "do": "restore"}, ranks=ranks, folder=folder)
            except WorldError as error:
                yield _failed(pair, f"not restored: {error}")
            else:
                yield verdict_on(pair, saved, restored)


def _failed(pair: Pair, problem: str) -> Verdict:
    return Verdict(pair=pair, problems=(problem,), read_ratio=0.0, written_ratio=0.0, versions_by_dcp=())


def _say_problems(verdict: Verdict, console: Console) -> None:
    pair = verdict.pair
    for problem in verdict.problems[:4]:
        console.print(
            f"DIFFERENT  {pair.kind}, {pair.saved_by} -> {pair.restored_by}: {problem}",
            style="red",
            markup=False,
            highlight=False,
        )


def _matrix(verdicts: list[Verdict]) -> Table:
    """Show how many kinds are equal, a row for each number of ranks that saved, a column for each that restored."""
    columns = sorted({verdict.pair.restored_by for verdict in verdicts})
    table = report.table("saved by", *(f"restored\nby {ranks}" for ranks in columns))
    for saved_by in sorted({verdict.pair.saved_by for verdict in verdicts}):
        cells = []
        for restored_by in columns:
            found = [
                verdict
                for verdict in verdicts
                if (verdict.pair.saved_by, verdict.pair.restored_by) == (saved_by, restored_by)
            ]
            cells.append(f"{sum(not verdict.problems for verdict in found)} of {len(found)}")
        table.add_row(str(saved_by), *cells)
    return table


def _kinds_table(verdicts: list[Verdict]) -> Table:
    table = report.table("training", "restores", "equal", "bytes read\nby needed", "bytes written\nby even")
    for kind in dict.fromkeys(verdict.pair.kind for verdict in verdicts):
        found = [verdict for verdict in verdicts if verdict.pair.kind == kind]
        # The others are so small that a chunk is more than all of their state.
        ratios = (
            (f"{max(each.read_ratio for each in found):.3f}", f"{max(each.written_ratio for each in found):.3f}")
            if kind == "wide"
            else ("", "")
        )
        table.add_row(kind, str(len(found)), str(sum(not verdict.problems for verdict in found)), *ratios)
    return table


if __name__ == "__main__":
    sys.exit(main())
