"""Nodes of one run, as real agents with real ranks: torchrun with one rank of gloo on each node."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from spotkeep.runner.process_table import known_processes
from spotkeep_fleet.instance_job import InstanceJob, NodesSpec
from spotkeep_fleet.ranks import Ranks
from spotkeep_fleet.record import new_record
from tests.models.ec2 import changed
from tests.ports import free_ports
from tests.spotkeep_agent.cloud import RUN, Cloud, Instance
from tests.spotkeep_agent.conftest import events_of, job

KEY: Final = "0123456789abcdef" * 2
STEPS: Final = 30
SCRIPT: Final = """
import os, time
import torch
import torch.distributed as dist
from spotkeep import Checkpointer

dist.init_process_group("gloo")
state = {"total": torch.zeros(1, dtype=torch.int64), "weights": [torch.zeros(100_000) for _ in range(4)]}
went_on = False  # A world makes a step before it is held.
with Checkpointer(state, every_steps=2, keep_last=3) as checkpointer:
    for step in checkpointer.steps(int(os.environ["STEPS"])):
        ranks = torch.ones(1, dtype=torch.int64)
        dist.all_reduce(ranks)
        state["total"] += step
        while step >= 4 and went_on:
            # Every rank leaves this wait in the same round.
            may_go_on = torch.tensor([int(checkpointer.interrupted or os.path.exists(os.environ["GO_ON"]))])
            dist.all_reduce(may_go_on)
            if may_go_on.item():
                break
            time.sleep(0.05)
        went_on = step >= 4
if dist.get_rank() == 0:
    with open(os.path.join(os.environ["SM_MODEL_DIR"], "total"), "w") as file:
        file.write(f"{state['total'].item()} {dist.get_world_size()}")
dist.destroy_process_group()
"""


class Fleet:
    """The nodes of one run, and the switch that lets the training go on."""

    def __init__(self, cloud: Cloud, folder: Path) -> None:
        self.cloud = cloud
        self._switch = folder / "go-on"
        self._port = free_ports(2)  # The runners take the second one.

    def launch(self, *, at_least: int, at_most: int, script: str = SCRIPT, **changes: Any) -> None:
        """What the launcher writes for a run on several nodes."""
        self.cloud.open(new_record(run=RUN), job=self.job(at_least=at_least, at_most=at_most, script=script, **changes))

    def job(self, *, at_least: int, at_most: int, script: str = SCRIPT, **changes: Any) -> InstanceJob:
        whole = job(script=textwrap.dedent(script), **changes)
        variables = {
            "GO_ON": str(self._switch),
            "STEPS": str(STEPS),
            "OMP_NUM_THREADS": "1",
            "SM_MASTER_PORT": str(self._port),
        }
        return changed(
            whole,
            environment={**whole.training.environment, **variables},
            distributed=Ranks(processes=1),
            nodes=NodesSpec(at_least=at_least, at_most=at_most, wait_seconds=600, key=KEY),
            launch="feed" * 8,
        )

    def boot(self, count: int, **environment: str) -> list[Instance]:
        instances = [self.cloud.add("us-east-1a") for _ in range(count)]
        for instance in instances:
            instance.start_agent(**environment)
        return instances

    def go_on(self) -> None:
        """Let the training go on to its end."""
        self._switch.touch()


@pytest.fixture
def fleet(cloud: Cloud, tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(cloud, tmp_path)
    yield fleet
    fleet.go_on()


def wait_until(holds: Callable[[], object], *, what: str, instances: list[Instance]) -> None:
    """Wait until something holds, for a long but limited time."""
    ends = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < ends, f"never {what}; they said:\n{said_by(instances)}"
        time.sleep(0.1)


def said_by(instances: list[Instance]) -> str:
    """All lines of the agents."""
    return "\n\n".join("\n".join([each.id, *each.lines]) for each in instances)


def worlds(*instances: Instance) -> list[dict[str, Any]]:
    """The worlds that began, in the order of their fences."""
    found = [event for each in instances for event in events_of(each) if event["event"] == "world-began"]
    return sorted(found, key=lambda event: int(event["fence"]))


def leader_and_others(cloud: Cloud, instances: list[Instance]) -> tuple[Instance, list[Instance]]:
    lease = cloud.record.lease
    assert lease is not None
    leader = next(each for each in instances if each.id == lease.holder)
    return leader, [each for each in instances if each is not leader]


def stop_all(instance: Instance, number: int) -> None:
    """Send a signal to every process of an instance."""
    mark = f"SPOTKEEP_LOCAL_INSTANCE_ROOT={instance.root}".encode()
    assert instance.agent is not None
    ids = {instance.agent.pid}
    for pid in known_processes():
        try:
            if mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                ids.add(pid)
        except OSError:
            continue
    for pid in ids - {os.getpid()}:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


SIGSTOP, SIGCONT = signal.SIGSTOP, signal.SIGCONT
