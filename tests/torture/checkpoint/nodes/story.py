"""One trial of nodes. The ranks are real. Each node has a disk of its own, and an agent's copies in one S3."""

from __future__ import annotations

import json
import random
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

import pytest

from spotkeep.disk.retention import Retention
from tests.models.faults import ProcessDiedError
from tests.spotkeep_agent.training.nodes import Node, Run, make_quick
from tests.torture.checkpoint.nodes.trials import (
    COPIES_LOST,
    HANGS,
    LATE_NOTICE,
    NODE_LOST,
    SPLIT,
    STEPS,
    NodeJudge,
    NodeTrial,
)
from tests.torture.checkpoint.nodes.worlds import RANKS_OF_A_NODE, NodeForge, RankWorld
from tests.torture.checkpoint.ranks.trials import counted_names
from tests.torture.checkpoint.ranks.world import KILLED, Job
from tests.torture.checkpoint.trials import TrialFindings

TRIAL_SECONDS = 1200.0
"""A trial that has not ended then is a problem. The next one begins."""
_KEPT = Retention(last=2)
_CLOCKS = (0, 0, 3600, -3600)
_OPERATIONS_OF_AN_END = 60
_OPERATIONS_OF_A_WORLD = 160
_SECOND_KILL, _SECOND_FAULT, _CALLS_OF_SECOND = 0.35, 0.6, 60
_SECONDS_OF_ENDS = (0.0, 0.05, 60.0)
"""The time that the copies of a world have at its end. Almost none is that of a late notice."""


@contextmanager
def quick_copies() -> Iterator[None]:
    """Let copies wait for milliseconds. The threads of a node that dies end with its death."""
    with pytest.MonkeyPatch.context() as patch:
        make_quick(patch)
        patch.setattr(threading, "excepthook", lambda _: None)
        yield


class NodeRecording:
    """The calls of the ranks of two nodes, and the operations of their copies, in an undisturbed world.

    Args:
        forge: Forks the ranks.
        scratch: An empty folder.
    """

    def __init__(self, forge: NodeForge, scratch: Path) -> None:
        record = scratch / "record.jsonl"
        run = Run(scratch, nodes=2)
        before = [len(node.operations) for node in run.nodes]
        run.form(run.nodes, retention=_KEPT)
        job = {"nodes": [[str(node.root), 0] for node in run.nodes], "total_steps": STEPS, "record": str(record)}
        world = RankWorld(forge.next(), run.nodes, fence=1, step=0, durable=0, job=job, scratch=scratch)
        world.attend()
        run.end()
        run.close()
        self._calls = [json.loads(line) for line in record.read_text().splitlines()]
        self._operations = [node.operations[count:] for count, node in zip(before, run.nodes, strict=True)]

    def names(self) -> list[list[str]]:
        """Give the names of the counted calls of each rank. Then those of the operations of each node's copies."""
        return [*counted_names(self._calls, ranks=2 * RANKS_OF_A_NODE), *self._operations]


def run_trial(
    trial: NodeTrial, forge: NodeForge, recording: NodeRecording, folder: Path | None = None
) -> TrialFindings:
    """Do one trial. One that does not end in its time is a problem, and leaves no process behind.

    Args:
        trial: The trial.
        forge: Forks the ranks.
        recording: An undisturbed world, which the plan was drawn from.
        folder: The place of temporary folders. None for the usual one.
    """
    del recording
    with tempfile.TemporaryDirectory(prefix="torture-nodes-", dir=folder, ignore_cleanup_errors=True) as scratch:
        story = Story(trial, forge, Path(scratch))

        def tell() -> None:
            try:
                story.tell()
            except BaseException as error:  # noqa: BLE001 - it is the trial's problem, and the next one begins
                story.judge.note(f"it broke off: {error!r} {_place(error.__traceback__)}")
                is_broken.set()

        is_broken = threading.Event()
        thread = threading.Thread(target=tell, daemon=True)
        thread.start()
        thread.join(TRIAL_SECONDS)
        if thread.is_alive():
            frame = sys._current_frames()[thread.ident or 0]
            at = traceback.format_stack(frame, limit=3)
            story.judge.note(f"it has not ended in {TRIAL_SECONDS:.0f} s, and is at {' '.join(at)}")
        if thread.is_alive() or is_broken.is_set():
            forge.renew()
            story.end()
        return story.judge.found


def _place(found: TracebackType | None) -> str:
    return " ".join(line.strip() for line in traceback.format_tb(found, limit=-2))


class Story:
    """One trial: a run, its nodes and its worlds.

    Attributes:
        judge: The judge.

    Args:
        trial: The trial.
        forge: Forks the ranks.
        scratch: A folder for all files.
    """

    def __init__(self, trial: NodeTrial, forge: NodeForge, scratch: Path) -> None:
        self.judge = NodeJudge(title=str(trial))
        self._trial, self._forge, self._scratch = trial, forge, scratch
        self._run = Run(scratch, nodes=trial.nodes)
        self._chance = random.Random(trial.seed)  # noqa: S311 - reproducible, not secret
        self._run.order = lambda members: self._chance.sample(list(members), len(members))
        self._clocks: dict[str, int] = {}
        self._worlds: list[RankWorld] = []
        self._steps = 0
        self._wake = threading.Event()
        self._apart: list[Node] = []

    def tell(self) -> None:
        """Let the first world meet its fault, and the others go on. A world may go on beside the second one."""
        try:
            old = self._first()
            for number, nodes in enumerate(self._trial.then):
                job, dies = self._second_fault(nodes) if number + 1 < len(self._trial.then) else ({}, False)
                there = [node for node in self._run.nodes if not node.is_gone and node not in self._apart]
                world = self._begin(there, nodes, beside=old, dies=dies, **job)
                if old is not None:
                    self._go_on(old, beside=world)
                self._end(world, old, may_be_struck=bool(job) or dies)
                old = None
        finally:
            self._wake.set()
            self._run.close()

    def end(self) -> None:
        """Kill all ranks."""
        for world in self._worlds:
            world.end()

    def _second_fault(self, nodes: int) -> tuple[Job, bool]:
        """Draw a fault of a world that is not the last: a rank is killed, or a node dies in its copies."""
        drawn = self._chance.random()
        if drawn < _SECOND_KILL:
            fault = f"kill:{self._chance.randrange(_CALLS_OF_SECOND)}"
            return {"fault": fault, "rank": self._chance.randrange(RANKS_OF_A_NODE * nodes)}, False
        return {}, drawn < _SECOND_FAULT

    def _begin(
        self,
        there: list[Node],
        nodes: int,
        *,
        beside: RankWorld | None = None,
        all_are_there: bool = False,
        dies: bool = False,
        by_torchrun: bool = False,
        **job: object,
    ) -> RankWorld:
        """Form a world of so many nodes, and start its ranks. Nodes that die meanwhile are replaced."""
        while True:
            there = [node for node in there if not node.is_dead]
            while len(there) < nodes:
                there.append(self._run.join())
            chosen = there[:nodes] if all_are_there else self._chance.sample(there, nodes)
            if dies:
                self._chance.choice(chosen).die_after(self._chance.randrange(_OPERATIONS_OF_A_WORLD))
                dies = False
            durable = max(self._run.durable, default=0)
            with suppress(ProcessDiedError):
                step = self._run.form(chosen, retention=_KEPT, is_split=beside is not None) or 0
                break
        if step < durable:
            self.judge.note(f"the leader named step {step} after {durable} was reported", lost=durable - step)
        for node in chosen:
            self._clocks.setdefault(node.name, self._chance.choice(_CLOCKS))
        self._steps = step + STEPS
        whole: Job = {
            "nodes": [[str(node.root), self._clocks[node.name]] for node in chosen],
            "total_steps": self._steps,
            "jitter": self._trial.seed,
            **job,
        }
        forge = None if by_torchrun else self._forge.next()
        world = RankWorld(
            forge, chosen, fence=self._run.fence, step=step, durable=durable, job=whole, scratch=self._scratch
        )
        self._worlds.append(world)
        return world

    def _first(self) -> RankWorld | None:
        """Let the first world meet its fault, and judge it. Return it where it goes on beside the next one."""
        trial, nodes = self._trial, list(self._run.nodes)
        victim = nodes[trial.rank // RANKS_OF_A_NODE]
        job: Job = {"fault": f"{trial.kind}:{trial.call}", "rank": trial.rank} if trial.kind else {}
        if trial.ruin == COPIES_LOST:
            victim.die_after(trial.call)
        world = self._begin(nodes, trial.nodes, all_are_there=True, by_torchrun=trial.by_torchrun, **job)
        moment = 1 + trial.call % STEPS
        is_timely = False
        if trial.ruin == HANGS:
            world.attend(lambda _: world.is_struck(trial.rank))
            if not world.is_over:
                victim.hang_after(0, until=self._wake)
                victim.hung.set()
                self._run.lost(victim)
                self._leave(world, [victim])
                return world
        elif trial.ruin == SPLIT:
            world.attend(lambda begun: begun >= moment)
            others = [node for node in nodes[1:] if self._chance.random() < 0.3]
            self._run.cut(others)
            self._leave(world, [node for node in nodes if node not in others])
            return world
        elif trial.ruin == LATE_NOTICE:
            world.attend(lambda begun: begun >= moment)
            world.signal([victim], signal.SIGTERM)
            world.attend()
            victim.die_after(trial.call % _OPERATIONS_OF_AN_END)
            is_timely = True
        elif trial.ruin == NODE_LOST:
            world.attend(lambda _: world.is_struck(trial.rank))
            if not world.is_over or world.ends()[trial.rank].exit_code == KILLED:
                victim.die()
        world.attend()
        done = self._run.end(seconds=self._seconds())
        victim.live()
        was_struck = _is_struck(world) or (trial.by_torchrun and bool(trial.kind))
        self.judge.count(**{"struck" if was_struck else "not reached": 1})
        self.judge.see_world(world, total_steps=self._steps, is_struck=was_struck or is_timely)
        if is_timely and done:
            self.judge.see_notice(world.ends(), durable=max(self._run.durable, default=0))
        if is_timely and not victim.is_dead:
            victim.die()
        return None

    def _leave(self, world: RankWorld, apart: list[Node]) -> None:
        """Let the other nodes of a world find some of them silent. Their runners end their ranks."""
        self._apart = apart
        world.tend()
        others = [node for node in world.nodes if node not in apart]
        world.signal(others, signal.SIGKILL)
        self._run.end(seconds=self._seconds(), world=world.nodes, apart=apart)

    def _go_on(self, old: RankWorld, *, beside: RankWorld) -> None:
        """Let what is left of a world without the lease go on beside the world with it."""
        began = self._steps - STEPS
        moment = began + self._trial.call % (STEPS + 1)
        beside.attend(lambda begun: begun >= moment)
        self._wake.set()
        for node in self._apart:
            node.hung.clear()
        old.signal(self._apart, signal.SIGCONT)
        is_over = threading.Event()
        tending = threading.Thread(target=old.attend, args=(lambda _: is_over.is_set(),), daemon=True)
        tending.start()
        beside.attend()
        is_over.set()
        tending.join()
        old.end()
        self._run.end(seconds=self._seconds(), world=self._apart)
        self._apart = []
        self.judge.count(beside=1)

    def _end(self, world: RankWorld, old: RankWorld | None, *, may_be_struck: bool) -> None:
        """Let a world come to its end, and judge it after the one that was beside it."""
        world.attend()
        done = self._run.end()
        was_struck = may_be_struck and _is_struck(world)
        for node in world.nodes:
            node.live()
        if old is not None:
            self.judge.see_world(old, total_steps=0, is_struck=True)
        self.judge.see_world(world, total_steps=self._steps, is_struck=was_struck)
        if not was_struck and not (done and self._steps in self._run.durable):
            self.judge.note(f"step {self._steps} has not reached S3 at the end of world {world.fence}", wrong_ends=1)

    def _seconds(self) -> float:
        return self._chance.choice(_SECONDS_OF_ENDS)


def _is_struck(world: RankWorld) -> bool:
    return any(node.is_dead for node in world.nodes) or any(end.exit_code == KILLED for end in world.ends())
