"""The runners of a job's hosts, which begin the ranks together and hear how each other's command ends.

torchrun and the libraries of a training let ranks meet and talk. They do not end a rank that waits for one on a host
that is gone, or do so after many minutes. So the runner of each other host keeps a connection to that of the first one,
from before the installation to the end of its command. The runners send a sign of life every few seconds. A connection
that breaks, or is silent for longer, shows that a host is gone.

A message is a line of JSON. A host names itself, says when it is ready, and how it ended. The first host lets all begin
when all are ready, and passes each ending on to all others.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Callable

from spotkeep.errors import HostMeetingError, JobError
from spotkeep.notices.notice import EXIT_INTERRUPTED
from spotkeep_fleet.training_spec import HOST_LOST, NOT_STARTED

from .failure import lost_its_peers
from .json_lines import JsonLines
from .supervision import start_thread

DONE, INTERRUPTED, FAILED, ENDED, LOST = "done", "interrupted", "failed", "ended", "lost"
"""The kinds of an ending. `ended` is a command that its runner ended because of another host."""
MOST_SECONDS_FOR_HOSTS = 1_800.0
"""So long a host waits for the others. Their installation and setup may take longer than its own."""
SILENT_SECONDS = 60.0
"""A host that is silent for longer is gone."""
_BEAT_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_SEND_SECONDS = 5.0
_PAUSE_SECONDS = 0.5
_MOST_TEXT = 1024


@dataclass(frozen=True)
class HostEnding:
    """The end of a host's command.

    Attributes:
        host: The name of the host. Example: `algo-2`.
        kind: One of `done`, `interrupted`, `failed`, `ended` and `lost`.
        code: The exit code of the command.
        text: The reason of a failure.
    """

    host: str
    kind: str
    code: int = 0
    text: str = ""


def verdict(own: HostEnding, others: Iterable[HostEnding]) -> HostEnding:
    """Give the ending of this host, with those of the others known. Pure.

    A command that is done or left on a notice has ended of its own accord. One that fails after another host was taken
    fails because of that, and so the job is interrupted. Of several failures the reason is the first one that is more
    than a connection to a rank that has failed. This host's own goes before the others'.

    Args:
        own: The end of this host's command.
        others: The known ends of the others, in the order in which they became known.
    """
    if own.kind in (DONE, INTERRUPTED):
        return own
    known = tuple(others)
    gone = next((each for each in known if each.kind == LOST), None)
    if gone is not None:
        text = f"{HOST_LOST}{gone.host} is gone, and the ranks of {own.host} were ended. The run goes on from its "
        return HostEnding(own.host, INTERRUPTED, EXIT_INTERRUPTED, f"{text}last checkpoint")
    if any(each.kind == INTERRUPTED for each in known):
        return HostEnding(own.host, INTERRUPTED, EXIT_INTERRUPTED)
    failed = [each for each in (own, *known) if each.kind == FAILED]
    cause = next((each for each in failed if not lost_its_peers(each.text)), failed[0] if failed else own)
    if cause is own:
        return HostEnding(own.host, FAILED, own.code or 1, own.text)
    begun = "" if not cause.text.startswith(NOT_STARTED) else NOT_STARTED
    return HostEnding(own.host, FAILED, cause.code or 1, f"{begun}on {cause.host}: {cause.text[len(begun) :]}")


class _Peer(JsonLines):
    """The connection to another host.

    Attributes:
        host: Its name. None until it has named itself.
        is_ready: True once it has said that its command may begin.
    """

    def __init__(self, connection: socket.socket, *, host: str | None = None) -> None:
        super().__init__(connection)
        self.host = host
        self.is_ready = False


class OtherHosts:
    """The other hosts of a job. Use it as a context manager, which connects the hosts in a thread of its own.

    Args:
        hosts: The names of all hosts. The first one is where the others connect.
        current_host: The name of this one.
        job: The name of the job. A host of another job is refused.
        address: The address of the first host.
        port: The port there.
        on_ending: Called in the thread with each ending of another host, as it becomes known.
        silent_seconds: A host that is silent for longer is gone.
        beat_seconds: The time between two signs of life.
    """

    def __init__(
        self,
        *,
        hosts: Sequence[str],
        current_host: str,
        job: str,
        address: str,
        port: int,
        on_ending: Callable[[HostEnding], None],
        silent_seconds: float = SILENT_SECONDS,
        beat_seconds: float = _BEAT_SECONDS,
    ) -> None:
        self._others = tuple(host for host in hosts if host != current_host)
        self._first, self._own = hosts[0], current_host
        self._job = job
        self._place = (address, port)
        self._on_ending = on_ending
        self._silent_seconds, self._beat_seconds = silent_seconds, beat_seconds
        self._endings: dict[str, HostEnding] = {}
        self._peers: list[_Peer] = []
        self._absent: set[str] = set()
        self._said: HostEnding | None = None
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._is_ready = self._all_are_there = self._is_over = False
        self._error: OSError | None = None
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> OtherHosts:
        self._thread = start_thread(self._work, name="hosts")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join()

    @property
    def endings(self) -> tuple[HostEnding, ...]:
        """The known endings of the others, in the order in which they became known."""
        with self._lock:
            return tuple(self._endings.values())

    def wait_until_all_are_there(
        self, *, is_over: Callable[[], bool], most_seconds: float = MOST_SECONDS_FOR_HOSTS
    ) -> None:
        """Say that this host is ready for its command, and wait until each host is, or one of them has ended before.

        Args:
            is_over: Gives True once there is no need to wait any more, because a notice has come.
            most_seconds: The longest wait, in seconds.

        Raises:
            HostMeetingError: A host does not come in time.
            JobError: This host cannot listen for the others.
        """
        deadline = time.monotonic() + most_seconds
        with self._changed:
            self._is_ready = True
            self._send_all({"ready": True})
            self._begin_if_all_are_ready()
        while not is_over():
            with self._changed:
                if self._all_are_there or self._endings:
                    return
                if self._error is not None:
                    raise JobError(
                        f"the other hosts of this job cannot connect: port {self._place[1]} of this host cannot be "
                        f"opened: {self._error}. Let no program of the image listen there"
                    )
                if time.monotonic() >= deadline:
                    place = ":".join(map(str, self._place))
                    if self._own == self._first:
                        self._absent = {*self._others} - {peer.host for peer in self._peers}
                    raise HostMeetingError(self._missing(), place=place, seconds=most_seconds)
                self._changed.wait(_LOOK_SECONDS)

    def say(self, ending: HostEnding, *, most_seconds: float) -> None:
        """Let the others know how the command of this host has ended. A host that has not connected yet is waited for.

        Args:
            ending: The end of this host's command.
            most_seconds: The longest wait, in seconds.
        """
        deadline = time.monotonic() + most_seconds
        with self._changed:
            self._said = HostEnding(ending.host, ending.kind, ending.code, ending.text[:_MOST_TEXT])
            self._send_all({"ending": asdict(self._said)})
            heard_by = {*self._others} if self._own == self._first else {self._first}
            self._wait(lambda: heard_by <= {*self._known()} | {peer.host for peer in self._peers}, until=deadline)

    def wait_for_all_endings(self, *, most_seconds: float) -> None:
        """Wait until the ends of all other commands are known, or can be known no more."""
        deadline = time.monotonic() + most_seconds
        with self._changed:
            self._wait(lambda: {*self._others} <= {*self._known()}, until=deadline)

    def _known(self) -> list[str]:
        """Give the hosts that have ended, or did not come."""
        return [*self._endings, *self._absent]

    def _wait(self, is_so: Callable[[], bool], *, until: float) -> None:
        while not is_so() and not self._is_over and time.monotonic() < until:
            self._changed.wait(_LOOK_SECONDS)

    def _missing(self) -> list[str]:
        """Give the hosts that are not ready. The first one alone knows all of them."""
        ready = {peer.host for peer in self._peers if peer.is_ready}
        if self._own != self._first and not ready:
            return [self._first]
        return [host for host in self._others if host not in ready]

    def _begin_if_all_are_ready(self) -> None:
        if self._own == self._first and self._is_ready and not self._missing():
            self._all_are_there = True
            self._send_all({"begin": True})
            self._changed.notify_all()

    def _work(self) -> None:
        try:
            if self._own == self._first:
                if (listener := self._listening()) is not None:
                    with listener:
                        self._exchange(listener)
            elif (connection := self._connection()) is not None:
                peer = _Peer(connection, host=self._first)
                with self._lock:
                    peer.send({"host": self._own, "job": self._job})
                    self._peers.append(peer)
                    self._send_what_is_known(peer)
                self._exchange(None)
        except OSError as error:
            self._error = error
        finally:
            for peer in self._peers:
                peer.close()
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _listening(self) -> socket.socket | None:
        """Listen for the others once the name of this host resolves. None where this one does not wait any more."""
        address, port = self._place
        while not self._stopping.is_set():
            with contextlib.suppress(socket.gaierror, UnicodeError):
                socket.getaddrinfo(address, port)
                try:
                    return socket.create_server((address, port), backlog=len(self._others))
                except OSError:
                    # The name of this host may stand for an address that only others see.
                    return socket.create_server(("", port), backlog=len(self._others))
            self._stopping.wait(_PAUSE_SECONDS)
        return None

    def _connection(self) -> socket.socket | None:
        """Connect to the first host. None where this one does not wait any more."""
        while not self._stopping.is_set():
            with contextlib.suppress(OSError, UnicodeError):
                return socket.create_connection(self._place, timeout=_SEND_SECONDS)
            self._stopping.wait(_PAUSE_SECONDS)
        return None

    def _exchange(self, listener: socket.socket | None) -> None:
        sent_at = time.monotonic()
        with selectors.DefaultSelector() as selector:
            if listener is not None:
                selector.register(listener, selectors.EVENT_READ)
            for peer in self._peers:
                selector.register(peer.connection, selectors.EVENT_READ, peer)
            while not self._stopping.is_set() and (listener is not None or self._peers):
                for key, _ in selector.select(min(_LOOK_SECONDS, self._beat_seconds)):
                    if key.data is None and listener is not None:
                        self._accept(listener, selector)
                    else:
                        self._read(key.data, selector)
                now = time.monotonic()
                for peer in [each for each in self._peers if now - each.heard_at > self._silent_seconds]:
                    self._drop(peer, selector)
                if now - sent_at >= self._beat_seconds:
                    sent_at = now
                    with self._lock:
                        self._send_all({})

    def _accept(self, listener: socket.socket, selector: selectors.BaseSelector) -> None:
        with contextlib.suppress(OSError):
            peer = _Peer(listener.accept()[0])
            selector.register(peer.connection, selectors.EVENT_READ, peer)
            with self._lock:
                self._peers.append(peer)

    def _read(self, peer: _Peer, selector: selectors.BaseSelector) -> None:
        try:
            for message in peer.messages():
                self._take(peer, message)
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            self._drop(peer, selector)

    def _take(self, peer: _Peer, message: Mapping[str, Any]) -> None:
        """Take a message.

        Raises:
            ValueError, KeyError, TypeError, OverflowError: It is none of a host of this job.
        """
        if peer.host is None:
            known = {each.host for each in self._peers}
            if message["job"] != self._job or message["host"] not in self._others or message["host"] in known:
                raise ValueError("it is no other host of this job")
            with self._changed:
                peer.host = message["host"]
                self._send_what_is_known(peer)
        elif message.get("ready"):
            with self._changed:
                peer.is_ready = True
                self._begin_if_all_are_ready()
        elif message.get("begin"):
            with self._changed:
                self._all_are_there = True
                self._changed.notify_all()
        elif "ending" in message:
            given = message["ending"]
            ending = HostEnding(str(given["host"]), str(given["kind"]), int(given["code"]), str(given["text"]))
            if self._own == self._first and ending.host != peer.host:
                raise ValueError("it speaks for another host")
            self._note(ending)

    def _send_what_is_known(self, peer: _Peer) -> None:
        """Send a host that has come what the others have heard already."""
        if self._is_ready:
            peer.send({"ready": True})
        endings = [*self._endings.values()] if self._own == self._first else []
        for ending in [*([] if self._said is None else [self._said]), *endings]:
            peer.send({"ending": asdict(ending)})

    def _drop(self, peer: _Peer, selector: selectors.BaseSelector) -> None:
        """Take a connection away that is over. Its host is lost, unless it has said how its command ended."""
        selector.unregister(peer.connection)
        with self._lock:
            self._peers.remove(peer)
            peer.connection.close()
        if peer.host is not None and not self._stopping.is_set():
            self._note(HostEnding(peer.host, LOST))

    def _note(self, ending: HostEnding) -> None:
        """Call, note the end of another host's command, and pass it on. The first one of a host counts.

        A host that waits for the others goes on once it knows an ending. By then it has been called, so it starts no
        command.
        """
        if ending.host in self._endings or ending.host not in self._others:
            return
        self._on_ending(ending)
        with self._changed:
            self._endings[ending.host] = ending
            if self._own == self._first:
                self._send_all({"ending": asdict(ending)}, besides=ending.host)
            self._changed.notify_all()

    def _send_all(self, message: Mapping[str, Any], *, besides: str | None = None) -> None:
        for peer in self._peers:
            if peer.host is not None and peer.host != besides:
                peer.send(message)
