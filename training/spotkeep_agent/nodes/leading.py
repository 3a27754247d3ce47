"""The leader of a run's nodes. It knows all nodes, forms each world, and hears how it ends on each node."""

from __future__ import annotations

import logging
import queue
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Callable

from spotkeep_agent.errors import LeaseLostError
from spotkeep_agent.volume.protocol import over, set_back
from spotkeep_fleet.instance_job import NodesSpec
from spotkeep_fleet.record import LONGEST_FAILURE, MOST_NOTICED, MOST_SETBACKS, Departure, FleetRecord, Node

from .connections import Happened, Joined, Lost, NodeNames, NodeServer, Said
from .decisions import (
    DONE,
    FAILED,
    INTERRUPTED,
    Bringing,
    Gathering,
    NodeEnd,
    end_of_world,
    grows,
    has_stalled,
    heard_again,
    next_world,
)
from .lease import NodesLease
from .world import Ending, NodesTimes, World

PAUSE_SECONDS = 0.2
END_SECONDS = 60.0
"""So long the nodes of a world may end after the first of them."""
_KILLED_SECONDS = 20.0
"""So long other nodes take at most to end a training that the leader ends."""

_logger = logging.getLogger("spotkeep.agent")


@dataclass
class _Member:
    """Another node, as the leader knows it.

    Attributes:
        address: Its private address.
        ready: True while it waits for a world.
        has_brought: True once it has the checkpoint of the world.
        bringing: The part of the checkpoint that it has brought until now.
        sent: The last question for files that it has answered.
        end: The end of its training in the world.
    """

    address: str
    ready: bool = False
    has_brought: bool = False
    bringing: Bringing = field(default_factory=lambda: Bringing(0, 0.0))
    sent: tuple[int, int] | None = None
    end: NodeEnd | None = None


def count_failure(record: FleetRecord, why: str, *, nodes: int) -> FleetRecord:
    """Count a node that could not train. All nodes may meet one fault of AWS at a time. Pure.

    Args:
        record: The record.
        why: The reason, for people.
        nodes: The most nodes of the run.
    """
    return set_back(record, why, most=MOST_SETBACKS * nodes)


class Leading:
    """The nodes of a run, as the leader has them. `ask` and `close` may be called from other threads.

    Attributes:
        world: The world that trains, or None between two.
        refused: The reason why the input works on no node, as another node has found. None where it works.

    Args:
        names: The names of this node.
        spec: The number of nodes, and their key.
        lease: The lease, which this node holds.
        before: The record before this node took the lease.
        tell: Called with the name and the fields of each event.
        times: The times.
        listener: The open port at which the others connect. It is closed with the connections.
        on_sent: Called with a step, and True where a node of the world is gone, when no node sends more of it.
    """

    def __init__(
        self,
        names: NodeNames,
        *,
        spec: NodesSpec,
        lease: NodesLease,
        before: FleetRecord,
        tell: Callable[..., None],
        times: NodesTimes,
        listener: socket.socket,
        on_sent: Callable[[int, bool], None],
    ) -> None:
        self.world: World | None = None
        self.refused: str | None = None
        self._names, self._spec, self._lease = names, spec, lease
        self._tell, self._times, self._on_sent = tell, times, on_sent
        gone = None if before.lease is None else before.lease.holder
        self._former = tuple(each for each in before.world if each != gone)
        self._members: dict[str, _Member] = {}
        self._lost: list[str] = []
        self._asked: tuple[int, int] | None = None
        self._asks = self._answered = 0
        self._unusable: int | None = None
        self._arrived_at = self._since = time.monotonic()
        self._server = NodeServer(names, key=spec.key, listener=listener, silent_seconds=times.silent)
        self.publish()

    # Worlds

    def begin(self, newest_whole: Callable[[int | None], int | None]) -> World | None:
        """Form the next world if it is time, and let its nodes know.

        Args:
            newest_whole: The function that gives the newest step whose checkpoint is whole in S3. Its argument is a
                step that a node could not bring.

        Raises:
            CheckpointError: S3 cannot be read.
            ConnectionError: The record cannot be reached now.
            LeaseLostError: Another node has the lease.
        """
        now = time.monotonic()
        chosen = next_world(
            Gathering(
                leader=self._names.instance,
                at_least=self._spec.at_least,
                at_most=self._spec.at_most,
                ready=self._ready(),
                busy=tuple(each for each, member in self._of_world().items() if not member.ready),
                former=self._former,
                arrived_at=self._arrived_at,
                since=self._since,
            ),
            now=now,
            settle_seconds=self._times.first,
            rejoin_seconds=self._times.rejoin,
        )
        if chosen is None:
            if now - self._since > self._times.rejoin:
                self.publish(world=())
            return None
        step = newest_whole(self._unusable)
        nodes = self._nodes()
        self._lease.write(lambda record: replace(record, nodes=nodes, world=chosen), raises_fence=True)
        hosts = tuple(self._address(each) for each in chosen)
        self.world = world = World(fence=self._lease.fence, hosts=hosts, place=0, step=step)
        self._former, self._lost, self._unusable = chosen, [], None
        for place, instance in enumerate(chosen[1:], start=1):
            member = self._members[instance]
            member.ready, member.has_brought, member.sent, member.end = False, False, None, None
            member.bringing = Bringing(0, time.monotonic())
            begun = {"fence": world.fence, "hosts": hosts, "place": place, "step": step}
            self._server.send({"begin": begun}, to=instance)
        self._tell("world-began", nodes=list(chosen), hosts=len(hosts), step=step, fence=world.fence)
        return world

    def all_have_brought(self) -> bool:
        """Return True once all nodes of the world have its checkpoint. A node that hangs meanwhile is given up."""
        now, stall = time.monotonic(), self._times.stall
        for instance, member in self._of_world().items():
            if not member.has_brought and has_stalled(member.bringing, now=now, stall_seconds=stall):
                why = f"it has brought no more of the checkpoint for {now - member.bringing.since:.1f} s"
                self._server.give_up(instance, why=why)
        return all(member.has_brought for member in self._of_world().values())

    def ending(self, *, has_stepped: bool) -> Ending | None:
        """Return a reason to end the training of this node, which may have completed a step."""
        if not self._lease.is_held:
            return self._end_all("another node has the lease")
        if self.refused is not None:
            return Ending(self.refused, saves=True) if has_stepped else self._end_all(self.refused)
        if self._lost:
            return self._end_all(f"{self._lost[0]} is gone")
        if self._unusable is not None:
            return self._end_all(f"a node cannot bring the checkpoint of step {self._unusable}")
        ended = [each for each in self._of_world().values() if each.end is not None and each.end.kind != DONE]
        if ended and time.monotonic() - self._since > END_SECONDS:
            return self._end_all(f"the training on {ended[0].address} has ended")
        if grows(
            world=self._former,
            ready=self._ready(),
            at_most=self._spec.at_most,
            has_stepped=has_stepped,
            arrived_at=self._arrived_at,
            now=time.monotonic(),
            settle_seconds=self._times.settle,
        ):
            return Ending("more nodes", saves=True)
        return None

    def ended(self, own: NodeEnd, *, seconds_left: Callable[[], float]) -> NodeEnd:
        """Take the end of this node's training. Wait for those of the others, and return that of the world."""
        ends = time.monotonic() + (END_SECONDS if own.kind == DONE else _KILLED_SECONDS)
        if own.kind != DONE:
            self._server.send({"end": self._fence})
        while time.monotonic() < ends and seconds_left() > 0:
            if all(member.end is not None for member in self._of_world().values()):
                break
            time.sleep(PAUSE_SECONDS)
            self.take_in()
        others = {member.address: member.end for member in self._of_world().values() if member.end is not None}
        return end_of_world(own, others, lost=self._lost)

    def unusable(self, step: int) -> None:
        """Note that a node cannot bring a step, because its files in S3 are damaged."""
        if self.world is not None and self.world.step == step:
            self._unusable = step

    def copied(self) -> None:
        """Let the others know that the leader asks for no more files. The world is over."""
        self._server.send({"copied": self._fence})
        self._former = tuple(each for each in self._former if each == self._names.instance or each in self._members)
        self._lost, self._asked = [], None
        self._since = time.monotonic()
        self.world = None

    def ask(self, step: int, folder: str) -> None:
        """Ask the other nodes of the world for their files of a checkpoint."""
        self._asks += 1
        self._asked = self._asks, step
        self._server.send({"send": folder})

    # The record

    def publish(self, *, world: tuple[str, ...] | None = None) -> None:
        """Write the nodes to the record, if they have changed."""
        nodes, record = self._nodes(), self._lease.record
        if record is None or (nodes == record.nodes and world in (None, record.world)):
            return
        self._write(lambda record: replace(record, nodes=nodes, world=record.world if world is None else world))

    def leave(self, *, failure: str | None) -> None:
        """Give the lease back, and end all connections. A person should check a fault where there is a failure."""
        ended = None if self._lease.record is None else over(self._lease.record)
        if ended is not None:
            self._server.send({"over": ended})

        def last(record: FleetRecord) -> FleetRecord:
            record = record if failure is None else count_failure(record, failure, nodes=self._spec.at_most)
            others = tuple(each for each in record.nodes if each.instance != self._names.instance)
            # The next leader waits for these.
            return replace(record, nodes=others, world=tuple(each for each in self._former if each in self._members))

        try:
            self._lease.give_back(last)
        except (LeaseLostError, ConnectionError) as error:
            _logger.warning("the lease is not given back: %s", error)
            self._lease.forget()
        self._server.close()

    def close(self) -> None:
        """End all connections. Another node has the lease."""
        self._lease.forget()
        self._server.close()

    def _write(self, change: Callable[[FleetRecord], FleetRecord]) -> None:
        try:
            self._lease.write(change)
        except (ConnectionError, LeaseLostError) as error:
            _logger.warning("the nodes are not recorded: %s", error)

    # The nodes

    @property
    def _fence(self) -> int:
        return 0 if self.world is None else self.world.fence

    def _ready(self) -> tuple[str, ...]:
        return (self._names.instance, *(each for each, member in self._members.items() if member.ready))

    def _of_world(self) -> dict[str, _Member]:
        return {each: self._members[each] for each in self._former if each in self._members}

    def _address(self, instance: str) -> str:
        return self._names.address if instance == self._names.instance else self._members[instance].address

    def _nodes(self) -> tuple[Node, ...]:
        return tuple(Node(each, self._address(each)) for each in (self._names.instance, *self._members))

    def _end_all(self, why: str) -> Ending:
        self._server.send({"end": self._fence})
        return Ending(why)

    # What has happened

    def take_in(self) -> None:
        """Take in the arrivals, messages and losses."""
        changed = False
        while True:
            try:
                happened = self._server.happened.get_nowait()
            except queue.Empty:
                break
            changed |= not isinstance(happened, Said)
            try:
                self._take(happened)
            except (ValueError, KeyError, TypeError, OverflowError) as error:
                _logger.warning("a message of %s cannot be understood: %s", happened.instance, error)
        if self._asked is not None:
            self._note_sent(self._asked)
        if changed and self.world is not None:
            self.publish()

    def _take(self, happened: Happened) -> None:
        member = self._members.get(happened.instance)
        if isinstance(happened, Joined):
            self._members[happened.instance] = _Member(happened.address)
            self._arrived_at = time.monotonic()
            self._tell("node-joined", instance=happened.instance)
        elif member is None:
            return
        elif isinstance(happened, Lost):
            self._remove(happened.instance, why=f"its connection is over: {happened.why}")
        else:
            self._hear(happened.instance, member, happened.message)

    def _hear(self, instance: str, member: _Member, message: Mapping[str, Any]) -> None:
        if "ready" in message:
            member.ready = True
        elif "brought" in message:
            member.has_brought = message["brought"] == self._fence
        elif "moved" in message:
            if message["of"] == self._fence:
                member.bringing = heard_again(member.bringing, int(message["moved"]), now=time.monotonic())
        elif "unusable" in message:
            self.unusable(int(message["unusable"]))
        elif "sent" in message:
            # The answer to an earlier question may still come.
            if self._asked is not None and self._asked[1] == message["sent"]:
                member.sent = self._asked
        elif "ended" in message:
            given = message["ended"]
            kind = given["kind"] if given["kind"] in (DONE, INTERRUPTED) else FAILED
            member.end = NodeEnd(kind, int(given["code"]), str(given["text"])[:LONGEST_FAILURE])
            self._since = time.monotonic()
        elif "refused" in message:
            self.refused = f"on {member.address}: {message['refused']}"[:LONGEST_FAILURE]
        elif "leaving" in message:
            given = message["leaving"]
            why = str(given["why"])[:LONGEST_FAILURE]
            self._remove(instance, why=why)
            self._note_departure(instance, why, failed=given["failed"] is True, taken=given["taken"] is True)

    def _remove(self, instance: str, *, why: str) -> None:
        member = self._members.pop(instance)
        if self.world is not None and instance in self._former and member.end is None:
            self._lost.append(member.address)
        self._tell("node-left", instance=instance, reason=why)

    def _note_sent(self, asked: tuple[int, int]) -> None:
        """Report once for each question that no node sends more, as each has sent its files or is gone."""
        number, step = asked
        there = self._of_world()
        if number > self._answered and all(member.sent == asked for member in there.values()):
            self._answered = number
            self._on_sent(step, len(there) + 1 < len(self._former))

    def _note_departure(self, instance: str, why: str, *, failed: bool, taken: bool) -> None:
        def change(record: FleetRecord) -> FleetRecord:
            training = record.training
            if taken:
                noticed = (*training.noticed, Departure(instance, time.time()))[-MOST_NOTICED:]
                training = replace(training, interruptions=training.interruptions + 1, noticed=noticed)
            record = replace(record, nodes=self._nodes(), training=training)
            return count_failure(record, why, nodes=self._spec.at_most) if failed else record

        self._write(change)
