"""Trainings of several ranks, which are forked from one process that has torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from spotkeep.events import EVENT_PREFIX
from tests.forking import environment_of_script

STEPS = 14
LIMIT_SECONDS = 300
"""A training that has not ended then hangs, on a busy machine as well."""


class RankServer:
    """Runs the ranks of one training after another; see `distributed_ranks`."""

    def __init__(self):
        script = Path(__file__).parent / "distributed_ranks.py"
        self._process = subprocess.Popen(
            [sys.executable, script],
            env=environment_of_script(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, job):
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def ends(self):
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.stdin.close()
        self._process.wait(LIMIT_SECONDS)
        self._process.stdout.close()


class Run:
    """How one training ended."""

    def __init__(self, out, codes):
        self.codes = codes
        self.out = out
        self.output = [Path(f"{out}.{rank}").read_text() for rank in range(len(codes))]
        self.results = [
            json.loads(path.read_text()) if (path := Path(f"{out}.{rank}.json")).exists() else None
            for rank in range(len(codes))
        ]

    def printed(self, rank=0):
        lines = self.output[rank].splitlines()
        return [json.loads(line.removeprefix(EVENT_PREFIX)) for line in lines if line.startswith(EVENT_PREFIX)]

    def events(self, kind):
        return [event for event in self.printed() if event["event"] == kind]

    @property
    def state(self):
        """All that must be equal to the bit."""
        return [(result["weights"], result["own"]) for result in self.results]

    @property
    def began(self):
        return [result["began"] for result in self.results]


class Trainings:
    def __init__(self, server, folder):
        self._server = server
        self._folder = folder
        self._count = 0

    def run(self, directory, *, world_size=2, kill=None, **job):
        """Run a training; `kill` gets the processes' numbers and rank 0's output while it runs."""
        self._count += 1
        out = self._folder / f"out-{self._count}"
        directory = [str(one) for one in directory] if isinstance(directory, list) else str(directory)
        whole = {"steps": STEPS, "limit_seconds": LIMIT_SECONDS, "world_size": world_size, "directory": directory}
        pids = self._server.start({**whole, "out": str(out), **job})
        if kill is not None:
            kill(pids, Path(f"{out}.0"))
        return Run(out, self._server.ends())
