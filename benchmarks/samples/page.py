"""Prints the table of docs/samples.md from outcomes (``python -m benchmarks.samples.page SEEN.json ...``)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.samples.table import SAMPLES, Sample

_HEAD = """| row | sample | framework | right, and why | as it is | how its resume is broken | broken |
|---|---|---|---|---|---|---|"""


def main() -> int:
    """Print the table. A later file's outcome of a row replaces an earlier one's."""
    seen: dict[tuple[str, bool], str] = {}
    for path in sys.argv[1:]:
        for each in json.loads(Path(path).read_text())["rehearsals"]:
            seen[each["sample"], each["broken"]] = each["verdict"] if each["right"] else f"{each['verdict']} (wrong)"
    print(_HEAD)
    for sample in SAMPLES:
        print(_row(sample, *(seen.get((sample.name, broken), "not yet seen") for broken in (False, True))))
    return 0


def _row(sample: Sample, as_it_is: str, broken: str) -> str:
    path = "/".join(part.strip() for part in (sample.folder, sample.script) if part)
    cells = (
        f"`{sample.name}`",
        f"{sample.repository} {sample.commit[:8]}, `{path}`",
        sample.framework,
        f"{sample.verdict}: {sample.reason}",
        as_it_is,
        sample.broken.what,
        broken,
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
