"""The training that both sides lose nodes of, and the reading of what it prints."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Final

from spotkeep.runner.process_table import descendants_of, known_processes

RANKS_OF_NODE: Final = 2
STEPS_BETWEEN_SAVES: Final = 20
SCRIPT: Final = f"""
import time
import torch
import torch.distributed as dist
from spotkeep import Checkpointer

dist.init_process_group("gloo")
with Checkpointer({{"weights": torch.zeros(1 << 20)}}, every_steps={STEPS_BETWEEN_SAVES}) as checkpointer:
    for step in checkpointer.steps(1_000_000):
        dist.all_reduce(torch.ones(1))
        if dist.get_rank() == 0:
            print(f"{{time.time():.3f}} step {{step}} of {{dist.get_world_size()}} ranks", flush=True)
        time.sleep(0.05)
"""
"""Each step needs all ranks. Rank 0 prints when it has done a step, and with how many ranks."""
_MOST_SECONDS: Final = 180.0


class NodeOutput:
    """A process of a node, whose steps are read as they come.

    Args:
        command: Its words.
        environment: Its variables.
    """

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str]) -> None:
        self._steps: list[tuple[float, int, int]] = []
        self._lines: list[str] = []
        self._came = threading.Condition()
        self.process = subprocess.Popen(
            command, env=dict(environment), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def step_after(self, moment: float, *, ranks: int) -> float:
        """Wait for the first step after a moment that so many ranks have done. Return its time.

        Args:
            moment: Seconds since the epoch.
            ranks: Number of ranks.

        Raises:
            RuntimeError: It does not come, or the process ends before.
        """

        def found() -> float | None:
            return next((at for at, _, size in self._steps if at > moment and size == ranks), None)

        with self._came:
            self._came.wait_for(lambda: found() is not None or not self._reading.is_alive(), _MOST_SECONDS)
            at = found()
        if at is None:
            raise RuntimeError(f"no step with {ranks} ranks:\n" + "\n".join(self._lines[-40:]))
        return at

    def kill(self) -> float:
        """End all of its processes at once, as a machine that is taken. Return the time."""
        at = time.time()
        for pid in (self.process.pid, *descendants_of(self.process.pid, known_processes())):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        return at

    def _read(self) -> None:
        for line in self.process.stdout or ():
            with self._came:
                self._lines.append(line.rstrip("\n"))
                if (step := step_of(line)) is not None:
                    self._steps.append(step)
                self._came.notify_all()
        with self._came:
            self._came.notify_all()


def step_of(line: str) -> tuple[float, int, int] | None:
    """Read a line of the training. Return the time, the step and the number of ranks. None for any other line."""
    words = line.split()
    if len(words) != 6 or words[1::2] != ["step", "of", "ranks"]:
        return None
    with contextlib.suppress(ValueError):
        return float(words[0]), int(words[2]), int(words[4])
    return None
