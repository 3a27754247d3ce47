"""Worlds of nodes with two real ranks each. The ranks are forked, or torchrun starts them on each node."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from json import dumps
from pathlib import Path
from typing import Any

from spotkeep.runner.environment import Hardware
from spotkeep.runner.ranks import MeetingPlace, ranks_command
from spotkeep_fleet.ranks import Ranks
from tests.forking import environment_of_script
from tests.ports import free_ports
from tests.spotkeep_agent.training.nodes import Node
from tests.torture.checkpoint.ranks.world import Job, RankEnd, RankForge, end_of_rank, is_process, understand

RANKS_OF_A_NODE = 2
WORLD_SECONDS = 240.0
"""A world that is not over then hangs."""
_TORCHRUN_SECONDS = 480.0
"""Each rank of torchrun imports torch itself."""
_RUNNER_SECONDS = 2.0
"""So long after a loss the runners end the other ranks. One of these may wait in gloo for one that is gone."""
_LOOK_SECONDS = 0.004


class NodeForge:
    """Forks the ranks of two worlds at a time, because one may go on beside the next."""

    def __init__(self) -> None:
        self._open = ExitStack()
        self._forges = [self._open.enter_context(RankForge()) for _ in range(2)]
        self._turn = 0

    def next(self) -> RankForge:
        """Give the one that the world before the last one had."""
        self._turn += 1
        return self._forges[self._turn % 2]

    def renew(self) -> None:
        """Kill all ranks, and begin anew. A trial has not ended."""
        for forge in self._forges:
            forge.kill()
        self._open.close()
        self._forges = [self._open.enter_context(RankForge()) for _ in range(2)]

    def __enter__(self) -> NodeForge:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()


class RankWorld:
    """The ranks of one world, and the agents' part in it. The agents offer to the leader's copies what rank 0 saves.

    Attributes:
        nodes: The nodes, the leader first.
        fence: The fence of the world.
        step: The step that its leader named.
        durable: The newest step that a leader had reported before.
        hangs: True once it was killed because it did not end.

    Args:
        forge: Forks the ranks. None where torchrun starts them.
        nodes: The nodes, the leader first.
        fence: The fence of the world.
        step: The step that its leader named.
        durable: The newest step that a leader had reported before.
        job: The job of `training.take_part`.
        scratch: A folder for the ranks' output and their meeting.
    """

    def __init__(
        self,
        forge: RankForge | None,
        nodes: Sequence[Node],
        *,
        fence: int,
        step: int,
        durable: int,
        job: Job,
        scratch: Path,
    ) -> None:
        self.nodes, self.fence, self.step, self.durable = list(nodes), fence, step, durable
        self.hangs = False
        self._output = scratch / f"output-{fence}"
        self._offered = 0
        self._ranks = RANKS_OF_A_NODE * len(self.nodes)
        self._here: dict[int, tuple[int, str]] = {}
        self._ends: list[RankEnd] | None = None
        self._links = self.nodes[0].links
        self._seconds = WORLD_SECONDS if forge is not None else _TORCHRUN_SECONDS
        whole = {**job, "fence": fence, "attempt": 1, "output": str(self._output)}
        self._struck: int | None = None
        if "fault" in job:
            whole["rank"] = self._struck = min(job["rank"], self._ranks - 1)
        self._launchers = [] if forge is not None else self._launch(whole, scratch)

        def run() -> None:
            if forge is not None:
                self._ends = forge.run(whole, ranks=self._ranks, scratch=scratch, holds=True)
                return
            for launcher in self._launchers:
                launcher.wait()
            self._ends = [end_of_rank(self._output, rank, None) for rank in range(self._ranks)]

        self._thread = threading.Thread(target=run, daemon=True)
        self._thread.start()

    def _launch(self, job: Job, scratch: Path) -> list[subprocess.Popen[bytes]]:
        """Start torchrun on each node, with the words of the runner."""
        port = free_ports()
        launchers = []
        for number in range(len(self.nodes)):
            command = ranks_command(
                Ranks(processes=RANKS_OF_A_NODE),
                command=[sys.executable, "-m", "tests.torture.checkpoint.ranks.training", dumps(job)],
                place=MeetingPlace(len(self.nodes), number, "127.0.0.1", port),
                hardware=Hardware(cpus=RANKS_OF_A_NODE, gpus=0, neurons=0),
                environment={},
            )
            with (scratch / f"torchrun-{self.fence}-{number}.log").open("w") as log:
                launchers.append(
                    subprocess.Popen(
                        command,
                        env=environment_of_script(OMP_NUM_THREADS="1"),
                        stdout=log,
                        stderr=log,
                        start_new_session=True,
                    )
                )
        return launchers

    @property
    def is_over(self) -> bool:
        """True once all ranks have ended."""
        return not self._thread.is_alive()

    def words(self, rank: int) -> list[dict[str, Any]]:
        """Give the words of a rank so far."""
        path = self._output.with_name(f"{self._output.name}.{rank}")
        return list(understand(path.read_text(errors="replace") if path.exists() else "", None).words)

    def tend(self) -> int:
        """Offer what is saved. Return the newest step that rank 0 has begun."""
        found = self.words(0)
        for word in found:
            if word["what"] == "durable" and word["step"] > self._offered:
                self._offered = word["step"]
                # A node that has another world hears no more of the ranks that it has ended.
                if not self.nodes[0].is_dead and self.nodes[0].links is self._links:
                    self.nodes[0].copies.offer(self._offered)
        for node in self.nodes:
            if node.is_dead:
                self.signal([node], signal.SIGKILL)
            elif node.hung.is_set():
                self.signal([node], signal.SIGSTOP)
        return max((word["step"] for word in found if word["what"] == "begun"), default=0)

    def attend(self, is_enough: Callable[[int], object] = lambda _: False) -> None:
        """Tend the world until it is over, or something holds that is asked with the newest begun step."""
        ends, is_lost = time.monotonic() + self._seconds, False
        while not self.is_over and not is_enough(self.tend()):
            if not is_lost and self._has_loss():
                ends, is_lost = time.monotonic() + _RUNNER_SECONDS, True
            if time.monotonic() > ends:
                self.hangs = not is_lost
                self.end()
            time.sleep(_LOOK_SECONDS)
        self.tend()

    def _has_loss(self) -> bool:
        """Say whether a node is dead, or the rank that a fault strikes is gone before its end."""
        if any(node.is_dead for node in self.nodes):
            return True
        rank = self._struck
        return rank is not None and self.is_struck(rank) and self.words(rank)[-1]["what"] != "finished"

    def is_struck(self, rank: int) -> bool:
        """Say whether a rank is gone, or is suspended."""
        here = self._process(rank)
        return here is not None and not is_process(*here, states="RSDI")

    def _process(self, rank: int) -> tuple[int, str] | None:
        if rank not in self._here and (words := self.words(rank)):
            self._here[rank] = words[0]["pid"], words[0]["started"]
        return self._here.get(rank)

    def signal(self, nodes: Sequence[Node], number: int) -> None:
        """Send a signal to the ranks of some nodes. torchrun on them gets no other one than SIGKILL."""
        for place in map(self.nodes.index, nodes):
            if self._launchers and number == signal.SIGKILL and self._launchers[place].poll() is None:
                self._launchers[place].kill()
            for rank in range(place * RANKS_OF_A_NODE, (place + 1) * RANKS_OF_A_NODE):
                here = self._process(rank)
                if here is not None and is_process(*here):
                    with suppress(ProcessLookupError):
                        os.kill(here[0], number)

    def end(self) -> None:
        """Kill the ranks that live, as an agent does before it takes part in another world."""
        while True:
            self.signal(self.nodes, signal.SIGKILL)
            if self.is_over:
                return
            self._thread.join(_LOOK_SECONDS)

    def ends(self) -> list[RankEnd]:
        """Give the ends of the ranks, which are over."""
        assert self._ends is not None, "the process that forks the ranks has ended"
        return self._ends
