"""Nodes of a run with disks of their own, or one folder, and one bucket, whose worlds save checkpoints as ranks do.

A node dies before any of its calls of S3 and of its file operations. Its uploads hang before any call of S3, and go on
later.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from spotkeep.disk.checkpoint_directory import CheckpointDirectory
from spotkeep.disk.chunk_checksums import chunk_checksums
from spotkeep.disk.manifest import (
    CHUNK_BYTES,
    MANIFEST_NAME,
    DataFile,
    Manifest,
    RankShare,
    data_file_name,
    manifest_bytes,
)
from spotkeep.disk.retention import Retention
from spotkeep.disk.writers import folder_name
from spotkeep.errors import DamagedCheckpointError
from spotkeep.remote.s3_objects import S3Objects
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.as_user.process import perform_here
from spotkeep_agent.aws.calls import AwsCalls
from spotkeep_agent.training import checkpoint_copies
from spotkeep_agent.training.node_copies import NodeCopies
from spotkeep_agent.training.shared_copies import SharedCopies
from tests.models.faults import ProcessDiedError
from tests.models.s3 import BucketClient, StoredObjects

PREFIX = "runs/run/checkpoints/"
LONG_SECONDS = 60.0
"""No test waits for so long unless something hangs."""


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + LONG_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


class Node:
    """One node: its disk, its agent's copies, and the folder as the library of its ranks sees it.

    Attributes:
        fence: The fence under which it leads. 0 while it does not.
        links: Its connections with the other nodes of its world. None before its first one.
        is_dead: True once it has died.
        operations: The names of its calls of S3 and of its file operations, without scans.
    """

    def __init__(self, run: Run, name: str, root: Path) -> None:
        self.run, self.name, self.root = run, name, root
        self.fence = 0
        self.links: Links | None = None
        self.is_dead = False
        self.operations: list[str] = []
        self._left: int | None = None
        self._hangs: threading.Event | None = None
        self.hung = threading.Event()
        self._lock = threading.Lock()
        (root / "checkpoints").mkdir(parents=True, exist_ok=True)
        client: Any = BucketClient(run.stored, self._called) if run.calls is None else run.calls
        self.cancelled = threading.Event()
        kept = run.folder / f"{name}-kept"
        kept.mkdir(exist_ok=True)
        self.copies = (SharedCopies if run.is_shared else NodeCopies)(
            f"s3://{run.bucket}/{PREFIX}",
            UserFiles(root, perform=self._perform),
            kept=kept,
            calls=client,
            fetching=client,
            cancelled=self.cancelled,
            break_off=lambda: None,
            on_uploaded=lambda step: run.acknowledge(self, step),
            ask=lambda step, folder: run.ask(self, step, folder),
            on_sent=lambda step: run.sent(self, step),
            scan_seconds=0.01,
        )
        self.library = CheckpointDirectory(root / "checkpoints")

    def die_after(self, operations: int) -> None:
        """Die before the operation after so many others."""
        self._left = operations

    def hang_after(self, operations: int, *, until: threading.Event) -> None:
        """Hang there, and go on once the event is set."""
        self._left, self._hangs = operations, until

    def live(self) -> None:
        """Forget a death or a hang that has not come."""
        self._left = self._hangs = None

    def die(self) -> None:
        self.is_dead = True
        self.run.lost(self)

    def _called(self, operation: str, act: Callable[[], Any]) -> Any:
        self._operate(operation, calls_s3=True)
        return act()

    def _perform(self, name: str, *arguments: Any, **options: Any) -> Any:
        self._operate(name, calls_s3=False)
        return perform_here(name, *arguments, **options)

    def _operate(self, name: str, *, calls_s3: bool) -> None:
        if name == "scan" and not self.is_dead:  # A scan changes nothing, and there are as many as there is time.
            return
        with self._lock:
            self.operations.append(name)
            # Calls of S3 by uploads alone hang, because the story waits for all else.
            may_hang = calls_s3 and threading.current_thread().name == "spotkeep-upload"
            due = self._left == 0 and (self._hangs is None or may_hang)
            hangs = self._hangs if due else None
            if due:
                self._left = self._hangs = None
            elif self._left:
                self._left -= 1
        if due and hangs is not None:
            if not hangs.is_set():
                self.hung.set()
                self.run.lost(self)
                hangs.wait(LONG_SECONDS)
        elif due:
            self.die()
        if self.is_dead:
            raise ProcessDiedError

    @property
    def is_gone(self) -> bool:
        """True once it is dead, or hangs."""
        return self.is_dead or self.hung.is_set()

    def folders(self) -> set[str]:
        return {path.name for path in (self.root / "checkpoints").iterdir() if path.is_dir()}


class Links:
    """The connections of one world's nodes.

    Attributes:
        nodes: The nodes, the leader first.
        are_closed: True once the nodes have another world.
        cut: The nodes that are cut off from the leader.
        asked: The step whose files the leader asks for.
        answered: The names of the nodes that have sent them.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = list(nodes)
        self.are_closed = False
        self.cut: set[Node] = set()
        self.asked: int | None = None
        self.answered: set[str] = set()

    def lacks(self, node: Node) -> bool:
        """Say whether a node of the world is dead, hangs, is cut off, or has another world."""
        return node.is_gone or node in self.cut or node.links is not self


class Run:
    """A run's record, its bucket, and its nodes.

    Attributes:
        fence: The fence of the lease.
        durable: The steps that leaders have reported under their lease, and that a world may go on from.
        world: The nodes that train together, the leader first.
        on_lost: Called with a node that dies or hangs.

    Args:
        folder: The folder of the nodes' disks.
        nodes: The number of nodes at first.
        bucket: The name of the bucket.
        calls: The calls of S3. None for a bucket in memory.
        is_shared: True where all nodes have their checkpoints in one folder.
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int,
        bucket: str = "bucket",
        calls: AwsCalls | None = None,
        is_shared: bool = False,
    ) -> None:
        self.stored = StoredObjects()
        self.bucket, self.calls = bucket, calls
        self.fence = 0
        self.durable: set[int] = set()
        self.world: list[Node] = []
        self.folder, self.is_shared = folder, is_shared
        self._lock = threading.Lock()
        self.on_lost: Callable[[Node], None] = lambda node: None
        self.order: Callable[[Sequence[Node]], Sequence[Node]] = lambda members: members
        self.nodes: list[Node] = []
        for _ in range(nodes):
            self.join()

    def join(self) -> Node:
        """A new node, with an empty disk."""
        name = f"i-{len(self.nodes) + 1}"
        node = Node(self, name, self.folder / ("shared" if self.is_shared else name))
        self.nodes.append(node)
        return node

    def reboot(self, node: Node) -> Node:
        """A node that died is there again, with its disk as it was."""
        node.copies.stop()
        again = Node(self, node.name, node.root)
        self.nodes[self.nodes.index(node)] = again
        return again

    def wake(self) -> None:
        """Nodes that hung find that the world has gone on without them."""
        for node in self.nodes:
            if node.hung.is_set() and not node.is_dead:
                node.hung.clear()
                node.copies.leader_is_done()
                with contextlib.suppress(ProcessDiedError):
                    node.copies.finish(lambda: 0.0, exit_code=None, goes_on=True)

    def close(self) -> None:
        """End all threads of the nodes."""
        for node in self.nodes:
            # A node that died now would end its threads with an error, perhaps in the middle of another test.
            node.copies.stop()

    # What agents do between each other

    def acknowledge(self, node: Node, step: int) -> None:
        """The leader writes to the record, under its lease."""
        with self._lock:
            if node.fence == self.fence and not node.is_dead:
                self.durable.add(step)

    def ask(self, leader: Node, step: int, folder: str) -> None:
        links = leader.links
        assert links is not None
        if links.are_closed:
            leader.copies.others_have_sent(step, one_is_gone=True)
            return
        with self._lock:
            links.asked, links.answered = step, set()
        for member in self.order(links.nodes[1:]):
            with contextlib.suppress(ProcessDiedError):
                if not links.lacks(member):
                    member.copies.send_own(folder)
        self._settle(links)

    def sent(self, member: Node, step: int) -> None:
        links = member.links
        assert links is not None
        with self._lock:
            if step == links.asked:
                links.answered.add(member.name)
        self._settle(links)

    def lost(self, node: Node) -> None:
        links = node.links
        if links is not None and node is links.nodes[0]:
            self._leader_is_done(links.nodes)
        elif links is not None:
            self._settle(links)
        self.on_lost(node)

    def cut(self, nodes: Sequence[Node]) -> None:
        """Cut nodes off from the leader of their world."""
        for node in nodes:
            assert node.links is not None
            node.links.cut.add(node)
            node.copies.leader_is_done()
            self._settle(node.links)

    def _settle(self, links: Links) -> None:
        members = links.nodes[1:]
        gone = [member for member in members if links.lacks(member)]
        with self._lock:
            step = links.asked
            waits = any(member.name not in links.answered for member in members if member not in gone)
        if step is not None and not waits and not links.are_closed:
            links.nodes[0].copies.others_have_sent(step, one_is_gone=bool(gone))

    # A world

    def begin(self, world: Sequence[Node], *, retention: Retention | None = None) -> int | None:
        """Form a world and restore on all of its ranks. Return the step that they go on from.

        Raises:
            ProcessDiedError: If one of them dies.
        """
        step = self.form(world, retention=retention)
        self.restore(step)
        return step

    def form(self, world: Sequence[Node], *, retention: Retention | None = None, is_split: bool = False) -> int | None:
        """Let nodes train together, the first one as the leader. Return the step that they go on from.

        Args:
            world: The nodes.
            retention: The checkpoints that the script keeps.
            is_split: True where the world before goes on for itself, without the lease.

        Raises:
            ProcessDiedError: If one of them dies.
        """
        with self._lock:
            if self.world and self.world[0].links is not None and not is_split:
                self.world[0].links.are_closed = True
            links = Links(world)
            self.fence += 1
            for node in self.nodes:
                if not is_split:
                    node.fence = 0
            for node in world:
                node.fence, node.links = self.fence if node is world[0] else 0, links
            self.world = links.nodes
        leader = world[0]
        step = leader.copies.newest_whole()
        while True:
            try:
                for node in world:
                    node.copies.bring(step, nodes=len(world), leads=node is leader)
                break
            except DamagedCheckpointError:
                assert step is not None
                step = leader.copies.newest_whole(before=step)
        leader.copies.claim((1, self.fence), step=step)
        for node in world:
            node.copies.start()
        if retention is not None:
            leader.copies.keep(retention.document())
        return step

    def restore(self, step: int | None) -> None:
        """What the library does on each rank: rank 0 lists, all verify, rank 0 takes a token, all learn it."""
        leader = self.world[0].library
        found = next(iter(leader.steps()), None)
        assert found == step, "rank 0 finds the step that the leader has named, and no other one"
        for node in self.world:
            if not self.is_shared:
                assert node.folders() == ({leader.name(step)} if step is not None else set())
            if step is not None:
                node.library.take({step: leader.name(step)})
                node.library.verify(step)
                for number, file in enumerate(node.library.read_manifest(step).files):
                    raw = (node.root / "checkpoints" / leader.name(step) / file.name).read_bytes()
                    assert raw.startswith(f"{leader.name(step)} {number} ".encode()), "of one world, and of one step"
        leader.begin((1, self.fence), step=step)
        writers = leader.writer_notes.writers()
        for node in self.world[1:]:
            node.library.writer_notes.take(writers.newest)
            node.library.writer_notes.learn(writers)

    def save(self, step: int, *, size: int = 100, world: Sequence[Node] | None = None) -> str:
        """Save a checkpoint on the disks of a world, or of that which trains now. Return its folder."""
        world = self.world if world is None else world
        token = world[0].library.writer_notes.token
        folder, files = folder_name(step, token), []
        for number, node in enumerate(world):
            path = node.root / "checkpoints" / folder
            path.mkdir(exist_ok=self.is_shared)
            raw = f"{folder} {number} ".encode().ljust(size, b".")
            (path / data_file_name(number)).write_bytes(raw)
            files.append(DataFile(data_file_name(number), size, tuple(chunk_checksums(raw, CHUNK_BYTES))))
        manifest = Manifest(
            step=step,
            epochs_completed=None,
            created=1.0,
            library="spotkeep",
            streams=((), *((file,) for file in files)) if len(files) > 1 else ((files[0],),),
            state={"dict": []},
            ranks=tuple(RankShare({"dict": []}) for _ in files) if len(files) > 1 else (),
        )
        (world[0].root / "checkpoints" / folder / MANIFEST_NAME).write_bytes(manifest_bytes(manifest))
        return folder

    def offer(self, step: int) -> None:
        """Rank 0 reports a saved checkpoint to the leader's agent."""
        self.world[0].copies.offer(step)

    def end(
        self,
        *,
        seconds: float = LONG_SECONDS,
        exit_code: int = 75,
        world: Sequence[Node] | None = None,
        apart: Sequence[Node] = (),
    ) -> bool:
        """End a world: its nodes finish their copies. Return the leader's answer.

        Args:
            seconds: The time that they have.
            exit_code: The script's.
            world: The nodes, the leader first. None for those that train together now.
            apart: Nodes of it that do not end.
        """
        world = self.world if world is None else world
        leader, done = world[0], []
        ends = time.monotonic() + seconds

        def finish(node: Node) -> None:
            with contextlib.suppress(ProcessDiedError):
                whole = node.copies.finish(lambda: ends - time.monotonic(), exit_code=exit_code, goes_on=True)
                if node is leader:
                    done.append(whole)
            if node is leader:
                self._leader_is_done(world)

        if leader.is_gone:
            self._leader_is_done(world)
        threads = {
            node: threading.Thread(target=finish, args=(node,), daemon=True)
            for node in world
            if not node.is_gone and node not in apart
        }
        for thread in threads.values():
            thread.start()
        for node, thread in threads.items():
            while thread.is_alive() and not node.is_gone:
                thread.join(0.005)
                assert time.monotonic() < ends + LONG_SECONDS, "an end is bounded"
        return bool(done and done[0])

    def _leader_is_done(self, world: Sequence[Node]) -> None:
        for member in world[1:]:
            member.copies.leader_is_done()

    def arrived(self, step: int) -> bool:
        """Wait until a checkpoint is reported, or a node of the world is gone. Return True when it is reported."""
        wait_for(lambda: step in self.durable or any(node.is_gone for node in self.world))
        return step in self.durable

    # What the bucket holds

    def whole_in_s3(self) -> dict[str, bool]:
        """The folders with a manifest, and whether all files that it names are there."""
        found = {}
        for key, (raw, _) in dict(self.stored.objects).items():
            folder, _, name = key.removeprefix(PREFIX).rpartition("/")
            if name == MANIFEST_NAME:
                files = json.loads(raw)["manifest"]["files"]
                found[folder] = all(f"{PREFIX}{folder}/{file['name']}" in self.stored.objects for file in files)
        return found


def train(run: Run, *steps: int) -> None:
    """Save steps one after the other, each whole in S3 before the next."""
    for step in steps:
        run.save(step)
        run.offer(step)
        assert run.arrived(step)


def make_quick(patch: pytest.MonkeyPatch) -> None:
    """Let the copies use the clients in memory, and wait for milliseconds."""
    patch.setattr(checkpoint_copies, "objects_of", lambda calls, bucket: S3Objects(bucket, client=calls))
    for place, seconds in (
        ("spotkeep.remote.remote_checkpoints._FIRST_LOOK_SECONDS", 0.001),
        ("spotkeep.remote.remote_checkpoints._LONGEST_LOOK_SECONDS", 0.005),
        ("spotkeep.remote.remote_checkpoints._FIRST_PAUSE_SECONDS", 0.001),
        ("spotkeep.remote.background_upload._FIRST_PAUSE_SECONDS", 0.002),
        ("spotkeep.remote.background_upload._POLL_SECONDS", 0.005),
        ("spotkeep_agent.training.node_copies._LOOK_SECONDS", 0.005),
    ):
        patch.setattr(place, seconds)
