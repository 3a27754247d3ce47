"""One node of a run. It becomes the leader or connects to it, and goes from world to world."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from spotkeep.errors import CheckpointError, DamagedCheckpointError, LockLostError
from spotkeep.remote.transfer import TransferCancelledError
from spotkeep_agent.as_user.files import UserFiles
from spotkeep_agent.errors import InputError, LeaseLostError, NodePortError
from spotkeep_agent.training.node_copies import NodeCopies
from spotkeep_agent.volume.machine import end_users_of
from spotkeep_agent.volume.protocol import Leaving, over
from spotkeep_fleet.instance_job import InstanceJob, NodesSpec
from spotkeep_fleet.record import NODES_PORT, FleetRecord

from .connections import LeaderConnection, Lost, NodeNames, StrangerError, is_refused, listening
from .decisions import INTERRUPTED, Bringing, NodeEnd, has_stalled, heard_again
from .following import Following
from .leading import END_SECONDS, PAUSE_SECONDS, Leading, count_failure
from .lease import NodesLease
from .network import interface_of
from .world import Ending, NodesTimes, World

_USERS_SECONDS = 5.0
_LAST_WORD_SECONDS = 10.0
_SOON_SECONDS = 0.5
"""The time between two looks for a leader while the machine of the last one refuses connections."""
_CONFIGURATION = "input/config/resourceconfig.json"

_logger = logging.getLogger("spotkeep.agent")


@dataclass
class _Bringing:
    """The checkpoint that this node brings.

    Attributes:
        fence: The fence of its world.
        before: The bytes that this node had brought of earlier ones.
        heard: The part of this one that is here, as the thread that renews the lease has seen it.
    """

    fence: int
    before: int
    heard: Bringing


class NodesController:
    """This instance's part in a run with nodes.

    Attributes:
        world: The world in which this node trains. None between two worlds.
        over: The reason why there is nothing more to train, or None.
        copies: The checkpoints in S3.

    Args:
        names: The names of this node.
        instance_type: Its type. Example: `g5.xlarge`.
        job: The job of the run's instances.
        lease: The lease and the record.
        new_copies: The function that makes the copies of checkpoints. Its arguments are called with a step and a folder
            of which the other nodes shall send their files, and with the step of which this node has sent them.
        files: The folder of the training on this node's disk, with the rights of the user that trains.
        tell: Called with the name and the fields of each event.
        pause: Waits so many seconds, or less when a notice comes.
        times: The times.
        port: The port of the leader.
    """

    def __init__(
        self,
        names: NodeNames,
        *,
        instance_type: str,
        job: InstanceJob,
        lease: NodesLease,
        new_copies: Callable[[Callable[[int, str], None], Callable[[int], None]], NodeCopies],
        files: UserFiles,
        tell: Callable[..., None],
        pause: Callable[[float], None],
        times: NodesTimes,
        port: int = NODES_PORT,
    ) -> None:
        assert job.nodes is not None  # noqa: S101 - only such a job has nodes
        self.job = job
        self.world: World | None = None
        self.over: str | None = None
        self.copies = new_copies(self._ask, self._note_sent)
        self._spec: NodesSpec = job.nodes
        self._names, self._instance_type = names, instance_type
        self._lease = lease
        self._files = files
        self._tell, self._pause, self._times = tell, pause, times
        self._port = port
        self._look_at: float | None = None
        self._closed_by: str | None = None
        self._silent: str | None = None
        self._leading: Leading | None = None
        self._following: Following | None = None
        self._bringing: _Bringing | None = None

    # What the agent asks of each controller

    @property
    def found_job(self) -> InstanceJob:
        """The job of the run's instances."""
        return self.job

    @property
    def record(self) -> FleetRecord:
        """The record as last seen."""
        assert self._lease.record is not None  # noqa: S101 - asked for after it was read
        return self._lease.record

    @property
    def found_record(self) -> FleetRecord | None:
        """The record as last seen. None before it is read."""
        return self._lease.record

    @property
    def holds_lease(self) -> bool:
        """True when this node is the leader."""
        return self._leading is not None and self._lease.is_held

    @property
    def fence(self) -> int:
        """The fencing token of the world. 0 between two worlds."""
        return 0 if self.world is None else self.world.fence

    def bring(self, *, should_leave: Callable[[], str | None]) -> Leaving | None:
        """Make the folder of the training, end the processes of an earlier agent in it, and record that this one works.

        A run that is over is not brought.
        """
        self._files.base.mkdir(parents=True, exist_ok=True)
        self.end_processes()
        while (why := should_leave()) is None:
            try:
                self.over = over(self._lease.note_boot())
                return None if self.over is None else Leaving(self.over)
            except ConnectionError as error:
                _logger.warning("the record cannot be reached: %s", error)
            except LeaseLostError as error:
                return Leaving(str(error))
            self._pause(self._times.look)
        return Leaving(why)

    def write(self, change: Callable[[FleetRecord], FleetRecord]) -> FleetRecord:
        """Change the record under the lease, and renew the lease.

        Raises:
            LeaseLostError: This node is not the leader.
            ConnectionError: The record cannot be reached now.
        """
        return self._lease.write(change)

    def tend(self) -> bool:
        """Take in what the other nodes say. Return False, since nothing more is to be done beside the training."""
        self._take_in()
        return False

    def leave(
        self, *, why: str, failed: bool = False, taken: bool = False, seconds_left: Callable[[], float]
    ) -> Leaving:
        """Let the other nodes know, and give the lease back.

        Args:
            why: The reason, for people.
            failed: True when a person should check a fault.
            taken: True when EC2 takes this instance.
            seconds_left: Seconds until this machine may be gone, asked again and again.
        """
        if failed and self._leading is None and self._following is None and self.over is None:
            # The record counts the instances that fail before they train.
            ends = time.monotonic() + _LAST_WORD_SECONDS
            try:
                self._find_role(lambda: why if min(seconds_left(), ends - time.monotonic()) <= 0 else None)
            except NodePortError:
                self._count_failure(why)
        if self._following is not None:
            self._following.leave(why=why, failed=failed, taken=taken)
        elif self._leading is not None:
            self._leading.leave(failure=why if failed else None)
        return Leaving(why, failed)

    def _count_failure(self, why: str) -> None:
        """Count in the record that this node failed before it trained. It cannot lead, and no other node does."""
        try:
            if self._lease.take(has_stalled=self._has_stalled):
                self._lease.give_back(lambda record: count_failure(record, why, nodes=self._spec.at_most))
        except (ConnectionError, LeaseLostError) as error:
            _logger.warning("the failure is not recorded: %s", error)
            self._lease.forget()

    def why_over(self) -> str | None:
        """Return why there is nothing more to train, by the leader or the record. None where neither says that."""
        self._take_in()
        if self.over is None:
            try:
                # The leader has written it just now.
                self.over = over(self.record if self.holds_lease else self._lease.read())
            except (ConnectionError, LeaseLostError) as error:
                _logger.warning("the record cannot be read: %s", error)
        return self.over

    # Worlds

    def leads(self, *, should_leave: Callable[[], str | None]) -> bool:
        """Find the leader, or become it. Return True when this node is the leader."""
        self._find_role(should_leave)
        return self._leading is not None

    def refuse(self, failure: str) -> None:
        """Let the leader know that the input works on no node."""
        self.over = "the training has failed"
        if self._following is not None:
            self._following.refuse(failure)

    def begin(self, *, should_leave: Callable[[], str | None]) -> Leaving | World:
        """Wait for the next world of this node, and bring its checkpoint. Return the world, or the reason to leave.

        Args:
            should_leave: Asked again and again for the reason to break off, None to go on.

        Raises:
            InputError: The input works on no node, as another one has found.
            CheckpointError: S3 cannot be read.
            OSError: The disk cannot be written.
            NodePortError: The port for the other nodes cannot be opened.
        """
        while True:
            found = self._next_world(should_leave)
            if isinstance(found, Leaving):
                return found
            self.world = found
            if self._bring(found, should_leave):
                self.copies.start()
                self._write_configuration(found)
                return found
            why = should_leave()
            if why is not None:
                return Leaving(why)
            self._give_up()

    def attend(self, *, has_stepped: bool) -> Ending | None:
        """Return a reason to end the training of this node, which may have completed a step."""
        self._take_in()
        if self._leading is not None:
            return self._leading.ending(has_stepped=has_stepped)
        if self._following is not None and self.world is not None:
            return self._following.ending(self.world)
        return Ending("this node has no leader")

    def ended(self, own: NodeEnd, *, seconds_left: Callable[[], float]) -> NodeEnd:
        """Take the end of this node's training. Return that of the world, which the leader knows."""
        if self._leading is not None:
            return self._leading.ended(own, seconds_left=seconds_left)
        if self._following is not None:
            self._following.ended(own)
        return own

    def finish_copies(self, seconds_left: Callable[[], float], *, exit_code: int | None, goes_on: bool) -> bool:
        """Wait for the copies of a world, up to a limit. The world is over then. Return True when all have arrived.

        Args:
            seconds_left: The function that gives the seconds left, called again and again.
            exit_code: The script's exit code, or None when it was killed.
            goes_on: True when the run goes on.
        """

        def left() -> float:
            self._take_in()
            return seconds_left()

        done = self.copies.finish(left, exit_code=exit_code, goes_on=goes_on)
        if self._leading is not None:
            self._leading.copied()
        self.world = None
        return done

    def end_processes(self) -> None:
        """End the processes that use the folder of the training, other than this one."""
        end_users_of(self._files.base, seconds=_USERS_SECONDS)

    def _next_world(self, should_leave: Callable[[], str | None]) -> World | Leaving:
        is_ready = False
        while True:
            had = self._following
            why = self._find_role(should_leave)
            if why is not None:
                return Leaving(why)
            if self._following is not None and (not is_ready or self._following is not had):
                self._following.ready()
                is_ready = True
            self._take_in()
            if self._leading is not None and self._leading.refused is not None:
                raise InputError(self._leading.refused)
            if self.over is not None:
                return Leaving(self.over)
            world = self._formed() if self._leading is not None else None
            if self._following is not None:
                world, self._following.begun = self._following.begun, None
            if world is not None:
                return world
            self._pause(PAUSE_SECONDS)

    def _formed(self) -> World | None:
        assert self._leading is not None  # noqa: S101 - only the leader forms a world
        try:
            return self._leading.begin(lambda before: self.copies.newest_whole(before=before))
        except (CheckpointError, ConnectionError) as error:
            _logger.warning("no world can begin yet: %s", error)
            self._pause(self._times.look)
        except LeaseLostError as lost:
            self._step_down(str(lost))
        return None

    def _bring(self, world: World, should_leave: Callable[[], str | None]) -> bool:
        """Bring the checkpoint of a world. On the leader, wait until all nodes have it. Return False to give it up."""
        leads = self._leading is not None
        self._bringing = _Bringing(world.fence, self.copies.brought_bytes, Bringing(0, time.monotonic()))
        try:
            self.copies.bring(world.step, nodes=len(world.hosts), leads=leads)
        except DamagedCheckpointError as error:
            _logger.warning("the checkpoint of step %s in S3 cannot be used: %s", world.step, error)
            if world.step is None:
                raise
            for role in (self._leading, self._following):
                if role is not None:
                    role.unusable(world.step)
            return False
        except TransferCancelledError:
            return False
        finally:
            self._bringing = None
        if self._following is not None:
            self._following.brought(world.fence)
            return True
        if self._leading is None:
            return False
        if not self._lease.is_held:
            self._step_down("the lease was lost while the checkpoint was brought")
            return False
        while True:
            # What the others have said meanwhile comes first: one that has brought it long ago does not hang.
            if should_leave() is not None or self.attend(has_stepped=False) is not None:
                return False
            if self._leading.all_have_brought():
                break
            self._pause(PAUSE_SECONDS)
        try:
            self.copies.claim((self.job.attempt, world.fence), step=world.step)
        except LockLostError as lost:
            self._step_down(str(lost))
            return False
        except DamagedCheckpointError as removed:
            _logger.warning("the next world asks for the newest checkpoint again: %s", removed)
            return False
        return True

    def _give_up(self) -> None:
        """Give up a world before this node has trained in it."""
        own = NodeEnd(INTERRUPTED, 0)
        ends = time.monotonic() + END_SECONDS
        self.ended(own, seconds_left=lambda: ends - time.monotonic())
        self.finish_copies(lambda: 0.0, exit_code=None, goes_on=True)

    def _write_configuration(self, world: World) -> None:
        """Write the file in which the runner finds the hosts, as SageMaker does."""
        document = {
            "current_host": self._names.address,
            "hosts": list(world.hosts),
            "current_instance_type": self._instance_type,
            "network_interface_name": interface_of(self._names.address),
        }
        self._files.make_folder(str(Path(_CONFIGURATION).parent))
        self._files.write(_CONFIGURATION, json.dumps(document).encode())

    # The role of this node

    def _find_role(self, should_leave: Callable[[], str | None]) -> str | None:
        """Connect to the leader, or become it. Return the reason to leave."""
        while True:
            why = should_leave()
            if why is not None:
                return why
            if self._leading is not None and not self._lease.is_held:
                self._step_down("another node has the lease")
            if self._leading is not None or self._following is not None or self.over is not None:
                return None
            now = time.monotonic()
            if self._look_at is not None and now < self._look_at:
                self._pause(PAUSE_SECONDS)
                continue
            self._look_at = now + self._times.look
            try:
                self._look()
            except ConnectionError as error:
                _logger.warning("the record cannot be reached: %s", error)
            except LeaseLostError as error:
                return str(error)
            if self._look_at is not None and self._lease.is_refused:
                self._look_at = min(self._look_at, now + _SOON_SECONDS)

    def _look(self) -> None:
        """Look for the leader. Become it where there is none.

        Raises:
            ConnectionError: The record cannot be reached now.
            LeaseLostError: The run has no record any more.
            NodePortError: The port for the other nodes cannot be opened.
        """
        record = self._lease.read()
        self.over = over(record)
        if self.over is not None:
            return
        lease, is_silent = record.lease, False
        if lease is not None and lease.holder == self._silent:
            self._silent = None  # A connection to nothing takes seconds to fail, so EC2 is asked before.
            if self._lease.may_take(holder_is_silent=True):
                self._contend(record)
                return
        if lease is not None and lease.address is not None and lease.holder != self._names.instance:
            try:
                connection = LeaderConnection(
                    self._names,
                    address=lease.address,
                    key=self._spec.key,
                    port=self._port,
                    silent_seconds=self._times.silent,
                    sign_of_life=self._sign_of_life,
                )
            except (OSError, StrangerError) as error:
                _logger.info("the leader %s cannot be reached: %s", lease.holder, error)
                is_silent = True
                is_refused_now = isinstance(error, ConnectionRefusedError)
                self._lease.note_try(refused=is_refused_now and lease.holder == self._closed_by)
            else:
                self._following = Following(
                    connection, on_ask=self.copies.send_own, on_copied=self.copies.leader_is_done
                )
                return
        if self._lease.may_take(holder_is_silent=is_silent):
            self._contend(record)

    def _contend(self, record: FleetRecord) -> None:
        """Take the lease and lead, unless another node is faster.

        The port is open before, so that no node finds a leader that refuses connections.
        """
        with contextlib.ExitStack() as closing:
            listener = closing.enter_context(self._listening())
            if not self._lease.take(has_stalled=self._has_stalled):
                self._look_at = None  # The other writer may be a leader now.
                return
            closing.pop_all()
        self._leading = Leading(
            self._names,
            spec=self._spec,
            lease=self._lease,
            before=record,
            tell=self._tell,
            times=self._times,
            listener=listener,
            on_sent=lambda step, one_is_gone: self.copies.others_have_sent(step, one_is_gone=one_is_gone),
        )

    def _listening(self) -> socket.socket:
        try:
            return listening(self._names.address, port=self._port)
        except OSError as error:
            raise NodePortError(
                f"the other nodes cannot connect, as port {self._port} of {self._names.address} cannot be opened: "
                f"{error}. Let no program of the image listen there"
            ) from error

    def _step_down(self, why: str) -> None:
        leading, self._leading = self._leading, None
        if leading is not None:
            _logger.warning("this node leads no more: %s", why)
            leading.close()
        self.copies.leader_is_done()

    def _take_in(self) -> None:
        if self._leading is not None:
            self._leading.take_in()
            record = self._lease.record
            if self.over is None and self.world is None and record is not None:
                self.over = over(record)
        elif self._following is not None:
            self._following.take_in()
            self.over = self._following.over or self.over
            if self._following.lost is not None:
                self._note_lost(self._following.lost)

    def _note_lost(self, lost: Lost) -> None:
        """Note the loss of the leader. The times after which this node may lead begin while its ranks still end."""
        self._following, self._look_at = None, None
        self._closed_by, self._silent = (lost.instance, None) if lost.is_closed else (None, lost.instance)
        try:
            lease = self._lease.read().lease  # From now on it is seen unchanged, if the leader is gone.
        except (ConnectionError, LeaseLostError) as error:
            _logger.warning("the record cannot be read: %s", error)
            return
        if lease is not None and lease.address is not None and lease.holder == self._closed_by:
            self._lease.note_try(refused=is_refused(lease.address, own=self._names.address, port=self._port))

    # Called in other threads

    def _sign_of_life(self) -> Mapping[str, int]:
        """Return how much of the checkpoint of its world this node has brought. Empty while it brings none."""
        bringing = self._bringing
        return {} if bringing is None else {"of": bringing.fence, "moved": self._moved(bringing)}

    def _moved(self, bringing: _Bringing) -> int:
        return self.copies.brought_bytes - bringing.before

    def _has_stalled(self) -> bool:
        """Return True where this node leads and hangs while it brings a checkpoint. The other nodes get another leader.

        They see that the connections are closed, and that this machine refuses others.
        """
        bringing, leading = self._bringing, self._leading
        if bringing is None or leading is None:
            return False
        now = time.monotonic()
        bringing.heard = heard_again(bringing.heard, self._moved(bringing), now=now)
        if not has_stalled(bringing.heard, now=now, stall_seconds=self._times.stall):
            return False
        since = now - bringing.heard.since
        _logger.warning("this node leads no more: it has brought no more of the checkpoint for %.1f s", since)
        leading.close()
        return True

    def _ask(self, step: int, folder: str) -> None:
        leading = self._leading
        if leading is not None:
            leading.ask(step, folder)

    def _note_sent(self, step: int) -> None:
        following = self._following
        if following is not None:
            following.sent(step)
