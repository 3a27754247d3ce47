"""Extra memory of one contender, in a process of its own (``python -m benchmarks.checkpoint.memory``).

The peak of a process is one figure for all work in it, and buffers that a library keeps stay. So each contender gets a
fresh process here, while times are measured side by side in one.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.checkpoint.contenders import CONTENDERS

_SAVES = 3
_SAMPLE_SECONDS = 0.01


def measure(name: str, *, state_bytes: int, directory: Path) -> dict[str, Any]:
    """Measure one contender in a fresh process.

    Raises:
        subprocess.CalledProcessError: It failed. Its output is in the error.
    """
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.checkpoint.memory", name, str(state_bytes)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [*command, str(directory)], check=True, capture_output=True, text=True, timeout=600, env=environment
    )
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def main() -> int:
    """Save a few times in a training, and print how much memory that took beyond the training's own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.checkpoint.memory")
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("state_bytes", type=int)
    parser.add_argument("directory", type=Path)
    options = parser.parse_args()
    # What a library weighs is no part of what a save takes.
    import_module("torch.distributed.checkpoint")

    from benchmarks.checkpoint.workload import Workload

    workload = Workload(state_bytes=options.state_bytes)
    for _ in range(2):
        workload.take_step()
    gc.collect()
    before = _resident_bytes()
    children = _Children()
    children.start()
    contender = CONTENDERS[options.contender](workload, options.directory)
    _forget_peak()
    for _ in range(_SAVES):
        contender.save()
        while contender.durable_at() is None:
            workload.take_step()
        contender.clear()
    extra = _peak_bytes() - before
    children.stop()
    contender.close()
    states = (extra + children.peak_bytes) / workload.state_bytes
    sys.stdout.write(json.dumps({"states": round(states, 3), "extra_bytes": extra + children.peak_bytes}) + "\n")
    return 0


class _Children(threading.Thread):
    """Watches the memory of child processes that they do not share."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.peak_bytes = 0
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(_SAMPLE_SECONDS):
            self.peak_bytes = max(self.peak_bytes, sum(_unshared_bytes(child) for child in _children()))

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def _children() -> list[str]:
    return [
        child
        for task in Path("/proc/self/task").iterdir()
        for child in (task / "children").read_text(encoding="ascii").split()
    ]


def _unshared_bytes(process: str) -> int:
    try:
        return _status(process, "RssAnon")
    except (OSError, LookupError):
        return 0


def _resident_bytes() -> int:
    return _status("self", "VmRSS")


def _peak_bytes() -> int:
    return _status("self", "VmHWM")


def _status(process: str, field: str) -> int:
    text = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    match = re.search(rf"^{field}:\s+(\d+) kB$", text, flags=re.MULTILINE)
    if match is None:
        raise LookupError(f"{process} has no {field}")
    return int(match[1]) * 1024


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


if __name__ == "__main__":
    sys.exit(main())
