"""The script of the jobs of `spotkeep first-account`. It prints facts about its job, and trains nothing.

The file alone is sent to the job. It needs Python 3.9 and the library `spotkeep`, which each job has. A fact is a line
of the log with `PREFIX` and a JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

PREFIX = "first-account: "
SIZES = {"1-large.bin": 8 * 1024 * 1024, "2-small.bin": 1024, "3-small.bin": 1024, "4-small.bin": 1024}
"""The bytes of each file whose upload is watched, in the order of writing."""


def say(fact: str, **fields: Any) -> None:
    """Print one fact, in one call. A signal may come between the calls of `print`, and its handler prints too."""
    line = PREFIX + json.dumps({"fact": fact, "at": time.time(), **fields}) + "\n"
    os.write(1, line.encode())


def address_of(host: str) -> str:
    """Return the address of a host's name, or the error of its look-up."""
    try:
        return socket.gethostbyname(host)
    except OSError as error:
        return f"error: {error}"


def describe_host(config: Path) -> None:
    """Print the name of this machine, and the names of the hosts as SageMaker gives them."""
    try:
        given = json.loads((config / "resourceconfig.json").read_text())
    except (OSError, ValueError):
        given = {}
    own = socket.gethostname()
    addresses = {host: address_of(host) for host in given.get("hosts", ())}
    say("host", hostname=own, resolves_to=address_of(own), current=given.get("current_host"), hosts=addresses)


class WatchedFiles:
    """Files in the checkpoint folder, whose upload SageMaker marks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._marked: set[str] = set()

    def write(self) -> None:
        """Write the files one after the other."""
        self._folder.mkdir(parents=True, exist_ok=True)
        say("restored", files=sorted(path.name for path in self._folder.iterdir()))
        for name, size in SIZES.items():
            (self._folder / name).write_bytes(b"\0" * size)
        say("wrote", files=list(SIZES))

    def watch(self) -> None:
        """Print each file that has its marker of a finished upload since the last call."""
        for name in SIZES:
            marker = self._folder / f"{name}.sagemaker-uploaded"
            if name not in self._marked and marker.exists():
                self._marked.add(name)
                say("uploaded", file=name, marked_at=marker.stat().st_mtime)


def train(steps: int, *, seconds: float, folder: Path) -> None:
    """Count steps, save the count, and watch the uploads. A count that goes on takes no pauses."""
    from spotkeep import Checkpointer

    files, state = WatchedFiles(folder / "first-account"), {"done": {"count": 0}}
    with Checkpointer(state, every_steps=5) as checkpointer:
        resumed = checkpointer.step
        say("step", step=resumed)
        files.write()
        for step in checkpointer.steps(steps):
            state["done"]["count"] += 1
            time.sleep(0 if resumed else seconds)
            if step % 10 == 0:
                say("step", step=step)
            files.watch()


def main() -> None:
    """Run the script."""
    options = argparse.ArgumentParser()
    options.add_argument("steps", type=int)
    options.add_argument("--seconds", type=float, default=1.0)
    given = options.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: say("sigterm"))
    base = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
    describe_host(base / "input" / "config")
    if given.steps:
        folder = Path(os.environ.get("SPOTKEEP_CHECKPOINT_DIR", str(base / "checkpoints")))
        train(given.steps, seconds=given.seconds, folder=folder)
    say("end")


if __name__ == "__main__":
    main()
